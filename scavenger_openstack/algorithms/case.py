# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""One disturbance: who suffers from what, since when, and by whom.

The VMs of one application are looked at together: what disturbs them is
common to them, their noise is not.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.attribution import Explanation
from scavenger_openstack.algorithms import evidence
from scavenger_openstack.algorithms import history
from scavenger_openstack.algorithms.history import Point
from scavenger_openstack.algorithms.history import Sample
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Priority

Group = tuple[str, ...]
"""Project and application, or one workload by itself."""

THROTTLED = 'throttled_share'

SIGNALS = (*history.ORDER, THROTTLED)

SHARES = ('run_delay', THROTTLED)
"""Signals that are shares of a whole: differences count, not ratios."""

RECENT = 3
"""Samples whose mean is taken for now."""

SMOOTHING = 0.5
"""Weight of the newest sample in the level of a case."""

TOLERATED = 0.5
"""Part of the least effect that caps leave to the victim: an effect on a
signal is larger on the latency of a busy service."""

MEDIAN_STEP = 0.954
"""Median of the step between two samples of normal noise, in standard
deviations of the noise: 0.6745 sqrt(2)."""

SHOWN = 5
"""Suspects that an incident tells of."""


class Limits(NamedTuple):
    """From where on something counts; see the options of the same names.

    ``min_effect`` is by signal.
    """

    min_effect: Mapping[str, float]
    max_chance: float
    min_share: float
    min_misses_per_s: float
    own_limit_share: float


def value(signal: str, point: Point) -> float | None:
    """A signal in a form that can be averaged, ``None`` if not measured.

    ``run_delay`` has no upper bound; it becomes the share of its runnable
    time that a workload waits, 0 to 1.
    """
    if signal == THROTTLED:
        return point.throttled_share
    found = point.signals[history.ORDER.index(signal)]
    if found is not None and signal == 'run_delay':
        return found / (1 + found)
    return found


def effect(signal: str, base: float, level: float) -> float:
    """By how much a signal is above its base; 0.1 is a tenth."""
    if signal in SHARES:
        return level - base
    return level / base - 1 if base > 0 else math.inf


def above(signal: str, base: float, by: float) -> float:
    """The level whose :func:`effect` is ``by``."""
    return base + by if signal in SHARES else base * (1 + by)


class Pool(NamedTuple):
    """The signal of a group: mean over its members, each over his own mean
    (``means``) unless it is a share.  ``places`` are those of the samples.
    """

    places: list[int]
    values: list[float]
    means: dict[str, float]


def pool(signal: str, members: Sequence[str],
         samples: Sequence[Sample]) -> Pool | None:
    """Of those who were there for most of the time; ``None`` if too short.
    """
    by_member: dict[str, list[tuple[int, float]]] = {}
    for place, sample in enumerate(samples):
        for name in members:
            point = sample.get(name)
            found = None if point is None else value(signal, point)
            if found is not None:
                by_member.setdefault(name, []).append((place, found))
    most = max([len(one) for one in by_member.values()], default=0)
    if most < attribution.MIN_SAMPLES:
        return None
    means = {name: sum([found for _, found in one]) / len(one)
             for name, one in by_member.items() if 2 * len(one) >= most}
    at: dict[int, list[float]] = {}
    for name, mean in means.items():
        scale = _scale(signal, mean)
        for place, found in by_member[name]:
            at.setdefault(place, []).append(found / scale)
    places = sorted(at)
    return Pool(places, [sum(at[place]) / len(at[place])
                         for place in places], means)


def _scale(signal: str, mean: float) -> float:
    return 1.0 if signal in SHARES or mean <= 0 else mean


def suffers(signal: str, found: Pool, limits: Limits) -> bool:
    """Whether a group is worse off now than at its best."""
    recent = found.values[-RECENT:]
    now = sum(recent) / len(recent)
    if signal == THROTTLED:
        return now >= limits.own_limit_share
    best, _ = evidence.low_and_high(found.values)
    return effect(signal, best, now) >= limits.min_effect[signal]


