# SPDX-License-Identifier: Apache-2.0


"""The best constant allocation, found with full knowledge: a yardstick.

It sees the latencies that no controller sees and tries one seed again and
again.  A policy that follows the load may do better than any constant.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory.bench import Allocation
from scavenger_openstack.laboratory.bench import Outcome
from scavenger_openstack.laboratory import score as scoring
from scavenger_openstack.laboratory.score import Score
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.types import Priority

LIMIT = 1.05
"""What the foreground may feel: mean P99 over that alone."""

NEAR = 0.02
"""Ratios that are closer than this are the same to an operator."""

STEPS = 4
"""How often a share is halved: of all together, then of each by itself."""

WORTH = 0.01
"""What would gain less work than this from no limit is not searched for."""

SHARED_IN_TURN = ('disk', 'link')
"""Where one that takes less leaves room for others of the background."""

USES = {'cpus': scoring.uses_cpu, 'memory': scoring.uses_memory,
        'link': scoring.uses_link, 'disk': scoring.uses_disk}


class Found(NamedTuple):
    """The best of all allocations that were tried.

    ``kept``: it keeps to :data:`LIMIT` and to the memory that there is.
    When the least allocation does not, the best is taken of those that
    hurt hardly more than that.
    """

    allocation: Allocation
    score: Score
    kept: bool
    tried: int


def _with(allocation: Allocation, name: str,
          share: float | None) -> Allocation:
    values: dict[str, Any] = {name: share}
    return allocation._replace(**values)


class Oracle:
    """Tries allocations on one seed and remembers each."""

    def __init__(self, drawn: Drawn, *, alone: Outcome,
                 unmanaged: Outcome) -> None:
        self._drawn = drawn
        self._alone = alone
        self._unmanaged = unmanaged
        background = [tenant for tenant in drawn.tenants
                      if tenant.priority is Priority.BACKGROUND]
        vcpus = sum([tenant.vcpus for tenant in background])
        # An allocation is divided by vCPUs, also among those that do not
        # use it: so much of it gives those that do the whole machine.
        self._whole = {
            name: vcpus / sum([tenant.vcpus for tenant in background
                               if uses(tenant)])
            for name, uses in USES.items()
            if any(uses(tenant) for tenant in background)}
        self._tried = {Allocation(): scoring.score(
            drawn, unmanaged, alone=alone, unmanaged=unmanaged)}
        self._limit = LIMIT

    def best(self, tried: Mapping[Allocation, Score] | None = None) -> Found:
        """Search; ``tried`` are allocations that were tried before."""
        self._tried.update(tried or {})
        idles = (True, False) if 'cpus' in self._whole else (False,)
        least = []
        for idle in idles:
            least.append(self._try(self._together(0.0, idle)))
            if self._keeps(least[-1]):
                break
        self._limit = max(LIMIT, NEAR + min([
            score.p99_ratio or 1.0 for score in least]))
        for idle in idles:
            allocation = self._search(idle)
            if allocation.idle and self._fine(allocation._replace(idle=False)):
                break   # without it there is no more room, only more use
        allocation = max(self._tried, key=self._rank)
        score = self._tried[allocation]
        return Found(allocation, score,
                     self._keeps(score) and self._limit == LIMIT,
                     len(self._tried))

    def _search(self, idle: bool) -> Allocation:
        """No limit if that is fine; else the largest share of everything
        that is, and then of each resource by itself."""
        allocation = Allocation(idle=idle)
        if self._fine(allocation):
            return allocation
        allocation = self._together(0.0, idle)
        if not self._fine(allocation) or self._most() >= 1 - NEAR:
            return allocation    # hardly more is to be had
        share = self._largest(
            lambda share: self._together(share, idle), 0.0)
        allocation = self._together(share, idle)
        if len(self._whole) > 1:
            for name in self._whole:
                allocation = self._widen(allocation, name, share)
        for name in SHARED_IN_TURN:
            allocation = self._narrow(allocation, name)
        return allocation

    def _most(self) -> float:
        """The most work so far that the foreground can live with."""
        return max([score.work_ratio or 0.0
                    for score in self._tried.values() if self._keeps(score)],
                   default=0.0)

    def _widen(self, allocation: Allocation, name: str,
               share: float) -> Allocation:
        """Give more of one resource, if that is fine and of use."""
        free = _with(allocation, name, None)
        if self._fine(free):
            return free
        gain = ((self._try(free).work_ratio or 0.0)
                - (self._try(allocation).work_ratio or 0.0))
        if gain < WORTH:
            return allocation
        whole = self._whole[name]
        return _with(allocation, name, whole * self._largest(
            lambda share: _with(allocation, name, share * whole), share))

    def _narrow(self, allocation: Allocation, name: str) -> Allocation:
        """Less for the greedy may be more for the others."""
        share = getattr(allocation, name)
        while share:
            share /= 2
            less = _with(allocation, name, share)
            if (self._try(less).work_ratio or 0.0) <= (
                    self._try(allocation).work_ratio or 0.0):
                break
            allocation = less
        return allocation

    def _together(self, share: float, idle: bool) -> Allocation:
        """Return the same share of everything that the background uses."""
        allocation = Allocation(idle=idle)
        for name, whole in self._whole.items():
            allocation = _with(allocation, name, share * whole)
        return allocation

    def _largest(self, make: Callable[[float], Allocation],
                 low: float) -> float:
        """The largest share from ``low``, which is fine, up to 1."""
        high = 1.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            if self._fine(make(middle)):
                low = middle
            else:
                high = middle
        return low

    def _fine(self, allocation: Allocation) -> bool:
        return self._keeps(self._try(allocation))

    def _try(self, allocation: Allocation) -> Score:
        score = self._tried.get(allocation)
        if score is None:
            outcome = bench.run(self._drawn,
                                bench.Policy(allocation=allocation))
            score = self._tried[allocation] = scoring.score(
                self._drawn, outcome, alone=self._alone,
                unmanaged=self._unmanaged)
        return score

    def _excess_s(self, score: Score) -> float:
        """Short of memory for longer than the foreground makes it."""
        return max(0.0, score.violation_s - self._alone.violation_s)

    def _keeps(self, score: Score) -> bool:
        return ((score.p99_ratio or 1.0) <= self._limit
                and not self._excess_s(score))

    def _rank(self, allocation: Allocation) -> tuple[float, ...]:
        score = self._tried[allocation]
        hurt, work = score.p99_ratio or 1.0, score.work_ratio or 0.0
        if self._keeps(score):
            return 1.0, work, -hurt
        return 0.0, -self._excess_s(score), -hurt, work
