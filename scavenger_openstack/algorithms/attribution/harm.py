# SPDX-License-Identifier: Apache-2.0

"""What a group of victims suffers, by what is usual or what was before; of
what evidence is to be gathered, and what that of a cache tells.

None of the constants is in a paper unless it says so.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.analysis import RECENT
from scavenger_openstack.algorithms.attribution.analysis import Thresholds
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution.disturbance import above
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import LEAST_HELD
from scavenger_openstack.algorithms.attribution.disturbance import Pair
from scavenger_openstack.algorithms.attribution.disturbance import SHARES
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms import best_waits
from scavenger_openstack.algorithms.best_waits import BestWaits
from scavenger_openstack.algorithms.cpi2 import specs as cpi_specs
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.algorithms.signals import LINK_FULL
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.algorithms.signals import MEMORY_WAIT
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource

LEAST_MEMORY = 0.1
"""Part of the host's memory: while more is available none waits for it."""

DOMINANT = 0.5
"""Part of the misses of others that those have which are named for a cache:
what they do to others depends on what these keep there, so it has to be
plain."""

EACH_DOMINANT = 0.25
"""Part of all misses that each of them has."""

LEAST_DISK_SHARE = 0.2
"""Share of what a disk does for others from which it is asked who it is; and
of a victim's time that it waits for one."""

DEVIATIONS = 2.0
"""Above the mean of its application from which a victim suffers: CPI2,
section 4.1."""


class Harm(NamedTuple):
    """By how much more than undisturbed a group suffers of a signal, and the
    level of each member; ``changed``: it was better before; ``specified``: it
    is worse off than its application elsewhere."""

    pair: Pair
    effect: float
    levels: Mapping[str, float]
    changed: bool
    specified: bool = False

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
          limits: Thresholds, specs: cpi_specs.Specs, cpu_model: str,
          best: BestWaits) -> list[Harm]:
    """Return what each group suffers."""
    samples = list(history.samples)[-RECENT:]
    suffered = []
    for group, members in groups.items():
        for signal in SIGNALS:
            levels = {name: level for name in members if (
                level := direct.mean_level(name, signal, samples)) is not None}
            least = limits.min_effect[signal]
            effects: list[float] = []
            changed = specified = False
            for name, level in levels.items():
                low = _low(name, signal, history)
                usual = _usual(signal, samples[-1][name], specs, cpu_model)
                base = low if usual is None else usual
                if usual is None and signal == best_waits.SIGNAL:
                    of_the_day = best.of(samples[-1][name].workload)
                    base = low if of_the_day is None else of_the_day
                if base is not None:
                    effects.append(effect(signal, base, level))
                specified |= usual is not None
                changed |= (low is not None
                            and effect(signal, low, level) >= least)
            if effects and sum(effects) / len(effects) >= least:
                suffered.append(Harm(
                    (group, signal), sum(effects) / len(effects), levels,
                    changed, specified))
    return suffered


def learn_best_waits(now: float, history: History, best: BestWaits
                     ) -> None:
    """Note what the foreground waits for disks at its best."""
    for name, point in history.samples[-1].items():
        if point.workload.priority is Priority.FOREGROUND:
            low = _low(name, best_waits.SIGNAL, history)
            if low is not None:
                best.learn(now, point.workload, low)


def _usual(signal: str, point: Point, specs: cpi_specs.Specs, cpu_model: str
           ) -> float | None:
    """The signal undisturbed, whatever was before here; ``None`` where that
    is not known."""
    workload = point.workload
    if signal == 'run_delay':
        return 0.0
    if not workload.application:
        return None
    spec = specs.get(cpi_specs.key(
        workload.project, workload.application, cpu_model, signal))
    return None if spec is None else spec.mean + DEVIATIONS * spec.stddev


def _low(name: str, signal: str, history: History) -> float | None:
    """Return the signal at its best; ``None`` where little is known."""
    levels = [level for level in history.levels(name, signal)
              if level is not None]
    return (None if len(levels) < explanation.MIN_SAMPLES
            else evidence.low_and_high(levels)[0])


