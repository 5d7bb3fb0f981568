# SPDX-License-Identifier: Apache-2.0


"""What can be said of libvirt without one."""

from __future__ import annotations

from collections.abc import Callable
import itertools
import subprocess
import sys
import time

import fixtures
import testtools

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import block_stats
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import health
from scavenger_openstack import errors
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.types import WorkloadSample

MISSING = """
import sys
sys.modules['libvirt'] = None
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack import errors
try:
    client.Libvirt('qemu:///system')
except errors.ConfigError as exc:
    print(exc)
"""


def blocks(ticks: int) -> tuple[block_stats.Statistics, health.Health,
                                calls.Executor]:
    connection = client.Libvirt('qemu:///system')
    executor = calls.Executor(patience_s=60.0)
    found = health.Health(connection, executor, 60.0, lambda uuid: False)
    return block_stats.Statistics(connection, found, executor, ticks=ticks,
                                  timeout_s=60.0), found, executor


class Uris(testtools.TestCase):

    def test_those_that_cannot_work(self) -> None:
        for uri in ('', 'qemu', 'xen:///system', 'qemu:///session',
                    'qemu+ext:///system?command=/bin/sh',
                    'qemu+ssh://host/system', 'test:///default',
                    'qemu:///system?socket=/x;y', 'qemu:///system\n'):
            exc = self.assertRaises(errors.ConfigError, client.Libvirt, uri)
            self.assertIn('qemu:///system', str(exc))

    def test_without_the_library(self) -> None:
        said = subprocess.run([sys.executable, '-c', MISSING], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(f'install libvirt-python for {sys.executable} (see '
                      'Installation)', said)


class Connections(testtools.TestCase):

    def test_one_that_broke_is_closed(self) -> None:
        """Also if libvirt cannot even say whether it did."""
        machine = self.useFixture(libvirtd.Libvirtd()).machine
        found = client.Libvirt('qemu:///system')
        before = machine.calls['open']

        def broke() -> None:
            raise libvirtd.libvirtError('no connection')

        for _ in range(2):
            with found.domain(libvirtd.UUID):
                pass
        self.assertEqual((1, 0), (machine.calls['open'] - before,
                                  machine.calls['close']))
        machine.before['isAlive'] = broke
        with found.domain(libvirtd.UUID):
            pass
        self.assertEqual((2, 1), (machine.calls['open'] - before,
                                  machine.calls['close']))
        found.close()
        self.assertEqual(2, machine.calls['close'])

    def refused(self, name: str) -> list[tuple[object, ...]]:
        """How a method of connections is called, which each time says that
        the connection broke."""
        calls: list[tuple[object, ...]] = []

        def refuse(connection: object, *arguments: object) -> None:
            calls.append(arguments)
            raise libvirtd.libvirtError('client socket is closed')

        self.useFixture(fixtures.MonkeyPatch(
            f'{libvirtd.__name__}.Connection.{name}', refuse))
        return calls

    def test_each_event_of_one_that_broke_is_ended(self) -> None:
        """Each that is not keeps the connection and a descriptor."""
        calls = self.refused('domainEventDeregisterAny')
        self.useFixture(libvirtd.Libvirtd()).driver.close()
        self.assertEqual(len(client.EVENTS), len(calls))

    def test_one_that_breaks_at_once(self) -> None:
        machine = self.useFixture(libvirtd.Libvirtd()).machine
        self.refused('registerCloseCallback')
        self.assertRaises(
            errors.DriverError, client.Libvirt('qemu:///system').watch,
            lambda *_: None, lambda *_: None, lambda *_: None)
        self.assertEqual(1, machine.calls['close'])


class Errors(testtools.TestCase):

    def test_what_is_not_valid_now(self) -> None:
        """For a domain that has ended libvirt has no code of its own, and
        words of the language that the host is set to."""
        found = self.useFixture(libvirtd.Libvirtd())
        machine, library = found.machine, found.library

        class Invalid(libvirtd.libvirtError):

            def get_error_code(error) -> int:
                return library.VIR_ERR_OPERATION_INVALID

        def fail() -> None:
            raise Invalid('Die Domain läuft nicht')

        client_ = client.Libvirt('qemu:///system')
        self.addCleanup(client_.close)
        for runs, kind in ((True, errors.Denied),
                           (False, errors.WorkloadGone)):
            machine.runs = runs
            machine.before['quota'] = fail
            with client_.domain(libvirtd.UUID) as handle:
                exc = self.assertRaises(kind, handle.set_quota, 1000, 100_000)
            self.assertIn('läuft nicht', str(exc))


class BlockStatistics(testtools.TestCase):

    def test_all_disks_together(self) -> None:
        self.assertIsNone(client.total({}))
        self.assertIsNone(client.total({'block.count': 1,
                                        'block.0.name': 'vda'}))
        self.assertEqual((3.5, 6, 3072), client.total({
            'block.count': 2, 'block.0.rd.reqs': 2, 'block.0.rd.bytes': 1024,
            'block.0.rd.times': 500_000_000, 'block.0.wr.reqs': 4,
            'block.0.wr.bytes': 2048, 'block.0.wr.times': 3_000_000_000,
            'block.1.name': 'hda'}))

    def test_the_first_answer_tells_nothing_yet(self) -> None:
        """How many operations there were since then is not known, not 0."""
        machine = self.useFixture(libvirtd.Libvirtd()).machine
        statistics, faults, executor = blocks(ticks=5)
        self.addCleanup(faults.close)
        self.addCleanup(statistics.close)
        told = []
        for tick in range(15):
            statistics.tick([libvirtd.UUID])
            if tick % 5 == 0:
                end_s = time.monotonic() + libvirtd.DEADLINE_S
                while executor.busy and time.monotonic() < end_s:
                    time.sleep(0.001)
                self.assertEqual(tick // 5 + 1, machine.calls['stats'])
            told.append(statistics.of(libvirtd.UUID))
        self.assertEqual([None] * 6, told[:6])
        self.assertEqual([1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600,
                          2800], [one[1] for one in told[6:] if one])
        # Each operation took the very same time in each tick of an answer.
        waits = [(two[0] - one[0]) / (two[1] - one[1])
                 for one, two in itertools.pairwise(told[6:])
                 if one and two]
        self.assertEqual([waits[0]] * 4 + [waits[4]] * 4, waits)
        self.assertAlmostEqual(3 * libvirtd.WAIT_S, waits[0], places=6)
        self.assertAlmostEqual(5 * libvirtd.WAIT_S, waits[4], places=6)

    def test_one_that_is_gone_is_not_missed(self) -> None:
        libvirtd_ = self.useFixture(libvirtd.Libvirtd())
        log = self.useFixture(fixtures.FakeLogger())
        statistics, faults, executor = blocks(ticks=1)
        self.addCleanup(faults.close)
        self.addCleanup(statistics.close)

        def ticks(*running: str) -> None:
            for _ in range(3):
                statistics.tick(running)
                end_s = time.monotonic() + libvirtd.DEADLINE_S
                while executor.busy and time.monotonic() < end_s:
                    time.sleep(0.001)

        ticks(libvirtd.UUID)
        libvirtd_.library.tells_disks = False
        ticks()
        self.assertEqual('', log.output)
        libvirtd_.library.tells_disks = True
        ticks(libvirtd.UUID)
        libvirtd_.library.tells_disks = False
        libvirtd_.machine.occupied = True
        ticks(libvirtd.UUID)
        self.wait_for_lines(log, 1)
        # Its next run hangs, too.
        faults.gone(libvirtd.UUID)
        statistics.forget(libvirtd.UUID)
        ticks(libvirtd.UUID)
        self.wait_for_lines(log, 2)

    def wait_for_lines(self, log: fixtures.FakeLogger, count: int) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while log.output.count('its disks have no numbers') < count:
            self.assertLess(time.monotonic(), end_s, log.output)
            time.sleep(0.001)
        self.assertEqual(count, log.output.count('no numbers'))

    def test_one_that_was_started_again(self) -> None:
        """What its last run did is no part of what this one does."""
        libvirtd_ = self.useFixture(libvirtd.Libvirtd())
        found: list[WorkloadSample] = []

        def until(done: Callable[[WorkloadSample], bool]) -> None:
            end_s = time.monotonic() + libvirtd.DEADLINE_S
            while not found or not done(found[-1]):
                self.assertTrue(time.monotonic() < end_s, found)
                found[:] = libvirtd_.driver.sample()
                time.sleep(0.01)

        until(lambda one: one.io_ops is not None)
        before = found[0].workload.created_s
        made = libvirtd_.machine.calls
        asked = made['stats']
        libvirtd_.machine.start()
        libvirtd_.happens('LIFECYCLE')
        until(lambda one: one.workload.created_s != before)
        # Unless it was told of so late that there were two answers since.
        if made['stats'] < asked + 2:
            self.assertIsNone(found[0].io_ops)
        until(lambda one: one.io_ops is not None)
