# SPDX-License-Identifier: Apache-2.0

"""Specs of applications, from what all hosts reported.

Samples of a day weigh 0.9 of those of the next.  A spec holds all samples so
far, as of the day of its newest; what hosts have reported since is merged into
it, some rows in each transaction, and deleted.  Source: CPI2, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Mapping
import functools
import heapq
import math
import time
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.algorithms.cpi2.specs import Statistics
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor.admission.samples import HOUR_SAMPLES
from scavenger_openstack.conductor import periodic
from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import directives
from scavenger_openstack.db import reports
from scavenger_openstack.db import statistics
from scavenger_openstack import errors

LOG = log.getLogger(__name__)

CLAIM = 'specs'
DONE = 'specs-made'
"""The note of up to when that was done."""
EVERY_S = 3600
DELAY_S = 600
"""Specs are made again each hour, when its statistics have come."""

DAYS = 60
"""Older samples weigh less than 0.2 %, and are left out."""

BATCH = 5000
"""Rows of one transaction."""

FEW = 2
"""Other hosts of which the values bound those of a host."""

FAR = 3.0
"""Where there are fewer it is so many deviations around the spec, and a
quarter of its mean."""

SpecKey = tuple[str, ...]
"""Project, application, CPU model, signal."""


class Aged(NamedTuple):
    """Samples, as of the day ``day_s``."""

    statistics: Statistics
    day_s: int

    def merge(self, other: Aged) -> Aged:
        """Return all samples of both, as of the later day."""
        if self.day_s < other.day_s:
            return other.merge(self)
        days = (self.day_s - other.day_s) // DAY_S
        return Aged(self.statistics.merge(
            other.statistics.age(days) if days else other.statistics),
            self.day_s)


def make_periodic(engine: connect.Engine, holder: str,
                  clock: Callable[[], float], stopped: Callable[[], bool],
                  elapsed: Callable[[], float] = time.monotonic
                  ) -> periodic.Periodic:
    """Return what makes the specs in one of all conductors."""
    return periodic.Periodic(
        engine, CLAIM, holder, clock, stopped,
        functools.partial(refresh, engine),
        lambda now: (now // EVERY_S + 1) * EVERY_S + DELAY_S, DONE, elapsed)


def refresh(engine: connect.Engine, now: float
            ) -> Generator[int, None, None]:
    """Merge what has been reported until now into the specs.

    Yields after each transaction how many specs it changed.

    :raises DatabaseError: the database cannot be used.
    """
    today_s = int(now // DAY_S) * DAY_S
    last, after, changed = connect.read(engine, statistics.newest), 0, 0
    try:
        while after < last:
            after, count = connect.retried(engine, functools.partial(
                _merge, after=after, today_s=today_s), on_duplicate=True)
            changed += count
            yield count
        while count := connect.retried(engine, functools.partial(
                _end, before_s=today_s - DAYS * DAY_S)):
            changed += count
            yield count
    finally:
        if changed:
            with connect.writing(engine) as connection:
                reports.add_audit(connection, [{
                    'time_s': now, 'actor': 'conductor',
                    'action': directives.SPECS, 'target': '',
                    'reason': f'specs changed: {changed}'}])
            LOG.info('specs changed: %d', changed)


def merged(rows: Iterable[Any], before: Mapping[SpecKey, Aged],
           today_s: int) -> dict[SpecKey, Aged]:
    """Return what rows of :func:`.statistics.waiting` make of the specs, by
    key.  A day that has not come yet is today.

    :param before: the specs of these keys that there are
    """
    specs = dict(before)
    by_key: dict[SpecKey, list[Any]] = {}
    for row in rows:
        by_key.setdefault(_key(row), []).append(row)
    for key, of_key in by_key.items():
        ranges = Ranges(of_key)
        for row in of_key:
            aged = Aged(
                weighed(Statistics(row.n, row.mean, row.m2, row.cpu_cores),
                        ranges.limits(row.host_id, before.get(key))),
                min(today_s, row.hour_s // DAY_S * DAY_S))
            specs[key] = specs[key].merge(aged) if key in specs else aged
    return specs


def weighed(samples: Statistics, limits: tuple[float, float] | None
            ) -> Statistics:
    """Return what samples of a host count for: not more than those of another
    host, nor with a mean or a deviation that is beyond the limits.  Not in
    CPI2, where each sample of each machine counts."""
    n = min(samples.n, HOUR_SAMPLES)
    mean, m2 = samples.mean, samples.m2 * n / samples.n
    if limits is not None:
        least, most = limits
        mean = min(max(mean, least), most)
        m2 = min(m2, n * ((most - least) / 4) ** 2)
    return Statistics(n, mean, m2, samples.cpu_cores)


class Ranges:
    """The least and the greatest values of one application on hosts."""

    def __init__(self, rows: Iterable[Any]) -> None:
        least: dict[int, float] = {}
        most: dict[int, float] = {}
        for row in rows:
            host = row.host_id
            least[host] = min(row.least, least.get(host, row.least))
            most[host] = max(row.most, most.get(host, row.most))
        self._hosts = len(least)
        self._least = heapq.nsmallest(2, least.items(), lambda item: item[1])
        self._most = heapq.nlargest(2, most.items(), lambda item: item[1])

    def limits(self, host_id: int, spec: Aged | None
               ) -> tuple[float, float] | None:
        """Between which values a host counts: about those that :data:`FEW`
        other hosts have had, else about the spec; ``None`` without both."""
        if self._hosts > FEW:
            [least] = [value for host, value in self._least
                       if host != host_id][:1]
            [most] = [value for host, value in self._most
                      if host != host_id][:1]
            return least - (most - least), most + (most - least)
        if spec is None:
            return None
        mean = spec.statistics.mean
        wide = FAR * (spec.statistics.stddev or 0.0) + abs(mean) / 4
        return mean - wide, mean + wide


def _key(row: Any) -> SpecKey:
    return row.project, row.application, row.cpu_model, row.signal


def _end(connection: reports.Connection, before_s: float) -> int:
    """Delete specs without samples since then; return how many."""
    count = statistics.end_specs(connection, before_s=before_s, most=BATCH)
    if count:
        claims.count(connection, directives.SPECS_CHANGED)
    return count


def _merge(connection: reports.Connection, after: int, today_s: int
           ) -> tuple[int, int]:
    """Merge the rows that follow an id: the last id, and how many specs
    changed."""
    rows = statistics.waiting(connection, after, BATCH)
    if not rows:
        return 2 ** 63, 0
    ids = [row.id for row in rows]
    if statistics.remove(connection, ids) < len(ids):
        raise errors.DatabaseError('another conductor makes the specs')
    recent = [row for row in rows
              if row.hour_s >= today_s - DAYS * DAY_S]
    specs = merged(recent, {
        _key(row): Aged(Statistics(row.n, row.mean, row.m2, row.cpu_cores),
                        row.day_s)
        for row in statistics.specs(connection, set(map(_key, recent)))},
        today_s)
    changed = [
        {**dict(zip(statistics.KEY, whose, strict=True)), 'n': spec.n,
         'mean': spec.mean, 'm2': spec.m2, 'stddev': spec.stddev or 0.0,
         'cpu_cores': spec.cpu_cores, 'day_s': day_s}
        for whose, (spec, day_s) in sorted(specs.items())
        if all(map(math.isfinite, (*spec[:3], spec.stddev or 0.0)))]
    statistics.set_specs(connection, changed)
    if changed:
        claims.count(connection, directives.SPECS_CHANGED)
    return ids[-1], len(changed)
