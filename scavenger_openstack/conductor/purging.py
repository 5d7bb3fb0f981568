# SPDX-License-Identifier: Apache-2.0

"""Deletes by itself what is over and old, a part of an hour once."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import functools
import time

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
DONE = 'purged'
"""The note of up to when that was done."""
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
    :param elapsed: seconds that only grow
    """

    def __init__(self, engine: connect.Engine, holder: str,
                 clock: Callable[[], float], *, days: int, rows: int,
                 stopped: Callable[[], bool] = bool,
                 elapsed: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._holder = holder
        self._clock = clock
        self._days = days
        self._rows = rows
        self._stopped = stopped
        self._elapsed = elapsed
        self._done: tuple[float, float] | None = None

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
            deleted = self._delete(self._until_s(now))
        except Exception:
            with contextlib.suppress(errors.DatabaseError):
                self._hold(now, now + AGAIN_S)
            raise
        # Another conductor goes on with what this one had no time for.
        self._hold(now, now if self._stopped() else now + EVERY_S)
        if deleted:
            LOG.info('%d rows were deleted that were over and old', deleted)
        return deleted

    def _until_s(self, now: float) -> float:
        """The time that counts as now.

        It is noted each time, and moves on by the time that passed here and
        two hours: what a clock that is set ahead says is not believed at
        once, nor forgotten what was noted when one is set back.
        """
        with connect.reading(self._engine) as connection:
            done_s = claims.noted(connection, DONE)
        if done_s is not None:
            if self._done is None or self._done[0] != done_s:
                self._done = done_s, self._elapsed()
            now = min(now, done_s + 2 * EVERY_S
                      + self._elapsed() - self._done[1])
            if now < done_s - purge.DAY_S:
                return now
        with connect.writing(self._engine) as connection:
            claims.note(connection, DONE, now)
        self._done = now, self._elapsed()
        return now

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

    def _hold(self, now: float, until_s: float) -> None:
        with connect.writing(self._engine) as connection:
            claims.extend(connection, CLAIM, self._holder, now, until_s)
