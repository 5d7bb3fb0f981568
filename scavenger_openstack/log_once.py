# SPDX-License-Identifier: Apache-2.0

"""What was logged already, so that each problem is logged once, or at a
bounded rate: the only memory of that."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Mapping
import math
import threading
from typing import TypeVar

MOST = 4096
"""So many things with problems are remembered; then all are forgotten, since
most of them have ended."""


SAME_CAUSE = '; others with the same cause are not logged'
"""Ends the line about the first of many things that have one cause."""


K = TypeVar('K', bound=Hashable)


class LogOnce:
    """Which problem each thing has, as far as it was due for the log.

    A problem that things have for a common cause, such as an option that this
    kernel was not built with, is logged with the first of them only.  Threads
    may share it.

    :param most: so many things are remembered
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._problems: dict[Hashable, Hashable] = {}
        self._logged_s: dict[Hashable, float] = {}
        self._causes: set[Hashable] = set()

    def due(self, about: Hashable, problem: Hashable = '',
            cause: Hashable = '', *, now_s: float = 0.0,
            every_s: float = math.inf) -> bool:
        """Whether to log a problem: it is new, and so is its cause.

        :param about: what has it
        :param problem: distinguishes it from others of the same thing
        :param cause: the fact of the host that it comes from, if it does
        :param every_s: after so long it is logged again, if it is still there
        """
        now = cause or problem
        again = not (
            0 <= now_s - self._logged_s.get(about, now_s) < every_s)
        if self._problems.get(about, self) == now and not again:
            return False
        if len(self._problems) >= self._most:
            self._problems.clear()
            self._logged_s.clear()
            self._causes.clear()
        self._problems[about] = now
        if every_s < math.inf:
            self._logged_s[about] = now_s
        if cause in self._causes and not again:
            return False
        if cause:
            self._causes.add(cause)
        return True

    def over(self, about: Hashable) -> bool:
        """Note that something has no problem any more; whether it had one.

        A cause is over when nothing has a problem from it.
        """
        self._logged_s.pop(about, None)
        problem = self._problems.pop(about, self)
        if problem is self:
            return False
        if problem in self._causes and problem not in list(
                self._problems.values()):
            self._causes.discard(problem)
        return True

    def all_due(self, problems: Mapping[K, Hashable]) -> list[K]:
        """Return what to log, when these are all problems that there are."""
        for about in self._problems.keys() - problems.keys():
            self.over(about)
        return [about for about, problem in problems.items()
                if self.due(about, problem)]

    def forget(self, about: Hashable) -> None:
        """Note that something has ended: that says nothing of a cause."""
        self._problems.pop(about, None)
        self._logged_s.pop(about, None)


class Quota:
    """At most ``most`` lines in ``every_s``, each once in that time: for what
    a client may have logged as often as it likes.  Threads may share it.
    """

    def __init__(self, most: int, every_s: float) -> None:
        self._most = most
        self._every_s = every_s
        self._lock = threading.Lock()
        self._logged_s: dict[Hashable, float] = {}

    def take(self, about: Hashable, now_s: float) -> int | None:
        """How many lines are left after this one, ``None`` when it is not to
        be logged."""
        with self._lock:
            # In the order of their times, unless the clock was set.
            while oldest := next(iter(self._logged_s.items()), None):
                if 0 <= now_s - oldest[1] < self._every_s:
                    break
                self._logged_s.pop(oldest[0], None)
            if about in self._logged_s or len(self._logged_s) >= self._most:
                return None
            self._logged_s[about] = now_s
            return self._most - len(self._logged_s)
