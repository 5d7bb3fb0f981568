# SPDX-License-Identifier: Apache-2.0

"""Limits of a real disk on cgroup v2, with direct I/O."""

from __future__ import annotations

from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.types import Knob


class Disk(tree.GuestTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.device = tree.disk_number()

    def limits(self) -> str:
        return self.tree.read('/batch/a', 'io.max')

    def test_io_bytes_per_s_hold_and_come_back(self) -> None:
        self.tree.write('/batch/a', 'io.max',
                        f'{self.device} wbps=7000000 riops=90000')
        self.tree.run('/batch/a', tree.read_disk(16384))
        driver = self.driver()
        self.assertIsNone(driver.read(self.job, Knob.IO_BYTES_PER_S))
        self.wait_for('it reads faster', lambda: self.rate(
            driver, 'io_bytes', 0.3) > 2e6)
        self.lease(driver, Knob.IO_BYTES_PER_S)
        self.assertEqual(1_000_000, driver.write(
            self.job, Knob.IO_BYTES_PER_S, 1_000_000))
        self.assertEqual(f'{self.device} rbps=1000000 wbps=1000000 '
                         'riops=90000 wiops=max', self.limits())
        self.rate(driver, 'io_bytes', 0.3)      # what was on its way
        self.assertHolds(0.9e6, lambda: self.rate(driver, 'io_bytes', 1.5),
                         1.1e6)
        self.restore()
        self.wait_for('it reads faster', lambda: self.rate(
            driver, 'io_bytes', 0.3) > 2e6)

    def test_io_ops_per_s_hold_and_come_back(self) -> None:
        self.tree.run('/batch/a', tree.read_disk(4096))
        driver = self.driver()
        self.wait_for('it reads faster', lambda: self.rate(
            driver, 'io_ops', 0.3) > 120)
        self.lease(driver, Knob.IO_OPS_PER_S)
        self.assertEqual(50, driver.write(
            self.job, Knob.IO_OPS_PER_S, 50))
        self.rate(driver, 'io_ops', 0.3)
        self.assertHolds(45, lambda: self.rate(driver, 'io_ops', 1.0), 55)
        self.restore()
        self.assertEqual('', self.limits())
        self.wait_for('it reads faster', lambda: self.rate(
            driver, 'io_ops', 0.3) > 120)

    def test_io_knobs_of_one_line_are_restored_one_by_one(self) -> None:
        driver = self.driver()
        for knob, value in ((Knob.IO_BYTES_PER_S, 3_000_000),
                            (Knob.IO_OPS_PER_S, 300)):
            self.lease(driver, knob)
            driver.write(self.job, knob, value)
        first = self.leases.pop(0)
        restoration.restore(first)
        self.assertEqual(f'{self.device} rbps=max wbps=max riops=300 '
                         'wiops=300', self.limits())
        self.restore()

    def test_io_is_counted(self) -> None:
        driver = self.driver()
        self.one(driver)
        self.tree.run('/batch/a', tree.read_disk(65536, count=40))
        found = self.one(driver)
        self.assertEqual((40 * 65536, 40), (found.io_bytes, found.io_ops))

    def test_io_device_that_is_not_there(self) -> None:
        exc = self.assertRaises(errors.ConfigError, self.driver,
                                io_devices=['vdx'])
        self.assertIn('name whole disks', str(exc))
        driver = self.driver(io_devices=['240:7'])
        said = str(self.assertRaises(errors.DriverError, driver.write,
                                     self.job, Knob.IO_OPS_PER_S, 100))
        self.assertIn('io.max', said)
        self.assertNotIn('\n', said)
        both = self.driver(io_devices=['240:7', self.device])
        self.lease(both, Knob.IO_OPS_PER_S)
        for value in 100, 50:
            self.assertEqual(value, both.write(
                self.job, Knob.IO_OPS_PER_S, value))
        self.assertEqual(f'{self.device} rbps=max wbps=max riops=50 wiops=50',
                         self.limits())
        self.restore()
        self.leases.append(records.Lease(
            self.job, 'io_ops_per_s', records.boot_id(), [{
                **both.restore_actions(self.job, Knob.IO_OPS_PER_S)[0],
                'device': '240:7', 'text': 'riops=9'}]))
        self.assertRaises(actions.Gone, self.restore)
