# SPDX-License-Identifier: Apache-2.0


"""The bench of the hypervisor tests is itself what it says."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import fixtures
from testtools import content
from testtools import matchers

from scavenger_openstack.tests.functional import domain_console
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_network
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests import tiers

KILLED = f"""
import json, sys, time
from {domain_guest.__package__} import domain_guest
from {domain_guest.__package__} import domain_network
from {domain_guest.__package__} import hypervisor
host = hypervisor.Hypervisor(own_network=True)
host.setUp()
bridge = domain_network.Bridge(host)
bridge.setUp()
host.start_all([domain_guest.DomainGuest(
    name='tiny', image=None, paused=True, interfaces=(bridge.interface(),))])
print(json.dumps([str(host.directory), host.tree.name, host.pid,
                  host.qemu_pid('tiny'), host.netns, bridge.far]))
sys.stdout.flush()
time.sleep(600)
"""


def processes_in(namespaces: set[str]) -> set[str]:
    """The processes that are in one of these namespaces."""
    found = set()
    for pid in os.listdir('/proc'):
        if pid.isdigit():
            try:
                kinds = [os.readlink(f'/proc/{pid}/ns/{kind}')
                         for kind in ('mnt', 'uts', 'cgroup')]
            except OSError:
                continue
            if namespaces.intersection(kinds):
                found.add(pid)
    return found


def mounts() -> set[str]:
    """All mounts but the names of network namespaces and their directory,
    which other tests make at the same time."""
    return {line for line in pathlib.Path(
        '/proc/self/mounts').read_text().splitlines()
        if not f'{line.split()[1]}/'.startswith('/run/netns/')}


def running(pid: int) -> bool:
    return os.path.exists(f'/proc/{pid}/exe')


class HypervisorCase(hypervisor.HypervisorTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.mounts = mounts()

    def namespaces_of(self, pid: int) -> set[str]:
        """The namespaces of a process that are not ours.

        They are held until the test ends: a namespace that another test
        makes would get the number of one that is gone.
        """
        kinds = ('mnt', 'uts', 'cgroup')
        for kind in kinds:
            self.addCleanup(os.close, os.open(f'/proc/{pid}/ns/{kind}',
                                              os.O_RDONLY))
        return {os.readlink(f'/proc/{pid}/ns/{kind}') for kind in kinds} - {
            os.readlink(f'/proc/self/ns/{kind}') for kind in kinds}

    def assert_nothing_left(self, directory: pathlib.Path, cgroup: str,
                            namespaces: set[str], *pids: int) -> None:
        self.assertEqual([], [pid for pid in pids if running(pid)])
        self.assertFalse(directory.exists(), directory)
        self.assertEqual([], list(pathlib.Path('/sys/fs/cgroup').glob(
            f'*{cgroup}')))
        self.assertEqual(set(), processes_in(namespaces))
        self.assertEqual(set(), mounts() - self.mounts)


@tiers.only_in_all('what it promises, other tests use')
class TestGuest(HypervisorCase):

    def test_it_works_and_says_how_much(self) -> None:
        host = self.hypervisor()
        bridge = self.useFixture(domain_network.Bridge(host))
        console = host.define_and_start(domain_guest.DomainGuest(
            name='instance-00000001', vcpus=2,
            disks=(domain_guest.Disk.make(host.disks / 'a'),),
            interfaces=(bridge.interface(),)))
        console.tell(f'address {bridge.address()}')
        found = {}
        for command in ('cpu 1', 'cpu 2', 'disk', 'disk write seq kib=64',
                        'disk bytes_per_s=1000000 kib=8', 'lookup',
                        'memory mib=8', f'net {domain_network.ADDRESS}',
                        f'net {domain_network.ADDRESS} tcp '
                        'bytes_per_s=2000000', 'rest'):
            console.tell(command)
            found[command] = console.measure(1)
            if command.startswith('net') and 'tcp' in command:
                arrives = bridge.bytes_per_s(1)
        self.addDetail('work', content.text_content('\n'.join(
            f'{command}: {work}' for command, work in found.items())))
        for command, work in found.items():
            self.assertEqual((command.split()[0], 0),
                             (work.work, work.failed), command)
            if command != 'rest':
                self.assertThat(work.done, matchers.GreaterThan(0), command)
        self.assertEqual(0, found['rest'].done)
        paced = found['disk bytes_per_s=1000000 kib=8']
        # On a busy machine it may be held up, but never ahead.
        for rate in (paced.bytes_per_s / 1e6, arrives / 2e6):
            self.assertThat(rate, matchers.MatchesAll(
                matchers.GreaterThan(0.3), matchers.LessThan(1.2)))
        self.assertIsNotNone(found['lookup'].p99_s)
        self.assertIsNone(found['cpu 1'].mean_s)
        # The same as the host counts it.
        self.assertIn('block.0.rd.reqs', host.virsh('domstats', '--block'))
        self.assertRaises(domain_console.ConsoleError, console.tell, 'fly')


@tiers.only_in_all('what it promises, other tests use')
class TestHypervisors(HypervisorCase):

    def test_guests_outlive_libvirtd(self) -> None:
        host = self.hypervisor()
        console = host.define_and_start(
            domain_guest.DomainGuest(name='instance-00000001'))
        console.tell('cpu 1')
        pid, qemu = host.pid, host.qemu_pid('instance-00000001')
        self.assertThat(host.cpu_s(), matchers.GreaterThan(0.0))
        host.kill()
        self.assertFalse(running(pid))
        self.assertRaises(hypervisor.HypervisorError, host.virsh, 'list')
        self.assertThat(console.measure(1).done, matchers.GreaterThan(0))
        host.start_again()
        self.assertNotEqual(pid, host.pid)
        self.assertEqual('running', host.virsh(
            'domstate', 'instance-00000001').strip())
        self.assertEqual(qemu, host.qemu_pid('instance-00000001'))
        self.assertThat(console.measure(1).done, matchers.GreaterThan(0))
        host.virsh('destroy', 'instance-00000001')
        self.assertFalse(running(qemu))

    def test_guests_migrate(self) -> None:
        source, target = (self.hypervisor(own_network=True)
                          for _ in range(2))
        self.assertNotEqual(source.hostname, target.hostname)
        self.assertNotEqual(source.host_uuid, target.host_uuid)
        nic = domain_guest.Interface(tap='tap0a1b2c3d-4e',
                                     mac='52:54:00:99:00:01')
        name = 'instance-00000001'
        nova = domain_guest.Nova(extra_specs={'a:b': 'c < d'})
        console = source.define_and_start(domain_guest.DomainGuest(
            name=name, nova=nova, interfaces=(nic,),
            disks=(domain_guest.Disk.make(source.disks / 'a'),)))
        console.tell('lookup')
        source.migrate(name, target)
        self.assertEqual('', source.virsh('list', '--all', '--name').strip())
        self.assertEqual(name, target.virsh('list', '--name').strip())
        self.assertIn('c &lt; d', target.virsh('dumpxml', name))
        after = target.console(name, reset=False)
        # What it wrote before it was told may come along.
        self.wait_for('it goes on',
                      lambda: after.measure(1).work == 'lookup')
        self.assertThat(after.measure(1).done, matchers.GreaterThan(0))
        cgroup = pathlib.Path(
            f'/proc/{target.qemu_pid(name)}/cgroup').read_text()
        self.assertIn(f':cpu:{target.tree.name}/machine/', cgroup)


class TestMany(HypervisorCase):

    def test_twenty(self) -> None:
        host = self.hypervisor()
        names = [f'instance-{number:08x}' for number in range(20)]
        broken = {names[0]: '', names[1]: domain_guest.BROKEN_NOVA}
        began = time.monotonic()
        host.start_all([domain_guest.tiny(name, nova=broken.get(
            name, domain_guest.Nova())) for name in names])
        self.addDetail('time', content.text_content(
            f'{time.monotonic() - began:.1f} s'))
        self.assertEqual(names, sorted(host.virsh(
            'list', '--name', '--state-paused').split()))
        pids = {host.qemu_pid(name) for name in names}
        self.assertEqual(20, len(pids))
        groups = list(host.tree.path('cpu', '/machine').glob('qemu-*'))
        self.assertEqual(20, len(groups))
        self.assertEqual([False, True, True], [
            'nova:instance' in host.virsh('dumpxml', name)
            for name in names[:3]])


class TestEnd(HypervisorCase):

    def test_nothing_is_left(self) -> None:
        host = hypervisor.Hypervisor()
        with host:
            host.start_all([domain_guest.tiny('tiny')])
            pid, qemu = host.pid, host.qemu_pid('tiny')
            namespaces = self.namespaces_of(pid)
            self.assertEqual(3, len(namespaces))
            self.assertThat(processes_in(namespaces), matchers.Contains(
                str(qemu)))
            # What is stopped or frozen has to end, too.
            os.kill(qemu, signal.SIGSTOP)
            frozen, = host.tree.path('freezer', '/machine').glob('qemu-*')
            (frozen / 'freezer.state').write_text('FROZEN')
        self.assert_nothing_left(host.directory, host.tree.name, namespaces,
                                 pid, qemu)

    def test_nothing_is_left_when_the_tests_are_killed(self) -> None:
        tests = subprocess.Popen(
            [sys.executable, '-c', KILLED], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(tests.wait, 10)
        self.addCleanup(tests.kill)
        assert tests.stdout
        directory, cgroup, pid, qemu, netns, far = json.loads(
            tests.stdout.readline())
        tests.stdout.close()
        namespaces = self.namespaces_of(pid)
        for name in (netns, far):
            self.assertTrue(os.path.exists(f'/run/netns/{name}'))
        tests.kill()
        self.wait_for('all is gone', lambda: not os.path.exists(directory),
                      timeout_s=30)
        for name in (netns, far):
            self.assertFalse(os.path.exists(f'/run/netns/{name}'))
        self.assert_nothing_left(pathlib.Path(directory), cgroup, namespaces,
                                 pid, qemu)


class TestUnavailable(HypervisorCase):

    def test_it_says_what_to_install(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable('PATH', '/nowhere'))
        self.assertIn('install libvirt-clients', hypervisor.unavailable())
