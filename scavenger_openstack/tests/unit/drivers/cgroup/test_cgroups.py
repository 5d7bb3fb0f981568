# SPDX-License-Identifier: Apache-2.0


"""Cgroups from files in a temporary directory: what cannot be made here."""

from __future__ import annotations

from collections.abc import Collection
import contextlib
import errno
import os
import pathlib
import shutil

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.cgroup import disks
from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.cgroup import statistics
from scavenger_openstack.drivers.cgroup import used_disks
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers import originals
from scavenger_openstack import errors
from scavenger_openstack.tests.leased import leased
from scavenger_openstack.tests.unit import mount_files
from scavenger_openstack.types import Knob
from scavenger_openstack.types import WorkloadSample

MIB = 2 ** 20
PAGE = os.sysconf('SC_PAGE_SIZE')
V2_MOUNT = '/sys/fs/cgroup cgroup2 rw,nsdelegate'
V2_FILES = {
    'cgroup.procs': '', 'cgroup.freeze': '0\n', 'cgroup.events':
    'populated 1\nfrozen 0\n', 'cpuset.cpus': '\n',
    'cpuset.cpus.effective': '0-7\n', 'cpu.max': 'max 100000\n',
    'cpu.idle': '0\n', 'cpu.weight': '100\n',
    'cpu.stat': 'usage_usec 2500000\nuser_usec 2000000\n'
                'system_usec 500000\nnice_usec 0\nnr_periods 10\n'
                'nr_throttled 4\nthrottled_usec 1500000\n',
    'memory.current': '104857600\n', 'memory.high': 'max\n',
    'memory.max': 'max\n',
    'memory.stat': 'anon 52428800\nfile 41943040\nkernel 10485760\n'
                   'inactive_anon 52428800\nactive_anon 0\n'
                   'inactive_file 20971520\nactive_file 10485760\n'
                   'slab_reclaimable 5242880\nslab 6000000\n',
    'io.max': '', 'io.stat':
    '8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n'
    '253:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n'
    '8:16 \n'
    '8:32 rbytes=100 wbytes=0 rios=1 wios=0 dbytes=7 dios=1\n',
    'cpu.pressure': 'some avg10=0.00 avg60=0.00 avg300=0.00 total=1250000\n'
                    'full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n',
    'io.pressure': 'some avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n',
    'memory.pressure': 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n'}


class TempTree(fixtures.Fixture):
    """A root directory with a v2 tree of plain files."""

    def _setUp(self) -> None:
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.top = self.root / 'sys/fs/cgroup'
        mount_files.mount(self.root, V2_MOUNT)
        self.put('sys/fs/cgroup/cgroup.controllers',
                 'cpuset cpu io memory hugetlb pids\n')
        self.put('sys/fs/cgroup/cpuset.cpus.effective', '0-7\n')
        self.put('sys/devices/system/cpu/possible', '0-15\n')
        for name, number in (('sda', '8:0'), ('sdc', '8:32'),
                             ('dm-0', '253:0'), ('loop0', '7:0')):
            self.put(f'sys/block/{name}/dev', f'{number}\n')
            self.put(f'sys/block/{name}/size', '100\n')
        self.put('sys/block/dm-0/slaves/sda/dev', '8:0\n')
        self.put('sys/block/sr0/size', '0\n')

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def cgroup(self, path: str, **files: str) -> pathlib.Path:
        where = self.top / path.strip('/')
        where.mkdir(parents=True)
        for name, text in {**V2_FILES, **files}.items():
            (where / name).write_text(text)
        return where


class CgroupsCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.useFixture(TempTree())
        self.logs = self.useFixture(fixtures.FakeLogger())

    def driver(self, parents: tuple[str, ...] = ('/batch',),
               **kwargs: object) -> Cgroups:
        found = Cgroups(parents, root_dir=str(self.tree.root),
                        **kwargs)  # type: ignore[arg-type]
        self.addCleanup(found.close)
        return found

    def warnings(self) -> list[str]:
        return [line for line in self.logs.output.splitlines() if line]


class TestSample(CgroupsCase):

    def test_the_sample_is_kept_until_a_file_changes(self) -> None:
        where = self.tree.cgroup('/batch/a')
        driver = self.driver()
        first, = driver.sample()
        kept, = driver.sample()
        self.assertIs(first, kept)
        (where / 'memory.current').write_text('104857601\n')
        more, = driver.sample()
        self.assertEqual((first.memory_bytes or 0) + 1, more.memory_bytes)
        (where / 'memory.current').write_text('no number\n')
        unknown, = driver.sample()
        self.assertIsNone(unknown.memory_bytes)

    def refaults(self, driver: Cgroups, own: int, *, read: bool) -> int:
        """Return what is counted of a workload that runs, in pages."""
        self.tree.put('c/batch/a/cpuacct.usage', f'{own}\n')
        self.tree.put('m/batch/a/memory.stat', 'total_cache 1\n'
                      f'total_workingset_refault_file {own}\n')
        sample, = driver.sample(with_refaults=read)
        page = os.sysconf('SC_PAGE_SIZE')
        self.assertEqual(3 * page, sample.page_cache_bytes)
        return (sample.refault_bytes or 0) // page

    def test_page_cache_that_is_read_again(self) -> None:
        """On version 1 it is read of a workload while the host's count grows,
        and in one of eight ticks: the file is a long one."""
        mount_files.mount(self.tree.root, '/m cgroup rw,memory',
                          '/c cgroup rw,cpuacct')
        for path, text in (('memory.stat', 'total_workingset_refault_file 0'),
                           ('batch/a/memory.usage_in_bytes', '99999'),
                           ('batch/a/memory.numa_stat',
                            'hierarchical_file=3 N0=3')):
            self.tree.put(f'm/{path}', f'{text}\n')
        self.tree.put('c/batch/a/cpuacct.usage', '0\n')
        driver = self.driver()
        self.assertEqual(
            [1, 2, 3, 3, 3, 6, 7, 8, 8, 8, 11, 11],
            [self.refaults(driver, own, read=own in (1, 2, 3, 6, 7, 8))
             for own in range(1, 13)])

    def test_counted_disks_can_be_chosen(self) -> None:
        self.tree.cgroup('/batch/a')
        sample, = self.driver(io_devices=['8:32']).sample()
        self.assertEqual((100, 1), (sample.io_bytes, sample.io_ops))
        self.assertRaises(errors.ConfigError, self.driver,
                          io_devices=['sdz'])

    def test_the_disks_that_a_workload_uses(self) -> None:
        """Those of the last minutes; where there is but one, no matter."""
        where = self.tree.cgroup('/batch/a')
        driver = self.driver()
        done = {'8:0': 5, '8:32': 0, '253:0': 5}

        def after(looks: int, *busy: str) -> tuple[str, ...]:
            for _ in range(looks * base.RESCAN_TICKS):
                for disk in busy:
                    done[disk] += 1
                (where / 'io.stat').write_text(''.join(
                    f'{disk} rbytes=1 wbytes=0 rios={count} wios=0\n'
                    for disk, count in done.items()))
                sample, = driver.sample()
            return sample.workload.disks

        self.assertEqual((), driver.sample()[0].workload.disks)
        after(1)
        # From the next sample on.
        self.assertEqual(('8:0',), driver.sample()[0].workload.disks)
        self.assertEqual(('8:0', '8:32'), after(2, '8:32'))
        self.assertEqual(('8:32',), after(used_disks.LOOKS, '8:32'))
        self.assertEqual((), after(used_disks.LOOKS + 1))
        (self.tree.root / 'sys/block/sdc/size').write_text('0\n')
        self.assertEqual((), after(3, '8:0'))

    def test_operations_by_disk(self) -> None:
        self.assertEqual({'8:0': 3, '253:0': 3, '8:32': 1},
                         used_disks.operations(V2_FILES['io.stat'].encode()))
        self.assertEqual({'8:0': 11, '8:16': 0}, used_disks.operations(
            b'8:0 Read 5\n8:0 Write 6\n8:0 Total 11\n8:16 Total 0\n'
            b'Total 11\n'))
        for odd in (b'', b'Total 0\n', b'8:0 Total x\n', b'\xff rios=1x\n'):
            self.assertEqual({}, used_disks.operations(odd))

    def io(self, text: str, **disks: str) -> tuple[int | None, int | None]:
        """What is counted of disks, by name, where ``io.stat`` is this."""
        for name, number in disks.items():
            self.tree.put(f'sys/block/{name}/dev', f'{number}\n')
            self.tree.put(f'sys/block/{name}/size', '100\n')
        where = self.tree.cgroup('/batch/io', **{'io.stat': text})
        sample, = self.driver().sample()
        shutil.rmtree(where)
        return sample.io_bytes, sample.io_ops

    def test_rows_of_other_devices_are_passed_over(self) -> None:
        """Whatever they hold: of one that goes, without a number, of two."""
        row = '252:48 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n'
        for other in ('(unknown) rbytes=1024 wbytes=0 rios=1 wios=0 dbytes=0',
                      '252:64', '252:64  cost.usage=0', '7:0 rbytes=x',
                      '(unknown)', 'rbytes=5', 'garbage', '',
                      '252:48 252:64 rbytes=1 wbytes=1 rios=1 wios=1',
                      '7:0 8:1 (unknown) rbytes=1 wbytes=1 rios=1 wios=1'):
            for text in (f'{row}{other}\n', f'{other}\n{row}'):
                self.assertEqual((12288, 3), self.io(text, vdq='252:48'),
                                 text)

    def test_a_row_belongs_to_the_last_device_that_it_names(self) -> None:
        self.assertEqual((12288, 3), self.io(
            '7:0 252:64 252:48 rbytes=4096 wbytes=8192 rios=1 wios=2\n',
            vdq='252:48'))

    def test_keys_that_are_missing_are_0(self) -> None:
        for row in ('252:64  cost.usage=0', '252:64', '252:64 dbytes=4 dios=1',
                    '252:64 '):
            self.assertEqual((12288, 3), self.io(
                '252:48 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 '
                f'dios=0\n{row}\n', vdq='252:48', vdr='252:64'), row)
        self.assertEqual((4096, 2), self.io(
            '252:48 wios=2 rbytes=4096\n', vdq='252:48'))

    def test_keys_of_memory_that_are_missing_are_0(self) -> None:
        where = self.tree.cgroup('/batch/a')
        driver = self.driver()
        for text, dropped in (
                ('anon 1\ninactive_file 4096\n', 4096),
                ('inactive_file 4096\nslab_reclaimable 4096\n', 8192),
                ('odd\n\nx y\nactive_file 4096\nactive_file_x 7\n', 4096)):
            (where / 'memory.stat').write_text(text)
            for _ in range(9):
                sample, = driver.sample()
            self.assertEqual(104857600 - dropped, sample.memory_bytes, text)

    def test_pressure_is_the_row_that_says_some(self) -> None:
        where = self.tree.cgroup('/batch/a')
        (where / 'io.pressure').write_text(
            'full avg10=0.00 avg60=0.00 avg300=0.00 total=5\nodd\n'
            'some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n')
        sample, = self.driver().sample()
        self.assertEqual(1.5, sample.psi_io_s)

    def test_garbage_is_unknown_and_said_once(self) -> None:
        where = self.tree.cgroup('/batch/a')
        driver = self.driver()
        driver.sample()
        fields = {'cpu.stat': ('cpu_s', 'throttled_s'),
                  'memory.current': ('memory_bytes',),
                  'memory.stat': ('memory_bytes',),
                  'io.stat': ('io_bytes', 'io_ops'),
                  'cpu.pressure': ('psi_cpu_s',)}
        for file, names in fields.items():
            good = (where / file).read_text()
            for bad in ('', 'garbage\n', '\xff\xfe', 'usage_usec x\n'):
                (where / file).write_text(bad)
                before = len(self.warnings())
                # What follows other counters is looked at now and then.
                for _ in range(9):
                    sample, = driver.sample()
                if file == 'io.stat' and bad == '':
                    self.assertEqual(0, sample.io_bytes)  # no I/O yet
                    continue
                for name in names:
                    self.assertIsNone(getattr(sample, name), f'{file}: {bad}')
                lines = self.warnings()[before:]
                self.assertIn(len(lines), (0, 1))
            self.assertEqual(1, sum(f'/batch/a/{file}:' in line
                                    for line in self.warnings()))
            (where / file).write_text(good)
            for _ in range(9):
                sample, = driver.sample()
            for name in names:
                self.assertIsNotNone(getattr(sample, name), file)

    def test_what_the_kernel_lacks_is_logged_once_for_all(self) -> None:
        for name in 'abc':
            self.tree.cgroup(f'/batch/{name}')
        read = os.pread

        def pread(fd: int, size: int, offset: int) -> bytes:
            """As of a kernel that was booted with psi=0."""
            if os.readlink(f'/proc/self/fd/{fd}').endswith('.pressure'):
                raise OSError(errno.EOPNOTSUPP, 'Operation not supported')
            return read(fd, size, offset)

        self.useFixture(fixtures.MonkeyPatch('os.pread', pread))
        driver = self.driver()
        for _ in range(20):
            samples = driver.sample()
        self.assertEqual({None}, {s.psi_cpu_s for s in samples})
        line, = self.warnings()
        self.assertIn('psi=1', line)
        (self.tree.top / 'batch/cgroup.procs').write_text('')
        # Containers come and go, and each of them has it again.
        for name in 'abc':
            shutil.rmtree(self.tree.top / 'batch' / name)
            driver.sample()
        self.tree.cgroup('/batch/d')
        for _ in range(9):
            driver.sample()
        self.assertEqual([line], self.warnings())

    def test_a_file_in_an_unknown_form_is_logged_once_for_all(self) -> None:
        for name in 'abc':
            self.tree.cgroup(f'/batch/{name}', **{'cpu.stat': 'odd\n'})
        driver = self.driver()
        driver.sample()
        line, = self.warnings()
        for name in 'abc':      # it is right again in all of them
            (self.tree.top / 'batch' / name / 'cpu.stat').write_text(
                V2_FILES['cpu.stat'])
        driver.sample()
        (self.tree.top / 'batch/b/cpu.stat').write_text('odd\n')
        driver.sample()
        self.assertEqual(2, len(self.warnings()))

    def test_missing_controllers(self) -> None:
        where = self.tree.cgroup('/batch/a')
        for file in V2_FILES:
            if file.startswith(('memory.', 'io.')):
                (where / file).unlink()
        self.tree.put('sys/fs/cgroup/cgroup.controllers', 'cpu cpuset\n')
        driver = self.driver()
        sample, = driver.sample()
        self.assertEqual(2.5, sample.cpu_s)
        self.assertEqual((None, None, None), (
            sample.memory_bytes, sample.io_bytes, sample.psi_io_s))
        for knob in (Knob.MEMORY_BYTES, Knob.IO_BYTES_PER_S):
            self.assertRaises(errors.Unsupported, driver.write, '/batch/a',
                              knob, 1e9)
        self.assertEqual([], self.warnings())

    def known(self, sample: WorkloadSample) -> tuple[bool, ...]:
        return tuple(value is not None for value in (
            sample.memory_bytes, sample.io_bytes, sample.psi_io_s))

    def test_what_does_not_lack_is_counted(self) -> None:
        """From the tick on that follows when a limit can be set."""
        where = self.tree.cgroup('/batch/a')
        (where / 'io.stat').unlink()
        driver = self.driver()
        for _ in range(10):
            driver.sample()
        self.assertIn('io.stat', driver.lacks('/batch/a', Knob.IO_OPS_PER_S))
        self.assertEqual('', driver.lacks('/batch/a', Knob.MEMORY_BYTES))
        (where / 'io.stat').write_text(V2_FILES['io.stat'])
        self.assertIn('io.stat', driver.lacks('/batch/a', Knob.IO_OPS_PER_S))
        sample, = driver.sample()
        self.assertEqual((True,) * 3, self.known(sample))
        self.assertEqual('', driver.lacks('/batch/a', Knob.IO_OPS_PER_S))

    def test_a_hierarchy_that_is_mounted_later(self) -> None:
        where = self.tree.cgroup('/batch/a')
        for file in V2_FILES:
            if file.startswith('memory.'):
                (where / file).unlink()
        self.tree.put('sys/fs/cgroup/cgroup.controllers', 'cpu cpuset io\n')
        driver = self.driver()
        for _ in range(10):
            sample, = driver.sample()
        self.assertEqual((False, True, True), self.known(sample))
        self.assertIn('no cgroup controller',
                      driver.lacks('/batch/a', Knob.MEMORY_BYTES))
        for name, text in (('usage_in_bytes', '8192\n'),
                           ('limit_in_bytes', f'{2**63 - 4096}\n'),
                           ('stat', 'total_active_file 4096\n')):
            self.tree.put(f'mnt/memory/batch/a/memory.{name}', text)
        mount_files.mount(self.tree.root, V2_MOUNT,
                          '/mnt/memory cgroup rw,memory')
        for _ in range(base.RESCAN_TICKS):
            sample, = driver.sample()
        self.assertEqual((True,) * 3, self.known(sample))
        self.assertEqual(4096, sample.memory_bytes)
        self.assertEqual('', driver.lacks('/batch/a', Knob.MEMORY_BYTES))
        # And it goes again.
        mount_files.mount(self.tree.root, V2_MOUNT)
        for _ in range(base.RESCAN_TICKS):
            sample, = driver.sample()
        self.assertEqual((False, True, True), self.known(sample))
        mount_files.mount(self.tree.root)
        for _ in range(base.RESCAN_TICKS):
            sample, = driver.sample()
        self.assertEqual((False, True, True), self.known(sample))

    def test_a_limit_that_is_set_while_own_limits_are_read_in_turn(
            self) -> None:
        for name in 'abc':
            self.tree.cgroup(f'/batch/{name}')
        driver = self.driver()
        driver.sample()
        for name in 'abc':
            state = leased(driver, f'/batch/{name}', Knob.CPU_CORES)
            driver.write(f'/batch/{name}', Knob.CPU_CORES, 0.5, state)
        for _ in range(10):
            self.assertEqual([8.0] * 3, [
                one.workload.vcpus for one in driver.sample()])

    def test_parent_that_is_no_directory(self) -> None:
        self.tree.cgroup('/batch/a')
        (self.tree.top / 'broken').write_text('')
        driver = self.driver(('/batch', '/broken', '/missing'))
        for _ in range(3):
            self.assertEqual(['/batch/a'], [s.workload.id
                                            for s in driver.sample()])
        self.assertEqual(2, len(self.warnings()), self.logs.output)
        self.assertIn('/broken: Not a directory', self.logs.output)
        self.assertIn('/missing: No such file', self.logs.output)

    def test_parent_that_may_not_be_read(self) -> None:
        if os.geteuid() == 0:
            self.skipTest('root may read everything')
        self.tree.cgroup('/batch/a').parent.chmod(0)
        self.addCleanup((self.tree.top / 'batch').chmod, 0o700)
        self.assertEqual((), self.driver().sample())
        self.assertIn('/batch: Permission denied', self.logs.output)

    def test_parents_within_parents_are_no_workloads(self) -> None:
        self.tree.cgroup('/batch/a')
        self.tree.cgroup('/batch/inner/b')
        self.tree.cgroup('/vip')
        self.tree.cgroup('/batch/tools/vip/c')
        driver = self.driver(('/batch', '/batch/inner'), foreground_parents=(
            '/', '/batch/tools/vip'))
        found = {s.workload.id: (str(s.workload.priority), s.workload.group)
                 for s in driver.sample()}
        self.assertEqual({
            '/batch/a': ('background', '/batch/a'),
            '/batch/inner/b': ('background', '/batch/inner'),
            '/batch/tools/vip/c': ('foreground', '/batch/tools/vip/c'),
            '/vip': ('foreground', '/vip')}, found)
        for name in ('/batch', '/batch/tools', '/batch/tools/vip/c', '/vip'):
            self.assertRaises(errors.Unsupported, driver.write, name,
                              Knob.CPU_IDLE, 1)

    def groups(self, driver: Cgroups) -> dict[str, str]:
        return {s.workload.id: s.workload.group for s in driver.sample()}

    def test_a_group_of_parents(self) -> None:
        for name in ('/batch/day/a', '/batch/night/b', '/other/c'):
            self.tree.cgroup(name)
        driver = self.driver(('/batch/day', '/batch/night', '/other'),
                             background_groups=['/batch/'])
        self.assertEqual({'/batch/day/a': '/batch', '/other/c': '/other',
                          '/batch/night/b': '/batch'}, self.groups(driver))

    def test_parents_that_contradict(self) -> None:
        for kwargs in ({'background_parents': ['/']},
                       {'background_parents': ['/a/../b']},
                       {'background_parents': ['/a'],
                        'foreground_parents': ['a/']},
                       {'background_parents': ['/a'],
                        'killable_parents': ['/b']},
                       {'background_parents': ['/a/b'],
                        'background_groups': ['/']},
                       {'background_parents': ['/a/b'],
                        'background_groups': ['/b']},
                       {'background_parents': ['/a/b'],
                        'background_groups': ['/a'],
                        'foreground_parents': ['/a/c']}):
            self.assertRaises(errors.ConfigError, Cgroups,
                              root_dir=str(self.tree.root),
                              **kwargs)

    def test_no_cgroups_at_all(self) -> None:
        mount_files.mount(self.tree.root, '/ tmpfs rw')
        self.assertRaises(errors.ConfigError, self.driver)
        (self.tree.root / 'proc/self/mountinfo').unlink()
        self.assertRaises(errors.DriverError, self.driver)

    def test_a_controller_that_comes_back_with_other_files(self) -> None:
        where = self.tree.cgroup('/batch/a')
        driver = self.driver()
        driver.sample()
        for file in ('memory.current', 'io.pressure'):
            (where / file).write_text('odd\n')
        for _ in range(10):
            sample, = driver.sample()
        self.assertEqual((False, True, False), self.known(sample))
        for file in ('memory.current', 'io.pressure'):
            (where / file).unlink()
            (where / file).write_text(V2_FILES[file])
        for _ in range(8):
            sample, = driver.sample()
        self.assertEqual((True,) * 3, self.known(sample))


class TestDisks(CgroupsCase):
    """Which devices of a host are its disks, by what the kernel says."""

    def disk(self, name: str, number: str, *slaves: str,
             has: tuple[str, ...] = (), size: str = '100') -> None:
        top = f'sys/block/{name}'
        self.tree.put(f'{top}/dev', f'{number}\n')
        self.tree.put(f'{top}/size', f'{size}\n')
        (self.tree.root / top / 'slaves').mkdir()
        for slave in slaves:
            self.tree.put(f'{top}/slaves/{slave}/dev', '')
        for file in has:
            self.tree.put(f'{top}/{file}', '')

    def whole(self) -> set[str]:
        return set(disks.whole_disks(str(self.tree.root))) - {'8:0', '8:32'}

    def test_a_cache_on_two_disks(self) -> None:
        self.disk('sdq', '65:0')
        self.disk('nvme7n1', '259:9')
        self.disk('bcache0', '252:0', 'sdq', 'nvme7n1')
        self.assertEqual({'65:0', '259:9'}, self.whole())
        self.tree.cgroup('/batch/a', **{'io.stat': (
            '65:0 rbytes=4096 rios=1\n252:0 rbytes=4096 rios=1\n'
            '8:0 \n8:32 \n')})
        driver = self.driver()
        sample, = driver.sample()
        self.assertEqual((4096, 1), (sample.io_bytes, sample.io_ops))
        steps = driver.restore_actions('/batch/a', Knob.IO_BYTES_PER_S)
        self.assertEqual({'8:0', '8:32', '65:0', '259:9'},
                         {step['device'] for step in steps})

    def test_whatever_they_are_called(self) -> None:
        self.disk('mdisk', '240:0')
        self.disk('srv', '240:1')
        self.disk('loopy', '240:2')
        self.disk('volume', '240:3', 'sda')
        self.disk('drbd0', '147:0', 'volume')
        self.disk('md127', '9:127', 'sda', 'sdc')
        self.disk('cleartext', '253:9', 'md127')
        self.assertEqual({'240:0', '240:1', '240:2'}, self.whole())

    def test_a_multipath_disk_hands_on_requests(self) -> None:
        """Nothing of a cgroup arrives at its paths."""
        self.disk('sdx', '65:112', has=('mq/0/cpu_list',))
        self.disk('sdy', '65:128', has=('mq/0/cpu_list',))
        self.disk('dm-3', '253:3', 'sdx', 'sdy', has=('mq/0/cpu_list',))
        self.disk('dm-4', '253:4', 'dm-3')      # a logical volume on it
        self.assertEqual({'253:3'}, self.whole())

    def test_paths_of_nvme_have_no_number(self) -> None:
        self.disk('nvme0n1', '259:0')
        self.tree.put('sys/block/nvme0c0n1/size', '100\n')
        self.tree.put('sys/block/nvme0c0n1/hidden', '1\n')
        self.assertEqual({'259:0'}, self.whole())

    def come_and_go(self, driver: Cgroups) -> WorkloadSample:
        for _ in range(base.RESCAN_TICKS):
            sample, = driver.sample()
        return sample

    def test_a_limit_is_written_again_on_other_disks(self) -> None:
        """Its lease goes on, and takes them all."""
        self.tree.cgroup('/batch/a')
        driver = self.driver()
        driver.sample()
        keys = [('/batch/a', knob) for knob in (
            Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S, Knob.CPU_CORES)]
        held = {key: leased(driver, *key) for key in keys}
        self.disk('sdd', '8:48')
        self.come_and_go(driver)
        self.assertEqual(set(keys[:2]), set(driver.refresh(held).rewrite))
        for key in keys:
            self.assertIsNone(driver.read(*key))
        for key in keys[:2]:
            self.assertEqual({'8:0', '8:32', '8:48'}, {
                step['device'] for step in driver.restore_actions(*key)})
        self.come_and_go(driver)
        self.assertEqual(base.Changes(set(), set()), driver.refresh(held))

    def test_no_write_beyond_the_lease(self) -> None:
        self.tree.cgroup('/batch/a')
        driver = self.driver()
        driver.sample()
        key = '/batch/a', Knob.IO_BYTES_PER_S
        state = leased(driver, *key)
        self.disk('sdd', '8:48')
        self.come_and_go(driver)
        exc = self.assertRaises(errors.DriverError, driver.write, *key, 5e6,
                                state)
        self.assertNotIsInstance(exc, errors.WorkloadGone)
        driver.write(*key, 5e6,
                     originals.follow(driver, *key, state).state)

    def test_a_disk_by_name_gets_another_number(self) -> None:
        where = self.tree.cgroup('/batch/a')
        driver = self.driver(io_devices=['sdc', '8:0'])
        steps = [step['device'] for step in driver.restore_actions(
            '/batch/a', Knob.IO_BYTES_PER_S)]
        self.assertEqual(['8:32', '8:0'], steps)
        driver.sample()
        shutil.rmtree(self.tree.root / 'sys/block/sdc')
        self.come_and_go(driver)
        (where / 'io.stat').write_text('8:0 rbytes=7\n8:32 rbytes=1000\n')
        sample, = driver.sample()
        self.assertEqual(7, sample.io_bytes)
        self.come_and_go(driver)
        line, = self.warnings()
        self.assertIn('the disk sdc was removed', line)
        self.disk('sdc', '8:48')
        self.come_and_go(driver)
        (where / 'io.stat').write_text('8:0 rbytes=7\n8:48 rbytes=1000\n')
        sample, = driver.sample()
        self.assertEqual(1007, sample.io_bytes)


class TestKnobs(CgroupsCase):

    def setUp(self) -> None:
        super().setUp()
        self.where = self.tree.cgroup('/batch/a', **{
            'cpu.max': '25000 50000\n', 'memory.high': '4096\n',
            'memory.max': '8192\n', 'cpuset.cpus': '0-3,6\n',
            'io.max': '8:0 rbps=1000 wbps=max riops=max wiops=50\n'
                      '8:32 rbps=2000 wbps=500 riops=max wiops=max\n'})
        self.cgroups = self.driver()

    def steps(self, knob: Knob) -> list[tuple[str, ...]]:
        steps = self.cgroups.restore_actions('/batch/a', knob)
        for step in steps:
            self.assertEqual('write', step['do'])
            self.assertEqual(str(self.where), step['dir'])
            self.assertEqual(self.where.stat().st_ino, step['inode'])
        return [tuple(step[key] for key in ('file', 'device', 'text')
                      if key in step) for step in steps]

    def test_a_row_of_limits_belongs_to_the_last_device_it_names(
            self) -> None:
        (self.where / 'io.max').write_text(
            '(unknown) rbps=9 wbps=9 riops=9 wiops=9\nodd\n\n'
            '7:0 8:0  rbps=1 wbps=3\n8:0 8:32 rbps=1 wbps=2 riops=7\n')
        self.assertEqual(3, self.cgroups.read('/batch/a',
                                              Knob.IO_BYTES_PER_S))
        self.assertEqual([('io.max', '8:0', 'riops=max wiops=max'),
                          ('io.max', '8:32', 'riops=7 wiops=max')],
                         self.steps(Knob.IO_OPS_PER_S))

    def test_a_value_is_bounded_by_the_original_of_the_lease(self) -> None:
        """Not by what is there, which may be ours, of an agent before."""
        state = leased(self.cgroups, '/batch/a', Knob.IO_BYTES_PER_S)
        for original, last in ((state, 'wbps=500'), (None, 'wbps=7')):
            (self.where / 'io.max').write_text(
                '8:0 rbps=7 wbps=7\n8:32 rbps=7 wbps=7\n')
            self.cgroups.write('/batch/a', Knob.IO_BYTES_PER_S, 3000,
                               original)
            # A plain file holds what was written to it last.
            self.assertTrue((self.where / 'io.max').read_text().startswith(
                f'8:32 {last}'))

    def test_garbage(self) -> None:
        for file in ('cpu.max', 'cpu.idle', 'memory.max', 'cgroup.freeze'):
            (self.where / file).write_text('garbage\n')
        (self.where / 'io.max').write_text('8:0 rbps=x wbps=1\n')
        for knob, file in ((Knob.CPU_CORES, 'cpu.max'),
                           (Knob.CPU_IDLE, 'cpu.idle'),
                           (Knob.MEMORY_BYTES, 'memory.max'),
                           (Knob.PAUSED, 'cgroup.freeze'),
                           (Knob.IO_BYTES_PER_S, 'io.max')):
            exc = self.assertRaises(errors.DriverError, self.cgroups.read,
                                    '/batch/a', knob)
            self.assertIn(f'{self.where}/{file}', str(exc))
            self.assertNotIn('\n', str(exc))

    def kernel_files(self, refused: Collection[tuple[str, str]] = (),
                     code: int = errno.EIO) -> None:
        """Let plain files hold just what was written to them last, in whole
        pages, and refuse these texts."""
        plain = os.pwrite

        def pwrite(fd: int, data: bytes, offset: int) -> int:
            name = os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))
            if (name, data.decode().strip()) in refused:
                raise OSError(code, os.strerror(code))
            os.ftruncate(fd, 0)
            plain(fd, b'%d\n' % (int(data) // PAGE * PAGE), offset)
            return len(data)

        self.useFixture(fixtures.MonkeyPatch('os.pwrite', pwrite))

    def test_page_cache_that_waits_for_the_disk(self) -> None:
        """Version 1 does not drop it; each tick tries again."""
        for name, text in (('usage_in_bytes', f'{90 * MIB}'),
                           ('limit_in_bytes', f'{2**63 - 4096}'),
                           ('stat', f'total_inactive_file {50 * MIB}')):
            self.tree.put(f'mnt/memory/batch/a/memory.{name}', text)
        mount_files.mount(self.tree.root, '/mnt/memory cgroup rw,memory')
        cgroups = self.driver()
        self.assertEqual((True, False), (cgroups.memory_limit_ends,
                                         self.cgroups.memory_limit_ends))
        key = '/batch/a', Knob.MEMORY_BYTES
        state = leased(cgroups, *key)
        self.kernel_files({('memory.limit_in_bytes', f'{60 * MIB}')},
                          errno.EBUSY)
        for _ in range(2):
            self.assertEqual(90 * MIB,
                             cgroups.write(*key, 60 * MIB, state))
            self.assertEqual({key}, cgroups.refresh({key: state}).rewrite)
            self.assertEqual(set(), cgroups.refresh({key: state}).rewrite)
        self.assertEqual(64 * MIB, cgroups.write(*key, 64 * MIB, state))
        self.assertEqual(set(), cgroups.refresh({key: state}).rewrite)

    def test_what_fails_half_way_leaves_nothing(self) -> None:
        before = 512 * MIB, 1024 * MIB
        self.set_memory(*before, use=0)
        for limit, last in ((128, ('memory.max', str(208 * MIB))),
                            (2048, ('memory.high', str(2048 * MIB)))):
            self.kernel_files({last})
            self.assertRaises(errors.DriverError, self.cgroups.write,
                              '/batch/a', Knob.MEMORY_BYTES, limit * MIB)
            self.assertEqual(before, self.memory())
            self.assertEqual(before[0], self.cgroups.read('/batch/a',
                                                          Knob.MEMORY_BYTES))

    def set_memory(self, high: int | str, most: int | str, *, use: int
                   ) -> None:
        for name, value in ('high', high), ('max', most), ('current', use):
            (self.where / f'memory.{name}').write_text(f'{value}\n')
        self.droppable(0)

    def memory(self) -> tuple[int, int]:
        high, most = (int((self.where / f'memory.{name}').read_text())
                      for name in ('high', 'max'))
        return high, most

    def droppable(self, size: int) -> None:
        (self.where / 'memory.stat').write_text(
            'anon 4096\ninactive_file 0\nactive_file 0\n'
            f'slab_reclaimable {size}\n')

    def test_memory_that_the_kernel_may_drop_later_is_not_refused(
            self) -> None:
        key = '/batch/a', Knob.MEMORY_BYTES
        state = leased(self.cgroups, *key)
        self.droppable(500)
        (self.where / 'memory.current').write_text('2500\n')
        self.assertEqual(2048, self.cgroups.write(*key, 2048, state))
        self.assertEqual((2048, 8192), self.memory())
        # Another program's memory.max shows, although ours is tighter.
        state = state._replace(ours=leased(self.cgroups, *key).original)
        (self.where / 'memory.max').write_text('7000\n')
        followed = originals.follow(self.cgroups, *key, state)
        self.assertTrue(followed.theirs)
        self.assertEqual(['7000', '4096'], [
            action['text'] for action in followed.state.original.actions])
        (self.where / 'memory.current').write_text('2549\n')
        exc = self.assertRaises(errors.Refused, self.cgroups.write,
                                *key, 2048, state)
        self.assertEqual(501, exc.unmet_bytes)

    def test_growth_is_held_back_before_it_is_ended(self) -> None:
        """The OOM killer comes at memory.max, a good deal above the limit."""
        self.kernel_files()
        key = '/batch/a', Knob.MEMORY_BYTES
        self.set_memory('max', 'max', use=90 * MIB)
        state = leased(self.cgroups, *key)
        # As after a restart of the agent, the lease has no value of ours.
        for limit in 160, 96, 128:
            for more in 4 * PAGE + 77, 0:   # the kernel takes whole pages
                size = self.cgroups.write(*key, limit * MIB + more, state)
                self.assertEqual(limit * MIB + more // PAGE * PAGE, size)
                self.assertEqual(size, self.cgroups.read(*key, state))
            self.assertEqual((limit * MIB, (limit + limit // 8 + 64) * MIB),
                             self.memory())
        # What grew past the limit is refused a lower one.
        (self.where / 'memory.current').write_text(f'{130 * MIB}')
        for limit in 128, 112:
            self.assertRaises(errors.Refused, self.cgroups.write,
                              *key, limit * MIB, state)
            self.assertEqual((limit * MIB, 208 * MIB), self.memory())
            self.assertEqual(208 * MIB, self.cgroups.read(*key, state))
        # It shrinks: memory.max is still to follow.
        (self.where / 'memory.current').write_text(f'{90 * MIB}')
        self.assertEqual(208 * MIB, self.cgroups.read(*key, state))
        self.cgroups.write(*key, 112 * MIB, state)
        self.assertEqual((112 * MIB, 190 * MIB), self.memory())

    def test_no_room_above_the_memory_max_of_another_program(self) -> None:
        self.kernel_files()
        key = '/batch/a', Knob.MEMORY_BYTES
        self.set_memory('max', 100 * MIB, use=50 * MIB)
        state = leased(self.cgroups, *key)
        for limit, in_force in (90, 90), (40, 100):     # the latter is refused
            with contextlib.suppress(errors.Refused):
                self.cgroups.write(*key, limit * MIB, state)
            self.assertEqual((limit * MIB, 100 * MIB), self.memory())
            self.assertEqual(in_force * MIB, self.cgroups.read(*key, state))
        # What is in use has shrunk: the limit is met.
        (self.where / 'memory.current').write_text(f'{30 * MIB}')
        self.assertEqual(40 * MIB, self.cgroups.read(*key, state))


class TestMounts(CgroupsCase):

    def find(self, *mounts: str) -> dict[str, tuple[str, int]]:
        mount_files.mount(self.tree.root, *mounts)
        root = str(self.tree.root)
        return {name: (mount.path.removeprefix(root), mount.version)
                for name, mount in cgroup_mounts.find_mounts(root).items()}

    def test_v1_hybrid_and_v2(self) -> None:
        self.assertEqual(
            {'cpu': ('/sys/fs/cgroup/cpu,cpuacct', 1),
             'cpuacct': ('/sys/fs/cgroup/cpu,cpuacct', 1),
             'memory': ('/mnt/with space', 1)},
            self.find('/sys/fs/cgroup tmpfs ro',
                      '/sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct',
                      '/mnt/with\\040space cgroup rw,memory',
                      '/elsewhere cgroup rw,memory',
                      '/sys/fs/cgroup/systemd cgroup rw,name=systemd'))
        # A name may hold what Python takes for the end of a line.
        for odd in '\r\x0b\x0c\x1c\x85\u2028':
            self.assertEqual({'memory': (f'/mnt/{odd}', 1)}, self.find(
                f'/mnt/{odd} cgroup rw,memory'))
        v2 = ('/sys/fs/cgroup', 2)
        self.assertEqual(
            dict.fromkeys((*cgroup_mounts.V1_CONTROLLERS, 'unified'), v2),
            self.find(V2_MOUNT))
        found = self.find('/mnt cgroup rw,memory', V2_MOUNT)
        self.assertEqual((('/mnt', 1), v2), (found['memory'], found['cpu']))
        # Beside version 2, where containers are.
        found = self.find('/mnt cgroup rw,freezer,cpuacct', V2_MOUNT)
        self.assertEqual((v2, v2), (found['freezer'], found['cpuacct']))

    def test_a_mount_of_a_part_comes_last(self) -> None:
        """Such as one that was bound for a container."""
        part = '/run/c\\040d/cgroup cgroup2 rw /machine/a'
        self.tree.put('run/c d/cgroup/cgroup.controllers', 'cpu\n')
        for mounts in (part, V2_MOUNT), (V2_MOUNT, part):
            self.assertEqual({('/sys/fs/cgroup', 2)},
                             set(self.find(*mounts).values()))
        self.assertEqual(('/run/c d/cgroup', 2), self.find(part)['cpu'])

    def test_controllers_unknown(self) -> None:
        (self.tree.top / 'cgroup.controllers').unlink()
        self.assertEqual({'unified', 'freezer', 'perf_event'},
                         set(self.find(V2_MOUNT)))
        self.assertIn('cgroup.controllers', self.logs.output)


class TestParsing(testtools.TestCase):

    def parse(self, parse: statistics.Parse, text: str
              ) -> list[float | None]:
        values = statistics.nothing()
        parse(text.encode(), values)
        return values

    def test_v1(self) -> None:
        c = statistics
        self.assertEqual(1.5, self.parse(c.seconds(
            c.CPU_S, c.NS_PER_S), '1500000000\n')[c.CPU_S])
        self.assertEqual(2.0, self.parse(
            c.seconds(c.THROTTLED_S, c.NS_PER_S, b'throttled_time '),
            'nr_periods 4\nnr_throttled 2\n'
            'throttled_time 2000000000\n')[c.THROTTLED_S])
        page = os.sysconf('SC_PAGE_SIZE')
        self.assertEqual(7 * page, self.parse(
            c.droppable_v1, 'total=9 N0=9\nfile=1 N0=1\n'
            'hierarchical_total=9 N0=4 N1=5\n'
            'hierarchical_file=7 N0=3 N1=4\n')[c.DROPPABLE_BYTES])
        self.assertEqual(30, self.parse(
            c.droppable_v1, 'inactive_file 1\nactive_file 2\n'
            'total_inactive_file 10\ntotal_active_file 20\n'
            'total_unevictable 0\n')[c.DROPPABLE_BYTES])

    def test_page_cache(self) -> None:
        c = statistics
        page = os.sysconf('SC_PAGE_SIZE')
        both = c.DROPPABLE_BYTES, c.REFAULT_BYTES
        v1 = ('workingset_refault_file 1\ntotal_workingset_refault_anon 9\n'
              'total_workingset_refault_file 4\ntotal_inactive_file 10\n'
              'total_active_file 20\n')
        v2 = ('workingset_refault_anon 9\nworkingset_refault_file 4\n'
              'inactive_file 10\nactive_file 15\nslab_reclaimable 5\n')
        for parse, text in (c.page_cache_v1, v1), (c.page_cache_v2, v2):
            values = self.parse(parse, text)
            self.assertEqual([30, 4 * page], [values[at] for at in both])
            # Before Linux 5.9, and of version 1 before 6.1.
            for name, refaults in ('_refault', 4 * page), ('', None):
                values = self.parse(parse, text.replace('_refault_file', name))
                self.assertEqual([30, refaults], [values[at] for at in both])

    def test_v1_throttle_counts(self) -> None:
        c = statistics
        text = ('8:0 Read 10\n8:0 Write 20\n8:0 Sync 0\n8:0 Async 30\n'
                '8:0 Discard 0\n8:0 Total 30\n253:0 Read 10\n'
                '253:0 Total 10\n18:0 Total 5\nTotal 45\n')
        for devices, total in (([b'8:0'], 30), ([b'8:0', b'18:0'], 35),
                               ([b'9:9'], None), ([], None)):
            parse = c.throttle_totals(c.IO_BYTES, devices)
            self.assertEqual(total, self.parse(parse, text)[c.IO_BYTES])
        # The kernel lists a device once it had a limit there.
        self.assertIsNone(self.parse(parse, 'Total 0\n')[c.IO_BYTES])
        self.assertRaises(ValueError, self.parse, parse, 'garbage\n')

    def test_numbers(self) -> None:
        knob = Knob.CPU_CORES
        self.assertEqual(0.5, knobs.number(knob, '0.5'))
        for value in ('x', '', -1, float('inf'), float('nan')):
            self.assertRaises(errors.DriverError, knobs.number, knob,
                              value)
