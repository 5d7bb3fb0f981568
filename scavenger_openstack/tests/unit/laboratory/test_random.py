# SPDX-License-Identifier: Apache-2.0

"""500 random changes of CPUs and guests on simulated hosts.

The slow loop is the real one, with Scavenger and, from 8 CPUs on, the fast
loop of the laboratory.  What the background may have is worked out here from
what was done to the host.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import random
from typing import Any

import fixtures
import testtools
from testtools import content

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.drivers import base
from scavenger_openstack.laboratory.agent_parts import InlineExecutor
from scavenger_openstack.laboratory.agent_parts import SimulatedIsolation
from scavenger_openstack.laboratory.agent_parts import SimulatedLeases
from scavenger_openstack.laboratory import bench
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Value

SEED = 1
CHANGES = 168       # 504 on three hosts, one a second
GUESTS = 4
BATCH = [Tenant(id=f'batch-{name}', priority=Priority.BACKGROUND, vcpus=2,
                threads=4.0) for name in 'ab']


class Host(Simulator):
    """One whose CPUs come and go, and which judges each write.

    :ivar dedicated: the CPUs of dedicated vCPUs, by guest
    """

    def __init__(self, cpus: int, guests: list[Tenant],
                 dedicated: dict[str, frozenset[int]]) -> None:
        super().__init__(Machine(cpus=cpus), [*BATCH, *guests], seed=SEED,
                         step_s=0.25, floors=bench.FLOORS)
        self.possible = set(range(cpus))
        self.online = set(self.possible)
        self.dedicated = dedicated
        self.given: set[int] = set()
        self.judged: collections.Counter[Knob] = collections.Counter()
        self.faults: list[str] = []

    def sample(self) -> HostSample:
        sample = super().sample()
        self.given = self.free()
        return dataclasses.replace(
            sample, topology={cpu: where for cpu, where
                              in sample.topology.items()
                              if cpu in self.online},
            workloads=tuple([one._replace(workload=dataclasses.replace(
                one.workload,
                dedicated_cpus=self.dedicated.get(one.workload.id)))
                for one in sample.workloads]))

    def free(self) -> set[int]:
        """The CPUs online that no foreground has to itself, or one."""
        users: collections.Counter[int] = collections.Counter()
        own: set[int] = set()
        for guest in self.plant.guests:
            name = guest.spec.id
            pinned = self.online & (guest.spec.pinned or self.online)
            if name in self.dedicated:
                own |= self.dedicated[name]
            elif pinned != self.online:
                users.update(pinned)
        own |= {cpu for cpu, number in users.items() if number == 1}
        return (self.online - own) or {max(self.online)}

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value | None:
        self.judged[knob] += 1
        if workload not in (GROUP, *[one.id for one in BATCH]):
            self.faults.append(f'{self.now} s: {workload} {knob} = {value}')
        elif knob is Knob.CPU_SET:
            cpus = cpusets.cpus_of(str(value))
            if not cpus or not cpus <= self.given:
                self.faults.append(f'{self.now} s: {sorted(cpus)} is not in '
                                   f'{sorted(self.given)}')
        return super().write(workload, knob, value, state)


class TestRandomChanges(testtools.TestCase):

    def plan(self, cpus: int, dice: random.Random) -> tuple[
            list[Tenant], dict[str, frozenset[int]], list[str]]:
        """Guests, dedicated CPUs, and what changes in each second."""
        here: list[Tenant] = []
        gone: list[Tenant] = []
        dedicated: dict[str, frozenset[int]] = {}
        plan: list[str] = []
        while len(plan) < CHANGES:
            what = dice.choice(('comes', 'goes', 'cpus', 'smt'))
            if what == 'comes' and len(here) < GUESTS:
                name = f'guest-{len(plan)}'
                pinned = frozenset(dice.sample(range(cpus), dice.randint(
                    1, max(1, cpus // 3))))
                if dice.random() < 0.6:
                    dedicated[name] = pinned
                    pinned |= frozenset(dice.choice(
                        ((), range(cpus // 2))))
                here.append(Tenant(
                    id=name, requests_per_s=50.0, cpu_s=0.005, pinned=pinned,
                    arrives_s=len(plan) + 0.5))
            elif what == 'goes' and here:
                gone.append(dataclasses.replace(
                    here.pop(dice.randrange(len(here))),
                    leaves_s=len(plan) + 0.5))
            elif what in ('comes', 'goes'):
                continue
            plan.append(what)
        return here + gone, dedicated, plan

    def play(self, cpus: int) -> None:
        dice = random.Random(f'{SEED} {cpus}')
        self.useFixture(fixtures.FakeLogger())
        guests, dedicated, plan = self.plan(cpus, dice)
        host = Host(cpus, guests, dedicated)
        driver: Any = host
        leases: Any = SimulatedLeases(host)
        isolation: Any = SimulatedIsolation(host)
        writer: Any = InlineExecutor()
        loop = Loop(driver, [(scavenger.Controller(
            scavenger.Params(), interval_s=1.0, host='simulated',
            boot_id='simulation'), Mode.ENFORCE)], leases,
            Actuator(driver, leases, 0.0, writer),
            pathlib.Path('/nonexistent/stop'), require_watcher=False,
            isolation=isolation)
        loop.tick(host.now)
        for what in plan:
            if what == 'smt':
                siblings = {cpu for cpu in host.possible if cpu % 2}
                host.online ^= siblings & (
                    host.online if siblings < host.online
                    else host.possible - host.online)
            elif what == 'cpus':
                host.online = set(dice.sample(range(cpus), dice.randint(
                    1, cpus)))
            host.advance(1.0, isolation.each())
            loop.tick(host.now)
            held = host.read(GROUP, Knob.CPU_SET)
            if held is not None and not isolation.active:
                self.assertLessEqual(cpusets.cpus_of(str(held)), host.given)
        self.addDetail('counts', content.text_content(
            f'seed {SEED}, {dict(collections.Counter(plan))}, writes: '
            f'{dict(host.judged)}'))
        self.assertEqual([], host.faults)
        self.assertEqual(0, loop.counters['problems'])
        self.assertGreater(host.judged[Knob.CPU_SET], 20)

    def test_2_cpus(self) -> None:
        self.play(2)

    def test_8_cpus(self) -> None:
        self.play(8)

    def test_64_cpus(self) -> None:
        self.play(64)
