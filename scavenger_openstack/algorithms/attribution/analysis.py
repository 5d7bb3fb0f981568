# SPDX-License-Identifier: Apache-2.0

"""Looking for what makes a group of VMs suffer, in the samples of a window."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.disturbance import above
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import own_load
from scavenger_openstack.algorithms.attribution.disturbance import scale
from scavenger_openstack.algorithms.attribution.disturbance import SHARES
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.explanation import Explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import Levels
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.history import THROTTLED
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Priority

RECENT = 3
"""Samples whose mean is taken for now."""

MOST_UNKNOWN = 0.1
"""Part of the samples in which a suspect's use may be unknown."""


class Thresholds(NamedTuple):
    """From where on something counts; see the options of the same names.

    ``min_effect`` is by signal.
    """

    min_effect: Mapping[str, float]
    max_chance: float
    min_share: float
    min_misses_per_s: float
    own_limit_share: float


class Pool(NamedTuple):
    """The signal of a group: mean over its members, each over its own mean
    (``means``) unless it is a share.  ``indexes`` are those of the samples.
    """

    indexes: list[int]
    values: list[float]
    means: dict[str, float]


def pool_if_worse(signal: str, members: Sequence[str], history: History,
                  limits: Thresholds) -> Pool | None:
    """The signal of a group that is worse off now than at its best.

    Of those that were there for most of the time.  ``None`` for a group that
    is not, and for one that is not known long enough.
    """
    series: dict[str, tuple[Levels, list[float]]] = {}
    for name in members:
        levels = history.levels(name, signal)
        values = [level for level in levels if level is not None]
        if values:
            series[name] = levels, values
    most = max([len(values) for _, values in series.values()], default=0)
    if most < explanation.MIN_SAMPLES:
        return None
    means = {name: sum(values) / len(values)
             for name, (_, values) in series.items()
             if 2 * len(values) >= most}
    units = {name: scale(signal, mean) for name, mean in means.items()}
    # Nearly none is worse off.  What no member can be no mean of them can.
    if not _worse(signal, min([min(series[name][1]) / unit
                               for name, unit in units.items()]),
                  max([max(series[name][1][-RECENT:]) / unit
                       for name, unit in units.items()]), limits):
        return None
    at: dict[int, list[float]] = {}
    for name, unit in units.items():
        for index, (level, free) in enumerate(zip(
                series[name][0], history.free, strict=True)):
            if level is not None and free:
                at.setdefault(index, []).append(level / unit)
    indexes = sorted(at)
    if len(indexes) < explanation.MIN_SAMPLES:
        return None
    pooled = [sum(at[index]) / len(at[index]) for index in indexes]
    recent = pooled[-RECENT:]
    best, _ = evidence.low_and_high(pooled)
    return (Pool(indexes, pooled, means) if _worse(
        signal, best, sum(recent) / len(recent), limits) else None)


def _worse(signal: str, best: float, now: float, limits: Thresholds) -> bool:
    if signal == THROTTLED:
        return now >= limits.own_limit_share
    return effect(signal, best, now) >= limits.min_effect[signal]


def analyse(now: float, group: VictimGroup, present: Sequence[str],
            signal: str, pool: Pool, samples: Sequence[Points],
            topology: Mapping[int, Cpu], limits: Thresholds
            ) -> Disturbance | None:
    """Look for what makes a group suffer; ``None`` when no workload does.

    :param present: those of the group that are there now; some may be too
        young to have a part in the pool
    """
    last = samples[-1]
    if signal == THROTTLED:
        return Disturbance(
            group, signal, now, pool.means, 0.0, limits.own_limit_share, 0.0,
            cause='own_limit', members=dict.fromkeys(
                pool.means, limits.own_limit_share))
    taken = [samples[index] for index in pool.indexes]
    members = list(pool.means)
    use, min_use = _use(signal, last, limits)
    victims = [last[name].workload for name in members if name in last]
    suspects = [name for name, point in last.items()
                if point.workload.priority is Priority.BACKGROUND
                and any(sharing.share(signal, victim, point.workload,
                                      topology) for victim in victims)]
    if not suspects:
        return None
    uses = {name: series for name in suspects
            if (series := _series(name, use, taken)) is not None}
    if not uses:
        return None
    load = _load(signal, pool, members, taken)
    own = own_load(signal, load, members, taken)
    total = [sum([use(point) or 0.0 for point in sample.values()])
             for sample in taken]
    explained = explanation.explain(
        pool.values, own, uses, total=total,
        max_chance=limits.max_chance, min_share=limits.min_share,
        min_use=min_use)
    least = limits.min_effect[signal]
    if not explained.named or effect(
            signal, explained.base, explained.raised) < least:
        return None
    return _disturbance(
        now, group, signal, pool, taken, explained, load, own,
        [name for name in present if name not in pool.means], least)


def _use(signal: str, sample: Points, limits: Thresholds
         ) -> tuple[Callable[[Point], float | None], float]:
    """Use of the resource whose contention a signal shows, and how much of
    it no victim would feel."""
    if signal == 'io_wait':
        return (lambda point: point.disk), 0.0
    if signal == 'cpi' and any(point.misses_per_s is not None
                                for point in sample.values()):
        return (lambda point: point.misses_per_s), limits.min_misses_per_s
    return (lambda point: point.cores), 0.0


