# SPDX-License-Identifier: Apache-2.0

"""The real agent on real cgroups, with a controller that follows a script.

``python -m scavenger_openstack.tests.functional.scripted CONFIG TICKS``
turns the real loop ``TICKS`` times (0: without end) and ends clean.  The
script sets a limit on every knob, changes it and removes it, again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
import itertools
import logging
import sys
import time
from typing import Any

from oslo_config import cfg

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.agent.lease import leases as leases_
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import parts
from scavenger_openstack.agent import service
from scavenger_openstack import conf as conf_
from scavenger_openstack.knobs import RESOURCE_OF
from scavenger_openstack.restore import watcher
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource

FIRST: Mapping[Knob, Any] = {
    Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 256 * 2**20,
    Knob.IO_BYTES_PER_S: 5_000_000, Knob.IO_OPS_PER_S: 500,
    Knob.PAUSED: 1, Knob.EGRESS_BYTES_PER_S: 1_000_000,
    Knob.INGRESS_BYTES_PER_S: 1_000_000}
CHANGED: Mapping[Knob, Any] = {
    Knob.CPU_CORES: 0.3, Knob.MEMORY_BYTES: 128 * 2**20,
    Knob.IO_BYTES_PER_S: 3_000_000, Knob.IO_OPS_PER_S: 300,
    Knob.EGRESS_BYTES_PER_S: 500_000, Knob.INGRESS_BYTES_PER_S: 500_000}
GROUP_FIRST: Mapping[Knob, Any] = {Knob.CPU_SET: '0', Knob.CPU_IDLE: 1}
GROUP_CHANGED: Mapping[Knob, Any] = {Knob.CPU_SET: '1', Knob.CPU_IDLE: 1}


class Script:
    """Nothing, first caps, changed caps, nothing; and again."""

    name = 'script'
    kind = 'regulator'
    params_type = None
    at_start: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._turns = itertools.cycle(
            [({}, {}), (FIRST, GROUP_FIRST), (CHANGED, GROUP_CHANGED),
             ({}, {})])
        self._removal_reasons: dict[KnobKey, str] = {}

    def tune(self, params: object) -> None:
        """It has none."""

    def step(self, now: float, rates: Rates) -> Decision:
        own, group = next(self._turns)
        wishes = []
        for entry in rates.workloads:
            who = entry.workload
            if who.priority is Priority.BACKGROUND:
                wishes += [(who.id, knob, value)
                           for knob, value in own.items()
                           if RESOURCE_OF[knob] is not Resource.NETWORK
                           or who.interfaces]
                wishes += [(who.group, knob, value)
                           for knob, value in group.items()]
        self._removal_reasons |= {
            wish[:2]: 'the script says so' for wish in wishes}
        return Decision(tuple(
            Cap(workload, knob, value, self.name, 'the script says so')
            for workload, knob, value in wishes),
            removal_reasons=self._removal_reasons)

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        pass


def main(config: str, ticks: int) -> int:
    logging.basicConfig(level=logging.WARNING)
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, ['--config-file', config], 'scripted')
    driver = parts.load_driver(conf)
    leases = leases_.Leases(conf_.state_dir(conf), conf.agent.lease_s)
    actuator = Actuator(driver, leases,
                        conf.agent.write_deadline_s)
    loop = loop_.Loop(driver, [(Script(), Mode.ENFORCE)], leases, actuator,
                      conf_.stop_file(conf))
    ticked = [service.now()]
    kinds = parts.kinds(conf)
    leases.want(kinds)
    leases.open()
    renewer = heartbeat.Renewer(leases, lambda: ticked[0],
                                conf.agent.interval_s)
    renewer.start()
    published = watcher.Reader(conf_.state_dir(conf) / watcher.NAME)
    while not leases.watched() or any(
            (published.read(service.now(), 60) or {}).get(kind, 'not tried')
            for kind in kinds):
        time.sleep(0.01)
    print('turning', flush=True)
    turns = range(ticks) if ticks else itertools.count()
    for _ in turns:
        loop.tick(service.now())
        ticked[0] = service.now()
        time.sleep(conf.agent.interval_s)
    renewer.stop()
    problems = loop.close()
    leases.close()
    driver.close()
    print(f'end {problems}', flush=True)
    return len(problems)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