def wanted(history: History, rates: Rates, limits: Thresholds,
           harmed: Collection[tuple[str, str]]) -> dict[Ask, float]:
    """What evidence would be of use now, of the worst victims first, and how
    much each suffers.

    Of what waits for CPUs for more than ``min_effect`` of its runnable time,
    whatever was before; of what waits for a disk that others use, for much
    of its time, or for longer than undisturbed: what the host's own threads
    write for others shows in no other's use; of what sends over a full link,
    of all while memory is short, and of what takes more cycles per
    instruction than it should.

    :param harmed: what is worse than undisturbed, and its signal
    """
    samples = list(history.samples)[-RECENT:]
    waiting: list[tuple[float, float, Ask]] = []
    if not samples:
        return {}
    total, available = (rates.memory_total_bytes,
                        rates.memory_available_bytes)
    short = (total is not None and available is not None
             and available < LEAST_MEMORY * total)
    for name, point in samples[-1].items():
        if point.workload.priority is not Priority.FOREGROUND:
            continue
        level = direct.mean_level(name, 'run_delay', samples)
        if level is not None and level >= limits.min_effect['run_delay']:
            waiting.append((level, level, (name, Resource.CPU)))
        wait_s = direct.mean_level(name, 'io_wait', samples)
        if wait_s is not None:
            share = _disk_share(name, samples[-1], rates.topology)
            if len(samples[-1]) > 1 and (
                    (name, best_waits.SIGNAL) in harmed or wait_s * (
                        point.io_ops_per_s or 0.0) >= LEAST_DISK_SHARE):
                share = max(share, LEAST_DISK_SHARE)
            if share >= LEAST_DISK_SHARE:
                waiting.append((share, wait_s, (name, Resource.DISK)))
        used = direct.mean_level(name, LINK_USE, samples)
        if used is not None and used >= LINK_FULL:
            waiting.append((used, used, (name, Resource.NETWORK)))
        cpi = direct.mean_level(name, 'cpi', samples)
        if cpi is not None and (name, 'cpi') in harmed:
            waiting.append((limits.min_effect['cpi'], cpi,
                            (name, Resource.CACHE)))
        if short:
            waiting.append((0.0, direct.mean_level(name, MEMORY_WAIT, samples)
                            or 0.0, (name, Resource.MEMORY)))
    return {ask: level for _, level, ask in sorted(
        waiting, key=lambda item: (-item[0], item[2]))}


def _disk_share(name: str, sample: Points, topology: Mapping[int, Cpu]
                ) -> float:
    """What others use of the disks of a workload, as a share of all use."""
    victim = sample[name].workload
    own = sample[name].disk or 0.0
    others = sum([point.disk or 0.0 for other, point in sample.items()
                  if other != name and sharing.share(
                      'io_wait', victim, point.workload, topology)])
    return others / (own + others) if others > 0 else 0.0


def least_share(signal: str, members: Sequence[str],
                samples: Sequence[Points], least: float) -> float:
    """The share of what a group waits now from which one is named for it.

    :param samples: the newest last
    :param least: the effect from which the group suffers
    """
    by = direct.EACH * least
    if signal not in SHARES:
        return by / (1 + by)
    levels = [level for name in members if (level := direct.mean_level(
        name, signal, samples[-RECENT:])) is not None]
    raised = sum(levels) / len(levels) if levels else 0.0
    return min(1.0, by / raised) if raised > 0 else 1.0


def of_cache(now: float, harm: Harm, holders: direct.Holders, history: History,
             limits: Thresholds) -> Disturbance | None:
    """What those do to a group that miss in its cache most; ``None`` where
    it is not plain that these do.

    A victim that is not worse off than its application elsewhere has to be
    worse off whenever they miss more.
    """
    samples = list(history.samples)
    rank = [item for item in direct.rank_of(holders.shares)
            if item[0] in samples[-1]]
    named: dict[str, float] = {}
    for name, share in rank:
        misses = [point.misses_per_s for sample in samples[-RECENT:]
                  if (point := sample.get(name)) is not None
                  and point.misses_per_s is not None]
        if (share >= max(EACH_DOMINANT, holders.own,
                         explanation.ALIKE_SHARE * rank[0][1])
                and holders.holds(name, LEAST_HELD) and misses
                and sum(misses) / len(misses) >= limits.min_misses_per_s
                and (harm.specified
                     or _follows(harm, name, samples, limits.max_chance))):
            named[name] = share
    least = limits.min_effect[harm.pair[1]]
    newest = {name: level for name in harm.levels if name in samples[-1]
              and (level := samples[-1][name].level(harm.pair[1]))
              is not None}
    if (not newest or sum(named.values()) < DOMINANT * (1 - holders.group)
            or effect(harm.pair[1], harm.base, direct.pooled(
                harm.pair[1], newest, harm.levels)) < least):
        return None
    new = harm.disturbance(now, least, harm.base)
    new.cause = 'cache'
    new.named, new.scores = direct.grounds_of(named, holders, rank), rank
    new.active_s = dict.fromkeys(named, now)
    return new


def _follows(harm: Harm, name: str, samples: Sequence[Points],
             max_chance: float) -> bool:
    """Whether the victims' signal follows the misses of another workload."""
    signal = harm.pair[1]
    levels: list[float] = []
    misses: list[float] = []
    for sample in samples:
        levels_now = {
            member: level for member in harm.levels if member in sample
            and (level := sample[member].level(signal)) is not None}
        missed = (sample[name].misses_per_s if name in sample else 0.0)
        if levels_now and missed is not None:
            levels.append(direct.pooled(signal, levels_now, harm.levels))
            misses.append(missed)
    if len(levels) < explanation.MIN_SAMPLES:
        return False
    constant = evidence.span([[1.0] * len(levels)])
    left = evidence.without(levels, constant)
    moved = evidence.without(misses, constant)
    chance = evidence.by_chance(
        evidence.correlation(left, moved), evidence.effective_samples(
            len(left), evidence.memory(left), evidence.memory(moved)), 1)
    return chance is not None and chance <= max_chance
