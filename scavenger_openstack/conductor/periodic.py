# SPDX-License-Identifier: Apache-2.0

"""Work that one of all conductors does from time to time, in steps.

A row of the database says which one does it: the claim is extended between
the steps, and when its conductor dies another one goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
import contextlib
import functools

from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack import errors

WORK_S = 900.0
"""A claim lasts so long if the process that has it dies; a step is much
shorter."""

AGAIN_S = 60.0
"""After a failure any conductor tries again that much later."""


class Periodic:
    """The part of one conductor in such work; for one thread.

    :param name: of the claim
    :param holder: a name of this process that no other one has
    :param clock: UNIX time in seconds
    :param stopped: whether this process is to end: no step is begun any more
    :param steps: for a time, what does the work: a transaction or a few
        before each number that it yields
    :param next_s: after that time, when the work is due again
    """

    def __init__(self, engine: connect.Engine, name: str, holder: str,
                 clock: Callable[[], float], stopped: Callable[[], bool],
                 steps: Callable[[float], Generator[int, None, None]],
                 next_s: Callable[[float], float]) -> None:
        self._engine = engine
        self._name = name
        self._holder = holder
        self._clock = clock
        self._stopped = stopped
        self._steps = steps
        self._next_s = next_s

    def turn(self) -> int | None:
        """Do what is due, unless another process does.

        :return: the sum of what the steps yielded; ``None`` when nothing is
            due here
        :raises DatabaseError: the database cannot be used
        """
        now = self._clock()
        if not connect.retried(self._engine, functools.partial(
                claims.take, name=self._name, holder=self._holder, now=now,
                until_s=now + WORK_S), on_duplicate=True):
            return None
        done, until_s, held_s = 0, now + AGAIN_S, now
        try:
            with contextlib.closing(self._steps(now)) as steps:
                for count in steps:
                    done += count
                    now_s = self._clock()
                    if self._stopped():
                        until_s = now_s     # another process may go on
                        return done
                    if not 0 <= now_s - held_s < WORK_S / 4:
                        if not self._hold(now_s + WORK_S):
                            return done     # another process has it by now
                        held_s = now_s
            until_s = self._next_s(now)
        finally:
            # Else the claim would keep others out for so long.
            with contextlib.suppress(errors.DatabaseError):
                self._hold(until_s)
        return done

    def _hold(self, until_s: float) -> bool:
        with connect.writing(self._engine) as connection:
            return claims.extend(connection, self._name, self._holder,
                                 until_s)
