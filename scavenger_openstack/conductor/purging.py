# SPDX-License-Identifier: Apache-2.0

"""Deletes by itself what is over and old, each hour."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
import time

from oslo_log import log

from scavenger_openstack.conductor import periodic
from scavenger_openstack.db import connect
from scavenger_openstack.db import purge

LOG = log.getLogger(__name__)

CLAIM = 'purge'
EVERY_S = 3600.0
DONE = 'purged'
"""The note of up to when that was done."""


def make_periodic(engine: connect.Engine, holder: str,
                  clock: Callable[[], float], stopped: Callable[[], bool],
                  elapsed: Callable[[], float] = time.monotonic, *,
                  days: int, audit_days: int, rows: int
                  ) -> periodic.Periodic:
    """What deletes in one of all conductors.

    :param days: what ended longer ago is deleted; 0 keeps it
    :param audit_days: the same for records of the audit
    :param rows: of each table, so many rows that are over are kept; 0 for
        all of them
    """

    def delete(now: float) -> Generator[int, None, None]:
        deleted = 0
        try:
            for _, count in purge.steps(
                    engine, now_s=now, older_than_s=days * purge.DAY_S,
                    audit_older_than_s=audit_days * purge.DAY_S):
                deleted += count
                yield count
            if rows:
                for count in purge.trim(engine, now_s=now, rows=rows):
                    deleted += count
                    yield count
        finally:
            if deleted:
                LOG.info('rows deleted that were over and old: %d', deleted)

    return periodic.Periodic(engine, CLAIM, holder, clock, stopped, delete,
                             lambda now: now + EVERY_S, DONE, elapsed)
