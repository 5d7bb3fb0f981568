# SPDX-License-Identifier: Apache-2.0

"""Whose a thread is, on a host of plain files."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time

import fixtures
import testtools

from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import find_mounts
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.types import THE_HOST

SCOPE = r'/machine.slice/machine-qemu\x2d1\x2done.scope'
PLAIN = '/machine/qemu-2-two.libvirt-qemu'
WORKLOADS = {'/batch/a': '/batch/a', '/batch/a.b': '/batch/a.b',
             '/services/s': '/services/s'}


class TestNames(testtools.TestCase):

    def test_common_names(self) -> None:
        for name, common in (
                ('kworker/u8:3-events_unbound', 'kworker-events_unbound'),
                ('kworker/0:1H-kblockd', 'kworker-kblockd'),
                ('kworker/u8:1+flush-253:0', 'kworker+flush-253:0'),
                ('kworker/1:2', 'kworker'), ('kworker/R-ext4', 'kworker-ext4'),
                ('ksoftirqd/1', 'ksoftirqd'), ('migration/12', 'migration'),
                ('irq/24-virtio0', 'irq-virtio0'), ('kswapd0', 'kswapd0'),
                ('jbd2/vda1-8', 'jbd2/vda1-8'), ('nginx', 'nginx'),
                ('/1', ''), ('', '')):
            self.assertEqual(common, thread_owners.common_name(name))


class HostCase(testtools.TestCase):

    def host(self, version: int) -> thread_owners.ThreadOwners:
        self.files = self.useFixture(cpusets.Host(2, version))
        self.mounts = find_mounts(str(self.files.root))
        return thread_owners.ThreadOwners(self.mounts, str(self.files.root))

    def thread(self, tid: int, *lines: str, comm: str = 'cat', state: str = 'R'
               ) -> int:
        self.files.put(f'proc/{tid}/cgroup', '\n'.join(lines))
        self.files.put(f'proc/{tid}/comm', comm)
        self.files.put(f'proc/{tid}/stat', f'{tid} ({comm}) {state} 1 2 3')
        return tid


class TestOwners(HostCase):

    def test_version_2(self) -> None:
        owners = self.host(2)
        for tid, (path, owner) in enumerate((
                ('/batch/a', '/batch/a'), ('/batch/a/b/c', '/batch/a'),
                ('/batch/a.b/x', '/batch/a.b'), ('/batch/ab', THE_HOST),
                ('/batch', THE_HOST), ('/', THE_HOST),
                ('/batch/a/x (deleted)', '/batch/a'),
                ('/../batch/a', THE_HOST)), 10):
            self.thread(tid, f'0::{path}')
            self.assertEqual(owner, owners.owner(tid, WORKLOADS), path)

    def test_version_1_goes_by_the_controller_of_cpus(self) -> None:
        owners = self.host(1)
        self.thread(7, '5:memory:/services/s', '4:cpuset:/services/s',
                    '3:cpu,cpuacct:/batch/a/b', '1:name=systemd:/services/s',
                    '0::/services/s')
        self.assertEqual('/batch/a', owners.owner(7, WORKLOADS))
        self.thread(8, '4:cpuset:/services/s', '3:cpuacct,cpu:/')
        self.assertEqual(THE_HOST, owners.owner(8, WORKLOADS))

    def test_domains(self) -> None:
        """A vCPU thread is in a cgroup of its own in that of the domain."""
        for version, line, machine in (
                (2, f'0::{SCOPE}/libvirt/vcpu0', 'one'),
                (2, f'0::{SCOPE}/libvirt/emulator', 'one'),
                (1, f'3:cpu:{PLAIN}/vcpu1', 'two'),
                (1, f'3:cpu:{PLAIN}/emulator', 'two')):
            owners = self.host(version)
            domains = cgroup_overlap.DomainCgroups(self.mounts)
            found = domain_cgroup.machine(line, self.mounts)
            assert found is not None
            domains.follow({machine: found})
            self.thread(9, line)
            self.assertEqual(machine, owners.owner(
                9, WORKLOADS | domains.own), line)

    def test_what_is_gone(self) -> None:
        owners = self.host(2)
        self.assertIsNone(owners.owner(4, WORKLOADS))
        self.assertEqual('', owners.name(4))
        self.assertFalse(owners.lives(4) or owners.runnable(4))
        self.thread(5, '0::/batch/a', state='Z')
        self.assertFalse(owners.lives(5) or owners.runnable(5))
        self.thread(6, '0::/batch/a', comm='a) Z (b', state='S')
        self.assertEqual((True, False), (owners.lives(6), owners.runnable(6)))

    def test_names_are_printable(self) -> None:
        owners = self.host(2)
        (self.files.root / 'proc/3').mkdir()
        (self.files.root / 'proc/3/comm').write_bytes(b'a\x1b[31m\xff/1\n')
        # It may be a program's: the thread is gone.
        self.assertEqual('', owners.name(3))
        (self.files.root / 'proc/3/stat').write_text(
            f'3 (a) S {"0 " * 20}\n')
        self.assertEqual('program a\\x1b[31m\\udcff', owners.name(3))

    def test_a_program_that_calls_itself_a_thread_of_the_kernel(self) -> None:
        owners = self.host(2)
        for tid, flags in (3, 0x400100), (4, 0x208040):
            (self.files.root / f'proc/{tid}').mkdir()
            (self.files.root / f'proc/{tid}/comm').write_text('kswapd0\n')
            (self.files.root / f'proc/{tid}/stat').write_text(
                f'{tid} (kswapd0) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 '
                '1 0 5 0 0\n')
        self.assertEqual(['program kswapd0', 'kswapd0'],
                         [owners.name(tid) for tid in (3, 4)])

    def test_no_hierarchy_of_cpus(self) -> None:
        owners = thread_owners.ThreadOwners({'memory': Mount('/m', 1)})
        self.assertIsNone(owners.controller())
        self.assertIsNone(owners.owner(1, WORKLOADS))
        self.assertEqual([], list(owners.listed('/m/a')))


    def test_since_when_a_thread_is_there(self) -> None:
        owners, tick_s = self.host(1), thread_owners.TICK_S
        stat = pathlib.Path('/proc/self/stat').read_text()
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        for name, state, there in (
                ('cat', 'S', True), ('a) Z (b', 'R', True),
                ('cat', 'Z', False), ('cat', 'X', False)):
            fields = stat.rpartition(') ')[2].split()[1:]
            self.files.put('proc/7/stat', f'7 ({name}) {state} '
                           + ' '.join((*fields[:18], '1234', *fields[19:])))
            self.files.put('proc/7/cgroup', '3:cpu:/batch/a/b')
            cat = owners.process(7, WORKLOADS)
            self.assertEqual(there, cat is not None, name + state)
            if cat is not None:
                self.assertEqual(('/batch/a', '', 1234), (
                    *cat[:2], round(cat.began_s / tick_s)))
        self.assertIsNone(owners.process(8, WORKLOADS))
        process = subprocess.Popen(['sleep', '60'])
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)
        while pathlib.Path(f'/proc/{process.pid}/comm').read_text(
                ) != 'sleep\n':
            time.sleep(0.01)
        real = thread_owners.ThreadOwners(find_mounts()).process(
            process.pid, {})
        assert real is not None
        began_s = real.began_s
        self.assertEqual((THE_HOST, 'program sleep'), real[:2])
        self.assertGreaterEqual(began_s + tick_s, now_s)
        self.assertLess(began_s,
                        time.clock_gettime(time.CLOCK_BOOTTIME))

    def test_a_process_whose_first_thread_has_ended(self) -> None:
        """The kernel shows that in the root."""
        code = ('import ctypes, os, threading, time\n'
                'threading.Thread(target=time.sleep, args=(60,)).start()\n'
                'print(flush=True)\n'
                'ctypes.CDLL(None).pthread_exit(None)\n')
        process = subprocess.Popen([sys.executable, '-c', code],
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        owners = thread_owners.ThreadOwners(find_mounts())
        until_s = time.monotonic() + 30
        while owners.lives(process.pid) and time.monotonic() < until_s:
            time.sleep(0.01)
        self.assertFalse(owners.lives(process.pid))
        real = owners.process(process.pid, {})
        assert real is not None
        self.assertEqual(THE_HOST, real.owner)
        root = self.host(1)
        self.thread(7, '3:cpu:/', state='Z')
        self.thread(8, '3:cpu:/batch/a')
        stat = '1 ' * 18 + '1234 0'
        self.files.put('proc/7/stat', f'7 (cat) Z {stat}')
        self.files.put('proc/7/task/8/none', '')
        found = root.process(7, WORKLOADS)
        assert found is not None
        self.assertEqual('/batch/a', found.owner)
        self.files.put('proc/8/stat', f'8 (cat) X {stat}')
        self.assertIsNone(root.process(7, WORKLOADS))


class TestListed(HostCase):

    def test_threads_of_a_cgroup_and_below(self) -> None:
        for version, file in ((1, 'tasks'), (2, 'cgroup.threads')):
            owners = self.host(version)
            top = f'{self.mounts["cpu"].path}/batch/a'
            for below, text in (('', '1\n2\n'), ('/b', ''), ('/b/c', '3\n')):
                os.makedirs(top + below)
                with open(f'{top}{below}/{file}', 'w') as tasks:
                    tasks.write(text)
            self.assertEqual([[1, 2], [], [3]], list(owners.listed(top)))
            self.assertEqual([], list(owners.listed(f'{top}/gone')))
            with open(f'{top}/cgroup.procs', 'w') as processes:
                processes.write('1\n1\n')
            self.assertEqual([1, 1], next(owners.listed(
                top, cgroup_members.PROCESSES)))
            with fixtures.MonkeyPatch(f'{thread_owners.__name__}.MOST', 1):
                self.assertEqual([[1], [], [3]], list(owners.listed(top)))

    def test_cgroups_that_go_meanwhile(self) -> None:
        owners = self.host(1)
        top = f'{self.mounts["cpu"].path}/batch/a'
        for name in 'bcd':
            os.makedirs(f'{top}/{name}')
            pathlib.Path(f'{top}/{name}/tasks').write_text('1\n')
        pathlib.Path(f'{top}/tasks').write_text('')
        listing = owners.listed(top)
        self.assertEqual([[], [1]], [next(listing), next(listing)])
        shutil.rmtree(top)
        self.assertEqual([], list(listing))

    def test_whose_cgroups_are(self) -> None:
        owners = self.host(2)
        top = self.mounts['cpu'].path
        wanted = {}
        for path, owner in (('/batch/a', '/batch/a'),
                            ('/batch/a/b/c', '/batch/a'),
                            ('/batch/a.b', '/batch/a.b'), ('/x', None)):
            os.makedirs(top + path)
            wanted[os.stat(top + path).st_ino] = owner
        workloads = WORKLOADS | {'/batch/a/b/c/d': 'inner'}
        os.makedirs(f'{top}/batch/a/b/c/d/e')
        wanted[os.stat(f'{top}/batch/a/b/c/d/e').st_ino] = 'inner'
        inodes = owners.inodes(workloads, wanted)
        self.assertEqual(wanted, {
            inode: inodes.get(inode) for inode in wanted})
        with fixtures.MonkeyPatch(f'{thread_owners.__name__}.MOST_BELOW', 0):
            self.assertEqual(['/batch/a', '/batch/a.b', 'inner'], sorted(
                owners.inodes(workloads, wanted).values()))
        self.assertEqual({}, self.host(1).inodes(workloads, wanted))
