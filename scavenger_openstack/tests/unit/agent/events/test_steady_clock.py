# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import testtools

from scavenger_openstack.agent.events import steady_clock

WALL_S = 1_700_000_000.0


class SteadyClockTest(testtools.TestCase):

    def test_a_wall_clock_that_is_set(self) -> None:
        for step_s in (-32 * 86400, -3600, -40, 0, 0.4, 60, 32 * 86400):
            clock = steady_clock.SteadyClock(5.0, WALL_S)
            behind_s = clock.behind_s(25.0, WALL_S + 20 + step_s)
            self.assertEqual(0.0 if abs(step_s) < 1 else -step_s, behind_s)

    def test_a_wall_clock_that_is_wrong_at_the_start(self) -> None:
        clock = steady_clock.SteadyClock(5.0, WALL_S - 3600)
        clock.answered(WALL_S + 10, 14.0, 16.0)
        self.assertEqual(3600.0, clock.behind_s(25.0, WALL_S - 3600 + 20))

    def test_clocks_that_differ_a_little(self) -> None:
        """And a conductor that does not say its time."""
        clock = steady_clock.SteadyClock(5.0, WALL_S)
        for time_s in (WALL_S + 10 - 59, WALL_S + 10 + 59, 0.0):
            clock.answered(time_s, 15.0, 15.0)
            self.assertEqual(0.0, clock.behind_s(25.0, WALL_S + 20))
        # An answer that was long on its way says little.
        clock.answered(WALL_S + 100, 15.0, 115.0)
        self.assertEqual(0.0, clock.behind_s(125.0, WALL_S + 120))
