# SPDX-License-Identifier: Apache-2.0

"""A search for the antagonist among suspects, one :mod:`.experiment` after
the other: the likeliest first, groups in halves."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution import experiment
from scavenger_openstack.algorithms.attribution.experiment import Experiment
from scavenger_openstack.algorithms.attribution.experiment import Suspect
from scavenger_openstack.algorithms.attribution.use import KNOB_TO_LIMIT
from scavenger_openstack.algorithms.attribution.use import limits_of
from scavenger_openstack.algorithms.attribution.use import OBEYED
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.types import Rates
from scavenger_openstack.types import WorkloadRates

MOST_EXPERIMENTS = 6
"""Of one search; its chance is for all of them together."""


class Finding(NamedTuple):
    """The suspect that disturbs, and what the experiment with it has shown."""

    name: str
    result: experiment.Result


class Search:
    """The search for the antagonists of one group, by one signal.

    :param means: of the signal, by victim
    :param suspects: those that are looked among
    :param groups: of them, in the order in which they are tried
    :param max_chance: that any innocent is found
    :param pay: whether one more workload may be limited; it is counted then
    :param seed: the orders of turns follow from it
    """

    def __init__(self, signal: str, means: Mapping[str, float],
                 suspects: Mapping[str, Suspect],
                 groups: Sequence[Sequence[str]], max_chance: float,
                 turn_s: float, pay: Callable[[], bool], seed: str) -> None:
        self.signal, self.knob = signal, KNOB_TO_LIMIT[signal]
        self.means = dict(means)
        self._suspects = dict(suspects)
        self.groups = [list(group) for group in groups]
        self._max_chance = max_chance / MOST_EXPERIMENTS
        self._turn_s, self._pay, self._seed = turn_s, pay, seed
        self._done = 0
        self._experiment: Experiment | None = None
        self._guilty: list[str] = []
        self.finding: Finding | None = None
        self.unheld: set[str] = set()
        self.judged = False
        self._unjudged: list[str] = []
        self._next()

    @property
    def names(self) -> list[str]:
        """The suspects of the experiment that goes on."""
        return list(self._experiment.suspects) if self._experiment else []

    @property
    def free(self) -> float | None:
        """The victims' signal, as a part of what it was before, in the latest
        turns without limits; ``None`` where that is not known."""
        return self._experiment.free if self._experiment else None

    @property
    def waits(self) -> bool:
        """Whether the suspects rest: nothing is limited until they work."""
        return self._experiment is not None and self._experiment.waits

    @property
    def over(self) -> bool:
        return self._experiment is None

    @property
    def left(self) -> list[list[str]]:
        """What is still to be tried: what looked guilty comes first, what
        rested when it was tried comes last."""
        return [group for group in (
            self.names or self._guilty, *self.groups,
            *([name] for name in self._unjudged)) if group]

    def forget(self, names: Collection[str]) -> None:
        """Forget what was measured of these: they are other workloads now."""
        for name in names:
            self._suspects.pop(name, None)
        broken = not set(names).isdisjoint(self.names)
        # The others of the experiment are not cleared by that.
        groups = [self.names, *self.groups] if broken else self.groups
        self.groups = [kept for group in groups if (
            kept := [name for name in group if name in self._suspects])]
        if broken:
            self._experiment = None
            self._next()

    def step(self, now: float, rates: Rates) -> dict[str, float]:
        """Take a tick; the limits that are to be in force now."""
        by_name = {rate.workload.id: rate for rate in rates.workloads}
        while self._experiment is not None:
            limits = {name: self._limit(name, by_name[name])
                      for name in self.names if name in by_name}
            if self._experiment.step(
                    now, self._level(by_name), self._uses(by_name),
                    {name: OBEYED * limit * limits_of(
                        self.knob, by_name[name].workload)
                     for name, limit in limits.items()}):
                return limits if self._experiment.limits else {}
            self._conclude(self._experiment)
        return {}

    def _next(self) -> None:
        """Begin with the next group, as far as it may be limited."""
        while self._experiment is None and self.groups and (
                self._done < MOST_EXPERIMENTS):
            group = self.groups.pop(0)
            names = [name for name in group if self._pay()]
            if not names:
                self.groups.insert(0, group)
                return
            if rest := [name for name in group if name not in names]:
                self.groups.insert(0, rest)
            self._experiment = Experiment(
                {name: self._suspects[name] for name in names},
                self._turn_s, f'{self._seed} {self._done}')
            self._done += 1

    def _conclude(self, done: Experiment) -> None:
        """Go on by what an experiment has shown."""
        names = list(done.suspects)
        self._experiment = None
        unheld, idle = done.unheld(), done.idle()
        self.unheld |= unheld
        result = done.result()
        broken = unheld | idle
        self.judged |= result is not None and not broken
        if broken or result is None:
            # Of the others nothing is known yet.
            self._unjudged += sorted((idle or set(names)) - unheld)
            if kept := [name for name in names if name not in broken]:
                if broken:
                    self.groups.insert(0, kept)
        elif result.chance <= self._max_chance:
            if len(names) == 1:
                self.finding = Finding(names[0], result)
                self.groups = []
            else:
                self._guilty = names
                self.groups = experiment.halves(
                    {name: suspect.weight for name, suspect
                     in self._suspects.items()}, names)
        self._next()

    def _limit(self, name: str, rates: WorkloadRates) -> float:
        """Return what a suspect may use for a turn, in the unit of the
        knob."""
        workload = rates.workload
        return max((1 - experiment.CUT) * self._suspects[name].use
                   / limits_of(self.knob, workload),
                   workload.floor.get(self.knob, 0.0))

    def _uses(self, rates: Mapping[str, WorkloadRates]) -> dict[str, float]:
        return {name: used for name in self.names if name in rates
                and (used := SIGNALS[self.signal].use(
                    rates[name])) is not None}

    def _level(self, rates: Mapping[str, WorkloadRates]) -> float | None:
        """The signal, as a part of what it was before; its mean over the
        victims."""
        levels = [level / self.means[name] for name in self.means
                  if name in rates
                  and (level := level_of(self.signal, rates[name]))
                  is not None]
        return sum(levels) / len(levels) if levels else None


def level_of(signal: str, rates: WorkloadRates) -> float | None:
    """A signal in one tick; ``run_delay`` as a share of runnable time."""
    value = SIGNALS[signal].value(rates)
    if value is None or not math.isfinite(value):
        return None
    return value / (1 + value) if signal == 'run_delay' else value
