# SPDX-License-Identifier: Apache-2.0

"""CPU time, idle class and CPU sets on cgroup v2."""

from __future__ import annotations

import os
import time

from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack import errors
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.types import Knob


class CpuCores(tree.GuestTestCase):

    def test_cpu_cores_hold_and_come_back(self) -> None:
        self.tree.write('/batch/a', 'cpu.max', '250000 100000')
        self.tree.make('/batch/a/below')
        driver = self.driver()
        for _ in range(2):
            self.tree.run('/batch/a/below', tree.spin)
        self.assertEqual(2.5, driver.read(self.job, Knob.CPU_CORES))
        self.assertHolds(0.9, lambda: self.rate(driver, 'cpu_s', 0.5), 3)
        self.lease(driver, Knob.CPU_CORES)
        self.assertEqual(0.4, driver.write(self.job, Knob.CPU_CORES, 0.4))
        self.assertEqual('40000 100000', self.tree.read('/batch/a',
                                                        'cpu.max'))
        throttled_s = self.one(driver).throttled_s or 0.0
        # In 1 s up to 11 periods begin, and each CPU may end a tick late.
        self.assertHolds(0.34, lambda: self.rate(driver, 'cpu_s', 1.0), 0.5)
        self.assertGreater(self.one(driver).throttled_s or 0.0,
                           throttled_s + 0.3)
        self.restore()
        self.assertHolds(0.9, lambda: self.rate(driver, 'cpu_s', 0.5), 3)

    def test_cpu_cores_keep_the_period(self) -> None:
        self.tree.write('/batch/a', 'cpu.max', 'max 20000')
        driver = self.driver()
        self.assertIsNone(driver.read(self.job, Knob.CPU_CORES))
        self.lease(driver, Knob.CPU_CORES)
        self.assertEqual(0.5, driver.write(self.job, Knob.CPU_CORES, 0.5))
        self.assertEqual('10000 20000', self.tree.read('/batch/a',
                                                       'cpu.max'))
        # The kernel takes no quota below 1 ms.
        self.assertEqual(0.05, driver.write(self.job, Knob.CPU_CORES, 0.001))
        self.restore()

    def test_cpu_cores_below_the_burst(self) -> None:
        self.tree.write('/batch/a', 'cpu.max', '250000 100000')
        self.tree.write('/batch/a', 'cpu.max.burst', '90000')
        driver = self.driver()
        try:
            driver.write(self.job, Knob.CPU_CORES, 0.5)
        except errors.DriverError as exc:
            said = str(exc)
        else:
            self.skipTest('this kernel takes a quota below the burst')
        self.assertNotIn('\n', said)
        self.assertIn('cpu.max.burst there is 90000', said)
        self.tree.write('/batch/a', 'cpu.max.burst', '0')
        driver.write(self.job, Knob.CPU_CORES, 0.5)


class CpuIdle(tree.GuestTestCase):

    def share(self, seconds: float = 0.5) -> float:
        """Part of one CPU that /batch gets beside /service."""
        usage = {}
        for name in ('/batch', '/service'):
            usage[name] = -self.usage(name)
        time.sleep(seconds)
        for name in usage:
            usage[name] += self.usage(name)
        return usage['/batch'] / sum(usage.values())

    def usage(self, name: str) -> int:
        stat = self.tree.read(name, 'cpu.stat').split()
        return int(stat[stat.index('usage_usec') + 1])

    def test_cpu_idle_gives_way_and_its_weight_comes_back(self) -> None:
        self.tree.make('/service')
        self.tree.write('/batch', 'cpu.weight', '9999')
        driver = self.driver()
        self.tree.run('/service', tree.spin_on(0))
        self.tree.run('/batch/a', tree.spin_on(0))
        without = self.share()
        self.assertGreater(without, 0.9)
        self.lease(driver, Knob.CPU_IDLE, self.parent)
        self.assertEqual(1, driver.write(self.parent, Knob.CPU_IDLE, 1))
        self.assertEqual('1', self.tree.read('/batch', 'cpu.idle'))
        # Of an emulated CPU each look of the test itself takes a part.
        self.assertLess(self.share(), without / 4)
        self.restore()
        self.assertEqual('9999', self.tree.read('/batch', 'cpu.weight'))
        # One slice that it ran as idle counts 300 times against it.
        self.wait_for('it has its share again',
                      lambda: self.share(0.2) > 0.9)

    def test_cpu_idle_below_a_cgroup_of_kubelet(self) -> None:
        pods = [self.tree.make(f'/kubepods.slice/{name}/pod') for name in (
            'kubepods-besteffort.slice', 'kubepods-burstable.slice')]
        for pod in pods:
            self.tree.write(pod.removeprefix(self.tree.name), 'cpu.weight',
                            '7')
        driver = Cgroups([pod.rpartition('/')[0] for pod in pods],
                         background_groups=[
                             f'{self.tree.name}/kubepods.slice'])
        self.addCleanup(driver.close)
        group, = {one.workload.group for one in driver.sample()}
        self.lease(driver, Knob.CPU_IDLE, group)
        self.assertEqual(1, driver.write(group, Knob.CPU_IDLE, 1))
        for pod in pods:
            where = pod.removeprefix(self.tree.name)
            self.assertEqual('1', self.tree.read(where, 'cpu.idle'))
            where = where.rpartition('/')[0]
            self.tree.write(where, 'cpu.weight', '100')     # as it was
        self.restore()

    def test_cpu_idle_that_was_idle_stays_so(self) -> None:
        self.tree.write('/batch', 'cpu.idle', '1')
        driver = self.driver()
        self.lease(driver, Knob.CPU_IDLE, self.parent)
        driver.write(self.parent, Knob.CPU_IDLE, 1)
        self.restore()
        self.assertEqual('1', self.tree.read('/batch', 'cpu.idle'))


