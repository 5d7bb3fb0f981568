# SPDX-License-Identifier: Apache-2.0

"""Direct evidence: what held a resource while a victim waited for it.

It takes no time in which the victim was undisturbed.  Netflix' and others'
monitors measure it for the CPU; that it names antagonists is ours, and none
of the constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.analysis import RECENT
from scavenger_openstack.algorithms.attribution.analysis import Thresholds
from scavenger_openstack.algorithms.attribution.disturbance import above
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import felt_s
from scavenger_openstack.algorithms.attribution.disturbance import scale
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms import back_off
from scavenger_openstack.algorithms.signals import LINK_FULL
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.algorithms.signals import MEMORY_WAIT
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.types import Ask
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource

RESOURCES: Mapping[str, Resource] = {
    'run_delay': Resource.CPU, 'io_wait': Resource.DISK,
    'cpi': Resource.CACHE, LINK_USE: Resource.NETWORK,
    MEMORY_WAIT: Resource.MEMORY}
"""The resource that a victim waits for, by its signal."""

ONLY = (LINK_USE, MEMORY_WAIT)
"""Signals of which timing tells nothing: one is the sum of all use, the other
is known now and then."""

CAUSES: Mapping[str, str] = {
    'run_delay': 'core', 'io_wait': 'disk', LINK_USE: 'link',
    MEMORY_WAIT: 'memory'}

WINDOW_S = 2.0
"""For so long evidence is gathered at a time."""

MOST_ASKED = 8
"""Victims of one window, for each resource."""

LEAST_WAITED_S = 0.01
"""What waited less in a window tells nothing."""

LONGEST_REST_S = 600.0
"""Victims that nothing is named for are asked about at least so often."""

ROUNDING = 1.05
"""What is held may come to so much of what is waited: clocks differ."""

RISEN = 1.3
"""What suffers so much more than when it was asked about is asked about
again."""

KEPT_S = 120.0
"""An answer tells about now for so long."""

LEAST_BASE: Mapping[str, float] = {'io_wait': 0.01}
"""Of a wait of which nothing is its own: a ratio needs something."""

ALIKE = 0.8
"""Of what the last sends that has to be named for a full link: what sends as
much is named, too."""

EACH = 0.5
"""Part of the least effect that each which is named has by itself: where many
have a little in it, the host is busy, and there is no antagonist."""

NOISE = 0.1
"""Least standard deviation of a signal of which few samples are known, as a
part of its level."""


class Holders(NamedTuple):
    """The workloads that held a resource while these members of a group waited
    for it.

    ``shares``: of all that they waited, without themselves and the others of
    their group; ``unknown``: what nothing is known of.  ``kind`` is that of
    the grounds, but for those of ``by_share``.  ``longest``: the seconds per
    second for which each held it while that member waited for which this is
    most.  ``own``: the largest share of a member in what it waited itself;
    ``group``: that of all members.
    """

    victims: Sequence[str]
    waited_s: float
    window_s: float
    shares: Mapping[str, float]
    threads: tuple[str, ...]
    kind: GroundKind
    unknown: float
    longest: Mapping[str, float]
    own: float
    group: float
    by_share: frozenset[str] = frozenset()

    def kind_of(self, name: str) -> GroundKind:
        """The kind of the evidence that one held the resource."""
        return GroundKind.SHARE if name in self.by_share else self.kind

    @property
    def known(self) -> bool:
        """Whether it is known of most of the wait what held the resource."""
        return self.unknown <= 0.5

    def holds(self, name: str, least_s: float) -> bool:
        """Whether it held so much of each second."""
        return self.longest.get(name, 0.0) >= least_s

    def clears(self, name: str, least: float, least_s: float) -> bool:
        """Whether it held too little, whatever held what is not known.

        :param least: :func:`.harm.least_share`
        :param least_s: :func:`.disturbance.felt_s`
        """
        return (self.shares.get(name, 0.0) + self.unknown < least
                or self.longest.get(name, 0.0) + self.unknown * self.waited_s
                / self.window_s < least_s)


class DirectAnswers:
    """The questions that are open, and the answers of late."""

    def __init__(self) -> None:
        self._asked: tuple[Ask, ...] = ()
        self._began_s = self._paid_s = self._answered_s = -math.inf
        self._resource_s: dict[Resource, float] = {}
        self._answers: dict[Ask, tuple[float, DirectEvidence]] = {}
        self._rests: dict[Ask, tuple[float, float]] = {}
        self._last_s: dict[Ask, float] = {}
        self._levels: dict[Ask, float] = {}
        self._wanted: Collection[Ask] = ()
        self._new: set[Ask] = set()

    def take(self, now: float, answers: Iterable[DirectEvidence]) -> None:
        """Take what a sample answers."""
        for answer in filter(_sound, answers):
            ask = answer.workload, answer.resource
            self._answers[ask] = now, answer
            self._answered_s = now
            self._new.add(ask)
        if self._answers:
            self._answers = {
                ask: taken for ask, taken in self._answers.items()
                if now - taken[0] < KEPT_S}
            self._new &= self._answers.keys()

    def asks(self, now: float, wanted: Mapping[Ask, float], share: float
             ) -> tuple[Ask, ...]:
        """What to gather evidence of now.

        A resource that was not asked about of late need not wait until the
        window for another one is paid for: one window is lent.

        :param wanted: those that suffer, the worst first, and how much
        :param share: of the time that may be spent so
        """
        self._wanted = wanted
        if self._asked:
            if now - self._began_s < WINDOW_S:
                return self._asked
            for ask in self._asked:
                rest_s = back_off.longer(
                    self._rests.get(ask, (0.0, 0.0))[1],
                    first=WINDOW_S, most=LONGEST_REST_S)
                self._rests[ask] = now + rest_s, rest_s
                self._last_s[ask] = now
                self._levels[ask] = wanted.get(ask, math.inf)
            self._asked = ()
            return ()
        self._rests = {ask: rest for ask, rest in self._rests.items()
                       if ask in wanted or now < rest[0]}
        for kept in (self._last_s, self._levels):
            for ask in [ask for ask in kept if ask not in wanted]:
                del kept[ask]
        if share <= 0:
            return ()
        period_s = WINDOW_S / share
        # The share may have been smaller when the last window began.
        self._paid_s = min(self._paid_s, self._began_s + 2 * period_s)
        if now < self._paid_s - period_s:
            return ()
        # What was not asked about for longest comes first.
        due = sorted([ask for ask, level in wanted.items()
                      if now >= min(self._paid_s, self._resource_s.get(
                          ask[1], -math.inf) + period_s)
                      and (now >= self._rests.get(ask, (now, 0.0))[0]
                           or level > RISEN * self._levels.get(
                               ask, math.inf))],
                     key=lambda ask: self._last_s.get(ask, -math.inf))
        of: dict[Resource, list[Ask]] = {}
        for ask in due:
            of.setdefault(ask[1], []).append(ask)
        self._asked = tuple(ask for asks in of.values()
                            for ask in asks[:MOST_ASKED])
        if self._asked:
            self._began_s = now
            self._paid_s = max(now, self._paid_s) + period_s
            self._resource_s.update(dict.fromkeys(of, now))
        return self._asked

    def ask_soon(self, names: Collection[str]) -> None:
        """The next answer about these is of use: they need not rest."""
        for ask in [ask for ask in self._rests if ask[0] in names]:
            del self._rests[ask]

    def forget(self, name: str) -> None:
        """Another workload has this name now, or none has."""
        self._answers = {ask: taken for ask, taken in self._answers.items()
                         if ask[0] != name and name not in taken[1].holders}

    def will_tell(self, now: float, signal: str, members: Collection[str]
                  ) -> bool:
        """Whether a group waits for its turn to be asked about."""
        resource = RESOURCES.get(signal)
        if resource is None or now - self._answered_s >= LONGEST_REST_S:
            return False
        return any(ask in self._wanted and ask not in self._last_s
                   for ask in ((name, resource) for name in members))

    def is_old(self, now: float, signal: str, members: Collection[str]
               ) -> bool:
        """Whether the latest question about a group is too old to tell."""
        resource = RESOURCES.get(signal)
        asked_s = [self._last_s[ask] for ask in self._wanted
                   if ask in self._last_s and ask[1] is resource
                   and ask[0] in members and resource is not Resource.CACHE]
        return (bool(asked_s) and now - max(asked_s) >= KEPT_S
                and now - self._answered_s < LONGEST_REST_S)

    def latest(self, name: str, resource: Resource) -> DirectEvidence | None:
        """The latest answer about a workload."""
        taken = self._answers.get((name, resource))
        return None if taken is None else taken[1]

    def of(self, signal: str, members: Sequence[str], *, new: bool
           ) -> Holders | None:
        """What the latest answers say of a group.

        :param new: only if one of them was not returned before
        """
        resource = RESOURCES.get(signal)
        if resource is None or not self._answers:
            return None
        asks = [(name, resource) for name in members
                if (name, resource) in self._answers]
        if not asks or (new and self._new.isdisjoint(asks)):
            return None
        self._new.difference_update(asks if new else ())
        answers = [self._answers[ask][1] for ask in asks]
        waited_s = sum([answer.waited_s for answer in answers])
        if waited_s < LEAST_WAITED_S:
            return None
        held_s: dict[str, float] = {}
        longest: dict[str, float] = {}
        threads_s: dict[str, float] = {}
        for answer in answers:
            for name, seconds in answer.holders.items():
                if name not in members:
                    held_s[name] = held_s.get(name, 0.0) + seconds
                    longest[name] = max(longest.get(name, 0.0),
                                        seconds / answer.window_s)
            for name, seconds in answer.threads.items():
                threads_s[name] = threads_s.get(name, 0.0) + seconds
        return Holders(
            [answer.workload for answer in answers], waited_s,
            max([answer.window_s for answer in answers]),
            {name: seconds / waited_s for name, seconds in held_s.items()},
            tuple(sorted(threads_s, key=threads_s.__getitem__,
                         reverse=True)[:5]),
            GroundKind.SHARE if any(answer.shared for answer in answers)
            else GroundKind.DIRECT,
            # How much each takes of a cache does not tell what that does.
            1.0 if resource is Resource.CACHE else max(0.0, 1 - sum([
                sum(answer.holders.values(), answer.idle_s)
                for answer in answers]) / waited_s), longest,
            max([answer.holders.get(answer.workload, 0.0) / answer.waited_s
                 for answer in answers if answer.waited_s > 0]),
            sum([seconds for answer in answers
                 for name, seconds in answer.holders.items()
                 if name in members]) / waited_s,
            frozenset([name for answer in answers
                       for name in answer.by_share]))


def _sound(answer: DirectEvidence) -> bool:
    """Whether its numbers can be: nothing is held for longer than is waited.
    """
    numbers = (answer.waited_s, answer.window_s, answer.idle_s,
               *answer.holders.values(),
               *answer.threads.values())
    return (all(0 <= number < math.inf for number in numbers)
            and answer.window_s > 0
            and sum(answer.holders.values()) <= ROUNDING * answer.waited_s)


def mean_level(name: str, signal: str, samples: Sequence[Points]
               ) -> float | None:
    """The mean of a signal over a few samples."""
    levels = [level for sample in samples if name in sample
              and (level := sample[name].level(signal)) is not None]
    return sum(levels) / len(levels) if levels else None


def pooled(signal: str, levels: Mapping[str, float],
           means: Mapping[str, float]) -> float:
    """The mean of what several have, each over its own mean unless it is a
    share, as :attr:`.Disturbance.newest`."""
    return sum([level / scale(signal, means[name])
                for name, level in levels.items()]) / len(levels)


def disturbance(now: float, group: VictimGroup, signal: str,
                holders: Holders, history: History, limits: Thresholds
                ) -> Disturbance | None:
    """Return what the holders do to a group; ``None`` if it hardly suffers of
    them.

    Those are named that held the resource for longest, and those that held it
    about as long; of what is left a later answer tells, once they are limited.
    """
    samples = list(history.samples)[-RECENT:]
    means = {name: level for name in holders.victims
             if (level := mean_level(name, signal, samples)) is not None}
    if not means or not holders.shares:
        return None
    most = max(holders.shares.values())
    least = limits.min_effect[signal]
    raised = pooled(signal, means, means)
    least_s = felt_s(signal, holders.victims, samples)
    names = [name for name, share in holders.shares.items()
             if share >= explanation.ALIKE_SHARE * most
             and effect(signal, (1 - share) * raised, raised) >= EACH * least
             and holders.holds(name, least_s)
             and (name == THE_HOST or name in samples[-1])]
    if signal == LINK_USE:
        # What sends more than others is in their way, not they in its.
        names = _filling([name for name in names
                          if holders.shares[name] >= holders.own],
                         holders.shares, raised)
    rest = max(0.0, 1 - sum([holders.shares[name] for name in names]))
    levels = [level / scale(signal, mean) for name, mean in means.items()
              for level in history.levels(name, signal) if level is not None]
    low, _ = evidence.low_and_high(levels)
    base = max(rest * raised, LINK_FULL - least if signal == LINK_USE
               else LEAST_BASE.get(signal, 0.0))
    if low > base and effect(signal, low, raised) >= least:
        base = low      # it was undisturbed for a while
    if not names or effect(signal, base, raised) < least:
        return None
    rank = rank_of(holders.shares)
    return Disturbance(
        group, signal, now, means, base, least,
        max(NOISE * raised, evidence.noise(levels)),
        cause=CAUSES[signal],
        members={name: above(signal, base / raised * level, least)
                 for name, level in means.items()},
        named=grounds_of(names, holders, rank),
        scores=[item for item in rank if item[0] != THE_HOST],
        raised=raised)


def _filling(names: Sequence[str], shares: Mapping[str, float], used: float
             ) -> list[str]:
    """The fewest without which a link has room, the largest first, and those
    that send about as much."""
    filling: list[str] = []
    left = used
    for name in sorted(names, key=lambda name: (-shares[name], name)):
        if left < LINK_FULL and not (
                filling and shares[name] >= ALIKE * shares[filling[-1]]):
            break
        filling.append(name)
        left -= shares[name] * used
    return filling if left < LINK_FULL else []


def rank_of(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the holders, the largest first."""
    return sorted(shares.items(), key=lambda item: (-item[1], item[0]))


def grounds_of(names: Collection[str], holders: Holders,
               rank: Sequence[tuple[str, float]]) -> dict[str, Ground]:
    """Return why each of these is named.

    :param rank: :func:`rank_of` the shares of the holders
    """
    return {name: Ground(
        name, holders.kind_of(name), share=share, waited_s=holders.waited_s,
        window_s=holders.window_s,
        threads=holders.threads if name == THE_HOST else ())
        for name, share in rank if name in names}

