# SPDX-License-Identifier: Apache-2.0

"""On at once, off slowly: what comes and goes all the time is one thing.

None of it is in a paper.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scavenger_openstack.algorithms import back_off

RESET_FACTOR = 4.0
"""What was off for so many times its stay begins with the first one again."""


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
        """It is wanted, from now on."""
        if not self.on:
            self.stay_s = self._bounds.first if self.is_reset(now) else (
                back_off.longer(self.stay_s, first=self.stay_s,
                                most=self._bounds.most))
        self.on, self.unwanted_since_s = True, math.inf

    def release(self, now: float, *, at_once: bool = False) -> bool:
        """It is not wanted; whether it stays."""
        self.unwanted_since_s = min(self.unwanted_since_s, now)
        if self.on and (at_once or now - self.unwanted_since_s >= self.stay_s):
            self.on, self._off_s = False, now
        return self.on

    def is_reset(self, now: float) -> bool:
        """Whether it went off so long ago that this is forgotten."""
        return not self.on and now - self._off_s >= RESET_FACTOR * self.stay_s
