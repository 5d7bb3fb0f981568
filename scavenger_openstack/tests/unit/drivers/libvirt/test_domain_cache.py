# SPDX-License-Identifier: Apache-2.0


"""What one guest does is no matter of the others."""

from __future__ import annotations

import functools
import threading
import time

import fixtures
import testtools
from testtools import matchers

from scavenger_openstack.drivers.libvirt import domain_cache
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.types import Knob


class Events(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.libvirtd = self.useFixture(libvirtd.Libvirtd())
        self.machine = self.libvirtd.machine

    def cores(self) -> object:
        return self.libvirtd.driver.read(libvirtd.UUID, Knob.CPU_CORES)

    def wait_for(self, cores: float) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while self.cores() != cores:
            self.assertTrue(time.monotonic() < end_s, self.cores())
            time.sleep(0.001)

    def test_in_a_loop(self) -> None:
        """It is looked at once per second, and the last is not lost."""
        before, began_s = self.machine.calls['XMLDesc'], time.monotonic()
        for number in range(100):
            self.libvirtd.happens(('LIFECYCLE', 'REBOOT')[number % 2])
            time.sleep(0.005)
        self.machine.quota = 50_000
        self.libvirtd.happens('REBOOT')
        self.wait_for(0.5)
        took_s = time.monotonic() - began_s
        self.assertThat(
            self.machine.calls['XMLDesc'] - before,
            matchers.LessThan(took_s / domain_cache.LOOK_S + 2))

    def test_what_the_host_does_is_seen_at_once(self) -> None:
        """Also of a domain whose guest makes events in a loop."""
        self.useFixture(fixtures.MonkeyPatch(
            f'{domain_cache.__name__}.LOOK_S', 3600.0))
        for cores in (0.5, 0.6):
            self.libvirtd.happens('REBOOT')
            self.machine.quota = int(cores * 100_000)
            self.libvirtd.happens('TUNABLE')
            self.libvirtd.happens('REBOOT')
            self.wait_for(cores)

    def test_one_that_is_odd(self) -> None:
        odd = self.libvirtd.library.odd
        for cores in (0.5, 0.6):
            seen = odd.looks
            self.libvirtd.happens('REBOOT', odd)
            self.machine.quota = int(cores * 100_000)
            self.libvirtd.tell(until=functools.partial(
                lambda seen, cores: odd.looks > seen
                and self.cores() == cores, seen, cores))
        self.assertEqual(1, self.machine.calls['open'],
                         'the connection is sound')
        self.assertEqual(1, self.log.output.count(libvirtd.ODD_UUID),
                         self.log.output)
        self.assertIn('cannot be understood', self.log.output)

    def test_one_that_hangs(self) -> None:
        """The others are looked at, and it is, when it ends."""
        self.libvirtd.driver.executor.patience_s = 0.05
        ends, odd = threading.Event(), self.libvirtd.library.odd
        self.addCleanup(ends.set)
        odd.hangs = True
        self.useFixture(fixtures.MonkeyPatch(
            f'{libvirtd.__name__}.Odd.state', lambda _: (
                ends.wait(libvirtd.DEADLINE_S), [0, 0])[1]))
        self.libvirtd.happens('REBOOT', odd)
        for cores in (0.5, 0.6):
            self.machine.quota = int(cores * 100_000)
            self.libvirtd.happens('TUNABLE')
            self.libvirtd.happens('TUNABLE', odd)
            self.wait_for(cores)
        self.assertEqual(0, odd.looks)
        odd.hangs = False
        ends.set()
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while 'its QEMU answers again' not in self.log.output:
            self.assertTrue(time.monotonic() < end_s, self.log.output)
            time.sleep(0.001)
        self.assertEqual(1, self.log.output.count('its QEMU does not answer'))

    def test_the_instances(self) -> None:
        """They are made again when something changed, and only then."""
        driver = self.libvirtd.driver
        before = driver.instances()
        self.assertEqual([libvirtd.UUID], [one.uuid for one in before])
        self.assertIs(before, driver.instances())
        self.machine.quota = 50_000
        self.libvirtd.happens('TUNABLE')
        self.wait_for(0.5)
        self.assertIsNot(before, driver.instances())
