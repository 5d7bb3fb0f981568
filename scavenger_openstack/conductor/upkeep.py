# SPDX-License-Identifier: Apache-2.0

"""What one of all conductors does from time to time with its own tables:
totals of antagonists advance, profiles of which no host has reported in time
are given up, and what is over and old is deleted."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
import functools
import time

from oslo_log import log

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor import periodic
from scavenger_openstack.db import connect
from scavenger_openstack.db import purge
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db.resources import profilings
from scavenger_openstack.db import totals

LOG = log.getLogger(__name__)

TOTALS = 'totals'
PURGE = 'purge'
"""Names of the claims."""

EVERY_S = 3600.0
"""So often old rows are deleted."""

DONE = 'purged'
"""The note of up to when that was done."""


def make_advancing(engine: connect.Engine, holder: str,
                   clock: Callable[[], float], stopped: Callable[[], bool],
                   elapsed: Callable[[], float] = time.monotonic
                   ) -> periodic.Periodic:
    """Return what advances all totals that are not of this hour and gives
    up profiles, in one of all conductors, at each turn."""
    return periodic.Periodic(engine, TOTALS, holder, clock, stopped,
                             functools.partial(_advance, engine),
                             lambda now: now, elapsed=elapsed)


def make_purging(engine: connect.Engine, holder: str,
                 clock: Callable[[], float], stopped: Callable[[], bool],
                 elapsed: Callable[[], float] = time.monotonic, *,
                 days: int, audit_days: int, rows: int
                 ) -> periodic.Periodic:
    """Return what deletes old rows in one of all conductors.

    :param days: what ended longer ago is deleted; 0 keeps it
    :param audit_days: the same for records of the audit
    :param rows: of each table, so many rows that are over are kept; 0 for
        all of them
    """

    def delete(now: float) -> Generator[int, None, None]:
        deleted = 0
        try:
            for _, count in purge.steps(
                    engine, now_s=now, older_than_s=days * DAY_S,
                    audit_older_than_s=audit_days * DAY_S):
                deleted += count
                yield count
            if rows:
                for count in purge.trim(engine, now_s=now, rows=rows):
                    deleted += count
                    yield count
            unsent = connect.retried(engine, notifications.trim,
                                     idempotent=True)
            if unsent:
                LOG.warning('notifications that were not sent are deleted, '
                            'as more than %d wait: %d; see whether '
                            'scavenger-conductor runs, and whether the '
                            'broker takes them', notifications.MOST, unsent)
            yield unsent
        finally:
            if deleted:
                LOG.info('rows deleted that were over and old: %d', deleted)

    return periodic.Periodic(engine, PURGE, holder, clock, stopped, delete,
                             lambda now: now + EVERY_S, DONE, elapsed)


def _advance(engine: connect.Engine, now: float
             ) -> Generator[int, None, None]:
    connect.retried(engine, functools.partial(
        profilings.give_up, now_s=now), idempotent=True)
    while hosts := connect.retried(engine, functools.partial(
            totals.advance, hour_s=reports.hour(now))):
        yield hosts
