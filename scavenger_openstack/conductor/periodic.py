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
import time

from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack import errors

WORK_S = 900.0
"""A claim lasts so long if the process that has it dies; a step is much
shorter."""

AHEAD_S = 7200.0
"""So much more than the time that passed here a clock is believed."""

DAY_S = 86400.0

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
    :param note: the name of a note of that time, for work that deletes: what
        a clock that is set ahead says is not believed at once
    :param elapsed: seconds that only grow
    """

    def __init__(self, engine: connect.Engine, name: str, holder: str,
                 clock: Callable[[], float], stopped: Callable[[], bool],
                 steps: Callable[[float], Generator[int, None, None]],
                 next_s: Callable[[float], float], note: str = '',
                 elapsed: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._name = name
        self._holder = holder
        self._clock = clock
        self._stopped = stopped
        self._steps = steps
        self._next_s = next_s
        self._elapsed = elapsed
        self._note = note
        self._done: tuple[float, float] | None = None

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
        done, held_s = 0, now
        hold = now, now + AGAIN_S
        try:
            with contextlib.closing(self._steps(
                    self._until_s(now) if self._note else now)) as steps:
                for count in steps:
                    done += count
                    now_s = self._clock()
                    if self._stopped():
                        hold = now_s, now_s     # another process may go on
                        return done
                    if not 0 <= now_s - held_s < WORK_S / 4:
                        if not self._hold(now_s, now_s + WORK_S):
                            return done     # another process has it by now
                        held_s = now_s
            hold = now, self._next_s(now)
        finally:
            # Else the claim would keep others out for so long.
            with contextlib.suppress(errors.DatabaseError):
                self._hold(*hold)
        return done

    def _hold(self, now: float, until_s: float) -> bool:
        with connect.writing(self._engine) as connection:
            return claims.extend(connection, self._name, self._holder, now,
                                 until_s)

    def _until_s(self, now: float) -> float:
        """The time that counts as now.

        It is noted each time, and moves on by the time that passed here and
        two hours: what a clock that is set ahead says is not believed at
        once, nor forgotten what was noted when one is set back.
        """
        with connect.reading(self._engine) as connection:
            done_s = claims.noted(connection, self._note)
        if done_s is not None:
            if self._done is None or self._done[0] != done_s:
                self._done = done_s, self._elapsed()
            now = min(now, done_s + AHEAD_S
                      + self._elapsed() - self._done[1])
            if now < done_s - DAY_S:
                return now
        with connect.writing(self._engine) as connection:
            claims.note(connection, self._note, now)
        self._done = now, self._elapsed()
        return now
