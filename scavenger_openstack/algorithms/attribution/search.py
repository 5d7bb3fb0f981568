# SPDX-License-Identifier: Apache-2.0

"""A search among suspects, one :mod:`.experiment` after the other.

The likeliest come first, groups in halves; what is cleared rests.  A victim
can feign to suffer, so a search is paid for as a new limit is, and the next
for the same victims comes later each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution import experiment
from scavenger_openstack.algorithms.attribution.experiment import Experiment
from scavenger_openstack.algorithms.attribution import use as use_
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

class Suspect(NamedTuple):
    """What it uses, in the unit of the knob, and how likely it is it."""

    workload: Workload
    use: float
    weight: float


class Result(NamedTuple):
    """What one suspect does: the signal without and with a limit on it, and
    the chance that an innocent seems so guilty."""

    name: str
    free: float
    limited: float
    chance: float


class Search:
    """For the victims of one group, by one signal.

    :param means: of the signal, by victim
    :param seed: the order of turns follows from it
    """

    def __init__(self, signal: str, knob: Knob,
                 means: Mapping[str, float],
                 suspects: Mapping[str, Suspect], max_chance: float,
                 turn_s: float, seed: str) -> None:
        self.signal, self.knob = signal, knob
        self.means = dict(means)
        self.suspects = dict(suspects)
        self._max_chance = max_chance / experiment.MOST_EXPERIMENTS
        self._turn_s, self._seed = turn_s, seed
        self._done = 0
        self._groups = experiment.halves(
            {name: one.weight for name, one in suspects.items()})
        self._turn: int | None = None
        self.result: Result | None = None
        self.broken = False
        self._next()

    @property
    def names(self) -> Sequence[str]:
        """The suspects of the experiment that goes on."""
        return list(self._experiment.uses) if self._experiment else []

    def step(self, now: float, rates: Rates) -> dict[str, float]:
        """Take a tick; the limits that are to be in force now.

        Over when there is no experiment any more (:attr:`over`).
        """
        by_name = {one.workload.id: one for one in rates.workloads}
        while self._experiment is not None:
            if self._turn is not None:
                self._experiment.add(self._turn, self._level(by_name),
                                     self._uses(by_name), self._held(by_name))
            self._turn = self._experiment.turn(now)
            if self._turn is not None and not self._experiment.broken:
                return self._limits(
                    ) if self._experiment.limits(self._turn) else {}
            self._conclude(self._experiment)
        return {}

    @property
    def over(self) -> bool:
        return self._experiment is None

    def _next(self) -> None:
        self._experiment: Experiment | None = None
        self._turn = None
        if self._groups and self._done < experiment.MOST_EXPERIMENTS:
            names = self._groups.pop(0)
            self._experiment = Experiment(
                {name: self.suspects[name].use for name in names},
                self._turn_s, f'{self._seed} {self._done}')
            self._done += 1

    def _conclude(self, done: Experiment) -> None:
        found = done.result()
        self.broken |= found is None
        names = list(done.uses)
        if found is not None and found[2] <= self._max_chance:
            if len(names) == 1:
                self.result = Result(names[0], *found)
                self._groups = []
            else:
                self._groups = experiment.halves(
                    {name: self.suspects[name].weight for name in names})
        elif found is None:
            self._groups = []
        self._next()

    def _limits(self) -> dict[str, float]:
        return {name: self._limit(name) for name in self.names}

    def _limit(self, name: str) -> float:
        one = self.suspects[name]
        return max((1 - experiment.CUT) * one.use,
                   one.workload.floor.get(self.knob, 0.0))

    def _held(self, rates: Mapping[str, WorkloadRates]) -> float:
        return use_.OBEYED * sum([use_.held_to(
            self.knob, self._limit(name), self.suspects[name].workload)
            for name in self.names if name in rates])

    def _uses(self, rates: Mapping[str, WorkloadRates]) -> dict[str, float]:
        return {name: used for name in self.names if name in rates
                and (used := SIGNALS[self.signal].use(
                    rates[name])) is not None}

    def _level(self, rates: Mapping[str, WorkloadRates]) -> float | None:
        """The signal, as a part of what it was before; its mean over the
        victims."""
        levels = [level / self.means[name] for name in self.means
                  if name in rates and (level := SIGNALS[self.signal].value(
                      rates[name])) is not None]
        return sum(levels) / len(levels) if levels else None
