# SPDX-License-Identifier: Apache-2.0

"""What a group of victims suffers, by what is usual or what was before.

None of the constants is in a paper unless it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.analysis import RECENT
from scavenger_openstack.algorithms.attribution.analysis import Thresholds
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution.disturbance import above
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import SHARES
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms import best_waits
from scavenger_openstack.algorithms.best_waits import BestWaits
from scavenger_openstack.algorithms.cpi2 import specs as specs_
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.types import Priority

DEVIATIONS = 2.0
"""Above the mean of its application from which a victim suffers: CPI2,
section 4.1."""

Pair = tuple[VictimGroup, str]
"""A group and its signal."""


class Harm(NamedTuple):
    """By how much more than undisturbed a group suffers of a signal, and the
    level of each member; ``changed``: it was better before."""

    pair: Pair
    effect: float
    levels: Mapping[str, float]
    changed: bool

    @property
    def raised(self) -> float:
        """The pooled signal now."""
        return direct.pooled(self.pair[1], self.levels, self.levels)

    @property
    def base(self) -> float:
        """The pooled signal undisturbed."""
        return (self.raised - self.effect if self.pair[1] in SHARES
                else self.raised / (1 + self.effect))

    def disturbance(self, now: float, least: float, base: float
                    ) -> Disturbance:
        """Of nothing that is named yet.

        :param least: the effect from which it suffers
        :param base: the pooled signal without what disturbs
        """
        group, signal = self.pair
        return Disturbance(
            group, signal, now, self.levels, base, least,
            direct.NOISE * self.raised,
            cause=direct.CAUSES.get(signal, 'unknown'),
            members={name: above(signal, base / self.raised * level, least)
                     for name, level in self.levels.items()},
            raised=self.raised)


def harms(groups: Mapping[VictimGroup, Sequence[str]], history: History,
          limits: Thresholds, specs: specs_.Specs, cpu_model: str,
          best: BestWaits) -> list[Harm]:
    """What each group suffers."""
    samples = list(history.samples)[-RECENT:]
    suffered = []
    for group, members in groups.items():
        for signal in SIGNALS:
            levels = {name: level for name in members if (
                level := direct.mean_level(name, signal, samples)) is not None}
            least = limits.min_effect[signal]
            effects: list[float] = []
            changed = False
            for name, level in levels.items():
                low = _low(name, signal, history)
                usual = _usual(signal, samples[-1][name], specs, cpu_model)
                base = low if usual is None else usual
                if usual is None and signal == best_waits.SIGNAL:
                    of_the_day = best.of(samples[-1][name].workload)
                    base = low if of_the_day is None else of_the_day
                if base is not None:
                    effects.append(effect(signal, base, level))
                changed |= (low is not None
                            and effect(signal, low, level) >= least)
            if effects and sum(effects) / len(effects) >= least:
                suffered.append(Harm(
                    (group, signal), sum(effects) / len(effects), levels,
                    changed))
    return suffered


def learn_best_waits(now: float, history: History, best: BestWaits
                     ) -> None:
    """Note what the foreground waits for disks at its best."""
    for name, point in history.samples[-1].items():
        if point.workload.priority is Priority.FOREGROUND:
            low = _low(name, best_waits.SIGNAL, history)
            if low is not None:
                best.learn(now, point.workload, low)


def _usual(signal: str, point: Point, specs: specs_.Specs, cpu_model: str
           ) -> float | None:
    """The signal undisturbed, whatever was before here; ``None`` where that
    is not known."""
    workload = point.workload
    if signal == 'run_delay':
        return 0.0
    if not workload.application:
        return None
    spec = specs.get(specs_.key(
        workload.project, workload.application, cpu_model, signal))
    return None if spec is None else spec.mean + DEVIATIONS * spec.stddev


def _low(name: str, signal: str, history: History) -> float | None:
    """What the signal was at its best; ``None`` where little is known."""
    levels = [level for level in history.levels(name, signal)
              if level is not None]
    return (None if len(levels) < explanation.MIN_SAMPLES
            else evidence.low_and_high(levels)[0])
