# SPDX-License-Identifier: Apache-2.0

"""VMs that lie, that cannot give memory back, and that are rebooted hard."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess

import fixtures

from scavenger_openstack.tests.functional import domain_life
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests.unit.algorithms.attribution import shop
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload

MIB = 2 ** 20
ACTUAL = 20 + 4
"""Where the driver writes the size of the balloon, in pages: behind the
header of a legacy virtio device and the size that it should have."""


class Balloons(virtual_host.VirtualHostTestCase):

    def setUp(self) -> None:
        super().setUp()
        for name in ('SILENT_S', 'STILL_S'):
            self.useFixture(fixtures.MonkeyPatch(
                f'scavenger_openstack.drivers.libvirt.balloon.{name}', 2.0))

    def monitor(self, host: hypervisor.Hypervisor, command: str) -> str:
        return host.virsh('qemu-monitor-command', 'one', '--hmp', command)

    def tell(self, host: hypervisor.Hypervisor, port: int, kib: int) -> None:
        """Say what the guest would: that so much is left of its 96 MiB."""
        pages = (96 * 1024 - kib) // 4 % 2 ** 32
        self.monitor(host, f'o /w {port + ACTUAL:#x} {pages}')

    def test_that_lie(self) -> None:
        """A guest writes the size of its balloon, and QEMU believes it."""
        host = self.hypervisor()
        guest = virtual_host.background('one')
        host.define_and_start(guest)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        found = re.search('1af4:1002.*?I/O at 0x([0-9a-f]+)',
                          self.monitor(host, 'info pci'), re.DOTALL)
        assert found
        port = int(found[1], 16)

        def size() -> int:
            one = re.search('<currentMemory unit=.KiB.>([0-9]+)<',
                            host.virsh('dumpxml one'))
            assert one
            return int(one[1])

        def told(kib: int) -> None:
            self.tell(host, port, kib)
            self.wait_for(f'{kib} KiB', lambda: size() == kib, timeout_s=30)

        told(8 * 1024)
        cap = {guest.uuid: {Knob.MEMORY_BYTES: 64 * MIB}}
        self.wait_for('a limit all the same', lambda: (
            agent.tick(cap), size() == 64 * 1024)[-1], timeout_s=30)
        for kib in (8 * 1024, 96 * 1024, 48, 64 * 1024):
            told(kib)
            for _ in range(10):
                done = agent.tick(cap)
                self.assertEqual([], done.problems)
                self.assertLessEqual(set(done.unmet.values()), {32 * MIB})
        # More than there is, which libvirt does not believe.
        self.tell(host, port, 96 * 1024 + 4)
        for _ in range(10):
            self.assertEqual([], agent.tick(cap).problems)
        self.assertEqual(64 * MIB, agent.read(guest.uuid,
                                                     Knob.MEMORY_BYTES))
        self.assertNotIn('another program', self.log.output)
        agent.tick()
        self.assertEqual({}, dict(agent.leases.held()))
        self.wait_for('all of it', lambda: self.limits(host, 'one')
                      == before, timeout_s=30)

    def huge_pages(self, count: int) -> None:
        """Have the kernel keep so many of 2 MiB ready, for libvirtd, too."""
        pages = pathlib.Path('/proc/sys/vm/nr_hugepages')
        before = int(pages.read_text())
        self.addCleanup(pages.write_text, str(before))
        pages.write_text(str(before + count))
        if int(pages.read_text()) < before + count:
            self.skipTest(f'needs {count} huge pages of 2 MiB')
        where = self.useFixture(fixtures.TempDir()).path
        subprocess.run(['mount', '-t', 'hugetlbfs', 'none', where],
                       check=True)
        self.addCleanup(subprocess.run, ['umount', where], check=True)

    def test_that_cannot_shrink(self) -> None:
        """It has huge pages: its memory is not limited, nor is it paused."""
        self.huge_pages(48)
        host = self.hypervisor()
        guest = virtual_host.background('one', extra=(
            '<memoryBacking><hugepages/></memoryBacking>'))
        console = host.define_and_start(guest)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        console.tell('cpu 1')
        for _ in range(30):
            done = agent.tick({guest.uuid: {Knob.MEMORY_BYTES: 64 * MIB}})
            self.assertEqual({}, done.unmet)
            self.assertEqual({}, dict(agent.leases.held()))
            self.assertEqual('running', host.virsh('domstate one').strip())
        self.assertEqual(before, self.limits(host, 'one'))
        self.wait_for('why', lambda: self.said('it can give no memory back'))
        self.warned_of('it can give no memory back')


class Guilt(domain_life.ChangesCase,
            shop.ShopCase):
    """Real runs of a VM, and victims that suffer as it is said here."""

    vm: Workload | None = None

    def rates(self) -> Rates:
        """The hog is the VM, while there is one."""
        self.decision = self.decision._replace(caps=tuple(
            cap._replace(workload=shop.HOG.id)
            for cap in self.decision.caps))
        found = super().rates()
        return dataclasses.replace(found, workloads=tuple(
            one._replace(workload=self.vm)
            if one.workload is shop.HOG and self.vm else one
            for one in found.workloads
            if one.workload is not shop.HOG or self.vm))

    def limit(self, agent: virtual_host.Agent, host: hypervisor.Hypervisor,
              uuid: str) -> float:
        """Put in force what was decided; the cores that are left to it."""
        cap, = self.decision.caps
        self.assertEqual((uuid, Knob.CPU_CORES), cap[:2])
        self.wait_for('the limit', lambda: (agent.tick(
            {uuid: {cap.knob: cap.value}}), self.cores(host))[-1])
        return self.cores(host) or 0.0

    def test_survives_a_hard_reboot(self) -> None:
        """Another process of the same UUID is not innocent again."""
        host = self.hypervisor()
        guest = virtual_host.tiny('one')
        host.start_all([guest])
        agent = self.agent(host)
        first = self.vm = agent.sample()[guest.uuid].workload
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(60)
        before = self.limit(agent, host, guest.uuid)
        host.virsh('destroy one')
        self.wait_for('it is gone', lambda: not agent.sample())
        self.vm = None
        for decision in self.turn(20):
            self.assertEqual((), decision.caps)
        self.nothing_held(agent)
        host.define(guest)
        host.virsh('start one --paused')
        self.wait_for_domains(agent, guest.uuid)
        self.vm = agent.sample()[guest.uuid].workload
        self.assertNotEqual(first.created_s, self.vm.created_s)
        self.assertIsNone(self.cores(host))
        self.turn(2 * 5)
        self.assertLessEqual(self.limit(agent, host, guest.uuid),
                             1.5 * before)
        self.assertIn(guest.uuid, self.incident().antagonists)
        self.nothing_held(agent)
