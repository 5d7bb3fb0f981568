# SPDX-License-Identifier: Apache-2.0

"""A domain's counters, from files in a temporary directory.

They are laid out as libvirt and the kernel do it: cgroup v1 without systemd,
v1 beside a v2 tree, v2 with systemd.  What only a kernel can say (a process
that ends) is in the functional tests.
"""

from __future__ import annotations

import errno
import os
import pathlib
import shutil

import fixtures
import testtools

from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu import counters as domain_counters
from scavenger_openstack.drivers.qemu.counters import DomainCounters
from scavenger_openstack.drivers.qemu import process
from scavenger_openstack import errors
from scavenger_openstack.tests import descriptors
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

UUID = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
PID = 1157
PLAIN = 'qemu-1-instance-00000001.libvirt-qemu'
SCOPE = r'machine-qemu\x2d1\x2dinstance\x2d00000001.scope'
VM = Workload(id=UUID, priority=Priority.BACKGROUND)


class FilesTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.task(PID, 'qemu-system-x86')
        self.put(f'proc/{PID}/cmdline',
                 f'/usr/bin/qemu\0-name\0guest=a\0-uuid\0{UUID}\0-S\0')
        self.put(f'proc/{PID}/stat',
                 f'{PID} (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20\n')
        self.link_bytes: dict[int, tuple[int, int]] = {1: (0, 0)}
        self.put(f'proc/{PID}/status', 'Name:\ta\nRssAnon:\t  2048 kB\n'
                 'RssFile:\t  9999 kB\nRssShmem:\t  1024 kB\n')

    def put(self, path: str, text: str) -> None:
        file = self.root / path.lstrip('/')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def task(self, tid: int, name: str, sched: str = '0 0 0') -> None:
        self.put(f'proc/{PID}/task/{tid}/comm', f'{name}\n')
        self.put(f'proc/{PID}/task/{tid}/schedstat', f'{sched}\n')

    def mounts(self, *names: str, version: int = 1) -> dict[str, Mount]:
        below = '' if version == 2 else '/{}'
        return {name: Mount(f'{self.root}/cg{below.format(name)}', version)
                for name in names}

    def counters(self, mounts: dict[str, Mount], *interfaces: str
                 ) -> DomainCounters:
        found = DomainCounters(PID, UUID, mounts, interfaces, str(self.root))
        self.addCleanup(found.close)
        return found

    def counted(self, counters: DomainCounters, *threads: int) -> set[int]:
        """Return the threads of which the waits count."""
        counted = set()
        for tid in threads:
            before_s = self.sample(counters).run_delay_s
            path = self.root / f'proc/{PID}/task/{tid}/schedstat'
            run, waited, times = path.read_text().split()
            path.write_text(f'{run} {int(waited) + 10 ** 9} {times}\n')
            after_s = self.sample(counters).run_delay_s
            assert before_s is not None and after_s is not None
            if after_s > before_s:
                counted.add(tid)
        return counted

    def sample(self, counters: DomainCounters) -> WorkloadSample:
        found = counters.sample(VM, link_bytes=self.link_bytes)
        assert found is not None
        return found


