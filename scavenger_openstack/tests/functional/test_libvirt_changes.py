# SPDX-License-Identifier: Apache-2.0


"""A capped domain becomes another: resized, rebuilt, renamed, hot-plugged."""

from __future__ import annotations

import dataclasses
import signal

from testtools import content

from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_life
from scavenger_openstack.tests.functional.domain_life import ChangesCase
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

GIVEN_BACK_S = 180.0
"""For an emulated guest to give 63 vCPUs back, on a busy machine."""


class TestMadeAgain(ChangesCase):

    def made_again(self, host: hypervisor.Hypervisor,
                   agent: virtual_host.Agent,
                   guest: domain_guest.DomainGuest) -> None:
        """As Nova does it on one host, while the domain is capped."""
        self.cap(agent, guest.uuid)
        old = agent.leases.held()
        host.virsh('destroy one')
        host.define(guest)
        host.virsh('start one')
        before = self.limits(host, 'one')
        self.assertEqual((None, []), self.found(host))
        tuned = ('<iotune> <total_bytes_sec>5000000</total_bytes_sec> '
                 f'<group_name>{knobs.GROUP}</group_name> </iotune>')
        self.ticks(agent, guest.uuid, domain_life.CAPS, host,
                   (0.2, [tuned] * len(guest.disks)))
        for key, lease in agent.leases.held().items():
            self.assertNotEqual(old[key], lease)
            self.assertEqual(host.qemu_pid('one'),
                             lease.original.actions[0]['pid'])
        self.removed(agent, host, 'one', before)

    def test_resized(self) -> None:
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        self.made_again(host, agent, dataclasses.replace(
            guest, vcpus=3, memory_bytes=2 * guest.memory_bytes))
        workload = agent.sample()[guest.uuid].workload
        self.assertEqual((3, 2 * guest.memory_bytes), (
            workload.vcpus, workload.memory_allotment_bytes))

    def test_rebuilt(self) -> None:
        host = self.hypervisor()
        guest = self.one(host)
        self.made_again(host, self.agent(host), dataclasses.replace(
            guest, disks=(domain_guest.Disk.make(host.disks / 'b'),)))

    def test_renamed(self) -> None:
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        caps = {Knob.CPU_CORES: 0.2, Knob.MEMORY_BYTES: 2**20}
        for name in ('one', 'eins'):
            before = self.limits(host, name)
            self.wait_for('a cap', lambda: (agent.tick({guest.uuid: caps}),
                                            self.cores(host) == 0.2)[-1])
            self.assertEqual({(guest.uuid, Knob.CPU_CORES)},
                             set(agent.leases.held()))
            line = f'domain {name} has no balloon'
            self.wait_for(line, lambda line=line: (
                agent.tick({guest.uuid: caps}), self.said(line))[-1])
            if name == 'one':
                host.virsh('destroy one; domrename one eins; start eins')
        self.warned_of('domain one has', 'domain eins has')
        self.nothing_held(agent)
        self.assertEqual(before, self.limits(host, 'eins'))


