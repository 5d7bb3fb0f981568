# SPDX-License-Identifier: Apache-2.0

"""A VM with a disk that libvirt cannot limit, beside one that it can."""

from __future__ import annotations

import shutil
import subprocess

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.restore import actions
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob

DAEMON = 'qemu-storage-daemon'
LIMIT = {Knob.IO_BYTES_PER_S: 5_000_000, Knob.IO_OPS_PER_S: 200}
BYTES = 'total_bytes_sec', 'read_bytes_sec', 'write_bytes_sec'


class TestVhostUser(virtual_host.VirtualHostTestCase):

    def guest(self, host: hypervisor.Hypervisor, file: str
              ) -> domain_guest.DomainGuest:
        """One that has a file as the disk of this name."""
        if shutil.which(DAEMON) is None:
            self.skipTest(f'needs {DAEMON}: install qemu-system-common')
        socket = host.disks / f'{file}.sock'
        behind = domain_guest.Disk.make(host.disks / f'{file}-behind').path
        daemon = subprocess.Popen([
            DAEMON, '--blockdev', f'file,node-name=disk,filename={behind}',
            '--export', 'vhost-user-blk,id=export,node-name=disk,'
            f'writable=on,addr.type=unix,addr.path={socket}'])
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        self.wait_for(f'the socket of {DAEMON}', socket.exists)
        disks = [domain_guest.Disk.make(host.disks / file),
                 domain_guest.VhostUserDisk(socket=socket)]
        guest = virtual_host.background(
            'one', paused=True, extra=domain_guest.SHARED_MEMORY,
            disks=tuple(disks if file == 'vda' else disks[::-1]))
        host.start_all([guest])
        return guest

    def total(self, host: hypervisor.Hypervisor, disk: str) -> str:
        found, = (line.split()[-1] for line in host.virsh(
            f'blkdeviotune one {disk}').splitlines()
            if line.split(':')[0].strip() == 'total_bytes_sec')
        return found

    def test_the_other_is_limited(self) -> None:
        for file, other in (('vda', 'vdb'), ('vdb', 'vda')):
            host = self.hypervisor()
            guest = self.guest(host, file)
            agent = self.agent(host)
            before = self.limits(host, 'one')
            for _ in range(5):
                self.assertEqual([], agent.tick({guest.uuid: LIMIT}).problems)
            self.assertEqual('5000000', self.total(host, file))
            self.assertEqual(LIMIT, {
                knob: agent.read(guest.uuid, knob) for knob in LIMIT})
            self.assertEqual({(guest.uuid, knob) for knob in LIMIT},
                             set(agent.actuator.in_force))
            self.assertEqual(1, self.said(f'disk {other} is left out'))
            agent.tick()
            self.assertEqual({}, dict(agent.leases.held()))
            self.assertEqual(before, self.limits(host, 'one'))
            self.assertNotIn('not removed', self.log.output)

    def test_restored_by_a_lease_that_names_both(self) -> None:
        """As the watcher does it: it knows nothing of what libvirt said."""
        host = self.hypervisor()
        guest = self.guest(host, 'vda')
        agent = self.agent(host)
        before = self.limits(host, 'one')
        agent.tick({guest.uuid: LIMIT})
        held = agent.leases.held()
        self.assertIn('vdb.total_bytes_sec', held[
            guest.uuid, Knob.IO_BYTES_PER_S].original.actions[0]['values'])
        for lease in held.values():
            self.assertTrue(actions.run(lease.original.actions[0], []))
            self.assertFalse(actions.run(lease.original.actions[0], []))
        self.assertEqual(before, self.limits(host, 'one'))

    def test_a_record_that_names_both(self) -> None:
        """It came with its limit from another host."""
        host = self.hypervisor()
        self.guest(host, 'vda')
        before = self.limits(host, 'one')
        knob = Knob.IO_BYTES_PER_S
        record = metadata.build(knob, {
            f'{disk}.{limit}': '0' for disk in ('vdb', 'vda')
            for limit in BYTES})
        host.virsh('metadata', 'one', '--live', '--uri', metadata.uri(knob),
                   '--key', metadata.KEY, '--set', record)
        host.virsh('blkdeviotune one vda --total-bytes-sec 5000000 --live')
        agent = self.agent(host)
        self.wait_for('it is removed', lambda: (
            agent.tick(), self.limits(host, 'one') == before)[-1])
        self.assertNotIn('not removed', self.log.output)