def examine(now: float, group: Group, present: Sequence[str], signal: str,
            found: Pool, samples: Sequence[Sample],
            topology: Mapping[int, Cpu], limits: Limits) -> Case | None:
    """Look for who makes a group suffer; ``None`` when nobody does.

    :param present: who of the group is there now; some may be too young to
        have a part in ``found``
    """
    last = samples[-1]
    if signal == THROTTLED:
        return Case(group, signal, now, found.means, 0.0,
                    limits.own_limit_share, 0.0, cause='own_limit',
                    members=dict.fromkeys(found.means,
                                          limits.own_limit_share))
    taken = [samples[place] for place in found.places]
    members = list(found.means)
    use, min_use = _use(signal, last, limits)
    victims = [last[name].workload for name in members if name in last]
    suspects = [name for name, point in last.items()
                if point.workload.priority is Priority.BACKGROUND
                and any(sharing.share(signal, victim, point.workload,
                                      topology) for victim in victims)]
    if not suspects:
        return None
    uses = {name: [0.0 if name not in sample else use(sample[name])
                   for sample in taken] for name in suspects}
    load = _load(signal, found, members, taken)
    own = own_load(signal, load, members, taken)
    total = [sum([use(point) for point in sample.values()])
             for sample in taken]
    known = attribution.explain(
        found.values, own, uses, total=total,
        max_chance=limits.max_chance, min_share=limits.min_share,
        min_use=min_use)
    least = limits.min_effect[signal]
    if not known.named or effect(signal, known.base, known.raised) < least:
        return None
    return _case(now, group, signal, found, taken, known, load, own,
                 [name for name in present if name not in found.means],
                 least)


def _use(signal: str, sample: Sample, limits: Limits
         ) -> tuple[Callable[[Point], float], float]:
    """Use of the resource whose contention a signal shows, and how much of
    it nobody would feel."""
    if signal == 'io_wait':
        return (lambda point: point.disk), 0.0
    if signal == 'cpi' and any(point.misses_per_s is not None
                                for point in sample.values()):
        return (lambda point: point.misses_per_s or 0.0
                ), limits.min_misses_per_s
    return (lambda point: point.cores), 0.0


def own_load(signal: str, load: str, members: Sequence[str],
             samples: Sequence[Sample]) -> list[list[float]]:
    """What the group and the rest of the foreground do of themselves.

    :param load: the field of a point that tells the group's own load, see
        :func:`_load`
    """
    found = []
    for sample in samples:
        own = [getattr(sample[name], load) for name in members
               if name in sample]
        found.append(sum(own) / len(own))
    if signal != 'run_delay':
        return [found]
    return [found, [sum([point.cores for point in sample.values()
                         if point.workload.priority is Priority.FOREGROUND])
                    for sample in samples]]


def _load(signal: str, found: Pool, members: Sequence[str],
          samples: Sequence[Sample]) -> str:
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
    left = evidence.without(found.values, constant)
    return min(('instructions', 'cores'), key=lambda load: abs(
        evidence.correlation(left, evidence.without(
            own_load(signal, load, members, samples)[0], constant))))


def _case(now: float, group: Group, signal: str, found: Pool,
          samples: Sequence[Sample], known: Explanation, load: str,
          own: Sequence[Sequence[float]], newcomers: Sequence[str],
          least: float) -> Case:
    together = known.together
    middle = sum(evidence.low_and_high(together)) / 2
    works = [use > middle for use in together]
    quiet = evidence.low_and_high(together)[0]
    *factors, slope = evidence.fit(
        found.values, [[1.0] * len(together), *own, together])
    rest_values = [one for one, busy in zip(found.values, works,
                                            strict=True) if not busy]
    return Case(
        group, signal, now, found.means, known.base, least,
        _stddev(rest_values),
        cause=_cause(signal, list(found.means), samples, works, least),
        members=_victims(signal, [*found.means, *newcomers], samples, works,
                         least), load=load,
        own=[factors[0] + slope * quiet, *factors[1:]],
        named=dict(known.named), scores=known.scores,
        raised=known.raised)


def _victims(signal: str, names: Iterable[str], samples: Sequence[Sample],
             works: Sequence[bool], least: float) -> dict[str, float]:
    """Those who suffer, each with the threshold of his own signal.

    Who came later, and was never seen undisturbed, is compared with those
    who stand before him.
    """
    found, rests = {}, []
    for name in names:
        rest, busy = _rest_and_busy(
            [None if name not in sample else value(signal, sample[name])
             for sample in samples], works)
        if rest is not None:
            rests.append(rest)
        elif rests:
            rest = sum(rests) / len(rests)
        if (rest is not None and busy is not None
                and effect(signal, rest, busy) >= least):
            found[name] = above(signal, rest, least)
    return found