def _series(name: str, use: Callable[[Point], float | None],
            samples: Sequence[Points]) -> list[float] | None:
    """Return what a suspect used, sample by sample; 0 while it was not there.

    Short gaps are filled with what was known last.  ``None`` when too
    little is known to accuse it.
    """
    loads: list[float] = []
    unknown, last = 0, 0.0
    for sample in samples:
        point = sample.get(name)
        value = 0.0 if point is None else use(point)
        if value is None:
            unknown += 1
        else:
            last = value
        loads.append(last)
    return loads if unknown <= MOST_UNKNOWN * len(samples) else None


def _load(signal: str, pool: Pool, members: Sequence[str],
          samples: Sequence[Points]) -> str:
    """What tells the load of a group, whatever disturbs it.

    With more cycles per instruction a service takes more cycles for the
    same requests, and a batch does less in the same cycles: the one of both
    that follows cpi less is what the group is asked for.
    """
    if signal == 'io_wait':
        return 'io_ops_per_s'
    if signal == 'run_delay':
        return 'cores'
    constant = evidence.span([[1.0] * len(samples)])
    left = evidence.without(pool.values, constant)
    return min(('instructions', 'cores'), key=lambda load: abs(
        evidence.correlation(left, evidence.without(
            own_load(signal, load, members, samples)[0], constant))))


def _disturbance(now: float, group: VictimGroup, signal: str, pool: Pool,
                 samples: Sequence[Points], explained: Explanation, load: str,
                 own: Sequence[Sequence[float]], newcomers: Sequence[str],
                 least: float) -> Disturbance:
    together = explained.together
    middle = sum(evidence.low_and_high(together)) / 2
    works = [use > middle for use in together]
    quiet = evidence.low_and_high(together)[0]
    *factors, slope = evidence.fit(
        pool.values, [[1.0] * len(together), *own, together])
    rest_values = [value for value, busy in zip(pool.values, works,
                                                strict=True) if not busy]
    members = _victims(
        signal, [*pool.means, *newcomers], samples, works, least
        ) or _thresholds(signal, pool, explained.base, least)
    scores = dict(explained.scores)
    return Disturbance(
        group, signal, now, pool.means, explained.base, least,
        evidence.noise(rest_values),
        cause=_cause(signal, list(pool.means), samples, works, least),
        members=members, load=load,
        own=[factors[0] + slope * quiet, *factors[1:]],
        named={name: Ground(name, GroundKind.TIMING, share=scores.get(name),
                            chance=chance)
               for name, chance in explained.named.items()},
        scores=explained.scores, raised=explained.raised)


def _victims(signal: str, names: Iterable[str], samples: Sequence[Points],
             works: Sequence[bool], least: float) -> dict[str, float]:
    """Return the workloads that suffer, each with the threshold of its own
    signal.

    A member that came later, and was never seen undisturbed, is compared
    with those that stand before it.
    """
    victims, rests = {}, []
    for name in names:
        rest, busy = _rest_and_busy(
            [sample[name].level(signal) if name in sample else None
             for sample in samples], works)
        if rest is not None:
            rests.append(rest)
        elif rests:
            rest = sum(rests) / len(rests)
        if (rest is not None and busy is not None
                and effect(signal, rest, busy) >= least):
            victims[name] = above(signal, rest, least)
    return victims


def _thresholds(signal: str, pool: Pool, base: float, least: float
                ) -> dict[str, float]:
    """The thresholds of all members, by what the group is undisturbed.

    Of a use that comes and goes slowly the means hide the highest: then the
    group suffers, and none of its members by its own means.
    """
    raised = above(signal, base, least)
    mean = sum(pool.values) / len(pool.values)
    return {name: own + raised - mean if signal in SHARES else own * raised
            for name, own in pool.means.items()}


def _rest_and_busy(values: Sequence[float | None], works: Sequence[bool],
                   ) -> tuple[float | None, float | None]:
    """Means while the antagonists rest and while they work."""
    rests: list[float | None] = []
    for wanted in (False, True):
        own = [value for value, busy in zip(values, works, strict=True)
               if busy is wanted and value is not None]
        rests.append(sum(own) / len(own) if own else None)
    return rests[0], rests[1]


def _cause(signal: str, members: Sequence[str], samples: Sequence[Points],
           works: Sequence[bool], least: float) -> str:
    """Which resource is short.

    Where the cache is fought for, the victim misses more often per
    instruction; where the memory bus is, each miss takes longer.
    """
    if signal == 'run_delay':
        return 'core'
    if signal == 'io_wait':
        return 'disk'
    misses: list[float | None] = []
    for sample in samples:
        own = [sample[name] for name in members if name in sample]
        work = sum([point.instructions for point in own])
        misses.append(sum([point.misses_per_s or 0.0 for point in own])
                      / work if work > 0 else None)
    rest, busy = _rest_and_busy(misses, works)
    if not rest or busy is None:
        return 'unknown'
    return 'cache' if busy / rest - 1 >= least / 2 else 'memory_bandwidth'
