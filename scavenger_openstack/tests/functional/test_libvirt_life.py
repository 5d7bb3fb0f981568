# SPDX-License-Identifier: Apache-2.0


"""What becomes of limits in the life of a domain."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
import time

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.tests.functional.domain_life import CAPS
from scavenger_openstack.tests.functional.domain_life import LifeCase
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value


class TestStarts(LifeCase):

    def test_a_new_start_takes_them_away(self) -> None:
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        for command in ('destroy one; start one', 'reset one'):
            self.cap(agent, guest.uuid)
            pid = host.qemu_pid('one')
            host.virsh(command)
            if host.qemu_pid('one') == pid:     # a reset keeps them
                self.cap(agent, guest.uuid)
                self.assertNotEqual(before, self.limits(host, 'one'))
            else:
                self.assertEqual(before, self.limits(host, 'one'))
                self.wait_for('limited again', lambda: (
                    agent.tick({guest.uuid: CAPS}),
                    self.limits(host, 'one') != before)[-1])
            agent.tick()
            self.nothing_held(agent)
            self.assertEqual(before, self.limits(host, 'one'))

    def test_deleted_in_the_middle(self) -> None:
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        ended = threading.Event()

        def end() -> None:
            host.virsh('destroy one; undefine one')
            ended.set()

        thread = threading.Thread(target=end)
        agent.tick({guest.uuid: {Knob.CPU_CORES: 0.2}})
        thread.start()
        while not ended.is_set():
            agent.tick({guest.uuid: CAPS})
            agent.tick()
        thread.join()
        self.nothing_held(agent)
        self.assertEqual({}, agent.sample())
        self.assertNotIn('Traceback', self.log.output)

    def test_libvirtd_is_killed(self) -> None:
        """Limits stay; they are removed when it is back."""
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        self.cap(agent, guest.uuid)
        host.kill()
        agent.tick()
        self.assertEqual(2, len(agent.leases.held()))
        self.assertEqual({guest.uuid}, set(agent.sample()))
        host.start_again()
        self.nothing_held(agent)
        self.assertEqual(before, self.limits(host, 'one'))
        self.cap(agent, guest.uuid)
        self.warned_of('cannot be reached')

    def test_a_frozen_qemu_holds_nobody_up(self) -> None:
        host = self.hypervisor()
        guest, other = self.one(host), virtual_host.tiny('two')
        host.start_all([other])
        agent = self.agent(host, deadline_s=5.0, timeout_s=0.5)
        before = self.limits(host, 'one')
        self.cap(agent, guest.uuid)
        pid = host.qemu_pid('one')
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        both: dict[str, dict[Knob, Value]] = {
            guest.uuid: {Knob.IO_BYTES_PER_S: 4_000_000},
            other.uuid: {Knob.CPU_CORES: 0.2}}
        agent.tick(both)
        self.assertIn((other.uuid, Knob.CPU_CORES), agent.leases.held())
        began = time.monotonic()
        for _ in range(5):
            agent.tick(both)
        # Each would wait 5 s for its deadline.
        self.assertTrue(time.monotonic() - began < 25.0)
        self.assertIn((guest.uuid, Knob.IO_BYTES_PER_S),
                      agent.actuator.pending)
        agent.tick({guest.uuid: both[guest.uuid]})
        self.assertNotIn((other.uuid, Knob.CPU_CORES), agent.leases.held())
        os.kill(pid, signal.SIGCONT)
        self.nothing_held(agent)
        self.assertEqual(before, self.limits(host, 'one'))


class TestTravels(LifeCase):

    def test_managed_save(self) -> None:
        """The record travels with the cap, which ends when it is back."""
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        self.cap(agent, guest.uuid, {**CAPS, Knob.PAUSED: 1})
        host.virsh('managedsave one')
        self.nothing_held(agent)
        host.virsh('start one')
        self.wait_for('removed', lambda: (
            agent.tick(), self.limits(host, 'one') == before)[-1],
            timeout_s=20)
        self.assertEqual(1, self.said('came with a limit on'))
        self.cap(agent, guest.uuid)
        self.nothing_held(agent)
        self.assertEqual(before, self.limits(host, 'one'))

    def test_a_record_that_says_nothing(self) -> None:
        """Its limit goes with it, to what the persistent definition says."""
        self.unreadable(as_nova=False)
        self.assertIn('is now what the other definition', self.log.output)
        self.assertNotIn('it has no limit now', self.log.output)

    def test_two_records_that_say_nothing(self) -> None:
        """The live definition has become the persistent one."""
        self.unreadable(as_nova=True)
        self.assertIn('it has no limit now', self.log.output)

    def unreadable(self, *, as_nova: bool) -> None:
        host = self.hypervisor()
        guest = self.one(host)
        before = self.limits(host, 'one')
        inactive = self.limits(host, 'one', '--inactive')
        agent = self.agent(host)
        caps = {**CAPS, Knob.IO_OPS_PER_S: 300, Knob.PAUSED: 1}
        self.cap(agent, guest.uuid, caps)
        for knob in caps:
            self.metadata(host, knob, '--key', 's', '--set', '<lease/>')
        if as_nova:
            path = host.directory / 'live.xml'
            path.write_text(host.virsh('dumpxml', 'one', '--migratable'))
            host.virsh('define', str(path))
        host.virsh('managedsave one')
        self.nothing_held(agent)
        host.virsh('start one')
        self.wait_for('removed', lambda: (
            agent.tick(), self.limits(host, 'one') == before)[-1],
            timeout_s=20)
        self.assertEqual(inactive, self.limits(host, 'one', '--inactive'))

    def test_a_record_that_is_taken_away(self) -> None:
        """By a call of a dead agent that libvirtd gets to much later."""
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        self.cap(agent, guest.uuid)
        before = self.limits(host, 'one')
        for knob in CAPS:
            self.metadata(host, knob, '--remove')
        self.assertNotEqual(before, self.limits(host, 'one'))
        self.wait_for('our record', lambda: (
            agent.tick({guest.uuid: CAPS}),
            self.limits(host, 'one') == before)[-1], timeout_s=20)
        self.assertEqual(0, self.said('another program'))

    def metadata(self, host: hypervisor.Hypervisor, knob: Knob,
                 *options: str) -> None:
        """Do this to our record."""
        host.virsh('metadata', 'one', '--live', '--uri',
                   metadata.uri(knob), *options)

    def test_live_migration(self) -> None:
        self.migrate(as_nova=False)

    def test_live_migration_as_nova_does_it(self) -> None:
        """The live definition becomes the persistent one."""
        self.migrate(as_nova=True)

    def migrate(self, *, as_nova: bool) -> None:
        source, target = (self.hypervisor(own_network=True)
                          for _ in range(2))
        guest = self.one(source)
        here, there = self.agent(source), self.agent(target)
        before = self.limits(source, 'one')
        inactive = self.limits(source, 'one', '--inactive')
        self.cap(here, guest.uuid, {**CAPS, Knob.CPU_SET: '1',
                                    Knob.IO_OPS_PER_S: 300})
        options: tuple[str, ...] = ()
        if as_nova:
            path = source.directory / 'live.xml'
            path.write_text(source.virsh('dumpxml', 'one', '--migratable'))
            options = ('--persistent-xml', str(path))
        ended = threading.Event()

        def tick() -> None:
            caps = [5e6, 4e6]
            while not ended.wait(0.05):
                caps.reverse()
                here.tick({guest.uuid: {
                    **CAPS, Knob.IO_BYTES_PER_S: caps[0],
                    Knob.CPU_SET: '1', Knob.IO_OPS_PER_S: 300}})

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            source.migrate('one', target, *options)
        finally:
            ended.set()
            thread.join()
        self.nothing_held(here)
        self.wait_for('removed', lambda: (there.tick(), self.limits(
            target, 'one') == before)[-1], timeout_s=30)
        self.assertEqual(inactive, self.limits(target, 'one', '--inactive'))
        self.cap(there, guest.uuid)
        self.nothing_held(there)
        self.assertEqual(before, self.limits(target, 'one'))
        self.assertEqual(1, self.said(
            f'domain one ({guest.uuid}) came with a limit on'))

    def test_a_dead_agents_lease_restores_both_definitions(self) -> None:
        """By the steps that scavenger-restore carries out."""
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        inactive = self.limits(host, 'one', '--inactive')
        self.cap(agent, guest.uuid)
        path = pathlib.Path(host.directory, 'live.xml')
        path.write_text(host.virsh('dumpxml', 'one', '--inactive').replace(
            '<metadata>', '<metadata>' + host.virsh(
                'dumpxml', 'one').partition('<metadata>')[2].partition(
                    '</metadata>')[0].partition('</nova:instance>')[2]
        ).replace('<vcpu', '<cputune><quota>20000</quota></cputune><vcpu'))
        host.virsh('define', str(path))
        self.assertNotEqual(inactive, self.limits(host, 'one', '--inactive'))
        self.nothing_held(agent)
        self.assertEqual(before, self.limits(host, 'one'))
        left = self.limits(host, 'one', '--inactive')
        self.assertNotIn('20000', str(left))
        self.assertNotIn('lease', str(left))
