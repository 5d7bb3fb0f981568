# SPDX-License-Identifier: Apache-2.0


"""The host's own counters, from files in a temporary directory."""

from __future__ import annotations

from collections.abc import Callable
import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.types import Cpu

STAT = '''cpu  300 20 100 5000 70 3 4 9 50 0
cpu0 200 10 50 2500 30 1 2 4 50 0
cpu1 100 10 50 2500 40 2 2 5 0 0
intr 12 0 0
ctxt 7
'''
MEMINFO = '''MemTotal:       24684096 kB
MemFree:        24435496 kB
MemAvailable:   24375152 kB
'''


class TestProc(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.put('proc/sys/kernel/random/boot_id', 'b-1\n')
        self.put('proc/stat', STAT)
        self.put('proc/meminfo', MEMINFO)
        self.put('proc/cpuinfo', 'processor\t: 0\nmodel name\t: AMD EPYC\n')

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def proc(self) -> proc.Proc:
        found = proc.Proc(str(self.root))
        self.addCleanup(found.close)
        return found

    def test_what_it_says(self) -> None:
        host = self.proc()
        self.assertEqual(('b-1', 'AMD EPYC'), (host.boot_id, host.cpu_model))
        self.assertEqual({0: 2.67, 1: 1.69}, proc.busy_s(STAT.encode(), 100))
        self.assertEqual({0, 1}, set(host.cpu_busy_s()))
        self.put('proc/vmstat', 'nr_free_pages 1\nworkingset_refault_anon 9\n'
                                'workingset_refault_file 3\n')
        self.assertEqual((24684096 * 1024, 24375152 * 1024, 24435496 * 1024,
                          3 * os.sysconf('SC_PAGE_SIZE')), host.memory())
        # Before Linux 5.9.
        self.put('proc/vmstat', 'nr_free_pages 1\nworkingset_refault 5\n')
        self.assertEqual(5 * os.sysconf('SC_PAGE_SIZE'),
                         host.memory().refaults)
        self.put('proc/meminfo', MEMINFO.replace('24375152', '1000'))
        self.assertEqual(1000 * 1024, host.memory().available)

    def test_cpus_come_and_go(self) -> None:
        self.put('sys/devices/system/cpu/online', '0-3\n')
        host = self.proc()
        first = host.topology()
        self.assertEqual({0, 1, 2, 3}, first.keys())
        self.assertIs(first, host.topology())
        self.put('sys/devices/system/cpu/online', '0,2\n')
        self.assertEqual({0, 2}, host.topology().keys())
        self.assertIs(host.topology(), host.topology())
        self.assertIn('2 CPUs online now (0,2), it had 4', self.logs.output)
        for bad in ('', '\n', 'garbage\n', '3-1\n'):
            self.put('sys/devices/system/cpu/online', bad)
            self.assertEqual({0, 2}, host.topology().keys(), bad)
        self.put('sys/devices/system/cpu/online', '0-3\n')
        self.assertEqual({0, 1, 2, 3}, host.topology().keys())

    def test_where_cpus_sit_may_be_told_later(self) -> None:
        """The files of a CPU that came are made after it is online."""
        (self.root / 'proc/cpuinfo').unlink()
        self.put('sys/devices/system/cpu/online', '0-1\n')
        host = self.proc()
        first = host.topology()
        self.put('proc/cpuinfo', 'model name\t: AMD EPYC\n')
        self.put('sys/devices/system/cpu/cpu1/topology/core_cpus_list',
                 '0-1\n')
        for _ in range(2 * base.RESCAN_TICKS):
            now = host.topology()
        self.assertEqual('AMD EPYC', host.cpu_model)
        self.assertIs(first, now)       # that is not read each time
        for _ in range(proc.TOPOLOGY_TICKS):
            now = host.topology()
        self.assertEqual((1, 0), (first[1].core, now[1].core))
        self.assertIs(now, host.topology())
        self.put('sys/devices/system/cpu/online', '0-2\n')
        self.assertEqual(2, host.topology()[2].core)
        self.put('sys/devices/system/cpu/cpu2/topology/core_cpus_list',
                 '0-2\n')
        self.assertEqual(0, host.topology()[2].core)    # soon
        self.put('sys/devices/system/cpu/isolated', '2\n')
        for _ in range(base.RESCAN_TICKS):
            now = host.topology()
        self.assertEqual((None, True), (now[1].isolated, now[2].isolated))

    def test_garbage_is_unknown_and_said_once(self) -> None:
        host = self.proc()
        self.put('proc/vmstat', 'workingset_refault_file 3\n')
        asked: dict[str, tuple[Callable[[], object], object]] = {
            'proc/stat': (host.cpu_busy_s, {}),
            'proc/meminfo': (lambda: host.memory()[:3], (None, None, None)),
            'proc/vmstat': (lambda: host.memory().refaults, None)}
        for path, (ask, unknown) in asked.items():
            good = (self.root / path).read_text()
            for bad in ('', 'garbage', 'cpu0 x y\n', 'MemTotal: x kB\n'):
                self.put(path, bad)
                self.assertEqual(unknown, ask(), f'{path}: {bad}')
                self.assertEqual(unknown, ask(), f'{path}: {bad}')
            said = self.logs.output.count(str(self.root / path))
            self.assertEqual(1, said, self.logs.output)
            self.put(path, good)
            self.assertNotEqual(unknown, ask())

    def test_one_odd_row_says_nothing_of_the_others(self) -> None:
        host = self.proc()
        for row in ('odd', 'cpufreq 1 2 3 4 5 6 7 8', 'cpu7 x 0 0 0 0 0 0 0',
                    'cpu7', 'cpu7 1'):
            for text in (f'{row}\n{STAT}', f'{STAT}{row}\n'):
                self.put('proc/stat', text)
                self.assertEqual({0: 2.67, 1: 1.69},
                                 proc.busy_s(text.encode(), 100), row)
        # A kernel without the later columns.
        self.assertEqual({3: .06}, proc.busy_s(b'cpu3 1 2 3 4\n', 100))
        self.put('proc/meminfo', MEMINFO.replace(
            'MemTotal:', 'Mem Total:') + 'MemTotalX: 5 kB\n')
        self.assertEqual((None, 24375152 * 1024), host.memory()[:2])
        self.put('proc/meminfo', MEMINFO.replace(
            'MemAvailable:', 'Mem Available:'))
        self.assertEqual((24684096 * 1024, None), host.memory()[:2])


class TestTopology(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.top = self.root / 'sys/devices/system'

    def put(self, path: str, text: str) -> None:
        (self.top / path).parent.mkdir(parents=True, exist_ok=True)
        (self.top / path).write_text(text + '\n')

    def test_two_sockets_with_siblings(self) -> None:
        # 8 CPUs: n and n + 4 are siblings, two cores in each socket.
        self.put('cpu/online', '0-7')
        for cpu in range(8):
            core = cpu % 4
            socket = core // 2
            cpus = f'{2 * socket}-{2 * socket + 1}'
            cpus += f',{2 * socket + 4}-{2 * socket + 5}'
            self.put(f'cpu/cpu{cpu}/topology/core_cpus_list',
                     f'{core},{core + 4}')
            self.put(f'cpu/cpu{cpu}/cache/index0/level', '1')
            self.put(f'cpu/cpu{cpu}/cache/index0/shared_cpu_list',
                     f'{core},{core + 4}')
            self.put(f'cpu/cpu{cpu}/cache/index3/level', '3')
            self.put(f'cpu/cpu{cpu}/cache/index3/shared_cpu_list', cpus)
            self.put(f'node/node{socket}/cpulist', cpus)
        found = proc.read_topology(str(self.root))
        self.assertEqual({0: Cpu(0, 0, 0), 1: Cpu(1, 0, 0), 2: Cpu(2, 2, 1),
                          3: Cpu(3, 2, 1), 4: Cpu(0, 0, 0), 5: Cpu(1, 0, 0),
                          6: Cpu(2, 2, 1), 7: Cpu(3, 2, 1)}, found)

    def test_only_online_cpus(self) -> None:
        self.put('cpu/online', '0,2')
        self.assertEqual({0: Cpu(0, 0, 0), 2: Cpu(2, 0, 0)},
                         proc.read_topology(str(self.root)))

    def test_isolated_cpus(self) -> None:
        self.put('cpu/online', '0-2')
        for text, wanted in (('', []), ('1-2,7', [1, 2])):
            self.put('cpu/isolated', text)
            found = proc.read_topology(str(self.root))
            self.assertEqual(wanted, [cpu for cpu, one in found.items()
                                      if one.isolated])

    def test_garbage(self) -> None:
        logs = self.useFixture(fixtures.FakeLogger())
        self.put('cpu/online', '0-1')
        self.put('cpu/cpu1/topology/core_cpus_list', 'x-y')
        self.assertEqual(Cpu(1, 0, 0), proc.read_topology(str(self.root))[1])
        self.assertIn('core_cpus_list', logs.output)
        for cpu in range(2):
            self.put(f'cpu/cpu{cpu}/topology/core_cpus_list', 'x-y')
        proc.read_topology(str(self.root))
        self.assertEqual(2, logs.output.count('does not hold a CPU list'))
