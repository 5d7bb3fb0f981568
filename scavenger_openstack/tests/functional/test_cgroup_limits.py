# SPDX-License-Identifier: Apache-2.0


"""Limits of real cgroups: each bites, reads back, comes back."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import time

import fixtures

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers import originals
from scavenger_openstack import errors
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional.cgroup_cases import CgroupsCase
from scavenger_openstack.tests.functional.cgroup_cases import HOLD
from scavenger_openstack.tests.functional.cgroup_cases import MIB
from scavenger_openstack.tests.functional.cgroup_cases import restore
from scavenger_openstack.tests.functional.cgroup_cases import SPIN
from scavenger_openstack.tests.leased import leased
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob


class TestLimits(CgroupsCase):

    def test_cpu_cores(self) -> None:
        self.needs_v1('for version 2 there is guest_v2/cpu.py')
        driver = self.driver('a')
        name = f'{self.parent}/a'
        self.tree.write('cpu', '/bg/a', 'cpu.cfs_period_us', '50000')
        self.assertIsNone(driver.read(name, Knob.CPU_CORES))
        steps = driver.restore_actions(name, Knob.CPU_CORES)
        self.job(SPIN, '/bg/a')
        self.assertEqual(0.2, driver.write(name, Knob.CPU_CORES, 0.2))
        self.assertEqual(['10000', '50000'], self.texts(
            'cpu', '/bg/a', 'cpu.cfs_quota_us', 'cpu.cfs_period_us'))
        time.sleep(0.1)
        before = self.one(driver, name).throttled_s
        assert before is not None
        self.assertLess(self.cores(driver, name), 0.3)
        self.wait_for('it is throttled', lambda: (
            self.one(driver, name).throttled_s or 0.0) > before + 0.2)
        # The kernel takes no less than 1 ms.
        self.assertEqual(0.02, driver.write(name, Knob.CPU_CORES, 0.001))
        # Never above the cap, or it would be tightened again.
        self.assertEqual(0.66666, driver.write(name, Knob.CPU_CORES, 0.666675))
        restore(steps)
        self.assertEqual(['-1', '50000'], self.texts(
            'cpu', '/bg/a', 'cpu.cfs_quota_us', 'cpu.cfs_period_us'))

    def test_cpu_idle_comes_back_with_its_weight(self) -> None:
        driver = self.driver('a')
        self.tree.put('weight', '/bg', '512')
        steps = driver.restore_actions(self.parent, Knob.CPU_IDLE)
        self.assertEqual(['cpu.idle', self.tree.file('weight').name],
                         [step['file'] for step in steps])
        self.assertEqual(0, driver.read(self.parent, Knob.CPU_IDLE))
        self.assertEqual(1, driver.write(self.parent, Knob.CPU_IDLE, 1))
        self.assertEqual('1', self.tree.get('idle', '/bg'))
        now = driver.restore_actions(self.parent, Knob.CPU_IDLE)
        self.assertEqual([('cpu.idle', '1')],
                         [(step['file'], step['text']) for step in now])
        restore(now)
        self.assertEqual('1', self.tree.get('idle', '/bg'))
        restore(steps)
        self.assertEqual(('0', '512'), (self.tree.get('idle', '/bg'),
                                        self.tree.get('weight', '/bg')))

    def test_memory(self) -> None:
        self.needs_v1('for version 2 there is guest_v2/memory.py')
        driver = self.driver('a')
        name = f'{self.parent}/a'
        self.assertIsNone(driver.read(name, Knob.MEMORY_BYTES))
        steps = driver.restore_actions(name, Knob.MEMORY_BYTES)
        before = self.tree.get('memory', '/bg/a')
        self.assertEqual(64 * MIB,
                         driver.write(name, Knob.MEMORY_BYTES, 64 * MIB))
        hog = self.spawn(HOLD.format(size=100 * MIB), self.tree, '/bg/a')
        self.assertNotEqual(0, hog.wait(60))  # the limit was in its way
        restore(steps)
        self.assertEqual(before, self.tree.get('memory', '/bg/a'))

    def test_memory_below_what_is_in_use(self) -> None:
        driver = self.driver('a')
        name = f'{self.parent}/a'
        if 'SwapTotal:             0 kB' not in pathlib.Path(
                '/proc/meminfo').read_text():
            self.skipTest('needs a machine without swap')
        self.up(HOLD.format(size=50 * MIB), '/bg/a')
        refused = self.assertRaises(errors.Refused, driver.write, name,
                                    Knob.MEMORY_BYTES, 16 * MIB)
        self.assertTrue(30 * MIB < refused.unmet_bytes < 50 * MIB,
                        refused.unmet_bytes)
        self.assertIsNone(driver.read(name, Knob.MEMORY_BYTES))

    def test_memory_above_that_of_memory_and_swap(self) -> None:
        self.needs_v1('version 2 limits swap alone')
        driver = self.driver('a')
        name = f'{self.parent}/a'
        if not (self.tree.path('memory', '/bg/a')
                / 'memory.memsw.limit_in_bytes').exists():
            self.skipTest('needs swap accounting')
        driver.write(name, Knob.MEMORY_BYTES, 64 * MIB)
        self.tree.write('memory', '/bg/a', 'memory.memsw.limit_in_bytes',
                        str(80 * MIB))
        self.assertEqual(80 * MIB, driver.write(
            name, Knob.MEMORY_BYTES, 128 * MIB))

    def test_paused(self) -> None:
        driver = self.driver('a')
        name = f'{self.parent}/a'
        self.job(SPIN, '/bg/a')
        steps = driver.restore_actions(name, Knob.PAUSED)
        self.assertEqual(0, driver.read(name, Knob.PAUSED))
        self.assertEqual(1, driver.write(name, Knob.PAUSED, 1))
        self.wait_for('its process stops', lambda: self.tree.get(
            'frozen', '/bg/a') == 'FROZEN')
        self.assertLess(self.cores(driver, name, 0.3), 0.01)
        restore(steps)
        self.wait_for('it runs again', lambda: self.cores(
            driver, name, 0.3) > 0.1)
        # What is frozen from above is not paused itself.
        self.tree.put('frozen', '/bg', 'FROZEN')
        self.assertEqual(0, driver.read(name, Knob.PAUSED))
        self.assertEqual(
            self.tree.text('frozen', 'THAWED'),
            driver.restore_actions(name, Knob.PAUSED)[0]['text'])

    def test_no_such_knob(self) -> None:
        driver = self.driver('a')
        for knob in (Knob.LLC_WAYS, Knob.EGRESS_BYTES_PER_S):
            for method in (driver.read, driver.restore_actions):
                self.assertRaises(errors.Unsupported, method,
                                  f'{self.parent}/a', knob)
            self.assertRaises(errors.Unsupported, driver.write,
                              f'{self.parent}/a', knob, 1)

    def test_only_background_is_written_to(self) -> None:
        self.tree.make('/fg')
        self.tree.make('/fg/web')
        driver = self.driver('a', foreground_parents=[f'{self.tree.name}/fg'])
        driver.sample()
        for name in (f'{self.tree.name}/fg/web', f'{self.tree.name}/fg',
                     self.tree.name, '/', '', f'{self.parent}/../fg',
                     f'{self.parent}/a/deeper'):
            self.assertRaises(errors.Unsupported, driver.write, name,
                              Knob.CPU_CORES, 0.5)
        self.assertEqual('-1', self.tree.get('quota', '/fg/web'))

    def test_made_anew_gets_no_write_without_a_lease(self) -> None:
        driver = self.driver('a')
        name = f'{self.parent}/a'
        state = leased(driver, name, Knob.CPU_CORES)
        driver.write(name, Knob.CPU_CORES, 0.5, state)
        self.tree.delete('/bg/a')
        self.tree.make('/bg/a')
        for sample in (False, True, False):
            if sample:
                driver.sample()
            for call in (driver.write, name, Knob.CPU_CORES, 0.4, state), (
                    originals.follow, driver, name, Knob.CPU_CORES, state):
                self.assertRaises(errors.WorkloadGone, *call)
            self.assertEqual('-1', self.tree.get('quota', '/bg/a'))
        again = leased(driver, name, Knob.CPU_CORES)
        self.assertNotEqual(state.original.actions[0]['inode'],
                            again.original.actions[0]['inode'])
        self.assertEqual(0.4, driver.write(name, Knob.CPU_CORES, 0.4, again))

    def test_read_only_tree(self) -> None:
        self.tree.make('/bg/a')
        where = [str(self.tree.path(c)) for c in self.tree.mounts]
        code = textwrap.dedent(f'''
            import subprocess
            from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
            from scavenger_openstack import errors
            from scavenger_openstack.types import Knob
            for path in {where!r}:
                subprocess.run(['mount', '--bind', path, path], check=True)
                subprocess.run(['mount', '-o', 'remount,bind,ro', path],
                               check=True)
            driver = Cgroups([{self.parent!r}], io_devices=['7:0'])
            name = {self.parent + '/a'!r}
            print(len(driver.sample()))
            for knob, value in ((Knob.CPU_CORES, 0.5), (Knob.CPU_SET, '0'),
                                (Knob.CPU_IDLE, 1), (Knob.PAUSED, 1),
                                (Knob.MEMORY_BYTES, 1 << 26),
                                (Knob.IO_BYTES_PER_S, 1e6)):
                driver.restore_actions(name, knob)
                try:
                    driver.write(name, knob, value)
                    print('written')
                except errors.DriverError as exc:
                    print(exc)
            ''')
        done = subprocess.run(
            ['unshare', '-m', '--propagation', 'private', sys.executable,
             '-c', code], capture_output=True, text=True, timeout=30)
        self.assertEqual('', done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual('1', lines[0])
        self.assertEqual(6, len(lines[1:]), done.stdout)
        for line in lines[1:]:
            self.assertIn('read-only', line)
            self.assertIn(f'{self.parent}/a/', line)
            self.assertIn('ProtectControlGroups', line)

    def test_what_the_kernel_does_not_take(self) -> None:
        driver = self.driver('a')
        name = f'{self.parent}/a'
        self.tree.put('quota', '/bg', '20000')
        if self.tree.version == 1:  # version 2 takes more than the parent's
            self.assertRaises(errors.DriverError, driver.write, name,
                              Knob.CPU_CORES, 0.5)
        for knob, value in ((Knob.CPU_SET, '4000'),
                            (Knob.CPU_SET, ''), (Knob.CPU_SET, 'x'),
                            (Knob.CPU_CORES, 'x'),
                            (Knob.MEMORY_BYTES, float('nan'))):
            exc = self.assertRaises(errors.DriverError, driver.write, name,
                                    knob, value)
            self.assertNotIn('\n', str(exc))


class TestIo(CgroupsCase):

    def setUp(self) -> None:
        super().setUp()
        self.needs_v1('for version 2 there is guest_v2/disk.py')
        folder = self.useFixture(fixtures.TempDir(
            rootdir='/var/tmp')).path
        image = f'{folder}/disk'
        with open(image, 'wb') as file:
            file.write(os.urandom(24 * MIB))
        made = subprocess.run(['losetup', '--find', '--show', image],
                              text=True, capture_output=True, check=False)
        if made.returncode:
            self.skipTest(f'needs a loop device: {made.stderr.strip()}')
        self.disk = made.stdout.strip()
        self.addCleanup(subprocess.run, ['losetup', '-d', self.disk],
                        check=True)
        number = os.stat(self.disk).st_rdev
        self.number = f'{os.major(number)}:{os.minor(number)}'

    def read_disk(self, seconds: float, size: int) -> float:
        """Bytes per second that direct reads in ``/bg/a`` get."""
        process = self.spawn(textwrap.dedent(f'''
            import mmap, os, time
            fd = os.open({self.disk!r}, os.O_RDONLY | os.O_DIRECT)
            buffer = mmap.mmap(-1, {size})
            end = time.monotonic() + {seconds}
            total = place = 0
            while time.monotonic() < end:
                place = place % (16 << 20)
                total += os.preadv(fd, [buffer], place)
                place += {size}
            print(int(total / {seconds}))
            '''), self.tree, '/bg/a')
        assert process.stdout is not None
        return float(process.stdout.readline())

    def test_bytes(self) -> None:
        driver = self.driver('a', io_devices=[self.disk])
        name = f'{self.parent}/a'
        self.assertIsNone(self.one(driver, name).io_bytes)
        steps = driver.restore_actions(name, Knob.IO_BYTES_PER_S)
        self.assertIsNone(driver.read(name, Knob.IO_BYTES_PER_S))
        self.assertEqual(4e6, driver.write(name, Knob.IO_BYTES_PER_S, 4e6))
        before = self.one(driver, name)
        rate = self.read_disk(1.0, 65536)
        self.assertTrue(2e6 < rate < 6e6, rate)
        after = self.one(driver, name)
        assert None not in (before.io_bytes, before.io_ops)
        assert after.io_bytes is not None and after.io_ops is not None
        self.assertTrue(2e6 < after.io_bytes < 7e6, after.io_bytes)
        self.assertEqual(after.io_bytes // 65536, after.io_ops)
        restore(steps)
        for way in ('read', 'write'):
            self.assertEqual('', self.tree.read(
                'blkio', '/bg/a', f'blkio.throttle.{way}_bps_device'))
        self.assertGreater(self.read_disk(0.5, 65536), 2 * rate)

    def test_operations(self) -> None:
        driver = self.driver('a', io_devices=[self.number])
        name = f'{self.parent}/a'
        steps = driver.restore_actions(name, Knob.IO_OPS_PER_S)
        self.assertEqual(50, driver.write(name, Knob.IO_OPS_PER_S, 50))
        self.assertLess(self.read_disk(1.0, 4096), 75 * 4096)
        restore(steps)
        self.assertGreater(self.read_disk(0.5, 4096), 150 * 4096)

    def test_more_operations_than_the_kernel_counts(self) -> None:
        """They are a limit that holds nothing, and it is restored."""
        driver = self.driver('a', io_devices=[self.number])
        name = f'{self.parent}/a'
        state = leased(driver, name, Knob.IO_OPS_PER_S)
        for value in (2.0 ** 32 - 1, 2.0 ** 32, 2.0 ** 32 + 5, 2.0 ** 53):
            self.assertEqual(knobs.MOST_IOPS, driver.write(
                name, Knob.IO_OPS_PER_S, value, state))
            self.assertGreater(self.read_disk(0.2, 4096), 0)
        restore(list(state.original.actions))
        self.assertIsNone(driver.read(name, Knob.IO_OPS_PER_S))
        self.assertEqual([''] * 2, self.texts(
            'blkio', '/bg/a', 'blkio.throttle.read_iops_device',
            'blkio.throttle.write_iops_device'))

    def test_a_disk_that_is_not_there(self) -> None:
        """The others are limited; it is named once."""
        driver = self.driver('a', 'b', io_devices=[self.number, '240:77'])
        for knob, file, value in (
                (Knob.IO_BYTES_PER_S, 'bps', 5e6),
                (Knob.IO_OPS_PER_S, 'iops', 100.0)):
            for job in 'ab':
                name = f'{self.parent}/{job}'
                state = leased(driver, name, knob)
                for wanted in (value, value / 2):
                    self.assertEqual(wanted, driver.write(name, knob, wanted,
                                                          state))
                    self.assertEqual(wanted, driver.read(name, knob))
                self.assertEqual(
                    [f'{self.number} {value / 2:.0f}'] * 2,
                    self.texts('blkio', f'/bg/{job}', *(
                        f'blkio.throttle.{way}_{file}_device'
                        for way in ('read', 'write'))))
                self.assertTrue(restoration.restore(records.Lease(
                    name, knob, records.boot_id(), state.original.actions)))
                self.assertIsNone(driver.read(name, knob))
        self.assertEqual(1, self.logs.output.count('disk 240:77'))
        alone = self.driver('a', io_devices=['240:77'])
        self.assertIn('no such whole disk', str(self.assertRaises(
            errors.Unsupported, alone.write, f'{self.parent}/a',
            Knob.IO_BYTES_PER_S, 5e6)))

    def test_own_limit_of_one_direction_stays(self) -> None:
        driver = self.driver('a', io_devices=[self.number])
        name = f'{self.parent}/a'
        file = 'blkio.throttle.read_bps_device'
        self.tree.write('blkio', '/bg/a', file, f'{self.number} 1000000')
        state = leased(driver, name, Knob.IO_BYTES_PER_S)
        self.assertIsNone(driver.read(name, Knob.IO_BYTES_PER_S))
        for value, read in ((5e6, 1000000), (5e5, 500000), (2e6, 1000000)):
            self.assertEqual(value, driver.write(
                name, Knob.IO_BYTES_PER_S, value, state))
            self.assertEqual(f'{self.number} {read}',
                             self.tree.read('blkio', '/bg/a', file))
        # A driver that set nothing so far goes by the lease, too.
        self.driver('a', io_devices=[self.number]).write(
            name, Knob.IO_BYTES_PER_S, 8e6, state)
        self.assertEqual([f'{self.number} 1000000', f'{self.number} 8000000'],
                         self.texts('blkio', '/bg/a', file,
                                    'blkio.throttle.write_bps_device'))
        restore(list(state.original.actions))
        self.assertEqual([f'{self.number} 1000000', ''], self.texts(
            'blkio', '/bg/a', file, 'blkio.throttle.write_bps_device'))

    def test_another_program_limits_one_direction(self) -> None:
        """While ours is on both: theirs is restored."""
        key = f'{self.parent}/a', Knob.IO_BYTES_PER_S
        driver = self.driver('a', io_devices=[self.number])
        held = leases.Leases(pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state'))
        held.open()
        self.addCleanup(held.close)
        files = ('blkio.throttle.read_bps_device',
                 'blkio.throttle.write_bps_device')
        by_us = actuator.Actuator(driver, held, 2.0)

        def tick(*values: float) -> None:
            caps = [Cap(*key, value, 'test', 'a test') for value in values]
            seen = by_us.read(caps)
            by_us.reconcile(arbitrate.arbitrate(caps, seen.originals, {}),
                            seen)

        tick(4e6)
        self.tree.write('blkio', '/bg/a', files[0], f'{self.number} 1000000')
        for _ in range(actuator.READ_TICKS + 1):    # seen, and set again
            tick(4e6)
        self.assertEqual([f'{self.number} 1000000', f'{self.number} 4000000'],
                         self.texts('blkio', '/bg/a', *files))
        tick()
        self.assertEqual([f'{self.number} 1000000', ''],
                         self.texts('blkio', '/bg/a', *files))
