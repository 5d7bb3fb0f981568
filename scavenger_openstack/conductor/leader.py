# SPDX-License-Identifier: Apache-2.0

"""Work that goes on in one of all conductors, turn after turn.

A row of the database says in which: the claim is extended before it ends,
and when its conductor dies another one has it a minute later.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import functools
import threading
import time

from oslo_log import log

from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack import text
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

HOLD_S = 60.0
"""A claim lasts so long if the process that has it dies, or two turns."""

STATEMENT_S = 60.0
"""Deadline of a statement of such work, longer than that of a report: it
may concern all hosts."""

REPEAT_S = 3600.0
"""What goes on failing is logged again after that."""

MOST_PAUSE_S = 120.0
"""After failures the pause doubles, up to so much."""


class Lost(Exception):
    """Another conductor has the work by now, or this one ends."""


class Leader:
    """The part of one conductor in such work.

    :param name: of the claim, and of the thread
    :param holder: a name of this process that no other one has
    :param clock: UNIX time in seconds, for those that look at the claim
    :param turn: does a turn; it calls what it is given at least once in
        :data:`HOLD_S`, which raises :class:`Lost`
    :param what: what is not done when it fails, for the log
    :param elapsed: seconds that only grow
    :param taken: is called before the first turn after the work was
        another's, or may have been
    """

    def __init__(self, engine: connect.Engine, name: str, holder: str,
                 clock: Callable[[], float],
                 turn: Callable[[Callable[[], None]], object], *,
                 every_s: float, what: str,
                 elapsed: Callable[[], float] = time.monotonic,
                 taken: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._taken = taken
        self._name = name
        self._claim = claims.Claim(name, holder, elapsed)
        self._elapsed = elapsed
        self._clock = clock
        self._turn = turn
        self._every_s = every_s
        self._hold_s = max(HOLD_S, 2 * every_s)
        self._what = what
        self._claimed_s: float | None = None
        self.turn_s: float | None = None
        """When a turn has succeeded here last, in UNIX time."""
        self._failures = 0
        self._logged = log_once.LogOnce()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Do the work from now on, in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name=self._name)
        self._thread.start()

    @property
    def name(self) -> str:
        """The name of the claim."""
        return self._name

    @property
    def leads(self) -> bool:
        """Whether this conductor has the work."""
        return self._claimed_s is not None and not self._stop.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def stop_soon(self) -> None:
        """Begin no other turn, and end the one at hand where it can."""
        self._stop.set()

    def stop(self, timeout_s: float | None = None) -> None:
        """End the work; another conductor may go on at once.

        :param timeout_s: so long it may take; what lasts longer goes on until
            the process ends, and its claim holds
        """
        self.stop_soon()
        if self._thread is not None:
            self._thread.join(timeout_s and max(0.0, timeout_s))
            if self._thread.is_alive():
                LOG.warning('%s: work that was not done in time ends with '
                            'the process', self._what)
                return
        self.release()

    def release(self) -> None:
        """Leave the work to any conductor, if this one has it."""
        if self._claimed_s is not None:
            self._claimed_s = None
            with contextlib.suppress(errors.DatabaseError):
                with connect.writing(self._engine) as connection:
                    self._claim.extend(connection, self._clock(), 0.0)

    def step(self) -> bool:
        """Do one turn, unless another conductor has the work.

        :raises ScavengerError: it failed.
        """
        try:
            if self._claimed_s is None:
                if not self._take():
                    return False
            else:
                self._still()
            self._turn(self._still)
            self.turn_s = self._clock()
        except Lost:
            if not self._stop.is_set():
                self._claimed_s = None
            return False
        return True

    def _take(self) -> bool:
        now = self._elapsed()
        if not connect.retried(self._engine, functools.partial(
                self._claim.take, now=self._clock(), hold_s=self._hold_s),
                on_duplicate=True):
            return False
        self._claimed_s = now
        self._taken()
        return True

    def _still(self) -> None:
        """Extend the claim, if that is due.

        :raises Lost: it is another's.
        """
        now = self._elapsed()
        if self._stop.is_set():
            raise Lost
        if self._claimed_s is not None and (
                now - self._claimed_s < self._hold_s / 4):
            return
        if not connect.retried(self._engine, functools.partial(
                self._claim.extend, now=self._clock(), hold_s=self._hold_s),
                idempotent=True):
            raise Lost
        self._claimed_s = now

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s()):
            try:
                done = self.step()
            except errors.ScavengerError as exc:
                self._failed(str(exc))
            except Exception as exc:
                LOG.exception('%s', self._what)
                self._failed(f'{type(exc).__name__}: {exc}')
            else:
                if done and self._failures:
                    LOG.info('%s: that is over', self._what)
                self._failures = 0
                self._logged.over(self._name)

    def _pause_s(self) -> float:
        return max(self._every_s, min(
            MOST_PAUSE_S, self._every_s * 2.0 ** self._failures))

    def _failed(self, why: str) -> None:
        self._failures = min(self._failures + 1, 10)
        why = printable(why)
        if self._logged.due(self._name, text.without_ids(why),
                            now_s=self._clock(), every_s=REPEAT_S):
            LOG.warning('%s, tried again in %.0f s and later: %s', self._what,
                        self._pause_s(), why)
