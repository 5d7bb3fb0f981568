# SPDX-License-Identifier: Apache-2.0

"""Advances the totals of antagonists: what has left their spans goes."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import functools

from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import reports
from scavenger_openstack.db import totals
from scavenger_openstack import errors

CLAIM = 'totals'
WORK_S = 900.0
"""A claim lasts so long if the process that has it dies; it is extended."""


class Advancing:
    """Advances them where no other conductor does; for one thread.

    :param holder: a name of this process that no other one has
    :param clock: UNIX time in seconds
    :param stopped: whether this process is to end
    """

    def __init__(self, engine: connect.Engine, holder: str,
                 clock: Callable[[], float],
                 stopped: Callable[[], bool] = bool) -> None:
        self._engine = engine
        self._holder = holder
        self._clock = clock
        self._stopped = stopped

    def turn(self) -> int | None:
        """Advance all that are not of this hour, unless another process does.

        :return: above 0 when some were due; ``None`` when another process
            does it
        :raises DatabaseError: the database cannot be used
        """
        now = self._clock()
        if not connect.retried(self._engine, functools.partial(
                claims.take, name=CLAIM, holder=self._holder, now=now,
                until_s=now + WORK_S), on_duplicate=True):
            return None
        hosts = 0
        try:
            while done := connect.retried(self._engine, functools.partial(
                    totals.advance, hour_s=reports.hour(now))):
                hosts += done
                if self._stopped() or not self._hold(WORK_S):
                    return hosts    # another process goes on
        finally:
            # Else the claim would keep others out for so long.
            with contextlib.suppress(errors.DatabaseError):
                self._hold(0.0)
        return hosts

    def _hold(self, hold_s: float) -> bool:
        now = self._clock()
        with connect.writing(self._engine) as connection:
            return claims.extend(connection, CLAIM, self._holder, now,
                                 now + hold_s)
