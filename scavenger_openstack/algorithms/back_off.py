# SPDX-License-Identifier: Apache-2.0

"""How long to wait after what did not help, or failed, and how long something
stays on that comes and goes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LONGEST_S = 86400.0

RESET_FACTOR = 4.0
"""What was off for so many times its stay begins with the first one again."""


def longer(before: float, *, first: float, most: float) -> float:
    """Return how long to wait after one more failure: twice as long each time.

    :param before: how long it was the last time, 0 if this is the first
    :param first: how long at first; same unit, as is ``most``
    """
    return min(most, max(first, 2 * before))


class HoldTimes(NamedTuple):
    """How long something stays on that is not wanted any more: at first, and
    at the most.  In seconds."""

    first: float
    most: float


class Stay:
    """Whether something is on: while it is wanted, and for a while after.

    When it is wanted again soon after it went off, it stays for twice as long
    the next time.
    """

    __slots__ = ('on', 'stay_s', 'unwanted_since_s', '_bounds', '_off_s')

    def __init__(self, bounds: HoldTimes) -> None:
        self.on = False
        self.stay_s = bounds.first
        self.unwanted_since_s = math.inf
        """Since when it is not wanted; infinite while it is."""
        self._bounds = bounds
        self._off_s = -math.inf

    def want(self, now: float) -> None:
        """Turn it on: it is wanted from now on."""
        if not self.on:
            self.stay_s = self._bounds.first if self.is_reset(now) else (
                longer(self.stay_s, first=self.stay_s,
                       most=self._bounds.most))
        self.on, self.unwanted_since_s = True, math.inf

    def release(self, now: float, *, at_once: bool = False) -> bool:
        """Take that it is not wanted; return whether it stays."""
        self.unwanted_since_s = min(self.unwanted_since_s, now)
        if self.on and (at_once or now - self.unwanted_since_s >= self.stay_s):
            self.on, self._off_s = False, now
        return self.on

    def is_reset(self, now: float) -> bool:
        """Whether it went off so long ago that this is forgotten."""
        return not self.on and now - self._off_s >= RESET_FACTOR * self.stay_s
