# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pathlib
import sys

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.kernel import token_bucket
from scavenger_openstack.drivers.network import limits
from scavenger_openstack import errors
from scavenger_openstack.tests import memories
from scavenger_openstack.types import Knob

RATE = Knob.EGRESS_BYTES_PER_S


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, sys.byteorder)


class MessageTestCase(testtools.TestCase):

    def test_attribute_is_padded_but_its_length_is_not(self):
        self.assertEqual(number(8, 2) + number(1, 2) + b'tbf\0',
                         rtnetlink.attribute(1, b'tbf\0'))
        self.assertEqual(number(9, 2) + number(3, 2) + b'eth0\0\0\0\0',
                         rtnetlink.attribute(3, b'eth0\0'))

    def test_attributes_reads_them_back(self):
        data = rtnetlink.attribute(3, b'abcde') + rtnetlink.attribute(4, b'')
        self.assertEqual([(3, b'abcde'), (4, b'')],
                         list(rtnetlink.attributes(data)))

    def test_attributes_of_garbage_end(self):
        for garbage in (b'', b'\1', bytes(8), b'\3\0\1\0',
                        b'\xff\xff\1\0ab'):
            list(rtnetlink.attributes(garbage))

    def test_token_bucket(self):
        # 6250 bytes at 125000 B/s take 50 ms = 781250 ticks of 64 ns; 6000
        # at a thousand times that take 48 us = 750 ticks.
        parms = (b'\0\1' + bytes(6) + number(125000, 4)
                 + b'\0\1' + bytes(6) + number(125000000, 4)
                 + number(70000, 4) + number(781250, 4) + number(750, 4))
        self.assertEqual(36, len(parms))
        self.assertEqual(
            number(40, 2) + number(1, 2) + parms
            + number(8, 2) + number(6, 2) + number(6250, 4)
            + number(8, 2) + number(7, 2) + number(6000, 4),
            rtnetlink.tbf_options(
                token_bucket.TokenBucket(125000, 6250, 70000, 6000)))

    def test_token_bucket_beyond_32_bits(self):
        options = dict(rtnetlink.attributes(rtnetlink.tbf_options(
            token_bucket.TokenBucket(5 * 10**9, 25 * 10**6, 5 * 10**9,
                                     70000))))
        self.assertEqual(b'\xff' * 4, options[1][8:12])
        self.assertEqual(number(2**32 - 1, 4), options[1][24:28])
        self.assertEqual(number(5 * 10**9, 8), options[4])
        self.assertEqual(number(5 * 10**12, 8), options[5])


class NetworkTestCase(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level='WARNING'))
        self.root = self.useFixture(fixtures.TempDir()).path

    def network(self, links=None, interfaces=None):
        driver = limits.Network(links or {}, interfaces or {}, self.root)
        self.addCleanup(driver.close)
        return driver

    def test_a_device_that_was_replaced_is_forgotten(self):
        """As of a VM that is started again, with a new tap each time."""
        driver = self.network(interfaces={'vm': 'lo'})
        driver.read('vm', RATE)
        self.assertNotEqual(set(), memories.places(driver, 'lo'))
        driver.attach('vm', 'another')
        self.assertEqual(set(), memories.places(driver, 'lo'))

    def speed(self, device, text):
        path = pathlib.Path(self.root, 'sys/class/net', device)
        path.mkdir(parents=True)
        (path / 'speed').write_text(text)

    def test_capacity_as_given_or_as_reported(self):
        self.speed('eth1', '1000\n')
        driver = self.network({'eth0': 5e6, 'eth1': None})
        self.assertEqual({'eth0': 5e6, 'eth1': 125e6}, driver.capacities())

    def test_a_speed_that_changes(self):
        """A bond loses a device, is down for a while, and is whole again."""
        self.speed('bond0', '2000\n')
        driver = self.network({'bond0': None})
        for text, expected in (('2000', 250e6), ('1000', 125e6),
                               ('-1', 125e6), ('2000', 250e6)):
            pathlib.Path(self.root, 'sys/class/net/bond0/speed').write_text(
                text)
            for _ in range(base.RESCAN_TICKS):
                found = driver.capacities()
            self.assertEqual({'bond0': expected}, found)
        self.assertEqual('', self.log.output)

    def test_other_links_from_now_on(self):
        self.speed('eth1', '1000\n')
        driver = self.network({}, {'/a': 'lo'})
        self.assertEqual({}, driver.capacities())
        self.assertEqual(({}, {}), driver.link_totals())
        driver.follow_links({'eth1': None, 'lo': 5e6})
        self.assertEqual({'eth1': 125e6, 'lo': 5e6}, driver.capacities())
        for totals in driver.link_totals():
            self.assertEqual({'lo'}, totals.keys())

    def test_capacity_unknown_is_left_out_and_said_once(self):
        self.speed('eth1', '-1\n')
        self.speed('eth2', 'garbage\n')
        driver = self.network({'eth1': None, 'eth2': None, 'eth3': None,
                               'far:eth0': None})
        for _ in range(3):
            self.assertEqual({}, driver.capacities())
        lines = self.log.output.splitlines()
        self.assertEqual(4, len(lines))
        self.assertIn('far:eth0=BYTES_PER_S', lines[3])

    def test_sent_bytes_of_our_own_namespace(self):
        self.assertGreaterEqual(self.network().received_sent('lo')[1], 0)

    def test_no_such_device_is_none_and_said_once(self):
        driver = self.network({'scv-none': 1e6})
        for _ in range(3):
            self.assertIsNone(driver.received_sent('scv-none'))
            self.assertEqual(({}, {}), driver.link_totals())
        self.assertEqual(1, self.log.output.count('scv-none: there is no'))

    def test_no_such_namespace(self):
        driver = self.network({}, {'/a': 'scv-none:eth0'})
        self.assertIsNone(driver.received_sent('scv-none:eth0'))
        self.assertIn('no namespace scv-none', self.log.output)
        self.assertRaises(errors.WorkloadGone, driver.read, '/a', RATE)
        self.assertRaises(errors.WorkloadGone, driver.write, '/a', RATE, 1e6)

    def test_another_knob(self):
        driver = self.network({}, {'/a': 'lo'})
        self.assertRaises(errors.Unsupported, driver.read, '/a',
                          Knob.CPU_CORES)

    def test_a_workload_without_device(self):
        driver = self.network({}, {'/a': 'lo'})
        exc = self.assertRaises(errors.Unsupported, driver.read, '/b', RATE)
        self.assertIn('/b=DEVICE', str(exc))

    def test_not_a_rate(self):
        driver = self.network({}, {'/a': 'lo'})
        for value in ('fast', float('nan'), float('inf'), 0, -5.0, 1e30):
            exc = self.assertRaises(errors.DriverError, driver.write, '/a',
                                    RATE, value)
            self.assertIn('is not a rate', str(exc))
