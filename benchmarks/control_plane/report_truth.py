#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Whether the report's totals are those of the laboratory.

    report_truth.py [--hosts 4] [--minutes 90] [--scenario disk-antagonist]

Simulated hosts run the agent's own loop and report to a conductor each ten
seconds of their time, as agents do.  The truth is that of the simulator (what
background work ran and had), and of the loop (how long each incident lasted).
Prints both, and by how much the report differs.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import sqlalchemy

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.control_plane import reports
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.conductor import sync
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import report
from scavenger_openstack.db import tables
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.laboratory.agent_parts import InlineExecutor
from scavenger_openstack.laboratory.agent_parts import SimulatedLeases
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

SYNC_S = 10.0
BEGIN_S = 1_750_032_000.0
"""A full hour."""


def main() -> None:
    options = argparse.ArgumentParser(
        description="Whether the report's totals are the laboratory's.")
    options.add_argument('--hosts', type=int, default=4)
    options.add_argument('--minutes', type=float, default=90.0)
    options.add_argument('--scenario', default='disk-antagonist')
    asked = options.parse_args()
    engine = sqlalchemy.create_engine(
        'sqlite://', poolclass=sqlalchemy.StaticPool)
    tables.METADATA.create_all(engine)
    truth: dict[str, float] = dict.fromkeys(
        ('incidents', 'interference_s', 'core_s', 'byte_s'), 0.0)
    for seed in range(asked.hosts):
        host = Host(engine, asked.scenario, seed)
        host.play(asked.minutes * 60)
        for name, value in host.truth().items():
            truth[name] += value
    with connect.reading(engine) as connection:
        found = report.totals(connection, int(BEGIN_S),
                              int(BEGIN_S + 48 * 3600))
    for name, value in truth.items():
        print(f'{name}: laboratory {value:.1f}, report {found[name]:.1f}, '
              f'{abs(found[name] / value - 1) if value else 0:.2%} apart')


class Host:
    """One simulated host with the agent's loop, and what it reports."""

    def __init__(self, engine: sqlalchemy.Engine, scenario: str, seed: int
                 ) -> None:
        drawn = catalogue.find([scenario])[0].draw(seed)
        self._engine, self._name = engine, f'host-{seed}'
        self._step_s = drawn.interval_s
        self._simulator = simulator = Simulator(
            drawn.machine, drawn.tenants, seed=seed, floors=bench.FLOORS,
            step_s=drawn.warmup_step_s)
        leases = SimulatedLeases(simulator)
        self._actuator = Actuator(simulator, leases, 0.0, InlineExecutor())
        self._loop = Loop(simulator, [
            (scavenger.Controller(
                scavenger.Params(), interval_s=drawn.interval_s,
                host=self._name, boot_id='boot'), Mode.ENFORCE),
            (attribution.Controller(interval_s=drawn.interval_s),
             Mode.ENFORCE)], leases, self._actuator,
            pathlib.Path('/nonexistent/stop'), require_watcher=False)
        self._leases = leases
        self._tracker = tick_events.new_tracker()
        self._entries: list[Any] = []
        self._before = simulator.sample()
        self._first = self._last = self._before
        self._count = 0
        self._lasted: dict[str, tuple[float, float]] = {}
        self._named: set[str] = set()

    def play(self, seconds: float) -> None:
        """Play it, with a report each ten seconds, and one an hour later,
        which stores the last hour."""
        due_s = 0.0
        while self._simulator.now < seconds:
            self._simulator.advance(self._step_s, None)
            tick = self._loop.tick(self._simulator.now)
            wall_s = BEGIN_S + self._simulator.now
            self._note(tick, wall_s)
            if self._simulator.now >= due_s:
                due_s += SYNC_S
                self._report(wall_s, self._simulator.sample())
        self._report(BEGIN_S + self._simulator.now, self._simulator.sample())
        self._report(BEGIN_S + self._simulator.now + 3600, None)

    def _note(self, tick: Any, wall_s: float) -> None:
        events = tick_events.of_tick(
            self._tracker, self._simulator.now, wall_s,
            None if tick.sample is None else tick.incidents,
            self._actuator.in_force,
            {key: state.original.value
             for key, state in self._leases.held().items()})
        self._entries += events
        for event in events:
            if isinstance(event, wire.Incident):
                self._lasted[event.id] = event.begun_s, event.time_s
                (self._named.discard if event.cause == 'own_limit'
                 else self._named.add)(event.id)

    def _report(self, wall_s: float, sample: Any) -> None:
        rates = workloads = None
        if sample is not None:
            if sample.time_s > self._before.time_s:
                rates = rates_.rates(self._before, sample)
            self._before = self._last = sample
            workloads = reports.workloads(sample, ())
        seen = reports.LastTick(sample, {})
        facts = reports.facts(
            seen, rates, version='1', idle_cores=None,
            waits=reports.Waits(0, 0, 0.0, 0), refused={})
        count = self._count
        entries = [codec.replace(entry, sequence=count + place)
                   for place, entry in enumerate(self._entries, 1)]
        self._count = count + len(entries)
        self._entries = []
        with self._engine.begin() as connection:
            sync.sync(connection, wire.Report(
                host=self._name, boot_id='boot', run_id='run',
                sent_s=wall_s, facts=facts, workloads=workloads,
                workloads_digest=(reports.digest(workloads)
                                  if workloads else ''),
                entries=entries), wall_s)

    def truth(self) -> dict[str, float]:
        """What the simulator and the loop know."""
        first = {one[0].id: one for one in self._first.workloads}
        return {
            'incidents': float(len(self._named)),
            'interference_s': sum(self._lasted[name][1]
                                  - self._lasted[name][0]
                                  for name in self._named),
            'core_s': sum(
                one.cpu_s - (first[one[0].id].cpu_s if one[0].id in first
                             else 0.0)
                for one in self._last.workloads
                if one[0].priority is Priority.BACKGROUND),
            'byte_s': sum(
                guest.truth.memory_byte_s
                for guest in self._simulator.plant.guests
                if guest.spec.priority is Priority.BACKGROUND)}


if __name__ == '__main__':
    main()
