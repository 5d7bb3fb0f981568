# SPDX-License-Identifier: Apache-2.0

"""The background's part of last-level caches, on files as the kernel has them
in resctrl."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.direct import cache
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack.drivers.resctrl import control
from scavenger_openstack.drivers.resctrl import schemata
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.drivers.resctrl import files
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LEASED = base.KnobState(base.Setting(None, ()))


def host(*background: str, foreground: tuple[str, ...] = ()) -> HostSample:
    return HostSample('h', 'b', 1.0, 1.0, tuple(
        WorkloadSample(Workload(name, priority)) for priority, names in (
            (Priority.BACKGROUND, background),
            (Priority.FOREGROUND, foreground)) for name in names))


class WindowTest(testtools.TestCase):

    def test_window(self) -> None:
        for mask, ways, busy, part in (
                (0x7ff, 3, 0x600, 0x007), (0x7ff, 3, 0x003, 0x01c),
                (0x7ff, 10, 0x600, 0x3ff), (0x7ff, 11, 0, 0x7ff),
                (0x7f0, 2, 0, 0x030), (0x0f0, 9, 0, 0x0f0),
                (0xf0f, 4, 0x00f, 0xf00), (0x1, 1, 1, 0x1)):
            self.assertEqual(f'{part:x}',
                             f'{schemata.window(mask, ways, busy):x}')


class ControlTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, threads in (('hog', '11 12'), ('vm', '21'), ('web', '31')):
            (self.root / 'cpu' / name).mkdir(parents=True)
            self.threads(name, threads)
        self.resctrl = self.useFixture(files.Resctrl(
            closids=4, root=self.root, tasks=(1, 11, 12, 21, 31)))
        self.control = self.make()

    def make(self) -> control.Control:
        mounts = {'cpu': Mount(f'{self.root}/cpu', 1)}
        made = control.Control(cache.CacheEvidence(
            mounts, DomainCgroups(mounts)).threads, str(self.root))
        self.addCleanup(made.close)
        return made

    def threads(self, name: str, threads: str) -> None:
        (self.root / 'cpu' / name / 'tasks').write_text(
            threads.replace(' ', '\n') + '\n')

    def limit(self, ways: int, *background: str) -> dict[str, dict[str, str]]:
        self.control.follow(host(*background or ('/hog',)))
        self.control.read(*control.KEY)
        self.control.write(*control.KEY, ways, LEASED)
        return files.parse(self.resctrl.read('scavenger/schemata'))


class PartTest(ControlTestCase):

    def test_ways_and_bandwidth(self) -> None:
        for ways, mask, percent in ((1, '1', '10'), (3, '7', '20'),
                                    (6, '3f', '50'), (11, '7ff', '100')):
            self.assertEqual({'L3': {'0': mask, '1': mask},
                              'MB': {'0': percent, '1': percent}},
                             self.limit(ways))
            self.assertEqual(ways, self.control.read(*control.KEY, LEASED))

    def test_no_fewer_than_the_cpu_divides(self) -> None:
        self.resctrl.put('info/L3/min_cbm_bits', '2')
        self.assertEqual('3', self.limit(1)['L3']['0'])
        self.assertEqual(2, self.control.read(*control.KEY, LEASED))

    def test_nothing_that_the_default_group_has_not(self) -> None:
        """The rest is kept for another program."""
        self.resctrl.put('schemata', 'L3:0=7f0;1=7fc\nMB:0=60;1=100')
        parts = self.limit(2)
        self.assertEqual(7, self.control.ways)
        self.assertEqual({'0': '30', '1': 'c'}, parts['L3'])
        self.assertEqual({'0': '10', '1': '20'}, parts['MB'])

    def test_code_and_data(self) -> None:
        shutil.copytree(self.resctrl.top / 'info/L3',
                        self.resctrl.top / 'info/L3CODE')
        (self.resctrl.top / 'info/L3').rename(
            self.resctrl.top / 'info/L3DATA')
        text = 'L3DATA:0=ff\nL3CODE:0=ff\n'
        self.resctrl.default = text
        self.resctrl.put('schemata', text)
        self.assertEqual({'L3DATA': {'0': '7'}, 'L3CODE': {'0': '7'}},
                         self.limit(3))

    def test_a_bus_that_is_left_alone(self) -> None:
        """In other units than percent, or slower for the other thread of a
        core as well."""
        smt = self.root / 'sys/devices/system/cpu/smt/active'
        smt.parent.mkdir(parents=True)
        for bandwidth, mode, active, limited in (
                ('2048', 'per-thread', '0', False),
                ('4294967295', 'per-thread', '0', False),
                ('100', 'max', '1', False), ('100', 'max', '0', True),
                ('100', '', '1', False), ('100', 'per-thread', '1', True)):
            text = f'L3:0=7ff\nMB:0={bandwidth}\n'
            self.resctrl.default = text
            self.resctrl.put('schemata', text)
            self.resctrl.put('info/MB/thread_throttle_mode', mode)
            smt.write_text(active)
            self.assertEqual('10' if limited else bandwidth,
                             self.limit(1)['MB']['0'], mode)
            os.rmdir(self.resctrl.top / 'scavenger')


class ThreadsTest(ControlTestCase):

    def test_those_of_other_programs_stay(self) -> None:
        """Also where they are of a background workload."""
        self.resctrl.control('guaranteed', files.DEFAULT, 12, 31)
        self.limit(2, '/hog', '/vm')
        self.assertEqual(({11, 21}, {1}, {12, 31}), (
            self.resctrl.tasks('scavenger'), self.resctrl.tasks(),
            self.resctrl.tasks('guaranteed')))

    def test_that_are_started_meanwhile(self) -> None:
        """In the default group, from a thread that was not moved yet."""
        def fork(change: str) -> None:
            if change == 'tasks' and 13 not in self.resctrl.tasks():
                self.resctrl.before = str
                self.threads('hog', '11 12 13')
                self.resctrl.put('tasks', '\n'.join(map(str, (
                    *self.resctrl.tasks(), 13))))

        self.resctrl.before = fork
        self.limit(2)
        self.assertEqual({11, 12, 13}, self.resctrl.tasks('scavenger'))

    def test_that_end_meanwhile(self) -> None:
        self.resctrl.refused = errno.ESRCH
        self.limit(2)
        self.assertEqual(set(), self.resctrl.tasks('scavenger'))

    def test_of_a_workload_that_is_foreground_now(self) -> None:
        self.limit(2, '/hog', '/vm')
        held = {control.KEY: LEASED}
        self.assertEqual((), tuple(self.control.refresh(held).rewrite))
        self.control.follow(host('/hog', foreground=('/vm',)))
        self.assertEqual({control.KEY}, self.control.refresh(held).rewrite)
        self.control.write(*control.KEY, 2, LEASED)
        self.assertEqual(({11, 12}, {1, 21, 31}), (
            self.resctrl.tasks('scavenger'), self.resctrl.tasks()))

    def test_are_searched_now_and_then(self) -> None:
        self.limit(2)
        held = {control.KEY: LEASED}
        rewritten: list[KnobKey] = []
        for _ in range(2 * control.MEMBER_TICKS):
            self.control.follow(host('/hog'))
            rewritten += self.control.refresh(held).rewrite
        self.assertEqual([control.KEY] * 2, rewritten)


class LockTest(ControlTestCase):
    """Other programs, such as libvirt, look at all groups before they make
    one."""

    def test_groups_change_under_the_lock(self) -> None:
        held = self.resctrl.locked_at()
        self.limit(2)
        self.resctrl.put('schemata', 'L3:0=7f0;1=7ff\nMB:0=100;1=100')
        self.limit(2)
        self.assertEqual({('mkdir', True), ('schemata', True)}, {
            change for change in held if change[0] != 'tasks'})
        self.assertFalse(self.resctrl.is_locked())

    def test_another_program_has_it(self) -> None:
        with self.resctrl.locked():
            exc = self.assertRaises(errors.Denied, self.limit, 2)
            self.assertIn('another program has locked', str(exc))
            self.assertFalse((self.resctrl.top / 'scavenger').exists())
        self.limit(2)


    def test_threads_move_without_it(self) -> None:
        """Any user can keep it, and so the foreground in the group."""
        self.limit(2, '/hog', '/vm')
        with self.resctrl.locked():
            self.control.follow(host('/hog', foreground=('/vm',)))
            self.control.write(*control.KEY, 2, LEASED)
            self.assertEqual(({11, 12}, {1, 21, 31}), (
                self.resctrl.tasks('scavenger'), self.resctrl.tasks()))
            self.assertRaises(errors.Denied, self.limit, 3)


class CannotTest(ControlTestCase):

    def why(self, *, ways: int | None = None) -> str:
        """As a new agent sees it; no limit is tried then."""
        made = self.make()
        made.follow(host('/hog'))
        self.assertEqual(ways, made.ways)
        if made.why:
            self.assertEqual(made.why, str(self.assertRaises(
                errors.Unsupported, made.write, *control.KEY, 2, LEASED)))
            self.assertFalse((self.resctrl.top / 'scavenger').exists())
        return made.why

    def test_it_can(self) -> None:
        self.assertEqual('', self.why(ways=11))

    def test_one_workload_alone(self) -> None:
        alone = '/hog', control.KEY[1]
        for call in (lambda: self.control.read(*alone),
                     lambda: self.control.restore_actions(*alone),
                     lambda: self.control.write(*alone, 2, LEASED)):
            self.assertRaises(errors.Unsupported, call)

    def test_no_resctrl(self) -> None:
        (self.root / 'proc/filesystems').write_text('nodev\tproc\n')
        self.assertIn(base.NO_CURE, self.why())

    def test_not_mounted(self) -> None:
        shutil.rmtree(self.resctrl.top / 'info')
        self.assertIn(f'mount -t resctrl resctrl {self.resctrl.top}',
                      self.why())

    def test_read_only(self) -> None:
        read_only = os.statvfs_result(
            tuple(os.statvfs(self.root))[:8] + (os.ST_RDONLY, 255))
        self.useFixture(fixtures.MonkeyPatch('os.statvfs',
                                             lambda path: read_only))
        self.assertIn('read-only', self.why())

    def test_an_agent_that_is_not_root(self) -> None:
        self.useFixture(fixtures.MonkeyPatch('os.geteuid', lambda: 990))
        self.assertIn('User=root', self.why())

    def test_a_cpu_that_can_only_measure(self) -> None:
        (self.resctrl.top / 'schemata').unlink()
        self.assertIn('only measure', self.why())
        self.resctrl.put('schemata', 'MB:0=100')
        self.assertIn('only measure', self.why())

    def test_nothing_to_divide(self) -> None:
        self.resctrl.put('schemata', 'L3:0=1;1=7ff')
        self.assertIn('1 ways', self.why())

    def test_too_few_class_ids(self) -> None:
        """One stays free for other programs, of the resource with the
        fewest."""
        self.resctrl.control('guaranteed')
        self.assertEqual('', self.why(ways=11))
        self.resctrl.control('best-effort')
        self.assertIn('4 class ids', self.why())
        os.rmdir(self.resctrl.top / 'best-effort')
        self.resctrl.put('info/MB/num_closids', '3')
        self.assertIn('3 class ids', self.why())

    def test_another_program_uses_cpus(self) -> None:
        self.resctrl.control('isolated')
        self.resctrl.put('isolated/cpus_list', '2-3')
        self.assertIn('isolated', self.why())

    def test_not_as_documented(self) -> None:
        for text in ('L3:0', 'L3:0=xyz', 'L3:0=7ff;1=\n'):
            self.resctrl.put('schemata', text)
            self.assertIn('documents', self.why())

    def test_the_kernel_makes_no_group(self) -> None:
        """Ids of monitoring may be busy for a while, for one."""
        def refuse(change: str) -> None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

        self.resctrl.before = refuse
        self.resctrl.put('info/last_cmd_status', 'Out of RMIDs')
        self.assertIn('Out of RMIDs', str(self.assertRaises(
            errors.Denied, self.limit, 2)))

    def test_the_kernel_takes_no_such_part(self) -> None:
        """Nothing stays of the group then, nor where it takes no thread."""
        self.resctrl.put('info/L3/cbm_mask', 'ff')
        self.resctrl.put('schemata', 'L3:0=f00')
        self.assertIn('non-consecutive', str(self.assertRaises(
            errors.Denied, self.limit, 2)))
        self.assertFalse((self.resctrl.top / 'scavenger').exists())

    def test_another_agent(self) -> None:
        self.limit(2)
        other = self.make()
        other.follow(host('/vm'))
        self.assertIn('only one agent', str(self.assertRaises(
            errors.Unsupported, other.read, *control.KEY)))
        self.assertEqual({11, 12}, self.resctrl.tasks('scavenger'))
        self.control.refresh({})        # its limit was removed
        self.assertIsNone(other.read(*control.KEY))