def _rest_and_busy(values: Sequence[float | None], works: Sequence[bool],
                   ) -> tuple[float | None, float | None]:
    """Means while the antagonists rest and while they work."""
    found: list[float | None] = []
    for wanted in (False, True):
        own = [one for one, busy in zip(values, works, strict=True)
               if busy is wanted and one is not None]
        found.append(sum(own) / len(own) if own else None)
    return found[0], found[1]


def _stddev(values: Sequence[float]) -> float:
    """Of the noise: by the median step from one sample to the next, so that
    neither slow change nor a few jumps count."""
    steps = sorted(map(abs, evidence.changes(values)))
    return steps[len(steps) // 2] / MEDIAN_STEP if steps else 0.0


def _cause(signal: str, members: Sequence[str], samples: Sequence[Sample],
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


@dataclasses.dataclass(slots=True, eq=False)
class Case:
    """One group and signal, from its first disturbance to its last.

    ``base``, ``raised`` and ``stddev`` are of the pooled signal:
    undisturbed, while the antagonists work, and its noise.  ``least`` is
    the effect from which it suffers, beyond what its own load explains:
    ``own`` has a constant and one factor for each of :func:`own_load`,
    of ``load``.
    ``members`` are the victims, each with the threshold of his own signal.
    """

    group: Group
    signal: str
    start_s: float
    means: Mapping[str, float]
    base: float
    least: float
    stddev: float
    cause: str
    members: dict[str, float]
    load: str = ''
    own: Sequence[float] = ()
    named: dict[str, float] = dataclasses.field(default_factory=dict)
    scores: Sequence[tuple[str, float]] = ()
    raised: float = 0.0
    newest: float | None = None
    excess: float | None = None
    suffered_s: float = -math.inf
    outcome: str = 'open'
    values: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def suffers_now(self) -> bool:
        """By the newest sample alone."""
        return self.newest is not None and effect(
            self.signal, self.base, self.newest) > self.least

    @property
    def suffers(self) -> bool:
        """Beyond what caps should leave to it."""
        return (self.excess is not None
                and self.excess > TOLERATED * self.least)

    def see(self, now: float, sample: Sample) -> None:
        """Take the newest sample."""
        self.values = {
            name: own for name in {**self.means, **self.members}
            if name in sample
            and (own := value(self.signal, sample[name])) is not None}
        known = [name for name in self.means if name in self.values]
        if not known:
            return
        found = [self.values[name] / _scale(self.signal, self.means[name])
                 for name in known]
        self.newest = sum(found) / len(found)
        base = self.base
        if self.own:
            loads = own_load(self.signal, self.load, known, [sample])
            base = sum([factor * load[0] for factor, load in zip(
                self.own, [[1.0], *loads], strict=True)])
        excess = effect(self.signal, max(base, self.base), self.newest)
        self.excess = excess if self.excess is None else (
            self.excess + SMOOTHING * (excess - self.excess))
        if self.suffers:
            self.suffered_s = now

    def learn(self, found: Case) -> None:
        """Whoever is named now is named from now on; the rest stays, so
        that a long disturbance does not become normal."""
        self.named |= found.named
        self.members = found.members | self.members
        self.scores = found.scores

    def over(self, now: float, quiet_s: float) -> bool:
        return now - max(self.suffered_s, self.start_s) >= quiet_s

    def incidents(self, host: str, boot_id: str,
                  action: str) -> list[Incident]:
        """One for each victim.  Its id stays as long as the case."""
        return [Incident(
            id=incident_id(host, boot_id, name, self.signal, self.start_s),
            time_s=self.start_s, host=host, victim=name,
            signal=self.signal, value=self.values.get(name),
            threshold=threshold, cause=self.cause,
            suspects=tuple(self.scores[:SHOWN]),
            antagonists=tuple(self.named), action=action,
            outcome=self.outcome)
            for name, threshold in self.members.items()]
