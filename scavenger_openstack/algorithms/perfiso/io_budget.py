# SPDX-License-Identifier: Apache-2.0


"""How many disk operations the background may do, judged by the foreground.

PerfIso, section 4.1, shares out what a disk does and does not say how much
of it there may be: all of this is ours, not in the paper.  As with the CPU
quota of Scavenger's section 4.4, additive increase and multiplicative
decrease follow what the foreground feels: ``io_wait``, its seconds per disk
operation, against what it was with the background at rest.

Letters: x is a workload's io_wait now, mu and sigma its mean and deviation
over the last samples that were taken while the background was quiet.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.best_waits import BestWaits
from scavenger_openstack.algorithms.perfiso.io_level import Level
from scavenger_openstack.algorithms.perfiso.io_params import MOST_OPS_PER_S
from scavenger_openstack.algorithms.perfiso.io_params import Params
from scavenger_openstack.algorithms.scavenger.quota import family_factor
from scavenger_openstack.algorithms.scavenger.quota import next_quota
from scavenger_openstack.algorithms.scavenger.quota import Verdict
from scavenger_openstack.algorithms import signals
from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.types import RunKey
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

DEVIATIONS = 1.0
"""Standard deviations of the time per operation that are tolerated, where
that is more than ``wait_tolerance``: disks vary a lot by themselves."""

ONE_FACTOR = 2.0
"""A single workload may be slower by so many times what all may on average:
one says less about the disk than all of them."""

EASE = 0.5
"""Part of the tolerated excess up to which the background gets more;
between that and the whole it keeps what it has."""

START_SHARE = 0.2
"""Part by which the total grows per measurement until the foreground first
suffers, where ``increase`` is less: from the floors to what a fast disk does
it would take minutes.  More, and what follows its limit a tick later would
seem to have enough."""

SLOWDOWN = 0.05
"""Share by which all that a workload does may take longer: where it waits for
disks for a fourth of its time, operations by a fifth."""

MOST_PATIENCE = 1.5
"""Times the tolerance at the most: the requests that wait for disks need not
be those for which a workload does all else."""

SURE = 3.0
"""A strain above this is no noise; after a cut, less of it is judged by a
whole mean."""

RELEVANT = 0.1
"""Below this share of all operations the background at its floors is not
what the foreground suffers from."""


class Vote(NamedTuple):
    """One workload with a level, its x over mu, and how much it counts.

    ``disk_s`` and ``other_s``: the seconds per second that it waits for disks
    undisturbed, and that it runs or waits for CPUs, ``None`` if not known.
    """

    level: Level
    ratio: float
    weight: float
    name: str
    disk_s: float
    other_s: float | None


def patience(votes: Sequence[Vote], tolerance: float) -> float:
    """Return the factor of ``tolerance`` for workloads that do not only wait
    for disks: from 1 to :data:`MOST_PATIENCE`.  Not in the paper."""
    disk_s = math.fsum(vote.disk_s for vote in votes)
    all_s = disk_s + math.fsum(vote.other_s or 0.0 for vote in votes)
    if disk_s <= 0 or any(vote.other_s is None for vote in votes):
        return 1.0
    return max(1.0, min(MOST_PATIENCE, SLOWDOWN * all_s / disk_s / tolerance))


def tolerated(sigma: float, samples: int, *, c: float, tolerance: float,
              smoothing: int) -> float:
    """Return by which share of mu the mean of some samples may be above mu.

    ``sigma`` as a share of mu.  A mean of fewer than ``smoothing`` samples
    may be that much further off.  Not in the paper.
    """
    return (max(c * sigma, tolerance)
            * math.sqrt(smoothing / min(samples, smoothing)))


def strain(ratios: Sequence[float], spread: float) -> float:
    """Excess of the mean of x / mu over what is tolerated.

    Above 1 the foreground suffers.  Not in the paper.
    """
    return (math.fsum(ratios) / len(ratios) - 1) / spread


def judge(strain: float) -> Verdict:
    """Return what a strain asks for.  Not in the paper."""
    if strain > 1:
        return Verdict.SHRINK
    return Verdict.HOLD if strain > EASE else Verdict.GROW


def _other_s(rated: WorkloadRates) -> float | None:
    """Return the seconds per second that a workload runs or waits for CPUs."""
    cores = signals.cores(rated)
    return None if cores is None else cores * (
        1 + (signals.number(rated.run_delay) or 0.0))


class IoBudget:
    """Operations per second that the background may do in all.

    * A workload learns its level from its first ``size`` samples, and keeps
      learning, while the background is quiet, and was so for all that a
      sample is of: what it then waits is not the background's doing.  One of
      which the best of the last day is known
      (``best_waits``) begins with that.  Until one has learnt, the
      background has its floors.  What comes later learns beside the others,
      which tell by how much the disk is slower at that moment.
    * All of them together, weighted by operations, are more than
      ``wait_tolerance`` (by :func:`patience`, and :data:`DEVIATIONS`) above
      their levels, or one is more than twice that: the total shrinks, at
      least by ``decrease_factor``, and by as much as the foreground is worse
      than tolerated; again after a whole mean, or sooner where that is sure:
      a disk is slow by itself for some seconds, in which cut upon cut would
      leave nothing.  Below half of it the total grows, if a workload uses
      all it may, faster until it is too much for the first time, and
      again beyond what was too much last; in between it stays.
    * A workload that is clearly below its level has learnt it too high: it
      is lowered.
    * Only what was measured again counts, once: for the window, for the mean
      of the last samples, and for a cut.  While nothing was, the total
      stays.
    * A workload below the gate of io_wait has no vote.  Without any vote
      the total grows, but when votes come back it is what it was at the
      last one.
    * A workload that never had an io_wait has no vote; if none ever had
      one, there is no total: the rule is off.  If none has one any more
      although there were some, the total holds for ``blind_ticks`` ticks,
      then the background gets its floors.
    * What is at its floor can be cut no further.  If the foreground suffers
      then, and the background still does a relevant share of all operations,
      the total goes below the floors: the caller says so.

    Nothing of it is in the paper.
    """

    def __init__(self, params: Params, size: int,
                 best: BestWaits | None = None) -> None:
        """
        :param params: may be replaced, but for ``wait_smoothing``; what was
            learnt stays
        :param size: samples from which a level is learnt
        :param best: what workloads waited at their best of the last day;
            more is learnt
        """
        self.params = params
        self.total: float | None = None
        self.verdict = Verdict.MINIMUM
        self.by = ''
        self.rule = 'off'
        self.strain: float | None = None
        self.ratio: float | None = None
        self._size = size
        self._smoothing = params.wait_smoothing
        self._best = best or BestWaits()
        self._levels: dict[RunKey, Level] = {}
        self._last: collections.deque[float] = collections.deque(
            maxlen=self._smoothing)
        self._since_cut = self._smoothing
        self._quiet_ticks = 0
        self._peak = 0.0
        self._proven = math.inf

    def observe(self, now: float, foreground: Iterable[WorkloadRates], *,
                used: float | None, floors: float, quiet: bool,
                binding: bool, most: float = MOST_OPS_PER_S) -> None:
        """Take this tick's io_wait and move the total.

        :param used: operations per second of all of the background
        :param floors: sum of its floors; ``most`` of what it may have
        :param quiet: it does not do more than its floors let it
        :param binding: a workload uses all that it may
        """
        self._quiet_ticks = self._quiet_ticks + 1 if quiet else 0
        votes, held, newcomers, missing = self._read_waits(now, foreground)
        if not self._levels:
            self.total, self.rule = None, 'off'
            self._last.clear()
            return
        self.rule = 'holding'
        if votes or not held:
            self.strain, self.ratio, self.by = None, None, ''
        low, suffers = floors, False
        if votes:
            verdict = self._vote(votes, held)
            suffers = verdict is Verdict.SHRINK
            if suffers and self._has_just_cut():
                verdict = Verdict.HOLD
                low = min(floors, self.total or floors)
            elif suffers and quiet:
                others = math.fsum(vote.weight for vote in (*votes, *held))
                if (used or 0.0) > RELEVANT * (others + (used or 0.0)):
                    low = floors / self.params.decrease_factor
                else:
                    verdict = Verdict.HOLD
        elif held:
            verdict = Verdict.HOLD
            low = min(floors, self.total or floors)
        else:
            self._last.clear()
            verdict = Verdict.HOLD if missing else Verdict.GROW
            if newcomers:
                verdict, self.rule = Verdict.MINIMUM, 'learning'
            elif missing > self.params.blind_ticks:
                verdict, self.rule = Verdict.MINIMUM, 'blind'
        for workload, level, x in newcomers:
            if x is None:
                continue
            if quiet:
                if level.learn(self._quiet_ticks) and level.window.full:
                    self._best.learn(now, workload, level.mu)
            elif votes and not suffers:
                level.window.add(x / max(1.0, self.ratio or 1.0))
        self._move(verdict, used=used, low=low, floors=floors,
                   most=max(most, low), binding=binding,
                   voted=bool(votes or held))

    def _read_waits(
            self, now: float, foreground: Iterable[WorkloadRates],
            ) -> tuple[list[Vote], list[Vote],
                       list[tuple[Workload, Level, float | None]], int]:
        """Return what votes, whose vote was counted before, what is learning
        (and what is new of it), for how long none could."""
        levels: dict[RunKey, Level] = {}
        votes: list[Vote] = []
        held: list[Vote] = []
        newcomers: list[tuple[Workload, Level, float | None]] = []
        missing = 0
        for rated in foreground:
            workload = rated[0]
            key = workload.run
            level = self._levels.get(key)
            x = signals.io_wait(rated)
            ops = signals.number(rated.io_ops_per_s)
            if x is None:
                if level is not None:
                    levels[key] = level
                    level.measure(None)
                    level.last.clear()      # soon of long ago
                    idle = ops is not None and ops < signals.MIN_OPS_PER_S
                    level.missing = 0 if idle else level.missing + 1
                    missing = max(missing, level.missing)
                continue
            if level is None:
                level = Level(self._size, self._smoothing,
                              self._best.of(workload))
            levels[key] = level
            level.missing = 0
            is_new = level.measure(x)
            if not level.window.full:
                newcomers.append((workload, level, x if is_new else None))
                continue
            vote = Vote(level, x / level.mu, ops or 1.0, workload.id,
                        level.mu * (ops or 0.0), _other_s(rated))
            if not is_new:
                held.append(vote)
                continue
            votes.append(vote)
            level.last.append(vote.ratio)
            if self._quiet_ticks and level.learn(self._quiet_ticks):
                self._best.learn(now, workload, level.mu)
        self._levels = levels
        return votes, held, newcomers, missing

    def _vote(self, votes: Sequence[Vote], held: Sequence[Vote]) -> Verdict:
        """What all of them ask for, and each; the tightest wins.

        Of those in ``held``, what they asked for before still counts.
        """
        p, smoothing = self.params, self._smoothing
        total = math.fsum(vote.weight for vote in votes)
        self.ratio = math.fsum(
            vote.weight / total * vote.ratio for vote in votes)
        self._last.append(self.ratio)
        self._since_cut += 1
        # As if they varied on their own.
        spread = tolerated(
            math.hypot(*(vote.weight / total * vote.level.sigma
                         for vote in votes)),
            len(self._last), c=DEVIATIONS,
            tolerance=p.wait_tolerance * patience(votes, p.wait_tolerance),
            smoothing=smoothing)
        worst, self.by = strain(self._last, spread), 'all'
        if worst < -1 and len(self._last) == smoothing:
            for vote in votes:
                vote.level.lower(worst, spread)
            self._last.clear()
        # A disk is slow for some seconds: successive samples are alike, so
        # the mean of some is hardly surer than one.
        c = family_factor(DEVIATIONS, len(votes) + len(held), 1)
        for vote in (*votes, *held):
            level = vote.level
            if not level.last:
                continue
            spread = tolerated(
                level.sigma, len(level.last), c=c,
                tolerance=ONE_FACTOR * p.wait_tolerance * patience(
                    [vote], p.wait_tolerance), smoothing=smoothing)
            own = strain(level.last, spread)
            if own > worst:
                worst, self.by = own, vote.name
            if own < -1 and len(level.last) == smoothing:
                level.lower(own, spread)
        self.strain = worst
        return judge(worst)

    def _has_just_cut(self) -> bool:
        """Return whether a cut cannot be judged by so few samples yet."""
        return ((self.total or 0.0) < self._peak
                and self._since_cut < self._smoothing
                and (self.strain or 0.0) <= SURE)

    def _move(self, verdict: Verdict, *, used: float | None, low: float,
              floors: float, most: float, binding: bool, voted: bool,
              ) -> None:
        self.verdict = verdict
        total = self.total
        if total is None:   # what it waits undisturbed is known from before
            total = max(floors, used or 0.0) if voted else floors
        if voted:
            total = min(total, self._proven)
        decrease = self.params.decrease_factor
        if verdict is Verdict.SHRINK:
            if used is not None:
                total = min(total, used)
            self._peak = total
            self._since_cut = 0
            decrease = max(decrease, self.strain or 0.0)
            # They tell of what was there before.
            self._last.clear()
            for level in self._levels.values():
                level.last.clear()
        elif verdict is Verdict.GROW and not binding:
            verdict = Verdict.HOLD
        share = self.params.increase_share
        # For all samples of a mean it did no harm beyond its last peak.
        if total > self._peak * (1 + share * self._smoothing):
            share = max(share, START_SHARE)
        self.total = next_quota(
            total, verdict, minimum=floors if verdict is Verdict.MINIMUM
            else low, maximum=most, decrease=decrease,
            increase=max(self._peak, total, floors) * share)
        if voted:
            self._proven = self.total

    def facts(self) -> dict[str, Any]:
        """The numbers behind the total; plain JSON values."""
        if self.total is None:
            return {'rule': 'off', 'why': 'no io_wait of any foreground '
                                          'workload is measurable here; '
                                          'cgroups need delay accounting'}
        learning = sum(1 for level in self._levels.values()
                       if not level.window.full)
        return {'rule': self.rule, 'budget_ops_per_s': self.total,
                'verdict': self.verdict.name.lower(), 'by': self.by,
                'slower': self.ratio, 'strain': self.strain,
                'workloads': len(self._levels), 'learning': learning}

    def state(self) -> dict[str, Any] | None:
        """Plain JSON values; ``None`` if there is nothing to keep."""
        if self.total is None:
            return None
        return {'total': self.total, 'peak': self._peak,
                'since_cut': self._since_cut,
                'proven': (self._proven if math.isfinite(self._proven)
                           else None),
                'last': list(self._last), 'levels': [
                    [*key, level.window.state(), list(level.last),
                     level.missing]
                    for key, level in self._levels.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``.

        :raises KeyError, TypeError, ValueError: it is not a state.
        """
        total, peak = quantity(state['total']), quantity(state['peak'])
        proven = state['proven']
        proven = math.inf if proven is None else quantity(proven)
        since_cut = int(quantity(state.get('since_cut', self._smoothing)))
        shared = [quantity(ratio) for ratio in state['last']]
        levels = {}
        for name, created_s, window, last, missing in state['levels']:
            level = Level(self._size, self._smoothing)
            level.window.load(window)
            level.last.extend(quantity(ratio) for ratio in last)
            level.missing = int(quantity(missing))
            levels[str(name), float(created_s)] = level
        self.total, self._peak, self._proven = total, peak, proven
        self._since_cut = since_cut
        self._last.extend(shared)
        self._levels = levels
