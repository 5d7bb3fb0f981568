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
import functools
import math
import time
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.algorithms.cpi2.specs import Statistics
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

DAY_S = 86400
DAYS = 60
"""Older samples weigh less than 0.2 %, and are left out."""

BATCH = 5000
"""Rows of one transaction."""

SpecKey = tuple[str, ...]
"""Project, application, CPU model, signal."""


class Aged(NamedTuple):
    """Samples, as of the day ``day_s``."""

    statistics: Statistics
    day_s: int

    def merge(self, other: Aged) -> Aged:
        """All samples of both, as of the later day."""
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
    """What makes them in one of all conductors."""
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
                statistics.end_specs, before_s=today_s - DAYS * DAY_S,
                most=BATCH)):
            changed += count
            yield count
    finally:
        if changed:
            with connect.writing(engine) as connection:
                reports.add_audit(connection, [{
                    'time_s': now, 'actor': 'conductor',
                    'action': directives.SPECS, 'target': '',
                    'reason': f'specs changed: {changed}'}])
                claims.count(connection, directives.SPECS_CHANGED)
            LOG.info('specs changed: %d', changed)


def merged(rows: Iterable[Any], today_s: int) -> dict[SpecKey, Aged]:
    """The rows of :func:`.statistics.waiting`, without what is too old, by
    key.  A day that has not come yet is today."""
    found: dict[SpecKey, Aged] = {}
    for row in rows:
        _, hour_s, n, mean, m2, *key = row
        day_s = min(today_s, hour_s // DAY_S * DAY_S)
        if day_s < today_s - DAYS * DAY_S:
            continue
        one = Aged(Statistics(n, mean, m2), day_s)
        before = found.get(tuple(key))
        found[tuple(key)] = one if before is None else before.merge(one)
    return found


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
    specs = merged(rows, today_s)
    for row in statistics.specs(connection, specs):
        key = row.project, row.application, row.cpu_model, row.signal
        specs[key] = specs[key].merge(
            Aged(Statistics(row.n, row.mean, row.m2), row.day_s))
    changed = [
        {**dict(zip(statistics.KEY, whose, strict=True)), 'n': one.n,
         'mean': one.mean, 'm2': one.m2, 'stddev': one.stddev or 0.0,
         'day_s': day_s} for whose, (one, day_s) in sorted(specs.items())
        if all(map(math.isfinite, (*one, one.stddev or 0.0)))]
    statistics.set_specs(connection, changed)
    return ids[-1], len(changed)
