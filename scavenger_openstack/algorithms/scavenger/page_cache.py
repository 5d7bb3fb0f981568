# SPDX-License-Identifier: Apache-2.0


"""Page cache: background work has none that the foreground would use.

Not in the papers.  To Scavenger's memory rule page cache is free memory, so
background work may displace all of it, and a file server reads from disk.
Here background work counts with its own cache, and may have

* what it has, and what is free;
* beyond that, of the cache of the foreground, a small step at a time, as long
  as the foreground does not read from disk again what it had in the cache
  (the kernel counts these pages: refaults);
* while the foreground does, no more than it has, and less of its own cache in
  each tick.  What it uses itself (``memory_bytes``) stays: only its cache can
  be reclaimed.

A limit holds back and ends nothing.  So above what a workload uses there is
room for what it may come to use until the next tick, in place of its cache.
Where the kernel slows what grows against a limit (cgroup v2) that is little,
and all together a step while the foreground is well.  Where it ends a process
(v1) it is a step for each, at any time.

What the foreground reads again is all that the host does less what the
background does, so daemons and unknown cgroups are protected, too.  A service
whose files need more memory than there is reads again all the time, whatever
the background has.  Such a rate is tolerated once it was measured while the
background had given up all the cache that it could, and had no more memory
than when the foreground was last well: the background is not to blame then.

Letters: R is what the foreground reads again, in bytes per second.

Weird input: ``None``, NaN and infinite numbers are unknown.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.back_off import HoldTimes
from scavenger_openstack.algorithms.back_off import Stay
from scavenger_openstack.algorithms.max_min import DEMAND_FACTOR
from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms.scavenger.params import Params
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.types import Rates
from scavenger_openstack.types import RunKey
from scavenger_openstack.types import WorkloadRates

MIB = 2.0 ** 20

SMOOTHING = 3
"""Samples of R whose mean is judged: a burst is no shortage."""

SETTLED = 30
"""Samples of R, all taken while the background had the least, that make what
is usual."""

DEVIATIONS = 2.0
"""Standard deviations by which a mean may be above that of the usual."""

PATIENCE = 1800
"""After so many of them what is usual is learnt, however much the background
has: it could never grow beside a new service that never rests."""

LESS_USUAL = 0.5
"""What is usual is learnt again when it was less than this share of that for
:data:`SETTLED` samples."""

SHORT_FACTOR = 2.0
"""While more than so many times the headroom is free, nothing was dropped for
want of memory: a cgroup met a limit of its own, or its cache fills again."""

STEP_SHARE = 0.01
"""Of all memory: a step into the cache of the foreground."""

STEP_TICKS = 5
"""Ticks from one step into the cache of the foreground to the next: what was
dropped is missed when it is needed again."""

CUT_SHARE = 0.1
"""Part of its own cache that a background workload loses per tick."""

LEAST_CACHE = 32.0 * MIB
"""A workload keeps so much cache: the text of its programs, mostly."""

GROWTH = 0.05
"""What a workload uses may always grow by this share in a tick."""

SAME = 0.02
"""Limits and amounts that differ by less are the same: in force may be the
lower one."""

HOLD = HoldTimes(60.0, 900.0)
"""For how long the background does not grow after the foreground suffered."""


class Held(NamedTuple):
    """What one background workload has, in bytes.

    ``total`` is what it uses, with its cache; ``low`` what it keeps in any
    case.
    """

    key: RunKey
    used: float
    cache: float
    total: float
    weight: float
    low: float

    def needs(self, room: float) -> float:
        """Return the limit that leaves room to use more in a tick.

        :param room: at least so much
        """
        least = GROWTH * self.used + LEAST_CACHE
        need = (self.used + (room if room > least else least)) * (1 + SAME)
        return need if need > self.low else self.low


def foreground_refaults(rates: Rates, background: Iterable[WorkloadRates]
                        ) -> float | None:
    """R: what the host reads again, less what the background does.

    A workload of which that is not known, as a new one, counts as the
    foreground: this protects more.  ``None``: the host does not tell.
    """
    whole = number(rates.refault_bytes_per_s)
    if not whole:
        return whole        # nothing was read again, or it is not known
    return max(0.0, whole - math.fsum(
        number(rated.refault_bytes_per_s) or 0.0 for rated in background))


class PageCache:
    """The rule over one host.  It remembers, nothing else.

    :ivar params: may be replaced; what was learnt stays
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self._rates: collections.deque[float] = collections.deque(
            maxlen=SETTLED)
        self._limits: dict[RunKey, float] = {}
        self._hold = Stay(HOLD)
        self._usual = 0.0
        self._well_bytes = math.inf     # of the background, at the last time
        self._least_ticks = self._step_ticks = 0
        self._granted = 0.0
        self._facts: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        """The numbers of the last step; plain JSON values."""
        return self._facts

    def step(self, now: float, rates: Rates,
             background: Sequence[WorkloadRates], floors: Sequence[float]
             ) -> list[float] | None:
        """Return the most that each background workload may have, its own
        cache included, in bytes; ``None``: there is no rule.

        While R is missing, nothing grows.  A workload of which the use is
        not known has no limit: infinite.
        """
        total = number(rates.memory_total_bytes)
        free = number(rates.memory_free_bytes)
        refaults = foreground_refaults(rates, background)
        if refaults is not None:
            self._rates.append(refaults)
        if not total or free is None or not self._rates:
            self._limits = {}
            self._facts = {'rule': 'off', 'why': 'not measurable here'}
            return None
        workloads = []
        for rated, low in zip(background, floors, strict=True):
            used = number(rated.memory_bytes) or 0.0
            cache = number(rated.page_cache_bytes) or 0.0
            workloads.append(Held(rated[0].run, used, cache, used + cache,
                                  rated[0].vcpus, low))
        uses = math.fsum(held.total for held in workloads)
        recent = [*self._rates][-SMOOTHING:]
        rate = math.fsum(recent) / SMOOTHING
        headroom = self.params.min_headroom * total
        step = STEP_SHARE * total
        room = step if rates.memory_limit_ends else 0.0
        is_short = free < SHORT_FACTOR * headroom
        suffers = (is_short and refaults is not None
                   and len(recent) == SMOOTHING and rate > self.tolerated)
        if suffers:
            self._hold.want(now)
            self._cut(workloads, CUT_SHARE, room)
            self._learn(uses)
        else:
            self._least_ticks = 0
            if rate <= self.tolerated and len(recent) == SMOOTHING:
                self._well_bytes = uses
                if self._usual and (
                        self._usual_rate() < LESS_USUAL * self._usual):
                    self._usual = self._usual_rate()
            if self._hold.release(now) or refaults is None:
                self._cut(workloads, 0.0, room)
            else:
                self._grow(workloads, uses, max(0.0, free - headroom), step,
                           room)
        self._facts = {
            'rule': ('cutting' if suffers else 'holding' if self._hold.on
                     else 'blind' if refaults is None else 'growing'),
            'refault_bytes_per_s': rate, 'tolerated': self.tolerated,
            'free': free, 'used': uses,
            'cache': math.fsum(held.cache for held in workloads),
            'limit': math.fsum(self._limits.values())}
        return [math.inf if number(rated.memory_bytes) is None
                else self._limits[held.key]
                for rated, held in zip(background, workloads, strict=True)]

    @property
    def tolerated(self) -> float:
        """R that is no harm: the tolerance above what is usual."""
        return self.params.page_cache_refault_bytes_per_s + self._usual

    def _usual_rate(self) -> float:
        """What the mean of a few samples of R usually stays below."""
        mean = statistics.fmean(self._rates)
        variance = statistics.fmean(
            (rate - mean) ** 2 for rate in self._rates)
        return mean + DEVIATIONS * math.sqrt(variance / SMOOTHING)

    def _cut(self, workloads: Iterable[Held], share: float, room: float
             ) -> None:
        """Let nothing grow, and take a share of its cache from each.

        :param room: that a limit has to leave; 0 where it may leave none
        """
        before, self._limits = self._limits, {}
        for held in workloads:
            least = held.needs(room)
            limit = before.get(held.key)
            if limit is None:
                limit = max(held.total, least)
            elif room or held.used > limit:     # or it could not be limited
                limit = max(limit, least)
            if share and limit > least:
                limit = max(least, min(limit, held.total)
                            - share * held.cache)
            self._limits[held.key] = limit

    def _learn(self, uses: float) -> None:
        """Tolerate a rate for which the background is not to blame."""
        before = self._granted
        self._granted = math.fsum(self._limits.values())
        if self._granted < before * (1 - SAME / 10):
            self._least_ticks = 0
            return
        self._least_ticks += 1
        if self._least_ticks >= SETTLED and (
                uses <= self._well_bytes or self._least_ticks >= PATIENCE):
            self._usual = self._usual_rate()
            self._least_ticks = 0

    def _grow(self, workloads: Sequence[Held], uses: float, free: float,
              step: float, room: float) -> None:
        """Let all grow into what is free, or by a step.

        :param uses: what they use together
        :param room: as in :meth:`_cut`
        """
        before = self._limits
        growing = {held.key for held in workloads
                   if held.total >= (1 - SAME) * before.get(held.key, 0.0)}
        part = step / max(1, len(growing))
        granted = min(max(self._granted, uses), uses + step)
        self._step_ticks += 1
        if self._step_ticks >= STEP_TICKS and growing:
            self._step_ticks = 0
            granted = uses + step
        newcomers = sum(held.key not in before for held in workloads)
        granted = self._granted = max(granted, uses + newcomers * part,
                                      uses + free)
        shares = split(
            granted, [max(held.total * DEMAND_FACTOR,
                          held.needs(part) if held.key in growing else 0.0)
                      for held in workloads],
            [held.weight for held in workloads],
            # None loses cache so that another might grow.
            [max(held.low, held.total) for held in workloads])
        self._limits = {}
        for held, share in zip(workloads, shares, strict=True):
            limit = before.get(held.key, 0.0)
            # Each write has a price.
            self._limits[held.key] = max(
                limit if abs(share - limit) <= SAME * share else share,
                held.needs(room) if room else 0.0)


def reason(facts: Mapping[str, Any], count: int) -> str:
    """The sentence that explains a limit out of :meth:`PageCache.facts`."""
    return (f'page cache: the foreground reads '
            f'{facts["refault_bytes_per_s"] / MIB:.2f} MiB/s again that it '
            f'had in its page cache (tolerated '
            f'{facts["tolerated"] / MIB:.2f}), {facts["free"] / MIB:.0f} MiB '
            f'are free, {count} background workload{"s" * (count != 1)} '
            f'may have {facts["limit"] / MIB:.0f} MiB with their cache')
