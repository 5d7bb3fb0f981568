# SPDX-License-Identifier: Apache-2.0

"""What has no common cause is told as it is; hangs of real libvirtds are
in the functional tests."""

from __future__ import annotations

from collections.abc import Callable
import logging
import threading
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import handle
from scavenger_openstack.drivers.libvirt import health
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.types import Knob

KEY = (libvirtd.UUID, Knob.CPU_CORES)


class Error(libvirtd.libvirtError):

    def __init__(self, code: int = -1, domain: int = -1) -> None:
        super().__init__('odd')
        self._code, self._domain = code, domain

    def get_error_code(self) -> int:
        return self._code

    def get_error_domain(self) -> int:
        return self._domain


TIMEOUT_S = 0.25
"""A busy machine keeps a thread waiting for longer than a tenth of it."""


class Words(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            f'{health.__name__}.LOOK_S', 0.01))
        found = self.useFixture(libvirtd.Libvirtd())
        self.log = self.useFixture(fixtures.FakeLogger())
        self.machine, self.library = found.machine, found.library
        self.idle: set[str] = set()
        self.health = health.Health(
            client.Libvirt('qemu:///system'), TIMEOUT_S,
            self.idle.__contains__)
        self.addCleanup(self.health.close)
        self.unsaid: list[tuple[str, Knob]] = []

    def wait_for(self, done: Callable[[], object]) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while not done():
            self.assertTrue(time.monotonic() < end_s, self.log.output)
            time.sleep(0.001)

    def failed(self, key: tuple[str, Knob] = KEY) -> None:
        self.health.failed(key, 'something odd', lambda:
                            self.unsaid.append(key))

    def hang(self) -> threading.Event:
        """Each look at a QEMU does, until that is set."""
        go = threading.Event()
        self.addCleanup(go.set)

        def control() -> None:
            if not go.is_set():
                self.machine.before['control'] = control
            go.wait()

        self.machine.before['control'] = control
        return go

    def raises(self, call: str, **error: str) -> None:
        """Each such call does, with this code or domain of libvirt."""
        def fail() -> None:
            self.machine.before[call] = fail
            raise Error(**{kind: getattr(self.library, name)
                           for kind, name in error.items()})
        self.machine.before[call] = fail

    def no_connection(self, uri: str) -> Any:
        raise libvirtd.libvirtError('no connection')

    def test_one_that_is_gone_does_not_answer_again(self) -> None:
        go = self.hang()
        self.failed()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        time.sleep(0.1)     # many looks
        self.assertEqual(1, self.machine.calls['control'])
        self.raises('control', code='VIR_ERR_NO_DOMAIN')
        go.set()
        self.wait_for(lambda: not self.health.facts()['domains'])
        self.assertNotIn('again', self.log.output)
        self.assertNotIn('odd', self.log.output)
        self.assertEqual([KEY], self.unsaid)

    def test_our_own_limit_may_be_the_cause(self) -> None:
        go = self.hang()
        self.addCleanup(go.set)
        self.idle.add(KEY[0])
        self.failed()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        self.assertIn('our own limit cpu_idle may be the cause',
                      self.log.output)

    def test_nothing_answers_again_when_libvirt_goes(self) -> None:
        self.nothing_answers_again(self.failed)

    def test_nor_when_what_was_late_comes_back(self) -> None:
        done = threading.Event()
        self.nothing_answers_again(
            lambda: self.health.timed_out([KEY], done), done)

    def nothing_answers_again(self, begin: Callable[[], object],
                             *events: threading.Event) -> None:
        go = self.hang()
        begin()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        self.wait_for(lambda: self.machine.calls['control'] == 1)
        self.raises('control', domain='VIR_FROM_RPC')
        for event in (go, *events):
            event.set()
        self.wait_for(lambda: self.machine.calls['control'] > 5)
        self.assertNotIn('again', self.log.output)
        del self.machine.before['control']
        self.wait_for(lambda: 'its QEMU answers again' in self.log.output)
        self.assertEqual(2, len(self.log.output.splitlines()))

    def test_so_many_looks_hang(self) -> None:
        go = self.hang()
        keys = [(libvirtd.UUID[:-1] + str(number), Knob.CPU_CORES)
                for number in range(calls.MOST + 3)]
        for key in keys:
            self.failed(key)
        self.wait_for(lambda: len(self.health.facts()['domains'])
                      == calls.MOST)
        time.sleep(0.3)     # many looks
        self.assertEqual(calls.MOST,
                         self.machine.calls['control'])
        self.assertNotIn('odd', self.log.output)
        go.set()
        self.wait_for(lambda: not self.health.facts()['domains'])
        self.wait_for(lambda: self.log.output.count('odd') == 3)
        self.assertEqual(calls.MOST,
                         self.log.output.count('again'))

    def test_a_write_to_one_that_migrates_asks_for_no_connection(self
                                                                 ) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            f'{libvirtd.__name__}.Domain.jobStats', lambda _: {'type': 5}))
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        before = self.machine.calls['open']
        for _ in range(20):
            with testtools.ExpectedException(handle.Busy), \
                    self.health.domain(libvirtd.UUID):
                pass
            time.sleep(0.01)
        self.assertTrue(self.machine.calls['open'] - before <= 2,
                        self.machine.calls)     # for the writes and looks
        self.assertEqual(1, log.output.count('migrates'))

    def test_no_thread_can_be_started(self) -> None:
        """For a while; then it is found out that libvirt answers."""
        start, can = threading.Thread.start, threading.Event()

        def odd(thread: threading.Thread) -> None:
            if thread.name == 'libvirt-health-call' and not can.is_set():
                raise RuntimeError("can't start new thread")
            start(thread)

        opened = self.library.open
        self.library.open = self.no_connection  # type: ignore[method-assign]
        self.health.suspect()
        self.wait_for(lambda: self.health.down)
        self.useFixture(fixtures.MonkeyPatch('threading.Thread.start', odd))
        self.wait_for(lambda: "can't start" in self.log.output)
        self.library.open = opened      # type: ignore[method-assign]
        can.set()
        self.wait_for(lambda: not self.health.down)
        self.assertIn('libvirt answers again', self.log.output)

    def test_a_failure_of_another_kind(self) -> None:
        self.failed()
        self.wait_for(lambda: self.log.output)
        self.assertEqual('something odd\n', self.log.output)

    def test_failures_of_one_domain_have_one_line(self) -> None:
        other = (KEY[0], Knob.IO_OPS_PER_S)
        self.machine.before['control'] = lambda: self.failed(other)
        self.failed()
        self.wait_for(lambda: self.log.output)
        self.assertEqual('something odd; 1 more of its limits failed\n',
                         self.log.output)
        self.assertEqual([other], self.unsaid)

    def test_a_failure_while_libvirt_is_gone(self) -> None:
        self.health.lost('it is gone')
        self.failed()
        self.health.lost('still gone', 'another way')
        self.assertEqual('cannot be reached', self.health.facts()['state'])
        self.health.back('another way')
        self.health.back()
        self.assertEqual([KEY], self.unsaid)
        first, last = self.log.output.splitlines()
        self.assertIn('libvirt cannot be reached (it is gone)', first)
        self.assertIn('limits that were late: 1', last)
        self.assertEqual('answers', self.health.facts()['state'])

    def test_one_that_is_told_before_libvirt_is_known_to_be_gone(self
                                                                 ) -> None:
        self.machine.before['control'] = lambda: self.health.lost('gone')
        self.failed()
        self.wait_for(lambda: self.health.down)
        self.failed()
        self.health.back()
        self.assertNotIn('odd', self.log.output)

    def test_the_status_says_why(self) -> None:
        for why in ('connection refused', 'permission denied'):
            self.health.lost(why)
            facts = self.health.facts()
            self.assertEqual(('cannot be reached', why),
                             (facts['state'], facts['why']))
        self.assertNotIn('permission denied', self.log.output)
        self.health.back()
        self.assertEqual('', self.health.facts()['why'])

    def test_the_status_says_what_the_log_says(self) -> None:
        self.health.silent()
        self.assertIn('libvirt does not answer', self.log.output)
        facts = self.health.facts()
        self.assertEqual(('does not answer', 0), (facts['state'],
                                                  facts['since_s']))
        self.health.back()
        self.wait_for(lambda: not self.health.down)

    def test_libvirt_is_slow(self) -> None:
        done = threading.Event()
        self.health.timed_out([KEY], done)
        self.wait_for(lambda: self.log.output)
        self.assertEqual(('is slow', [f'{libvirtd.UUID} cpu_cores'], {}), (
            self.health.facts()['state'], self.health.facts()['waits'],
            self.health.facts()['domains']))
        done.set()
        self.wait_for(lambda: 'again' in self.log.output)
        first, last = self.log.output.splitlines()
        self.assertIn('libvirt is slow', first)
        self.assertIn('limits that were late: 1', last)

    def test_late_by_a_little(self) -> None:
        done = threading.Event()
        self.health.timed_out([KEY], done)
        done.set()
        self.wait_for(lambda: not self.health.facts()['waits'])
        self.assertEqual('', self.log.output)

    def test_one_that_is_late_with_each_answer(self) -> None:
        """That is told once, and again when it lasts or its QEMU is new."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))

        def lines() -> list[str]:
            return [line.split('its QEMU ')[1].split()[0]
                    for line in log.output.splitlines()]

        first = ['does', 'answers']
        for _ in range(3):
            self.health.domain_silent(libvirtd.UUID, 'disks')
            self.health.domain_heard(libvirtd.UUID, 'disks')
        self.assertEqual(first, lines())
        self.health.gone(libvirtd.UUID)
        self.health.domain_silent(libvirtd.UUID, 'disks')
        self.health.domain_heard(libvirtd.UUID, 'disks')
        self.assertEqual(2 * first, lines())
        self.health.domain_silent(libvirtd.UUID, 'disks')
        self.assertEqual(2 * first, lines())
        self.useFixture(fixtures.MonkeyPatch(
            f'{health.__name__}.QUIET_S', 0.1))
        self.wait_for(lambda: len(lines()) == 5)
        self.health.domain_heard(libvirtd.UUID, 'disks')
        self.assertEqual(3 * first, lines())
