# SPDX-License-Identifier: Apache-2.0

"""Work that one of all conductors does from time to time, in steps."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
import contextlib
import time

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor import leader
from scavenger_openstack.db import claims
from scavenger_openstack.db import connect

EVERY_S = 60.0
"""How often a conductor looks for what is due."""

AHEAD_S = 7200.0
"""So much more than the time that passed here a clock is believed."""

SLACK_S = 60.0
"""So far the clocks of two conductors may be apart."""


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
        self._clock = clock
        self._stopped = stopped
        self._steps = steps
        self._next_s = next_s
        self._elapsed = elapsed
        self._note = note
        self._due_note = f'{name}-due'
        self._done: tuple[float, float] | None = None
        self._count: int | None = None
        self._leader = leader.Leader(
            engine, name, holder, clock, self._do_steps, every_s=EVERY_S,
            what=name, elapsed=elapsed)

    def turn(self) -> int | None:
        """Do what is due, unless another process does.

        After a failure any conductor may try again.

        :return: the sum of what the steps yielded; ``None`` when nothing is
            due here
        :raises DatabaseError: the database cannot be used
        """
        self._count = None
        try:
            self._leader.step()
        except BaseException:
            self._leader.release()
            raise
        if self._stopped():
            self._leader.release()
        return self._count

    def release(self) -> None:
        """Leave the work to any other conductor."""
        self._leader.release()

    def _do_steps(self, still: Callable[[], None]) -> None:
        now = self._clock()
        if not self._is_due(now):
            return
        self._count = 0
        with contextlib.closing(self._steps(
                self._until_s(now) if self._note else now)) as steps:
            for count in steps:
                self._count += count
                if self._stopped():
                    return
                still()
        if self._next_s(now) > now:
            with connect.writing(self._engine) as connection:
                claims.note(connection, self._due_note, self._next_s(now))

    def _is_due(self, now: float) -> bool:
        """Whether the time has come; one that is too far ahead is of a clock
        that was, and counts for nothing."""
        with connect.reading(self._engine) as connection:
            due_s = claims.noted(connection, self._due_note)
        return due_s is None or not (
            now < due_s <= self._next_s(now) + SLACK_S)

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