class CpuSet(tree.GuestTestCase):
    """The guest has three CPUs, and there could be a fourth."""

    def cpus(self, pid: int) -> set[int]:
        return os.sched_getaffinity(pid)

    def test_cpu_set_holds_for_all_below(self) -> None:
        for name, cpus in (('/batch', '0-2'), ('/batch/b', '0-1'),
                           ('/batch/c', '2')):
            self.tree.make(name)
            self.tree.write(name, 'cpuset.cpus', cpus)
        a, b, c = (self.tree.run(f'/batch/{name}', tree.spin)
                   for name in 'abc')
        driver = self.driver()
        self.assertEqual(3, len(driver.sample()))
        self.lease(driver, Knob.CPU_SET, self.parent)
        self.assertEqual('1', driver.write(self.parent, Knob.CPU_SET, '1'))
        # c has no CPU of its own left; the kernel lets it run on those of
        # its parent.
        self.assertEqual([{1}] * 3, [self.cpus(pid) for pid in (a, b, c)])
        self.assertEqual('0-1', self.tree.read('/batch/b', 'cpuset.cpus'))
        driver.write(self.parent, Knob.CPU_SET, '1-2')
        self.assertEqual([{1, 2}, {1}, {2}],
                         [self.cpus(pid) for pid in (a, b, c)])
        self.restore()
        self.assertEqual([{0, 1, 2}, {0, 1}, {2}],
                         [self.cpus(pid) for pid in (a, b, c)])

    def test_cpu_set_that_was_empty_is_all_cpus_again(self) -> None:
        pid = self.tree.run('/batch/a', tree.spin)
        driver = self.driver()
        self.assertIsNone(driver.read(self.parent, Knob.CPU_SET))
        self.lease(driver, Knob.CPU_SET, self.parent)
        driver.write(self.parent, Knob.CPU_SET, '0')
        self.assertEqual({0}, self.cpus(pid))
        # The kernel does not take the set of a cgroup with processes away.
        self.assertRaises(OSError, self.tree.write, '/batch', 'cpuset.cpus',
                          '\n')
        self.restore({'/batch/cpuset.cpus': '0-3\n'})
        self.assertEqual({0, 1, 2}, self.cpus(pid))

    def test_cpu_set_of_a_partition(self) -> None:
        top = self.useFixture(tree.Tree())
        top.make('/a')
        top.write('', 'cpuset.cpus', '1-2')
        top.write('', 'cpuset.cpus.partition', 'root')
        self.assertEqual('root', top.read('', 'cpuset.cpus.partition'))
        pid = top.run('/a', tree.spin)
        self.tree, self.parent = top, top.name
        driver = self.driver()
        self.assertEqual(frozenset((1, 2)), self.one(
            driver, f'{top.name}/a').workload.allowed_cpus)
        self.lease(driver, Knob.CPU_SET, self.parent)
        driver.write(self.parent, Knob.CPU_SET, '2')
        self.assertEqual(({2}, 'root'), (
            self.cpus(pid), top.read('', 'cpuset.cpus.partition')))
        self.restore()
        self.assertEqual({1, 2}, self.cpus(pid))

    def test_cpu_set_beside_a_partition(self) -> None:
        machine, batch = (self.useFixture(tree.Tree()) for _ in range(2))
        machine.write('', 'cpuset.cpus', '2')
        machine.write('', 'cpuset.cpus.partition', 'root')
        batch.make('/a')
        pid = batch.run('/a', tree.spin)
        self.tree, self.parent = batch, batch.name
        driver = self.driver()
        self.lease(driver, Knob.CPU_SET, self.parent)
        self.assertEqual('1', driver.write(self.parent, Knob.CPU_SET, '1-2'))
        driver.fast_cpu_set(self.parent).set(frozenset({0, 2}))
        self.assertEqual({0}, self.cpus(pid))
        self.assertRaises(errors.DriverError, driver.write, self.parent,
                          Knob.CPU_SET, '2')
        self.restore({'/cpuset.cpus': '0-1,3\n'})
        self.assertEqual({0, 1}, self.cpus(pid))
        self.assertEqual('root', machine.read('', 'cpuset.cpus.partition'))

    def test_cpu_set_moves_fast(self) -> None:
        self.tree.write('/batch', 'cpuset.cpus', '0-2')
        pid = self.tree.run('/batch/a', tree.spin)
        driver = self.driver()
        self.lease(driver, Knob.CPU_SET, self.parent)
        fast = driver.fast_cpu_set(self.parent)
        for cpus in ({0}, {1, 2}, {2}, {0, 2}):
            fast.set(frozenset(cpus))
            self.assertEqual(cpus, self.cpus(pid))
        self.assertIsNone(fast.unleased())
        self.tree.write('/batch', 'cpuset.cpus', '1')
        self.assertEqual([{1}], list((fast.unleased() or {}).values()))
        self.restore()

    def test_cpu_set_that_does_not_exist(self) -> None:
        driver = self.driver()
        for cpus, what in (('7', 'does not have these CPUs|value'),
                           ('x', 'cpu_set')):
            exc = self.assertRaises(errors.DriverError, driver.write,
                                    self.parent, Knob.CPU_SET, cpus)
            self.assertNotIn('\n', str(exc))
            self.assertRegex(str(exc), what)

    def test_cpu_set_of_a_vm(self) -> None:
        """Its threads are in cgroups of their own, some with pins."""
        self.tree = vm = self.useFixture(tree.Tree(('cpu', 'cpuset')))
        one = '/machine/qemu-1-one.libvirt-qemu'
        pids = []
        for part, cpus in (('emulator', None), ('vcpu0', '0-1'),
                           ('vcpu1', '2')):
            vm.make(f'{one}/{part}')
            vm.write(f'{one}/{part}', 'cgroup.type', 'threaded')
            if cpus:
                vm.write(f'{one}/{part}', 'cpuset.cpus', cpus)
            pids.append(vm.run(f'{one}/{part}', tree.spin))
        before = vm.texts()
        machine = domain_cgroup.machine(f'0::{vm.name}{one}/emulator',
                                        cgroup_mounts.find_mounts())
        cpus_of = cpuset.CpuSet('one', machine)
        self.assertIsNone(cpus_of.read())
        lease = records.Lease('one', 'cpu_set', records.boot_id(),
                              cpus_of.actions())
        self.assertEqual('1', cpus_of.write('1'))
        self.assertEqual([{1}] * 3, [self.cpus(pid) for pid in pids])
        cpus_of.write('1-2')
        self.assertEqual([{1, 2}, {1}, {2}],
                         [self.cpus(pid) for pid in pids])
        # libvirt can pin a vCPU meanwhile, which is in force later.
        vm.write(f'{one}/vcpu0', 'cpuset.cpus', '0')
        self.assertEqual({1, 2}, self.cpus(pids[1]))
        self.assertRaises(OSError, os.sched_setaffinity, pids[1], {0})
        vm.write(f'{one}/vcpu0', 'cpuset.cpus', '0-1')
        restoration.restore(lease)
        self.assertEqual([{0, 1, 2}, {0, 1}, {2}],
                         [self.cpus(pid) for pid in pids])
        self.assertEqual({**before, f'{one}/cpuset.cpus': '0-3\n'},
                         vm.texts())
