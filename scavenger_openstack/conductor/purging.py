# SPDX-License-Identifier: Apache-2.0

"""Deletes by itself what is over and old, a part of an hour once."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import functools

from oslo_log import log

from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import purge
from scavenger_openstack import errors

LOG = log.getLogger(__name__)

CLAIM = 'purge'
EVERY_S = 3600.0
WORK_S = 900.0
"""A claim lasts so long if the process that has it dies."""
AGAIN_S = 60.0
"""After a failure any conductor tries again that much later."""


class Purging:
    """What one conductor does of it.

    :param holder: a name of this process that no other one has
    :param clock: UNIX time in seconds
    :param days: what ended longer ago is deleted; 0 keeps it
    :param rows: of each table, so many rows that are over are kept; 0 for
        all of them
    :param stopped: whether this process is to end
    """

    def __init__(self, engine: connect.Engine, holder: str,
                 clock: Callable[[], float], *, days: int, rows: int,
                 stopped: Callable[[], bool] = bool) -> None:
        self._engine = engine
        self._holder = holder
        self._clock = clock
        self._days = days
        self._rows = rows
        self._stopped = stopped

    def turn(self) -> int | None:
        """Delete what is due, unless another process does.

        :return: how many rows; ``None`` when it is not due here
        :raises DatabaseError: the database cannot be used
        """
        if not self._days and not self._rows:
            return None
        now = self._clock()
        if not connect.retried(self._engine, functools.partial(
                claims.take, name=CLAIM, holder=self._holder, now=now,
                until_s=now + WORK_S), on_duplicate=True):
            return None
        try:
            deleted = self._delete(now)
        except Exception:
            with contextlib.suppress(errors.DatabaseError):
                self._hold(now + AGAIN_S)
            raise
        # Another conductor goes on with what this one had no time for.
        self._hold(now if self._stopped() else now + EVERY_S)
        if deleted:
            LOG.info('rows deleted that were over and old: %d', deleted)
        return deleted

    def _delete(self, now: float) -> int:
        deleted = 0
        if self._days:
            deleted += sum(purge.run(
                self._engine, now_s=now, stopped=self._stopped,
                older_than_s=self._days * purge.DAY_S).values())
        if self._rows:
            deleted += purge.trim(self._engine, now_s=now, rows=self._rows,
                                  stopped=self._stopped)
        return deleted

    def _hold(self, until_s: float) -> None:
        with connect.writing(self._engine) as connection:
            claims.extend(connection, CLAIM, self._holder, until_s)
