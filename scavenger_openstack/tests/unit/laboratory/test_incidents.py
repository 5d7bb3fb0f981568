# SPDX-License-Identifier: Apache-2.0

"""What holds for incidents and limits on simulated hosts, at every tick: from
the detector to the lines that log, history and control plane get."""

from __future__ import annotations

import pathlib

import testtools

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.events import Event
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.laboratory.agent_parts import InlineExecutor
from scavenger_openstack.laboratory.agent_parts import SimulatedLeases
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.outcomes import outcome_of
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.scenario import Scenario
from scavenger_openstack.tests.unit.algorithms import consistent
from scavenger_openstack.types import Mode
from scavenger_openstack.wire import report

WALL_S = 1e9
"""UNIX time when the clock of a simulated host is 0."""

SCENARIOS = ('comes-back', 'arriving-leaving', 'disk-antagonist',
             'self-inflicted', 'cpu-antagonist')
SEEDS = (1,)


class Lines:
    """The lines of one host, and whether they contradict each other."""

    def __init__(self, case: testtools.TestCase) -> None:
        self._case = case
        self.open: dict[str, report.Incident] = {}
        self.ended: set[str] = set()
        self.limits = 0

    def follow(self, event: Event) -> None:
        if isinstance(event, report.Incident):
            self._incident(event)
        elif (isinstance(event, report.Limit)
                and event.owner == attribution.Controller.name
                and event.what != 'removed'):
            self.limits += 1
            self._case.assertTrue(event.incidents, str(event))
            for name in event.incidents:
                self._case.assertIn(name, self.open, str(event))
                incident = self.open[name]
                # The line that it is back may be held back.
                self._case.assertIn(event.workload, [
                    *[suspect.workload for suspect in incident.suspects
                      if suspect.antagonist],
                    # Nothing is named by what is only tried.
                    *[ground.workload for ground in incident.grounds
                      if ground.kind == GroundKind.EXPERIMENT]])

    def _incident(self, event: report.Incident) -> None:
        case = self._case
        case.assertLessEqual(event.begun_s, event.time_s)
        case.assertEqual(event.outcome, outcome_of(
            event.outcome, ended=event.what == 'ended'))
        case.assertNotIn(event.id, self.ended)
        case.assertEqual(event.what != 'began', event.id in self.open)
        first = self.open.get(event.id, event)
        case.assertEqual(first.begun_s, event.begun_s)
        case.assertLessEqual(first.time_s, event.time_s)
        self.open[event.id] = event
        if event.what == 'ended':
            del self.open[event.id]
            self.ended.add(event.id)


class IncidentsTest(testtools.TestCase):

    def run_host(self, scenario: Scenario, seed: int) -> Lines:
        """Play a scenario to its end under an agent that enforces."""
        drawn = scenario.draw(seed)
        simulator = Simulator(drawn.machine, drawn.tenants, seed=seed,
                              floors=bench.FLOORS, step_s=drawn.interval_s)
        leases = SimulatedLeases(simulator)
        actuator = Actuator(simulator, leases, 0.0, InlineExecutor())
        loop = Loop(simulator, [
            (made(interval_s=drawn.interval_s, host='h', boot_id='b'),
             Mode.ENFORCE) for made in (scavenger.Controller,
                                        attribution.Controller)],
            leases, actuator, pathlib.Path('/nonexistent/stop'),
            require_watcher=False)
        told, lines = tick_events.new_tracker(), Lines(self)
        incidents = consistent.Incidents(self)
        while simulator.now < drawn.duration_s - 1e-9:
            simulator.advance(drawn.interval_s)
            now = simulator.now
            tick = loop.tick(now)
            incidents.follow(now, tick.decisions[attribution.Controller.name])
            for event in tick_events.of_tick(
                    told, now, WALL_S + now, tick.incidents,
                    actuator.in_force, {key: held.original.value for key, held
                                        in leases.held().items()}):
                lines.follow(event)
        for event in told.incidents(now, WALL_S + now, {}):
            lines.follow(event)
        self.assertEqual({}, lines.open)
        incidents.apart()
        return lines

    def test_they_do_not_contradict_each_other(self) -> None:
        limits = 0
        for scenario in catalogue.find(SCENARIOS):
            for seed in SEEDS:
                limits += self.run_host(scenario, seed).limits
        self.assertGreater(limits, 2)
