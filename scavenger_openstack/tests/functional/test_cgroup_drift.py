# SPDX-License-Identifier: Apache-2.0

"""What other programs and the kernel write while limits of ours are there:
values that consist of several files."""

from __future__ import annotations

import contextlib
import fcntl
import pathlib

import fixtures

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack import errors
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional.cgroup_cases import CgroupsCase
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value


ADD, REMOVE = 0x4C80, 0x4C81
"""Orders to loop-control."""
LOOP = 1 << 19


class DriftCase(CgroupsCase):

    def setUp(self) -> None:
        super().setUp()
        self.needs_v1('version 2 is in guest_v2')
        self.leases = leases.Leases(pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state'), 600.0)
        self.leases.open()
        self.addCleanup(self.leases.close)

    def begin(self, **kwargs: object) -> Cgroups:
        driver = self.driver('a', **kwargs)
        self.actuator = actuator.Actuator(driver, self.leases, 2.0)
        return driver

    def tick(self, key: KnobKey, *values: Value) -> list[str]:
        caps = [Cap(*key, value, 'test', 'a test') for value in values]
        seen = self.actuator.read(caps)
        return self.actuator.reconcile(arbitrate.arbitrate(
            caps, seen.originals, {}), seen).problems

    def adopt(self, key: KnobKey, *values: Value) -> None:
        """So many ticks that what others wrote is seen, and ours set."""
        for _ in range(actuator.READ_TICKS + 1):
            self.assertEqual([], self.tick(key, *values))

    def put(self, below: str, **texts: str) -> None:
        """As another program does."""
        for name, text in texts.items():
            self.tree.write('cpu', below, name.replace('_', '.', 1), text)

    def restored(self, key: KnobKey) -> bool:
        """As by the watcher; whether that changed a thing."""
        return restoration.restore(records.Lease(
            *key, records.boot_id(),
            self.leases.held()[key].original.actions))

    def cpu(self, below: str, *names: str) -> list[str]:
        return [self.tree.read('cpu', below, name) for name in names]


class TestQuota(DriftCase):

    def setUp(self) -> None:
        super().setUp()
        self.driver_ = self.begin()
        self.key = f'{self.parent}/a', Knob.CPU_CORES
        self.put('/bg/a', cpu_cfs_quota_us='50000')
        self.tick(self.key, 0.1)
        self.assertEqual(['10000', '100000'], self.quota())

    def quota(self) -> list[str]:
        return self.cpu('/bg/a', 'cpu.cfs_quota_us', 'cpu.cfs_period_us')

    def test_another_period(self) -> None:
        """The quota has the same meaning in it: half a core."""
        self.put('/bg/a', cpu_cfs_period_us='50000')
        self.adopt(self.key, 0.1)
        self.assertEqual(['5000', '50000'], self.quota())
        self.assertEqual(0.5, self.leases.held()[self.key].original.value)
        self.tick(self.key)
        self.assertEqual(['25000', '50000'], self.quota())

    def test_another_period_that_no_agent_saw(self) -> None:
        self.put('/bg/a', cpu_cfs_period_us='50000')
        self.assertTrue(self.restored(self.key))
        self.assertEqual(['50000', '100000'], self.quota())
        self.put('/bg/a', cpu_cfs_quota_us='10000',
                 cpu_cfs_period_us='200000')
        self.assertTrue(self.restored(self.key))
        self.assertEqual(['50000', '100000'], self.quota())

    def test_another_value(self) -> None:
        self.put('/bg/a', cpu_cfs_quota_us='40000',
                 cpu_cfs_period_us='50000')
        self.adopt(self.key, 0.1)
        self.assertEqual(0.8, self.leases.held()[self.key].original.value)
        self.tick(self.key)
        self.assertEqual(['40000', '50000'], self.quota())

    def test_both_so_that_ours_stays_in_force(self) -> None:
        self.put('/bg/a', cpu_cfs_quota_us='5000', cpu_cfs_period_us='50000')
        self.adopt(self.key, 0.1)
        self.assertIn('cpu.cfs_period_us from 100000 us to 50000 us',
                      self.logs.output)
        self.tick(self.key)
        self.assertEqual(['5000', '50000'], self.quota())

    def test_none_before(self) -> None:
        self.tick(self.key)
        self.put('/bg/a', cpu_cfs_quota_us='-1')
        self.tick(self.key, 0.1)
        self.put('/bg/a', cpu_cfs_period_us='20000')
        self.adopt(self.key, 0.1)
        self.assertIsNone(self.leases.held()[self.key].original.value)
        self.tick(self.key)
        self.assertEqual(['-1', '20000'], self.quota())

    def test_a_limit_that_another_thread_removes_meanwhile(self) -> None:
        """Its own limit is known all the same, in that tick, too."""
        read = self.driver_.read

        def remove(workload: str, knob: Knob,
                   state: base.KnobState | None = None) -> Value | None:
            value = read(workload, knob, state)
            if self.key in self.leases.held():
                self.actuator.remove(self.key)
            return value

        for forgotten in True, False:
            self.tick(self.key, 0.1)
            self.driver_.read = remove      # type: ignore[method-assign]
            for _ in range(actuator.READ_TICKS):
                if forgotten:       # as by a thread that ends only now
                    self.leases.wrote(*self.key, None)
                seen = self.actuator.read([Cap(*self.key, 2.0, 'test', '')])
                self.assertEqual({0.5}, set(seen.originals.values()))
                self.assertEqual([], seen.problems)
            self.assertEqual({}, dict(self.leases.held()))
            self.driver_.read = read        # type: ignore[method-assign]

    def test_the_kernel_compares_it_with_others(self) -> None:
        self.tick(self.key)
        self.tree.make('/bg/a/deep')
        self.put('/bg/a', cpu_cfs_quota_us='-1')
        for below, cores, name in (
                ('/bg', 0.6, 'the parent cgroup has a quota of 0.3 cores'),
                ('/bg/a/deep', 0.1, 'has a quota of 0.3 cores')):
            self.put(below, cpu_cfs_quota_us='30000')
            exc = self.assertRaises(errors.Denied, self.driver_.write,
                                    *self.key, cores)
            self.assertIn(name, str(exc))
            self.put(below, cpu_cfs_quota_us='-1')

    def test_half_of_a_removal_is_not_another_programs(self) -> None:
        self.put('/bg', cpu_cfs_quota_us='20000')
        self.leases.hold(self.parent, Knob.CPU_CORES,
                         self.driver_.restore_actions(
                             self.parent, Knob.CPU_CORES), None)
        self.put('/bg/a', cpu_cfs_period_us='200000')
        # The group around is to be restored first.
        self.assertEqual(1, len(self.tick(self.key)))
        self.assertEqual(['10000', '100000'], self.quota())
        self.adopt(self.key, 0.15)
        self.assertEqual(0.5, self.leases.held()[self.key].original.value)
        self.put('/bg', cpu_cfs_quota_us='-1')
        self.tick(self.key)
        self.assertEqual(['50000', '100000'], self.quota())


class TestIdle(DriftCase):

    def setUp(self) -> None:
        super().setUp()
        self.driver_ = self.begin()
        self.key = f'{self.parent}/a', Knob.CPU_IDLE
        self.put('/bg/a', cpu_shares='512')
        self.tick(self.key, 1)
        self.assertEqual(['1'], self.cpu('/bg/a', 'cpu.idle'))

    def test_the_kernel_resets_the_weight(self) -> None:
        self.put('/bg/a', cpu_idle='0')
        self.assertEqual(['1024'], self.cpu('/bg/a', 'cpu.shares'))
        self.adopt(self.key, 1)
        self.assertEqual(['1'], self.cpu('/bg/a', 'cpu.idle'))
        self.tick(self.key)
        self.assertEqual(['0', '512'], self.cpu('/bg/a', 'cpu.idle',
                                                'cpu.shares'))

    def test_another_program_sets_it(self) -> None:
        self.put('/bg/a', cpu_idle='0', cpu_shares='77')
        self.adopt(self.key, 1)
        self.tick(self.key)
        self.assertEqual(['0', '77'], self.cpu('/bg/a', 'cpu.idle',
                                               'cpu.shares'))

    def test_no_agent_sees_it(self) -> None:
        self.put('/bg/a', cpu_idle='0')
        self.assertTrue(self.restored(self.key))
        self.assertEqual(['0', '512'], self.cpu('/bg/a', 'cpu.idle',
                                                'cpu.shares'))


class TestPods(DriftCase):
    """kubelet sets the weight of its own cgroups each minute."""

    TOP = '/kubepods/besteffort'

    def setUp(self) -> None:
        super().setUp()
        for name in ('pod1', 'pod2'):
            self.pod(name)
        self.driver_ = Cgroups([self.tree.name + self.TOP])
        self.addCleanup(self.driver_.close)
        self.actuator = actuator.Actuator(self.driver_, self.leases, 2.0)
        self.key = self.tree.name + self.TOP, Knob.CPU_IDLE
        self.driver_.sample()
        self.tick(self.key, 1)

    def pod(self, name: str) -> None:
        self.tree.make(f'{self.TOP}/{name}/container')
        self.put(f'{self.TOP}/{name}', cpu_shares=f'10{name[-1]}')

    def pods(self, file: str) -> list[str]:
        return [(path / file).read_text().strip() for path in sorted(
            self.tree.path('cpu', self.TOP).glob('pod*'))]

    def kubelet(self) -> None:
        for below in (self.TOP, '/kubepods'):
            self.put(below, cpu_shares='2')

    def test_its_writes_succeed(self) -> None:
        self.kubelet()
        self.assertEqual(['1'] * 2, self.pods('cpu.idle'))
        self.assertEqual(1, self.driver_.read(*self.key))
        self.tick(self.key)
        self.kubelet()
        self.assertEqual(['0'] * 2, self.pods('cpu.idle'))
        self.assertEqual(['101', '102'], self.pods('cpu.shares'))

    def test_pods_that_come_and_go(self) -> None:
        self.pod('pod3')
        self.tick(self.key, 1)
        self.assertEqual(['1', '1', '0'], self.pods('cpu.idle'))
        self.put(f'{self.TOP}/pod3', cpu_shares='33')   # kubelet is not done
        self.tree.delete(f'{self.TOP}/pod1')
        self.adopt(self.key, 1)
        self.assertEqual(['1'] * 2, self.pods('cpu.idle'))
        self.assertNotIn('another program', self.logs.output)
        self.assertNotIn('pod1', str(self.leases.held()[self.key].original))
        self.assertTrue(self.restored(self.key))
        self.assertEqual(['102', '33'], self.pods('cpu.shares'))

    def test_all_are_others(self) -> None:
        for name in ('pod1', 'pod2'):
            self.tree.delete(f'{self.TOP}/{name}')
        self.pod('pod3')
        self.adopt(self.key, 1)
        self.assertEqual(['1'], self.pods('cpu.idle'))
        self.assertNotIn('another program', self.logs.output)
        self.tick(self.key)
        self.assertEqual(['103'], self.pods('cpu.shares'))
        self.tree.delete(f'{self.TOP}/pod3')
        self.pod('pod4')
        self.tick(self.key, 1)
        self.assertEqual(['1'], self.pods('cpu.idle'))

    def test_another_program_ends_it_on_one(self) -> None:
        self.put(f'{self.TOP}/pod2', cpu_idle='0')
        self.adopt(self.key, 1)
        self.assertEqual(['1'] * 2, self.pods('cpu.idle'))
        self.tick(self.key)
        self.assertEqual(['101', '102'], self.pods('cpu.shares'))

    def test_the_whole_slice_is_background(self) -> None:
        self.tick(self.key)
        self.tree.make('/kubepods/podguaranteed')
        key = f'{self.tree.name}/kubepods', Knob.CPU_IDLE
        driver = Cgroups([key[0]])
        self.addCleanup(driver.close)
        by_us = actuator.Actuator(driver, self.leases, 2.0)
        self.actuator = by_us
        self.tick(key, 1)
        self.kubelet()
        self.put('/kubepods/besteffort', cpu_shares='2')
        self.assertEqual(['1'] * 2, self.pods('cpu.idle'))
        self.assertEqual(['1'], self.cpu('/kubepods/podguaranteed',
                                         'cpu.idle'))
        self.tick(key)


class TestDisk(DriftCase):

    FILES = ('blkio.throttle.read_bps_device',
             'blkio.throttle.write_bps_device')

    def test_one_direction(self) -> None:
        """Ours may be loosened all the same: there is no limit on both."""
        number = (pathlib.Path('/sys/block') / next(
            path.name for path in pathlib.Path('/sys/block').iterdir()
            if (path / 'size').read_text() != '0\n') / 'dev'
            ).read_text().strip()
        key = f'{self.parent}/a', Knob.IO_BYTES_PER_S
        self.begin(io_devices=[number])
        self.tick(key, 4e6)
        self.tree.write('blkio', '/bg/a', self.FILES[0], f'{number} 1000000')
        self.adopt(key, 4e6)
        self.assertIsNone(self.leases.held()[key].original.value)
        self.adopt(key, 8e6)
        self.assertEqual([f'{number} 1000000', f'{number} 8000000'],
                         [self.tree.read('blkio', '/bg/a', file)
                          for file in self.FILES])
        self.tick(key)
        self.assertEqual([f'{number} 1000000', ''],
                         [self.tree.read('blkio', '/bg/a', file)
                          for file in self.FILES])


    def loop(self, order: int) -> None:
        """Make or remove a disk."""
        try:
            with open('/dev/loop-control') as control:
                fcntl.ioctl(control, order, LOOP)
        except OSError as exc:
            self.skipTest(f'/dev/loop-control: {exc}')
        if order == ADD:
            self.addCleanup(self.loop_removed)

    def loop_removed(self) -> None:
        with contextlib.suppress(OSError), open('/dev/loop-control') as file:
            fcntl.ioctl(file, REMOVE, LOOP)

    def test_a_disk_that_comes_and_goes(self) -> None:
        """The others stay limited; by then its lease knows of the new one."""
        name = next(path.name for path in pathlib.Path('/sys/block').iterdir()
                    if (path / 'dev').exists())
        numbers = [pathlib.Path(f'/sys/block/{name}/dev').read_text().strip(),
                   f'7:{LOOP}']
        self.loop(ADD)
        driver = self.begin(io_devices=[name, f'loop{LOOP}'])
        key = f'{self.parent}/a', Knob.IO_BYTES_PER_S
        self.tree.write('blkio', '/bg/a', self.FILES[0],
                        f'{numbers[0]} 9000000')

        def limits(*disks: int) -> list[str]:
            return sorted(f'{numbers[disk]} 4000000' for disk in disks)

        def tick() -> None:
            driver.sample()
            self.assertEqual([], self.tick(key, 4e6))
            self.assertEqual({}, self.actuator.gone)
            held = self.leases.held()[key]
            for file in self.FILES:
                found = self.tree.read('blkio', '/bg/a', file).splitlines()
                self.assertEqual(set(), set(limits(0)) - set(found))
                self.assertEqual(set(), {
                    line.partition(' ')[0] for line in found} - {
                        action['device'] for action in held.original.actions
                        if action['file'] == file})
            now.append(sorted(found))

        now: list[list[str]] = []
        self.loop(REMOVE)
        for _ in range(base.RESCAN_TICKS):
            tick()
        self.assertEqual(9e6, self.leases.held()[key].original.value or 9e6)
        self.loop(ADD)
        for _ in range(base.RESCAN_TICKS):
            tick()
        self.assertEqual(limits(0, 1), now[-1])
        self.loop(REMOVE)
        for _ in range(base.RESCAN_TICKS):
            tick()
        self.assertNotIn('which will be restored', self.logs.output)
        self.assertEqual([], self.tick(key))
        self.assertEqual([f'{numbers[0]} 9000000', ''], [
            self.tree.read('blkio', '/bg/a', file) for file in self.FILES])


class TestGone(DriftCase):

    def test_a_lease_that_is_gone(self) -> None:
        """Whatever ended it: what the knob holds is no other program's."""
        driver = self.begin()
        key = f'{self.parent}/a', Knob.CPU_CORES
        self.tick(key, 0.5)
        self.put('/bg/a', cpu_cfs_quota_us='70000')
        actions = driver.restore_actions

        def end(workload: str, knob: Knob, state: base.KnobState) -> object:
            self.leases.remove(*key)
            return actions(workload, knob, state)

        driver.restore_actions = end        # type: ignore[assignment]
        for _ in range(actuator.READ_TICKS):
            seen = self.actuator.read([Cap(*key, 0.5, 'test', '')])
            self.assertEqual(([], {key: None}),
                             (seen.problems, seen.originals))
        self.assertNotIn('another program', self.logs.output)
        self.assertRaises(errors.LeaseError, self.leases.replace, *key, [],
                          None)
