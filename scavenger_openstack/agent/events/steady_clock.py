# SPDX-License-Identifier: Apache-2.0

"""The time of events, by a clock that is never set.

The wall clock may be set while the agent runs, and be wrong when it starts.
This one goes on with CLOCK_BOOTTIME, and is the conductor's where the two
differ by more than clocks do.
"""

from __future__ import annotations

import time

from scavenger_openstack.restore.records import now_s

SLACK_S = 60.0
"""Difference of two clocks that is no fault."""
STEP_S = 1.0
"""Smallest difference that counts: a smaller one comes from reading two
clocks, or is a leap second."""


class SteadyClock:
    """Returns UNIX times that go on with CLOCK_BOOTTIME.

    :param now: CLOCK_BOOTTIME in seconds
    :param wall_s: UNIX time by then
    """

    def __init__(self, now: float, wall_s: float) -> None:
        self._offset_s = wall_s - now

    def answered(self, time_s: float, began_s: float, ended_s: float) -> None:
        """Follow the conductor's time.

        :param time_s: UNIX time, 0 where the answer has none
        :param began_s: CLOCK_BOOTTIME of the request
        :param ended_s: CLOCK_BOOTTIME of the answer
        """
        least_s, most_s = time_s - ended_s, time_s - began_s
        if time_s and not (least_s - SLACK_S <= self._offset_s
                           <= most_s + SLACK_S):
            self._offset_s = (least_s + most_s) / 2

    def behind_s(self, now: float, wall_s: float) -> float:
        """Return how far the wall clock is behind this one, 0 where they
        agree."""
        behind_s = now + self._offset_s - wall_s
        return behind_s if abs(behind_s) >= STEP_S else 0.0

    def time_s(self) -> float:
        """Return the UNIX time now by this clock."""
        wall_s = time.time()
        return wall_s + self.behind_s(now_s(), wall_s)