class TestVersion1(FilesTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.put(f'proc/{PID}/cgroup', ''.join(
            f'1:{name}:/machine/{PLAIN}{below}\n' for name, below in (
                ('cpu', '/emulator'), ('cpuacct', '/emulator'),
                ('memory', ''))))
        self.put(f'cg/cpuacct/machine/{PLAIN}/cpuacct.usage', '5000000000\n')
        self.put(f'cg/cpu/machine/{PLAIN}/cpu.stat',
                 'nr_periods 0\nnr_throttled 0\nthrottled_time 0\n')
        self.put(f'cg/memory/machine/{PLAIN}/memory.usage_in_bytes',
                 '9000000\n')
        self.put(f'cg/memory/machine/{PLAIN}/memory.stat',
                 'a 1\ntotal_inactive_file 1000000\ntotal_active_file 0\n')
        for vcpu in (0, 1):
            self.vcpu(vcpu, 1160 + vcpu, '1000000000 200000000 7')
        self.used = self.mounts('cpu', 'cpuacct', 'memory')

    def vcpu(self, number: int, tid: int, sched: str = '',
             throttled_ns: int = 0) -> None:
        group = f'cg/cpu/machine/{PLAIN}/vcpu{number}'
        self.put(f'{group}/tasks', f'{tid}\n')
        self.stat(number, throttled_ns)
        self.task(tid, f'CPU {number}/KVM', sched)

    def stat(self, number: int, throttled_ns: int) -> None:
        self.put(f'cg/cpu/machine/{PLAIN}/vcpu{number}/cpu.stat',
                 f'nr_periods {bool(throttled_ns):d}\nnr_throttled 0\n'
                 f'throttled_time {throttled_ns}\n')

    def test_what_it_says(self) -> None:
        counters = self.counters(self.used)
        one = counters.sample(VM, (1.5, 20, 4096))
        assert one is not None
        self.assertEqual(
            (VM, 5.0, 0.0, 0.0, 8_000_000, 1.5, 20, 4096, None, None),
            (one.workload, one.cpu_s, one.run_delay_s, one.throttled_s,
             one.memory_bytes, one.io_wait_s, one.io_ops, one.io_bytes,
             one.net_tx_bytes, one.psi_cpu_s))
        self.assertEqual({}, one.caps_in_force)
        self.assertEqual({1160, 1161}, self.counted(counters, 1160, 1161))

    def test_a_cgroup_that_is_gone_is_not_the_process(self) -> None:
        shutil.rmtree(self.root / 'cg/cpu/machine')
        exc = self.assertRaises(OSError, self.counters, self.used)
        self.assertIn('cg/cpu/machine', str(exc))

    def test_a_file_that_is_gone_is_not_the_machine(self) -> None:
        counters = self.counters(self.used)
        files = [self.root / f'cg/memory/machine/{PLAIN}/memory.stat',
                 self.root / f'cg/cpu/machine/{PLAIN}/vcpu0/cpu.stat']
        plain = os.pread

        def pread(fd: int, size: int, offset: int) -> bytes:
            if os.readlink(f'/proc/self/fd/{fd}').endswith('.off'):
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            return plain(fd, size, offset)

        self.useFixture(fixtures.MonkeyPatch('os.pread', pread))
        counters.wake()
        for path in files:
            path.rename(f'{path}.off')
        found = self.sample(counters)
        self.assertEqual((5.0, None), (found.cpu_s, found.memory_bytes))
        # On again: each of the vCPUs is read.
        for path in files:
            pathlib.Path(f'{path}.off').rename(path)
        self.stat(0, 40_000_000)
        counters.relist()
        for _ in range(2):
            counters.wake()
            found = self.sample(counters)
        self.assertEqual(8_000_000, found.memory_bytes)
        self.stat(0, 90_000_000)
        counters.wake()
        self.assertAlmostEqual(0.05, self.sample(counters).throttled_s or 0)

    def test_vcpus_add_up(self) -> None:
        counters = self.counters(self.used)
        self.vcpu(0, 1160, '1500000000 300000000 9', 40_000_000)
        self.vcpu(1, 1161, '1250000000 200000001 9', 10_000_000)
        counters.wake()
        one = self.sample(counters)
        self.assertEqual((0.1, 0.05), (round(one.run_delay_s or 0, 6),
                                       one.throttled_s))

    def test_throttled_counts_that_of_the_machine(self) -> None:
        self.put(f'cg/cpu/machine/{PLAIN}/cpu.stat',
                 'nr_periods 5\nnr_throttled 5\nthrottled_time 250000000\n')
        counters = self.counters(self.used)
        self.assertEqual(0.25, self.sample(counters).throttled_s)

    def test_a_vcpu_that_comes_and_goes(self) -> None:
        counters = self.counters(self.used)
        self.vcpu(0, 1160, '2000000000 300000000 9')
        self.assertEqual(0.1, self.delay(counters))
        self.vcpu(2, 1162, '9000000000 9000000000 9')
        counters.relist()
        self.assertEqual(0.1, self.delay(counters))
        self.vcpu(2, 1162, '9500000000 9100000000 9')
        self.assertEqual(0.2, self.delay(counters))
        shutil.rmtree(self.root / f'cg/cpu/machine/{PLAIN}/vcpu2')
        counters.relist()
        self.assertEqual(0.2, self.delay(counters))
        # Another thread for the same vCPU: not what the old one had.
        self.vcpu(0, 1170, '10 10 1')
        counters.relist()
        self.assertEqual(0.2, self.delay(counters))
        self.assertEqual({1170, 1161},
                         self.counted(counters, 1160, 1170, 1161))

    def test_seen_while_it_starts(self) -> None:
        """The threads are there before their cgroups."""
        for vcpu in (0, 1):
            shutil.rmtree(self.root / f'cg/cpu/machine/{PLAIN}/vcpu{vcpu}')
            self.task(1160 + vcpu, f'CPU {vcpu}/KVM', '5 5 5')
        counters = self.counters(self.used)
        for vcpu in (0, 1):
            self.vcpu(vcpu, 1160 + vcpu, '10 10 10', 1_000_000_000)
        first = self.sample(counters)
        self.assertEqual((0.0, 1e-8), (first.throttled_s, first.run_delay_s))
        self.vcpu(1, 1161, '20 20 20', 3_000_000_000)
        self.assertEqual(2.0, self.sample(counters).throttled_s)

    def delay(self, counters: DomainCounters) -> float:
        return round(self.sample(counters).run_delay_s or 0, 6)

    def test_it_looks_now_and_then_without_being_told(self) -> None:
        counters = self.counters(self.used)
        self.vcpu(2, 1162, '0 0 0')
        for _ in range(domain_counters.RESCAN_TICKS):
            self.sample(counters)
        self.assertEqual({1162}, self.counted(counters, 1162))
        # One that is being made has a cgroup, and then a thread.
        self.put(f'cg/cpu/machine/{PLAIN}/vcpu3/tasks', '')
        counters.relist()
        self.sample(counters)
        self.vcpu(3, 1163, '0 0 0')
        for _ in range(domain_counters.RESCAN_TICKS):
            self.sample(counters)
        self.assertEqual({1163}, self.counted(counters, 1163))

    def test_what_cannot_be_read_is_unknown(self) -> None:
        shutil.rmtree(self.root / 'cg/memory')
        shutil.rmtree(self.root / f'proc/{PID}/task/1160')
        shutil.rmtree(self.root / f'proc/{PID}/task/1161')
        one = self.sample(self.counters(self.used))
        self.assertEqual((5.0, None, None),
                         (one.cpu_s, one.run_delay_s, one.memory_bytes))
        self.vcpu(0, 1160, '0 0 0')
        self.stat(0, 1)
        counters = self.counters(self.used)
        self.assertEqual(0.0, self.sample(counters).throttled_s)
        self.put(f'cg/cpu/machine/{PLAIN}/vcpu0/cpu.stat', 'garbage\n')
        counters.wake()
        self.assertIsNone(self.sample(counters).throttled_s)
        self.stat(0, 500_000_000)
        counters.wake()
        self.assertEqual(0.0, self.sample(counters).throttled_s)

    def test_a_vcpu_with_an_odd_row_is_unknown_until_it_is_right(
            self) -> None:
        counters = self.counters(self.used)
        for odd in ('', 'odd', '7', '1 x 3', 'x 2 3 4'):
            self.vcpu(0, 1160, odd)
            one = self.sample(counters)
            self.assertEqual((5.0, None), (one.cpu_s, one.run_delay_s), odd)
        # More columns than kernels have today.
        self.vcpu(0, 1160, '1500000000 300000000 9 7')
        self.assertEqual(0.0, self.sample(counters).run_delay_s)
        self.vcpu(0, 1160, '1600000000 400000000 9 7')
        self.assertEqual(0.1, self.sample(counters).run_delay_s)

    def test_descriptors_are_given_back(self) -> None:
        with descriptors.given_back() as opened:
            self.tap('tap0')
            counters = self.counters(self.used, 'tap0')
            self.sample(counters)
            self.assertNotEqual(set(), opened())
            counters.close()
            counters.close()
        self.assertIsNone(counters.sample(VM))

    def tap(self, name: str, rx: int = 0, tx: int = 0) -> None:
        index = sum(map(ord, name))
        self.put(f'sys/class/net/{name}/ifindex', f'{index}\n')
        self.link_bytes[index] = rx, tx

    def net(self, counters: DomainCounters) -> tuple[int | None, int | None]:
        one = self.sample(counters)
        return one.net_tx_bytes, one.net_rx_bytes

    def test_what_arrives_at_a_tap_was_sent_by_the_guest(self) -> None:
        self.tap('tap0', 1000, 10)
        self.tap('tap1', 5, 5)
        counters = self.counters(self.used, 'tap0', 'tap1')
        self.assertEqual((0, 0), self.net(counters))
        self.tap('tap0', 4000, 17)
        self.tap('tap1', 25, 5)
        self.assertEqual((3020, 7), self.net(counters))

    def test_a_macvtap_counts_as_the_guest_does(self) -> None:
        self.tap('macvtap0', 1000, 10)
        self.put('sys/class/net/macvtap0/macvtap/tap7/dev', '1:2\n')
        counters = self.counters(self.used, 'macvtap0')
        self.assertEqual((0, 0), self.net(counters))
        self.tap('macvtap0', 4000, 17)
        self.assertEqual((7, 3000), self.net(counters))

    def test_interfaces_that_come_and_go(self) -> None:
        self.tap('tap0')
        counters = self.counters(self.used, 'tap0', 'tap1')
        self.assertEqual((None, None), self.net(counters))
        self.tap('tap0', 100, 10)
        self.assertEqual((None, None), self.net(counters))  # no tap1 yet
        self.tap('tap1', 7000, 7000)
        counters.relist()
        self.assertEqual((100, 10), self.net(counters))
        self.tap('tap1', 7001, 7002)
        self.assertEqual((101, 12), self.net(counters))
        counters.set_interfaces(['tap1'])
        self.tap('tap0', 9999, 9999)
        self.tap('tap1', 7002, 7002)
        self.assertEqual((102, 12), self.net(counters))
        counters.set_interfaces([])
        self.assertEqual((None, None), self.net(counters))

    def test_a_device_made_again(self) -> None:
        """Under its name, with another index, and counting from 0."""
        self.tap('tap0', 1000, 10)
        counters = self.counters(self.used, 'tap0')
        self.net(counters)
        self.tap('tap0', 1500, 20)
        self.assertEqual((500, 10), self.net(counters))
        self.link_bytes.clear()
        self.assertEqual((None, None), self.net(counters))  # nothing told
        self.link_bytes.update({1: (0, 0), 99: (7, 8)})
        self.put('sys/class/net/tap0/ifindex', '99\n')
        self.assertEqual((500, 10), self.net(counters))     # gone
        self.assertEqual((500, 10), self.net(counters))
        self.link_bytes[99] = 57, 9
        self.assertEqual((550, 11), self.net(counters))


class TestOtherLayouts(FilesTestCase):

    def test_version_2_with_systemd(self) -> None:
        scope = f'machine.slice/{SCOPE}'
        self.put(f'proc/{PID}/cgroup', f'0::/{scope}/libvirt/emulator\n')
        self.put(f'cg/{scope}/cpu.stat', 'usage_usec 3000000\nnr_periods 0\n'
                                         'throttled_usec 0\n')
        self.put(f'cg/{scope}/memory.current', '9000000\n')
        self.put(f'cg/{scope}/memory.stat', 'anon 1\ninactive_file 500000\n'
                 'active_file 500000\nslab_reclaimable 1000000\n')
        self.put(f'cg/{scope}/libvirt/vcpu0/cgroup.threads', '1160\n')
        stat = f'cg/{scope}/libvirt/vcpu0/cpu.stat'
        self.put(stat, 'usage_usec 1\nnr_periods 3\nthrottled_usec 1000\n')
        self.task(1160, 'CPU 0/KVM')
        counters = self.counters(self.mounts(
            'unified', 'cpu', 'cpuacct', 'memory', version=2))
        self.put(stat, 'usage_usec 2\nnr_periods 4\nthrottled_usec 501000\n')
        self.task(1160, 'CPU 0/KVM', '5 600000000 1')
        one = self.sample(counters)
        self.assertEqual(
            (3.0, 0.6, 0.5, 7_000_000),
            (one.cpu_s, one.run_delay_s, one.throttled_s, one.memory_bytes))
        assert counters.machine is not None
        self.assertEqual(f'{self.root}/cg/{scope}',
                         counters.machine.path('cpu'))

    def test_version_1_beside_2(self) -> None:
        """The CPU time from v2, what was throttled from v1."""
        self.put(f'proc/{PID}/cgroup',
                 f'1:cpu:/machine/{PLAIN}/emulator\n2:cpuacct:/\n'
                 f'0::/machine/{PLAIN}/emulator\n')
        self.put('cg/cpuacct/cpuacct.usage', '777000000000\n')
        self.put(f'cg/cpu/machine/{PLAIN}/cpu.stat',
                 'nr_periods 1\nnr_throttled 1\nthrottled_time 2000000000\n')
        self.put(f'cg/unified/machine/{PLAIN}/cpu.stat',
                 'usage_usec 3000000\n')
        one = self.sample(self.counters(
            {**self.mounts('cpu', 'cpuacct'),
             'unified': Mount(f'{self.root}/cg/unified', 2)}))
        self.assertEqual((3.0, 2.0), (one.cpu_s, one.throttled_s))

    def test_without_a_cgroup(self) -> None:
        self.put(f'proc/{PID}/cgroup', '0::/user.slice/session-2.scope\n')
        self.task(1160, 'CPU 0/KVM', '7000000000 1000000000 1')
        self.task(1161, 'CPU 11/TCG', '0 0 0')
        self.task(1162, 'worker', '0 1 1')
        self.task(1163, 'SPICE Worker CPU 1/K', '0 1 1')
        counters = self.counters(self.mounts('unified', version=2))
        self.assertEqual(0.0, self.sample(counters).run_delay_s)
        self.task(1160, 'CPU 0/KVM', '8000000000 1250000000 1')
        one = self.sample(counters)
        ticks = os.sysconf('SC_CLK_TCK')
        self.assertEqual(
            (200 / ticks, 0.25, None, 3072 * 1024),
            (one.cpu_s, one.run_delay_s, one.throttled_s, one.memory_bytes))
        self.assertIsNone(counters.machine)
        self.assertEqual({1160, 1161}, self.counted(
            counters, 1160, 1161, 1162, 1163))
        self.put(f'proc/{PID}/status', 'Name:\ta\n')
        one = self.sample(counters)
        self.assertEqual((None, None), (one.cpu_s, one.memory_bytes))

    def test_one_thread_for_all_vcpus(self) -> None:
        self.put(f'proc/{PID}/cgroup', '')
        self.task(1160, 'ALL CPUs/TCG', '0 0 0')
        self.assertEqual({1160}, self.counted(self.counters({}), 1160))

    def test_an_ended_process_that_nothing_waited_for(self) -> None:
        self.put(f'proc/{PID}/cgroup', '')
        counters = self.counters({})
        self.assertIsNotNone(counters.sample(VM))
        self.put(f'proc/{PID}/stat',
                 f'{PID} (a) S) Z 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20\n')
        self.assertIsNone(counters.sample(VM))
        self.assertIsNone(counters.sample(VM))


class TestIdentity(FilesTestCase):

    def gone(self, pid: int = PID, uuid: str = UUID) -> str:
        with descriptors.given_back():
            return str(self.assertRaises(
                errors.WorkloadGone, DomainCounters, pid, uuid, {}, (),
                str(self.root)))

    def test_another_process_got_the_number(self) -> None:
        self.assertIn('not the QEMU', self.gone(uuid=UUID[:-1] + '2'))
        for text in ('', 'vim\0notes\0', f'echo\0-uuid {UUID}\0',
                     f'qemu\0-uuid\0{UUID}2\0', f'qemu\0{UUID}\0'):
            self.put(f'proc/{PID}/cmdline', text)
            self.assertIn('not the QEMU', self.gone())

    def test_no_such_process(self) -> None:
        self.assertIn('is gone', self.gone(pid=99))
        os.remove(self.root / f'proc/{PID}/cmdline')
        self.assertIn('is gone', self.gone())

    def test_a_long_command_line(self) -> None:
        self.put(f'proc/{PID}/cmdline', 'qemu\0' + '-device\0x\0' * 50_000
                 + f'-uuid\0{UUID}\0')
        self.put(f'proc/{PID}/cgroup', '')
        self.assertEqual(PID, self.counters({}).pid)

    def test_the_file_with_the_process(self) -> None:
        where = f'{self.root}/run'
        self.put('run/instance-00000001.pid', '1157')
        self.put('run/a b;$(x).pid', '12\n')
        self.assertEqual(1157, process.pid_of('instance-00000001',
                                              where))
        self.assertEqual(12, process.pid_of('a b;$(x)', where))

    def test_no_file_with_the_process(self) -> None:
        where = f'{self.root}/run'
        for text in ('', 'x', '0', '-1', '1 2', '9' * 400):
            self.put('run/a.pid', text)
            self.assertRaises(errors.WorkloadGone, process.pid_of,
                              'a', where)
        self.put('run/b.pid', '12')
        for name in ('none', '', '../run/b', 'n' * 100_000, 'a\0b', '\ud800',
                     'two\nlines'):
            said = str(self.assertRaises(
                errors.WorkloadGone, process.pid_of, name, where))
            self.assertTrue(said.isprintable() and len(said) < 400)
