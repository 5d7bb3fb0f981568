# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import testtools

from scavenger_openstack.agent.control_plane import reports
from scavenger_openstack.agent.control_plane import steady_clock
from scavenger_openstack.agent import transitions
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import report

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

    def test_a_limit_is_the_same_limit(self) -> None:
        def event(time_s: float, what: str, behind_s: float
                  ) -> reports.Happened:
            return reports.Happened(transitions.LimitEvent(
                time_s, what, '/a', Knob.CPU_CORES, 'one', 'because', None,
                0.5, 0.5, 0.5, 1000.0), time_s, behind_s=behind_s)

        entries = reports.Entries()
        told = entries.of([event(1000.0, 'set', 40.0),
                           event(1010.0, 'changed', 40.0),
                           event(1060.0, 'removed', 0.0),
                           event(1070.0, 'set', 0.0)])
        self.assertEqual(
            [(1040.0, 1040.0), (1050.0, 1040.0), (1060.0, 1040.0),
             (1070.0, 1000.0)],
            [(one.time_s, one.since_s) for one in told
             if isinstance(one, report.Limit)])
