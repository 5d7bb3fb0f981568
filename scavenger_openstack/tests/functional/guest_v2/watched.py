# SPDX-License-Identifier: Apache-2.0

"""What the driver sees on cgroup v2: what is there, counters, pressure."""

from __future__ import annotations

from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.tests.functional.guest_v2.tree import MIB
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority


class Watched(tree.GuestTestCase):

    def test_who_it_is(self) -> None:
        self.tree.make('/service/web')
        for file, text in (('cpu.max', '50000 100000'),
                           ('cpuset.cpus', '1'),
                           ('memory.max', str(64 * MIB))):
            self.tree.write('/batch/a', file, text)
        web = self.tree.make('/service/web')
        driver = self.driver(
            foreground_parents=[f'{self.tree.name}/service'])
        found = {one.workload.id: one.workload for one in driver.sample()}
        self.assertEqual({self.job, web}, set(found))
        a = found[self.job]
        self.assertEqual(
            (Priority.BACKGROUND, self.parent, 0.5, 64 * MIB,
             frozenset((1,))),
            (a.priority, a.group, a.vcpus, a.memory_allotment_bytes,
             a.allowed_cpus))
        self.assertEqual(
            (Priority.FOREGROUND, web, 3.0, None, None),
            (found[web].priority, found[web].group, found[web].vcpus,
             found[web].memory_allotment_bytes, found[web].allowed_cpus))
        self.assertRaises(errors.Unsupported, driver.write, web,
                          Knob.CPU_CORES, 0.5)

    def test_counters_of_one_at_rest_are_zero(self) -> None:
        found = self.one(self.driver(pressure=True))
        self.assertEqual((0, 0, 0, 0, 0), (
            found.throttled_s, found.io_bytes, found.io_ops,
            found.psi_cpu_s, found.psi_io_s))
        self.assertIsNone(found.run_delay_s)
        assert found.cpu_s is not None and found.memory_bytes is not None
        self.assertLess(found.cpu_s, 0.01)
        self.assertLess(found.memory_bytes, MIB)

    def test_pressure_is_read(self) -> None:
        """Two share one CPU: at any time one of them waits."""
        for _ in range(2):
            self.tree.run('/batch/a', tree.spin_on(0))
        self.assertIsNone(self.one(
            self.driver(pressure=False)).psi_cpu_s)
        driver = self.driver(pressure=True)
        self.assertBetween(0.5, self.rate(driver, 'psi_cpu_s', 1.0), 1.1)
        # No swap, no limit: nothing waits for memory or for the disk.
        found = self.one(driver)
        self.assertEqual((0, 0), (found.psi_memory_s, found.psi_io_s))

    def test_a_file_that_goes_is_not_the_workload(self) -> None:
        driver = self.driver(pressure=True)
        before = self.one(driver)
        self.assertIsNotNone(before.psi_cpu_s)
        self.lease(driver, Knob.MEMORY_BYTES)
        driver.write(self.job, Knob.MEMORY_BYTES, 64 * MIB)
        self.tree.write('/batch/a', 'cgroup.pressure', '0')
        self.tree.write('/batch', 'cgroup.subtree_control', '-memory')
        for _ in range(2):
            after = self.one(driver)
            self.assertEqual((None, None), (after.psi_cpu_s,
                                            after.memory_bytes))
            self.assertIsNotNone(after.cpu_s)
            self.assertEqual(before.workload.created_s,
                             after.workload.created_s)
        exc = self.assertRaises(errors.Unsupported, driver.read, self.job,
                                Knob.MEMORY_BYTES)
        self.assertIn('echo +memory', str(exc))
        # The limit went with its controller.
        self.assertRaises(actions.Gone, restoration.restore,
                          self.leases.pop())
        self.tree.write('/batch', 'cgroup.subtree_control', '+memory')
        self.assertIsNone(driver.read(self.job, Knob.MEMORY_BYTES))
        self.assertEqual(64 * MIB, driver.write(
            self.job, Knob.MEMORY_BYTES, 64 * MIB))

    def test_one_that_is_made_anew(self) -> None:
        driver = self.driver()
        self.one(driver)
        state = self.lease(driver, Knob.CPU_CORES)
        driver.write(self.job, Knob.CPU_CORES, 0.5, state)
        self.tree.path('/batch/a').rmdir()
        self.assertRaises(errors.WorkloadGone, driver.read, self.job,
                          Knob.CPU_CORES)
        self.tree.make('/batch/a')
        self.assertRaises(errors.WorkloadGone, driver.write, self.job,
                          Knob.CPU_CORES, 0.2, state)
        self.assertRaises(actions.Gone, restoration.restore,
                          self.leases.pop())
        self.assertEqual('max 100000', self.tree.read('/batch/a', 'cpu.max'))
        driver.sample()     # sees that the one it knew is gone
        self.assertEqual(0, self.one(driver).throttled_s)

    def test_group_is_configured(self) -> None:
        self.tree.make('/batch/inner/x')
        self.tree.path('/batch/a').rmdir()
        inner = f'{self.parent}/inner'
        for groups, expected in (((), inner), ((self.parent,), self.parent)):
            driver = Cgroups([inner], background_groups=groups)
            self.addCleanup(driver.close)
            self.assertEqual(expected, self.one(
                driver, f'{inner}/x').workload.group)
