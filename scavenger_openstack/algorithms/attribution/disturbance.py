# SPDX-License-Identifier: Apache-2.0


"""One disturbance: a group of victims, their signal, since when, and why.

The VMs of one application are looked at together: what disturbs them is
common to them, their noise is not.  None of the constants is in a paper.
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import onset_s
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.history import THROTTLED
from scavenger_openstack.algorithms.attribution.trial import TrialOutcome
from scavenger_openstack.algorithms.attribution import use
from scavenger_openstack.algorithms import flavor
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.algorithms.signals import MEMORY_WAIT
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.outcomes import Outcome
from scavenger_openstack.types import Priority

VictimGroup = tuple[str, ...]
"""Project and application, or one workload by itself; longer by one for
those that nothing is limited for."""

Pair = tuple[VictimGroup, str]
"""Victims and their signal."""

SHARES = ('run_delay', THROTTLED, LINK_USE, MEMORY_WAIT)
"""Signals that are shares of a whole: differences count, not ratios."""

DIRECT = (GroundKind.DIRECT, GroundKind.SHARE)
"""Kinds of grounds that tell what holds the resource now."""

HELD: Mapping[GroundKind, str] = {
    GroundKind.DIRECT: 'holds the resource',
    GroundKind.SHARE: 'holds the resource, by its share of the use,'}

LEAST_HELD = 0.01
"""Seconds per second for which a holder is in the way of a victim at least, to
be named: of what waits little that may be most of the wait, and is nothing
that its user feels."""

FELT = 0.02
"""Share of the time that a victim runs or waits which a disk has to be held
for: beside a long wait for CPUs that for a disk is not felt."""

SMOOTHING = 0.5
"""Weight of the newest sample in the level of a disturbance."""

TOLERATED = {'cpi': 0.65, 'run_delay': 0.4, 'io_wait': 1.2,
             THROTTLED: 0.75, LINK_USE: 0.5, MEMORY_WAIT: 0.5}
"""Part of the least effect that caps leave to the victim, by signal: a tenth
of its time that a busy service waits for a CPU is more than a tenth of its
latency, a tenth more per disk operation is less."""

EASE = 0.8
"""Part of that up to which caps may grow."""

LITTLE = 0.25
"""Part of what is tolerated below which antagonists do next to nothing: what a
victim suffers beyond is its own, queues behind others included."""

SETTLED = 8
"""Samples after which a base that is too high is noticed."""

NOW_S = 60.0
"""What disturbed in the last so many seconds disturbs now: an antagonist that
rests for less is shown on."""

BETTER = 0.75
"""Part of the least effect below its base from which that is too high."""


def effect(signal: str, base: float, level: float) -> float:
    """Return by how much a signal is above its base; 0.1 is a tenth.

    A base of 0 (a PMU that counts no cycles) says nothing: there is none.
    """
    if signal in SHARES:
        return level - base
    return level / base - 1 if base > 0 else 0.0


def above(signal: str, base: float, by: float) -> float:
    """The level whose :func:`effect` is ``by``."""
    return base + by if signal in SHARES else base * (1 + by)


def scale(signal: str, mean: float) -> float:
    """What a member's signal is divided by, so that those of a group can be
    averaged."""
    return 1.0 if signal in SHARES or mean <= 0 else mean


def own_load(signal: str, load: str, members: Sequence[str],
             samples: Sequence[Points]) -> list[list[float]]:
    """Return what the group and the rest of the foreground do of themselves.

    :param load: the field of a point that tells the group's own load, see
        :mod:`~scavenger_openstack.algorithms.attribution.analysis`
    """
    loads = []
    for sample in samples:
        own = [getattr(sample[name], load) or 0.0 for name in members
               if name in sample]
        loads.append(sum(own) / len(own))
    if signal != 'run_delay':
        return [loads]
    return [loads, [sum([point.cores or 0.0 for point in sample.values()
                         if point.workload.priority is Priority.FOREGROUND])
                    for sample in samples]]


def felt_s(signal: str, victims: Collection[str], samples: Sequence[Points]
           ) -> float:
    """Return for how many seconds per second a resource has to be held to be
    felt by one of the victims."""
    busy = [point.busy for sample in samples for name, point in sample.items()
            if name in victims] if signal == 'io_wait' else []
    return max(LEAST_HELD, FELT * min(busy, default=0.0))


def groups_of(sample: Points) -> dict[VictimGroup, list[str]]:
    """The foreground by application.  A workload without a name for it is
    alone; those with ``scavenger:protect=false`` are apart."""
    members: dict[VictimGroup, list[str]] = {}
    for name, point in sample.items():
        workload = point.workload
        if workload.priority is Priority.FOREGROUND:
            key = ((workload.project or '', workload.application)
                   if workload.application and not flavor.is_made_of_image(
                       workload.application) else ('', '', name))
            if not workload.protected:
                key = *key, 'unprotected'
            members.setdefault(key, []).append(name)
    return members


@dataclasses.dataclass(slots=True)
class Effects:
    """The facts about limits that disturbances depend on.

    ``limited``: more than before, so their levels before tell nothing now.
    ``scaled``: by what factor all that is limited for a disturbance may use
    more or less since a limit that was there moved.
    ``undisturbed``: those that suffer as much without their antagonists.
    """

    limited: set[Disturbance] = dataclasses.field(default_factory=set)
    scaled: dict[Disturbance, float] = dataclasses.field(
        default_factory=dict)
    undisturbed: set[Disturbance] = dataclasses.field(default_factory=set)
    verdicts: dict[Disturbance, TrialOutcome] = dataclasses.field(
        default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False)
class Disturbance:
    """One group and signal, from its first disturbance to its last.

    ``base``, ``raised`` and ``stddev`` are of the pooled signal:
    undisturbed, while the antagonists work, and its noise.  ``least`` is
    the effect from which it suffers, beyond what its own load explains:
    ``own`` has a constant and one factor for each of :func:`own_load`,
    of ``load``.
    ``members`` are the victims, each with the threshold of its own signal.
    ``protected``: others may be limited for their sake.
    ``named``: what disturbs it or did, foreground and the host itself among
    them, and why they are named; ``active_s``: when each of them was named or
    at work last while a victim suffered; ``cleared``: those of which newer
    direct evidence says that they hold next to nothing.
    ``named_s`` is when the evidence was enough, ``begun_s`` when the harm of
    each victim began whose incident is open: see :func:`.history.onset_s`.
    """

    group: VictimGroup
    signal: str
    named_s: float
    means: Mapping[str, float]
    base: float
    least: float
    stddev: float
    cause: str
    members: dict[str, float]
    protected: bool = True
    begun_s: dict[str, float] = dataclasses.field(default_factory=dict)
    load: str = ''
    own: Sequence[float] = ()
    named: dict[str, Ground] = dataclasses.field(default_factory=dict)
    active_s: dict[str, float] = dataclasses.field(default_factory=dict)
    cleared: set[str] = dataclasses.field(default_factory=set)
    scores: Sequence[tuple[str, float]] = ()
    raised: float = 0.0
    newest: float | None = None
    latest: float | None = None
    excess: float | None = None
    shift: float = 0.0
    recent: collections.deque[float] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=SETTLED))
    harmed_s: float = -math.inf
    seen_s: float = -math.inf
    outcome: str = Outcome.OPEN
    values: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def pair(self) -> Pair:
        return self.group, self.signal

    @property
    def harm(self) -> float:
        """The effect while the antagonists work."""
        return effect(self.signal, self.base, self.raised)

    @property
    def rise(self) -> str:
        """The same in words; a pooled signal has no unit that tells."""
        if self.signal in SHARES:
            return f'from {self.base:.3g} to {self.raised:.3g}'
        return f'to {1 + self.harm:,.2f} times its undisturbed value'

    @property
    def tolerated(self) -> float:
        """The effect that caps leave to the victim."""
        return TOLERATED[self.signal] * self.least

    @property
    def suffers_now(self) -> bool:
        """Return whether the group suffers by the newest sample alone."""
        return self.latest is not None and self.latest > self.least

    @property
    def suffers(self) -> bool:
        """Beyond what caps should leave to it."""
        return (self.excess is not None
                and self.excess > self.tolerated)

    @property
    def at_ease(self) -> bool:
        """Return whether the group is so far from suffering that caps may
        grow."""
        return (self.excess is not None
                and self.excess < EASE * self.tolerated)

    @property
    def room(self) -> float:
        """How many times as much harm would leave it at ease; 1 where no
        direct evidence tells what is the antagonists', or it is better off
        than its base."""
        if self.excess is None or self.excess <= 0 or not any(
                ground.kind is GroundKind.DIRECT
                for ground in self.named.values()):
            return 1.0
        return EASE * self.tolerated / self.excess

    def split(self, shares: Mapping[str, float]) -> bool:
        """Correct the base by what direct evidence says of the wait now.

        What is not its antagonists' is the most that it can be undisturbed,
        since it queues behind others longer because of them; and just that,
        where next to nothing is theirs.

        :param shares: of the wait, by what held the resource meanwhile
        :returns: whether next to nothing is theirs
        """
        taken = sum([shares.get(name, 0.0) for name in self.named])
        if (self.newest is None or self.latest is None
                or not 0 <= taken < 1 or self.newest <= 0):
            return False
        base = (1 - taken) * self.newest
        by = effect(self.signal, base, self.newest)
        little = by < LITTLE * self.tolerated
        if little or by > self.latest:
            self._correct_base(base, self.newest)
        return little

    def _correct_base(self, base: float, newest: float) -> None:
        """Take another base, whatever was learnt about the old one."""
        self.base, self.own, self.shift = base, (), 0.0
        self.latest = self.excess = effect(self.signal, base, newest)
        self.recent.clear()
        raised = sum([mean / scale(self.signal, mean)
                      for mean in self.means.values()]) / len(self.means)
        self.members |= {
            name: above(self.signal, base / raised * mean, self.least)
            for name, mean in self.means.items()
            if name in self.members and raised > 0}

    def see(self, now: float, sample: Points) -> None:
        """Take the newest sample."""
        self.values = {
            name: own for name in {**self.means, **self.members}
            if name in sample
            and (own := sample[name].level(self.signal)) is not None}
        members_now = [name for name in self.means if name in self.values]
        if not members_now:       # what it was before tells nothing about now
            self.newest = self.latest = self.excess = None
            return
        self.seen_s = now
        ratios = [self.values[name] / scale(self.signal, self.means[name])
                  for name in members_now]
        self.newest = sum(ratios) / len(ratios)
        base = self.base
        if self.own:
            loads = own_load(self.signal, self.load, members_now, [sample])
            base = sum([factor * load[0] for factor, load in zip(
                self.own, [[1.0], *loads], strict=True)])
        base = above(self.signal, max(base, self.base), self.shift)
        latest = self.latest = effect(self.signal, base, self.newest)
        self._correct(latest)
        self.excess = latest if self.excess is None else (
            self.excess + SMOOTHING * (latest - self.excess))
        if self.suffers_now:
            self.harmed_s = now

    def _correct(self, latest: float) -> None:
        """Lower the base of one that is better off than it should be.

        What its own load explains was fitted to a few minutes.  When a link is
        full does not depend on what was before.
        """
        if self.signal == LINK_USE:
            return
        self.recent.append(latest)
        middle = self.usual
        if middle is not None and middle < -BETTER * self.least:
            self._move(middle)

    @property
    def usual(self) -> float | None:
        """The effect in the middle of the last samples."""
        return None if len(self.recent) < SETTLED else sorted(
            self.recent)[len(self.recent) // 2]

    def _move(self, by: float) -> None:
        self.shift = (self.shift + by if self.signal in SHARES
                      else (1 + self.shift) * (1 + by) - 1)
        self.recent.clear()
        self.excess = None

    def take(self, effects: Effects) -> None:
        """Take what was done about the disturbance."""
        if self in effects.undisturbed and self.latest is not None:
            self._move(self.latest if self.usual is None else self.usual)
        if self in effects.scaled:
            if self.excess is not None and self.excess > 0:
                self.excess *= effects.scaled[self]
        elif self in effects.limited:
            self.excess = None
        self.outcome = effects.verdicts.get(self, self.outcome)

    def learn(self, newer: Disturbance, limited: Collection[str]) -> None:
        """What is named now is named from now on; the rest stays, so
        that a long disturbance does not become normal.

        What direct evidence says names what disturbs now: what was named
        before, and holds nothing now, did that before.
        """
        if any(ground.kind in DIRECT for ground in newer.named.values()):
            self._forget_named(self.named.keys() - newer.named.keys()
                               - set(limited))
        self.named |= newer.named
        self.cleared -= newer.named.keys()
        self.active_s |= dict.fromkeys(newer.named, newer.named_s)
        self.members = newer.members | self.members
        self.scores = newer.scores

    def lower(self, now: float, newer: Disturbance) -> None:
        """Take the base of newer direct evidence where it is lower.

        What is not one antagonist's is the most that it can be undisturbed:
        beside another that may be less.
        """
        bases = [newer.base * scale(self.signal, mean)
                 / scale(self.signal, self.means[name])
                 for name, mean in newer.means.items() if name in self.means]
        base = sum(bases) / len(bases) if bases else self.base
        if self.newest is None or base >= self.base or self.shift > 0:
            return      # or a limit has shown that the rest is its own
        self._correct_base(base, self.newest)
        if self.suffers_now:
            self.harmed_s = now

    def clear(self, names: Collection[str]) -> None:
        """These hold next to nothing by newer direct evidence: they disturb
        no more, until they are named again."""
        self.cleared |= set(names)

    def look_at_named(self, now: float, samples: Sequence[Points],
                      limited: Collection[str]) -> None:
        """See which of those that are named disturb now.

        :param samples: of the window, the newest last
        :param limited: those that would disturb without their limit
        """
        knob = use.KNOB_TO_LIMIT.get(self.signal)
        if knob is None:
            return
        for name in self.named:
            if name in limited or (
                    name not in self.cleared and self.suffers_now
                    and use.working(samples, name, knob) is not None):
                self.active_s[name] = now
        self.cleared.difference_update(limited)

    def disturbed(self, now: float, within_s: float) -> list[str]:
        """Return the named workloads that disturbed in the last
        ``within_s``."""
        return [name for name in self.named
                if now - self.active_s.get(name, self.named_s) < within_s]

    def disturbing(self, now: float) -> list[str]:
        """Return the named workloads that disturb now."""
        return [name for name in self.disturbed(now, NOW_S)
                if name not in self.cleared]

    def reason(self, name: str) -> str:
        """Why a limit is set on one that is named, with the numbers."""
        victims = ', '.join(list(self.members)[:3])
        signal, ground = self.signal, self.named[name]
        innocent = ('; an innocent seems so guilty with a chance of '
                    f'{ground.chance or 0.0:.1g}')
        if ground.kind is GroundKind.TIMING:
            return (f'{signal} of {victims} rises {self.rise} with its use'
                    + innocent)
        if ground.kind is GroundKind.EXPERIMENT:
            return (f'{signal} of {victims} was {ground.before:.3g}, and '
                    f'{ground.after:.3g} whenever it was limited' + innocent)
        return (f'{signal} of {victims}: it {HELD[ground.kind]} for '
                f'{ground.share:.0%} of what they wait')

    def over(self, now: float, quiet_s: float) -> bool:
        return now - max(self.harmed_s, self.named_s) >= quiet_s

    def lost(self, now: float, quiet_s: float) -> bool:
        """Whether nothing was heard of the victims for so long."""
        return now - max(self.seen_s, self.named_s) >= quiet_s

    def begin(self, now: float, history: History,
              lasted_s: Mapping[tuple[str, str], float], *, quiet_s: float
              ) -> None:
        """Open the incidents of the victims that have none.

        :param lasted_s: when the last incident of a victim and signal ended
        """
        new = [name for name in self.members if name not in self.begun_s]
        if not new:
            return
        samples = list(history.samples)
        knob = use.KNOB_TO_LIMIT.get(self.signal)
        works = ([True] * len(samples) if knob is None
                 else use.at_work(samples, self.named, knob))
        for name in new:
            self.begun_s[name] = onset_s(
                ((time_s, sample[name].level(self.signal)
                  if busy and name in sample else None)
                 for time_s, sample, busy in zip(
                     reversed(history.times), reversed(samples),
                     reversed(works), strict=True)),
                self.members[name], now=now, quiet_s=quiet_s,
                after_s=lasted_s.get((name, self.signal), -math.inf))

    def end(self) -> None:
        """End the incidents; what comes later is another one."""
        self.begun_s = {}
        self.outcome = Outcome.OPEN

    def forget(self, name: str, *, away: bool = False) -> None:
        """Another workload has this name from now on, or none has.

        :param away: it may come back, as from a reboot: it stays named
        """
        if not away:
            self._forget_named([name])
        self.members.pop(name, None)
        self.begun_s.pop(name, None)

    def _forget_named(self, names: Collection[str]) -> None:
        self.cleared.difference_update(names)
        for name in names:
            self.named.pop(name, None)
            self.active_s.pop(name, None)