class TestHotPlugged(ChangesCase):

    def started(self, host: hypervisor.Hypervisor
                ) -> domain_guest.DomainGuest:
        guest = virtual_host.tiny('one', machine='pc', disks=(
            domain_guest.Disk.make(host.disks / 'a', 2**20),))
        host.define(guest)
        host.virsh('setvcpus one 4 --maximum --config; start one --paused')
        return guest

    def test_vcpus(self) -> None:
        host = self.hypervisor()
        guest = self.started(host)
        agent = self.agent(host)
        caps: dict[Knob, Value] = {Knob.CPU_CORES: 0.4}
        self.cap(agent, guest.uuid, caps)
        self.assertEqual(0.4, self.cores(host))
        for vcpus in (2, 4):
            host.virsh(f'setvcpus one {vcpus} --live')
            self.assertNotEqual(0.4, self.cores(host))
            self.ticks(agent, guest.uuid, caps, host, (0.4, []))
            lease = agent.leases.held()[guest.uuid, Knob.CPU_CORES]
            self.assertEqual('-1', lease.original.actions[0]['values'][
                'vcpu_quota'])
        self.nothing_held(agent)
        self.assertIsNone(self.cores(host))
        self.warned_of()

    def test_a_vcpu_is_unplugged(self) -> None:
        self.unplugged(2)

    @tiers.only_in_all('one vCPU is unplugged in the gate')
    def test_63_vcpus_are_unplugged(self) -> None:
        self.unplugged(64)

    def unplugged(self, vcpus: int) -> None:
        """All but the first, by the guest, which boots for that."""
        host = self.hypervisor()
        guest = virtual_host.background(
            'one', memory_bytes=192 * 2**20, translated_mib=512)
        host.define(guest)
        host.virsh(f'setvcpus one {vcpus} --maximum --config; start one')
        host.console('one')
        host.virsh(f'setvcpus one {vcpus} --live')
        agent = self.agent(host)
        each = 0.2
        limit = round(each * vcpus, 3)
        caps: dict[Knob, Value] = {Knob.CPU_CORES: limit}
        self.cap(agent, guest.uuid, caps)
        self.assertEqual((vcpus, limit), (self.vcpus(host), self.cores(host)))
        asks = '; '.join(f'qemu-monitor-command one --hmp device_del vcpu{n}'
                         for n in range(1, vcpus))

        def gone() -> bool:
            # A guest that has not met a vCPU yet does not give it back.
            host.virsh(asks)
            return self.vcpus(host) == 1

        self.wait_for('they are gone', gone, timeout_s=GIVEN_BACK_S)
        # QEMU 7.2 does not tell libvirtd when it translates.
        if host.virsh('vcpucount one --live --current').strip() != '1':
            host.kill(signal.SIGTERM)   # then it asks
            host.start_again()
            self.wait_for('word', lambda: self.said('answers again'))
            self.warned_of('libvirt cannot be reached')
        self.assertEqual(each, self.cores(host))
        self.ticks(agent, guest.uuid, caps, host, (limit, []))
        self.assertEqual(1, agent.sample()[guest.uuid].workload.vcpus)
        self.nothing_held(agent)
        self.assertIsNone(self.cores(host))
        self.assertEqual(0, self.said('another program'))

    def vcpus(self, host: hypervisor.Hypervisor) -> int:
        """How many QEMU has."""
        return host.virsh('qemu-monitor-command one --hmp info cpus').count(
            'CPU #')

    def test_pinned_vcpus(self) -> None:
        host = self.hypervisor()
        guest = self.started(host)
        agent = self.agent(host)
        caps: dict[Knob, Value] = {Knob.CPU_SET: '1'}
        self.cap(agent, guest.uuid, caps)
        host.virsh('setvcpus one 2 --live')
        group, = host.tree.path('cpuset', '/machine').glob('qemu-*')
        vcpu, = group.glob('**/vcpu1')

        def cpus() -> str:
            return (vcpu / 'cpuset.cpus').read_text().strip()

        before = cpus()
        self.assertNotEqual('1', before)
        self.wait_for('a pin', lambda: (
            agent.tick({guest.uuid: caps}), cpus() == '1')[-1])
        self.assertEqual(1, len(agent.leases.held()))
        self.nothing_held(agent)
        self.assertEqual(before, cpus())
        self.warned_of()

    def test_a_disk(self) -> None:
        host = self.hypervisor()
        guest = self.started(host)
        agent = self.agent(host)
        caps: dict[Knob, Value] = {Knob.IO_BYTES_PER_S: 5_000_000}
        self.cap(agent, guest.uuid, caps)
        one = self.found(host)
        disk = domain_guest.Disk.make(host.disks / 'b', 2**20)
        host.virsh(f'attach-disk one {disk.path} vdb --live --targetbus '
                   'virtio --subdriver raw')
        before = self.limits(host, 'one')
        self.ticks(agent, guest.uuid, caps, host, (None, 2 * one[1]))
        self.addDetail('before', content.text_content('\n'.join(before)))
        self.nothing_held(agent)
        self.assertEqual((None, []), self.found(host))
        self.warned_of()
