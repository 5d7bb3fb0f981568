# SPDX-License-Identifier: Apache-2.0


"""Which domains there are and what they use, told by a real libvirtd."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

from testtools import content
from testtools import matchers

from scavenger_openstack.decision import rates
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import domains
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Priority


class TestWhoIsThere(virtual_host.VirtualHostTestCase):

    def test_they_come_and_go(self) -> None:
        host = self.hypervisor()
        one = virtual_host.tiny('one', vcpus=1)
        two = domain_guest.tiny('two', nova=None)
        three = domain_guest.tiny('three', nova=domain_guest.BROKEN_NOVA)
        host.start_all([one, two])
        agent = self.agent(host)
        found = agent.sample()
        self.assertEqual({one.uuid, two.uuid}, set(found))
        self.assertEqual(
            [Priority.BACKGROUND, Priority.FOREGROUND],
            [found[uuid].workload.priority for uuid in (one.uuid, two.uuid)])
        self.assertEqual('flavor', found[one.uuid].workload.source)
        self.assertEqual(one.uuid, found[one.uuid].workload.group)
        self.assertIsNone(found[one.uuid].io_ops)
        host.start_all([three])
        self.wait_for_domains(agent, one.uuid, two.uuid, three.uuid)
        host.virsh('destroy', 'two')
        self.wait_for_domains(agent, one.uuid, three.uuid)
        before = agent.sample()[one.uuid].workload.created_s
        host.virsh('destroy one; start one --paused')
        self.wait_for('another run', lambda: (
            one.uuid in (seen := agent.sample())
            and seen[one.uuid].workload.created_s > before))
        os.kill(host.qemu_pid('three'), signal.SIGKILL)
        self.wait_for_domains(agent, one.uuid)
        host.virsh('destroy one; domrename one eins; start eins --paused')
        self.wait_for_domains(agent, one.uuid)
        self.assertEqual(0, self.said('cannot'))

    def test_libvirtd_may_be_gone(self) -> None:
        host = self.hypervisor()
        one, two = (virtual_host.tiny(name) for name in ('one', 'two'))
        host.start_all([one])
        agent = self.agent(host)
        host.kill()
        self.wait_for('word', lambda: self.said('cannot be reached'))
        self.assertEqual({one.uuid}, set(agent.sample()))
        os.kill(host.qemu_pid('one'), signal.SIGKILL)
        self.wait_for_domains(agent)
        host.start_again()
        host.start_all([two])
        self.wait_for_domains(agent, two.uuid)
        self.assertEqual(1, self.said('cannot be reached'))
        self.wait_for('word', lambda: self.said('libvirt answers again'))
        self.assertEqual(1, self.said('libvirt answers again'))

    def test_one_that_was_not_there_at_first(self) -> None:
        host = self.hypervisor()
        host.kill()
        agent = self.agent(host, timeout_s=0.2)
        self.assertEqual({}, agent.sample())
        self.wait_for('word', lambda: self.said('cannot be reached'))
        host.start_again()
        one = virtual_host.tiny('one')
        host.start_all([one])
        self.wait_for_domains(agent, one.uuid)
        self.assertEqual(1, self.said('cannot be reached'))


class TestWhatTheyDo(virtual_host.VirtualHostTestCase):

    def test_disks_and_cpu(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background(
            'one', disks=(domain_guest.Disk.make(host.disks / 'a'),))
        console = host.define_and_start(guest)
        agent = self.agent(host, stats_ticks=2)
        console.tell('disk bytes_per_s=2000000 kib=64')
        rates_seen = []
        for _ in range(10):
            # A guest that had to wait for a CPU makes up for it.
            samples, times = [], []
            for _ in range(12):
                samples.append(agent.sample()[guest.uuid])
                times.append(time.monotonic())
                time.sleep(0.5)
            timed = [(one.io_bytes, at) for one, at in
                     zip(samples, times, strict=True)
                     if one.io_bytes is not None][2:]
            sizes = [size for size, _ in timed]
            self.assertThat(len(sizes), matchers.GreaterThan(6))
            rates_seen.append((sizes[-1] - sizes[0])
                              / (timed[-1][1] - timed[0][1]))
            if abs(rates_seen[-1] / 2e6 - 1) < 0.3 or not tiers.ALL:
                break
        self.addDetail('samples', content.text_content('\n'.join(
            f'{one.io_ops} {one.io_bytes} {one.io_wait_s} {one.cpu_s}'
            for one in samples)))
        if tiers.ALL:
            self.assertThat(abs(rates_seen[-1] / 2e6 - 1),
                            matchers.LessThan(0.3), str(rates_seen))
        for name in ('io_wait_s', 'cpu_s'):
            values = [getattr(one, name) for one in samples]
            self.assertThat(values[-1], matchers.GreaterThan(values[-6]))
        grown = [after > before
                 for before, after in zip(sizes, sizes[1:], strict=False)]
        self.assertTrue(all(grown), 'each tick has its part')

    @tiers.only_in_all('a figure under load')
    def test_an_answer_is_one_measurement(self) -> None:
        """Its ticks have the very same time per operation."""
        host = self.hypervisor()
        guest = virtual_host.background(
            'one', disks=(domain_guest.Disk.make(host.disks / 'a'),))
        console = host.define_and_start(guest)
        agent = self.agent(host, stats_ticks=5)
        console.tell('disk bytes_per_s=2000000')
        last, waits = None, []
        for _ in range(40):
            sample = agent.sample()[guest.uuid]
            if last is not None:
                waits.append(rates.workload_rates(
                    last, sample, 0.2).io_wait_s_per_op)
            last = sample
            time.sleep(0.2)
        self.addDetail('waits', content.text_content('\n'.join(
            map(str, waits))))
        known = [wait for wait in waits if wait is not None]
        self.assertThat(len(known), matchers.GreaterThan(20))
        news = sum(one != two for one, two in itertools.pairwise(known))
        self.assertThat(news, matchers.LessThan(len(known) / 4))
        self.assertThat(news, matchers.GreaterThan(len(known) / 10))

    def test_a_frozen_qemu_costs_its_own_numbers(self) -> None:
        host = self.hypervisor()
        guests = [virtual_host.background(
            name, disks=(domain_guest.Disk.make(host.disks / name),))
            for name in ('one', 'two')]
        host.start_all(guests)
        consoles = [host.console(guest.name) for guest in guests]
        consoles[1].tell('disk bytes_per_s=1000000 kib=64')
        agent = self.agent(host, timeout_s=2.0)

        def ops(number: int) -> int | None:
            return agent.sample()[guests[number].uuid].io_ops

        self.wait_for('numbers', lambda: ops(0) is not None)
        pid = host.qemu_pid('one')
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        others = set(threading.enumerate())
        self.wait_for('no numbers of one', lambda: ops(0) is None)
        self.wait_for('numbers of two', lambda: ops(1) is not None)
        began = time.monotonic()
        seen = set()
        for _ in range(20):
            seen.add(ops(1))
            time.sleep(0.1)
        took = time.monotonic() - began
        self.assertThat(len(seen - {None}), matchers.GreaterThan(5))
        # Each would wait 2 s if it waited for the frozen one.
        self.assertThat(took, matchers.LessThan(40.0))
        self.wait_for('word', lambda: ops(0) or self.said(
            f'domain {guests[0].uuid}: its QEMU does not answer'))
        # All slots of calls, and the questions of what does not answer.
        self.assertThat(len({*threading.enumerate()} - others),
                        matchers.LessThan(calls.MOST + 2))
        os.kill(pid, signal.SIGCONT)
        self.wait_for('numbers again', lambda: ops(0) is not None)
        self.assertEqual(1, self.said('its QEMU does not answer'))
        self.assertEqual(1, self.said('its QEMU answers again'))


class TestBadInput(virtual_host.VirtualHostTestCase):

    def test_a_socket_that_is_none(self) -> None:
        one = domains.Domains(
            'qemu+unix:///system?socket=/proc/self/status', timeout_s=0.2)
        self.addCleanup(one.close)
        self.assertEqual((), one.sample())
        self.wait_for('word', lambda: self.said('cannot be reached'))
        self.assertEqual(1, self.said('see that libvirtd'))

    def test_not_permitted(self) -> None:
        host = self.hypervisor()
        client.LOOP.module()       # what it is made of is not for all
        (host.directory / 'run/libvirt/libvirt-sock').chmod(0o700)
        os.seteuid(65534)
        self.addCleanup(os.seteuid, 0)
        one = domains.Domains(host.uri, run_dir=str(host.run_dir),
                              timeout_s=0.2)
        self.addCleanup(one.close)
        self.assertEqual((), one.sample())
        self.wait_for('word', lambda: self.said('cannot be reached'))
        self.assertIn('Permission denied', self.log.output)
        self.assertIn('may use its socket', self.log.output)
        os.seteuid(0)
        self.wait_for('word', lambda: self.said('libvirt answers again'))
        self.assertEqual(1, self.said('cannot be reached'))

    def test_extra_specs(self) -> None:
        """What is wrong is told once; what a tenant says has no effect."""
        host = self.hypervisor()
        guests = [
            domain_guest.tiny('one', nova=domain_guest.Nova(extra_specs={
                'scavenger:priority': 'backgroud'})),
            domain_guest.tiny('two', nova=domain_guest.Nova(
                properties={'scavenger:priority': 'background',
                            'scavenger_priority': 'background'})),
            virtual_host.tiny('three')]
        host.start_all(guests)
        agent = self.agent(host)
        host.virsh('setmem three 8000 --config; resume three')
        self.assertEqual(
            [Priority.FOREGROUND, Priority.FOREGROUND, Priority.BACKGROUND],
            [agent.sample()[guest.uuid].workload.priority
             for guest in guests])
        self.assertEqual(1, self.said('backgroud'))
        self.assertIn(f"'one' ({guests[0].uuid}): extra spec "
                      "'scavenger:priority'", self.log.output)
