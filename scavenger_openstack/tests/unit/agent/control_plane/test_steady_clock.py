# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import testtools

from scavenger_openstack.agent.control_plane import reports
from scavenger_openstack.agent.control_plane import steady_clock
from scavenger_openstack.agent import transitions
from scavenger_openstack.types import Incident
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
        clock = steady_clock.SteadyClock(5.0, WALL_S)

        def event(time_s: float, what: str, behind_s: float,
                  since_s: float = 1000.0) -> tuple[float, float]:
            event = transitions.LimitEvent(
                time_s, what, '/a', Knob.CPU_CORES, 'one', 'because', None,
                0.5, 0.5, 0.5, since_s)
            entry = reports.entry(reports.Happened(
                event, (), behind_s, clock.began_behind_s(event, behind_s)))
            assert isinstance(entry, report.Limit)
            return entry.time_s, entry.since_s

        self.assertEqual(
            [(1040.0, 1040.0), (1050.0, 1040.0), (1055.0, 1040.0),
             (1060.0, 1055.0), (1070.0, 1055.0), (1080.0, 1000.0)],
            [event(1000.0, 'set', 40.0), event(1010.0, 'changed', 40.0),
             event(1055.0, 'changed', 0.0),
             event(1060.0, 'changed', 0.0, 1055.0),      # of another owner
             event(1065.0, 'removed', 5.0, 1055.0),
             event(1080.0, 'set', 0.0)])

    def test_antagonists_of_a_report_are_those_of_the_whole_incident(self
                                                                    ) -> None:
        incident = Incident('i', 100.0, 'h', '/v', 'cpi', 2.0, 1.0, 'cpu',
                            (('/c', 0.5),), ('/a',), named_earlier=('/b',))
        entry = reports.entry(reports.Happened(transitions.IncidentEvent(
            1000.0, 'changed', 'attribution', incident, 990.0), ()))
        assert isinstance(entry, report.Incident)
        self.assertEqual(
            [('/a', True), ('/b', True), ('/c', False)],
            [(one.workload, one.antagonist) for one in entry.suspects])

    def test_an_incident_is_the_same_incident(self) -> None:
        """Also where its end is told by a clock that is right again."""
        clock = steady_clock.SteadyClock(5.0, WALL_S)
        incident = Incident('i', 100.0, 'h', '/v', 'cpi', 2.0, 1.0, 'cpu')
        told = []
        for time_s, what, behind_s in (
                (1000.0, 'began', 40.0), (1060.0, 'changed', 0.0),
                (1070.0, 'ended', 0.0), (1080.0, 'began', 0.0)):
            event = transitions.IncidentEvent(time_s, what, 'cpi2', incident,
                                              990.0)
            entry = reports.entry(reports.Happened(
                event, [('/v', 'cpi', [90.0, 100.0], [1.0, 2.0])],
                behind_s, clock.began_behind_s(event, behind_s)))
            assert isinstance(entry, report.Incident)
            told.append((entry.time_s, entry.begun_s,
                         entry.evidence[0].times_s))
        self.assertEqual(
            [(1040.0, 1030.0, [1020.0, 1030.0]),
             (1060.0, 1030.0, [1020.0, 1030.0]),
             (1070.0, 1030.0, [1020.0, 1030.0]),
             (1080.0, 990.0, [980.0, 990.0])], told)
