# SPDX-License-Identifier: Apache-2.0



"""A guest crashes, libvirtd hangs, or the agent is stopped past its lease."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import time
from typing import Any

import fixtures
from testtools import content
from testtools import matchers

from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_kills
from scavenger_openstack.tests.functional import domain_life
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import kills
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob

PANIC = bytes.fromhex('ba0505 b001 ee f4 ebfd')
"""mov $0x505,%dx; mov $1,%al; out %al,(%dx): what pvpanic takes for the
panic of a guest; then hlt, for ever."""

OFF = bytes.fromhex('ba0406 b80020 ef f4 ebfd')
"""mov $0x604,%dx; mov $0x2000,%ax; out %ax,(%dx): a pc goes off."""

BOOT_TIMEOUT_S = 10.0
LEASE_S = 3.0


class TestItEnds(domain_life.LifeCase):
    """By itself, while it is capped."""

    def capped(self, code: bytes = b'', extra: str = ''
               ) -> tuple[hypervisor.Hypervisor, virtual_host.Agent, str]:
        """A guest that boots ``code`` when it is resumed."""
        host = self.hypervisor()
        disk = domain_guest.Disk.make(host.disks / 'a', 2**20)
        with open(disk.path, 'r+b') as file:
            file.write(code.ljust(510, b'\0') + b'\x55\xaa')
        guest = virtual_host.tiny('one', machine='pc', disks=(disk,),
                                  extra=extra)
        host.start_all([guest])
        # Ticks as fast as here would miss answers about disks.
        agent = self.agent(host, stats_ticks=1000)
        self.before = self.limits(host, 'one')
        self.cap(agent, guest.uuid)
        return host, agent, guest.uuid

    def ended(self, host: hypervisor.Hypervisor, agent: virtual_host.Agent,
              uuid: str, why: str) -> None:
        """Its lease goes, silently; started again it is capped again."""
        def gone() -> bool:
            agent.tick({uuid: domain_life.CAPS})
            return not agent.sample() and not agent.leases.held()
        self.wait_for('no lease', gone, timeout_s=BOOT_TIMEOUT_S)
        self.assertEqual(f'shut off ({why})', host.virsh(
            'domstate', 'one', '--reason').strip())
        self.warned_of()
        host.virsh('start one --paused')
        self.assertEqual(self.before, self.limits(host, 'one'))
        self.wait_for('limited again', lambda: (
            agent.tick({uuid: domain_life.CAPS}),
            self.limits(host, 'one') != self.before)[-1])
        self.nothing_held(agent)
        self.assertEqual(self.before, self.limits(host, 'one'))
        self.warned_of()

    def test_qemu_is_killed(self) -> None:
        host, agent, uuid = self.capped()
        os.kill(host.qemu_pid('one'), signal.SIGKILL)
        self.ended(host, agent, uuid, 'crashed')

    def test_it_shuts_down(self) -> None:
        host, agent, uuid = self.capped(OFF)
        host.virsh('resume one')
        self.ended(host, agent, uuid, 'shutdown')

    def test_it_crashes(self) -> None:
        host, agent, uuid = self.capped(
            PANIC, "<devices><panic model='isa'/></devices>")
        host.virsh('resume one')
        self.ended(host, agent, uuid, 'crashed')

    def test_it_crashes_and_is_kept(self) -> None:
        """Its QEMU stands there with its limits, which go."""
        host, agent, uuid = self.capped(
            PANIC, '<on_crash>preserve</on_crash>'
                   "<devices><panic model='isa'/></devices>")
        host.virsh('resume one')
        self.wait_for('the crash', lambda: host.virsh(
            'domstate one').strip() == 'crashed', timeout_s=BOOT_TIMEOUT_S)
        pid = host.qemu_pid('one')

        def removed() -> bool:
            agent.tick({uuid: domain_life.CAPS})
            return not agent.leases.held()
        self.wait_for('no lease', removed)
        self.assertEqual(self.before[:-1], self.limits(host, 'one')[:-1])
        self.assertEqual(pid, host.qemu_pid('one'))
        host.virsh('destroy one')
        self.ended(host, agent, uuid, 'destroyed')


class TestLibvirtdHangs(virtual_host.VirtualHostTestCase):

    def test_the_others_go_on(self) -> None:
        for name, value in (('KEEPALIVE_S', 1), ('KEEPALIVE_COUNT', 2)):
            self.useFixture(fixtures.MonkeyPatch(
                f'{client.__name__}.{name}', value))
        bench = self.hypervisor()
        cgroup = bench.tree.make('/batch/a')
        guest = virtual_host.tiny('one', machine='pc', paused=False, disks=(
            domain_guest.Disk.make(bench.disks / 'a', 2**20),))
        bench.start_all([guest])
        agent = virtual_host.HostAgent(bench, pathlib.Path(self.useFixture(
            fixtures.TempDir()).path), deadline_s=1.0)
        self.addCleanup(agent.close)
        before = self.limits(bench, 'one')

        def tick(vm: float, batch: float) -> dict[str, Any]:
            began = time.monotonic()
            found = {one.workload.id: one
                     for one in agent.driver.sample().workloads}
            agent.put((guest.uuid, Knob.CPU_CORES, vm),
                      (cgroup, Knob.CPU_CORES, batch))
            self.took.append(time.monotonic() - began)
            return found

        self.took: list[float] = []
        tick(0.2, 0.5)
        self.assertEqual(2, len(agent.leases.held()))
        os.kill(bench.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, bench.pid, signal.SIGCONT)
        cpu_s, batch = [], 0.5
        self.took = []
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            batch -= 0.02
            found = tick(0.1, batch)
            self.assertEqual({guest.uuid, cgroup}, set(found))
            self.assertEqual(round(batch, 2), round(float(
                agent.driver.read(cgroup, Knob.CPU_CORES) or 0), 2))
            cpu_s.append(found[guest.uuid].cpu_s)
            time.sleep(0.5)
        self.addDetail('ticks', content.text_content(
            f'{[round(one, 3) for one in self.took]} {cpu_s}'))
        self.assertEqual(sorted(set(cpu_s)), cpu_s)
        # One waits for its deadline, none after it.
        self.assertThat(sum(self.took[1:]), matchers.LessThan(
            0.5 * len(self.took)))
        self.assertEqual(2, len(agent.leases.held()))
        self.warned_of('libvirt does not answer')
        os.kill(bench.pid, signal.SIGCONT)
        self.wait_for('a limit', lambda: (
            tick(0.1, 0.3), agent.driver.read(
                guest.uuid, Knob.CPU_CORES) == 0.1)[-1], timeout_s=20)
        self.wait_for('no leases', lambda: (
            agent.driver.sample(), agent.put(), not agent.leases.held())[-1],
            timeout_s=20)
        self.assertEqual(before, self.limits(bench, 'one'))
        self.wait_for('word', lambda: self.said('libvirt answers again'))
        self.warned_of('libvirt does not answer')


class TestTheAgentIsStopped(virtual_host.VirtualHostTestCase):

    def setUp(self) -> None:
        super().setUp()
        if shutil.which('strace') is None:
            self.skipTest('needs strace: see bindep.txt')
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.stage = self.useFixture(domain_kills.DomainStage(
            self.hypervisor(), directory, self, lease_s=LEASE_S))

    def test_at_a_random_instant(self) -> None:
        for lived, took, left in kills.random_stops(
                self.stage, 1):     # type: ignore[arg-type]
            self.assertEqual({}, left, f'stopped after {lived:.3f} s, looked '
                                       f'{took:.2f} s later')

    def test_between_a_lease_and_its_write(self) -> None:
        """When it goes on, it writes nothing before it has new leases."""
        stage = self.stage
        agent = stage.agent(0, 'renameat:signal=STOP:when=1')
        self.addCleanup(agent.communicate)
        self.addCleanup(agent.kill)
        self.wait_for('a lease', stage.leases)
        beat = json.loads((stage.state_dir / 'heartbeat').read_text())
        pid = beat['pid']
        self.addCleanup(os.kill, pid, signal.SIGKILL)

        def stopped() -> bool:
            state = re.search('^State:\t(.)', pathlib.Path(
                f'/proc/{pid}/status').read_text(), re.MULTILINE)
            return state is not None and state[1] in 'Tt'

        self.wait_for('it stands still', stopped)
        connection = stage.host.connect()
        domain = connection.lookupByName('one')
        before = limits(domain)

        def expires_s() -> float:
            beat = json.loads((stage.state_dir / 'heartbeat').read_text())
            return float(beat['expires_s'])

        self.wait_for('its end', lambda: time.clock_gettime(
            time.CLOCK_BOOTTIME) > expires_s(), timeout_s=2 * LEASE_S)
        ended = expires_s()
        # strace would stop the next thread, too; what it stopped stays so.
        assert stage.tracer
        stage.tracer.kill()
        stage.tracer.wait(10)
        os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 10
        while limits(domain) == before:
            self.assertThat(time.monotonic(), matchers.LessThan(deadline))
        self.assertThat(expires_s(), matchers.GreaterThan(ended))


def limits(domain: Any) -> object:
    """What the domain may do, without asking QEMU."""
    return re.findall('<(?:cputune|iotune)>.*?</(?:cputune|iotune)>',
                      domain.XMLDesc(), re.DOTALL)
