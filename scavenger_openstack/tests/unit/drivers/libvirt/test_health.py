# SPDX-License-Identifier: Apache-2.0

"""What has no common cause is logged as it is; hangs of real libvirtds are
in the functional tests."""

from __future__ import annotations

from collections.abc import Callable
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
            f'{health.__name__}.PROBE_S', 0.01))
        host = self.useFixture(libvirtd.Libvirtd())
        self.log = self.useFixture(fixtures.FakeLogger())
        self.machine, self.library = host.machine, host.library
        self.idle: set[str] = set()
        self.executor = calls.Executor('call', TIMEOUT_S)
        self.health = health.Health(
            client.Libvirt('qemu:///system'), self.executor, TIMEOUT_S,
            self.idle.__contains__)
        self.addCleanup(self.health.close)
        self.reset: list[tuple[str, Knob]] = []

    def wait_for(self, done: Callable[[], object]) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while not done():
            self.assertTrue(time.monotonic() < end_s, self.log.output)
            time.sleep(0.001)

    def failed(self, key: tuple[str, Knob] = KEY) -> None:
        self.health.failed(key, 'something odd', lambda:
                            self.reset.append(key))

    def hang(self, *uuids: str, qemu: bool = True) -> Callable[[], None]:
        """Let a write to each hang; returns what ends that.

        :param qemu: libvirt says that it waits for a QEMU
        """
        go = threading.Event()
        self.addCleanup(go.set)
        self.machine.occupied = qemu
        for uuid in uuids or (libvirtd.UUID,):
            call = self.executor.submit(uuid, lambda: go.wait(
                libvirtd.DEADLINE_S))
            self.wait_for(lambda call=call: call.began_s)  # type: ignore[misc]
            self.health.timed_out([(uuid, Knob.CPU_CORES)], call.done)

        def end() -> None:
            self.machine.occupied = False
            go.set()

        return end

    def asked(self) -> int:
        return self.machine.calls['control']

    def no_answer(self) -> None:
        """Let each question about a domain break its connection."""
        def fail() -> None:
            self.machine.before['control'] = fail
            raise Error(domain=self.library.VIR_FROM_RPC)
        self.machine.before['control'] = fail

    def no_connection(self, uri: str) -> Any:
        raise libvirtd.libvirtError('no connection')

    def test_a_qemu_that_hangs(self) -> None:
        end = self.hang()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        self.failed()       # of the same cause: it has no line
        facts = self.health.facts()
        self.assertEqual(
            ('answers', {libvirtd.UUID: 0}, [' '.join(KEY)]),
            (facts['state'], facts['domains'], facts['waits']))
        self.assertRaises(handle.Busy, self.written)
        end()
        self.wait_for(lambda: 'its QEMU answers again' in self.log.output)
        self.assertEqual([KEY], self.reset)
        self.assertIn('limits that were late: 1', self.log.output)
        self.assertEqual(2, len(self.log.output.splitlines()))
        self.written()

    def written(self) -> None:
        with self.health.domain(libvirtd.UUID):
            pass

    def test_one_that_is_gone_does_not_answer_again(self) -> None:
        self.machine.occupied = True
        self.failed()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        self.useFixture(fixtures.MonkeyPatch(
            f'{libvirtd.__name__}.Connection.lookupByUUIDString', self.gone))
        self.wait_for(lambda: not self.health.facts()['domains'])
        self.failed()
        self.wait_for(lambda: len(self.reset) == 2)
        self.assertNotIn('again', self.log.output)
        self.assertNotIn('odd', self.log.output)
        self.assertEqual([KEY, KEY], self.reset)

    def gone(self, connection: Any, uuid: str) -> None:
        raise Error(code=self.library.VIR_ERR_NO_DOMAIN)

    def test_our_own_limit_may_be_the_cause(self) -> None:
        self.idle.add(KEY[0])
        self.machine.occupied = True
        self.failed()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        self.assertIn('our own limit cpu_idle may be the cause',
                      self.log.output)

    def test_nothing_answers_again_when_a_connection_breaks(self) -> None:
        end = self.hang()
        self.wait_for(lambda: 'does not answer' in self.log.output)
        self.no_answer()
        end()
        before = self.asked()
        self.wait_for(lambda: self.asked() > before + 5)
        self.assertNotIn('again', self.log.output)
        del self.machine.before['control']
        self.wait_for(lambda: 'its QEMU answers again' in self.log.output)
        self.assertEqual(2, len(self.log.output.splitlines()))

    def test_twenty_that_hang(self) -> None:
        """What is not called for that has one line of its own."""
        uuids = [f'{libvirtd.UUID[:-2]}{number}' for number in range(10, 30)]
        end = self.hang(*uuids[:calls.MOST - 1])
        for uuid in uuids[calls.MOST - 1:]:
            call = self.executor.submit(uuid, self.fail)
            self.assertTrue(self.executor.wait(call, 0.0))
            self.assertIsInstance(call.error, calls.NotCalled)
        self.wait_for(lambda: 'no more are made' in self.log.output)
        facts = self.health.facts()
        self.assertEqual(('is slow', calls.MOST - 1),
                         (facts['state'], len(facts['domains'])))
        before = self.asked()
        self.wait_for(lambda: self.asked() > before + 5)
        self.assertEqual(calls.MOST, len(self.log.output.splitlines()))
        end()
        self.wait_for(lambda: self.health.facts()['state'] == 'answers')
        self.wait_for(lambda: self.log.output.count(
            'its QEMU answers again') == calls.MOST - 1)
        self.assertEqual(1, self.log.output.count(
            'libvirt answers in time again'))

    def test_libvirt_hangs(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        self.machine.before['control'] = go.wait
        self.failed()
        self.wait_for(lambda: 'libvirt does not answer' in self.log.output)
        self.assertEqual('does not answer', self.health.facts()['state'])
        self.assertRaises(client.Unreachable, self.written)
        go.set()
        self.wait_for(lambda: not self.health.down)
        self.written()
        self.assertEqual([KEY], self.reset)
        self.assertIn('limits that were late: 1', self.log.output)
        self.assertEqual(2, len(self.log.output.splitlines()))

    def test_a_call_hangs_that_waits_for_no_qemu(self) -> None:
        """With all others hanging, too, no question is left to ask."""
        end = self.hang(*map(str, range(calls.MOST - 1)))
        go = threading.Event()
        self.addCleanup(go.set)
        self.machine.before['control'] = go.wait
        look = self.executor.submit('look', lambda: go.wait(
            libvirtd.DEADLINE_S), brief=True)
        self.health.suspect()
        self.wait_for(lambda: 'libvirt does not answer' in self.log.output)
        go.set()
        end()
        self.wait_for(look.done.is_set)
        self.wait_for(lambda: not self.health.down)

    def test_a_write_to_one_that_migrates(self) -> None:
        """That is no warning, and asks for no connection."""
        self.useFixture(fixtures.MonkeyPatch(
            f'{libvirtd.__name__}.Domain.jobStats', lambda _: {'type': 5}))
        before = self.machine.calls['open']
        for _ in range(20):
            self.assertRaises(handle.Busy, self.written)
            self.failed()
            time.sleep(0.01)
        self.assertTrue(self.machine.calls['open'] - before <= 2,
                        self.machine.calls)     # for the writes and questions
        self.assertEqual([libvirtd.UUID], list(self.health.facts()['domains']))
        self.assertEqual(('', [KEY] * 20), (self.log.output, self.reset))

    def test_no_thread_can_be_started(self) -> None:
        """For a while; then it is found out that libvirt answers."""
        start, can = threading.Thread.start, threading.Event()

        def odd(thread: threading.Thread) -> None:
            if thread.name.startswith('Thread-') and not can.is_set():
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
        waits = threading.Event()
        self.addCleanup(waits.set)
        self.machine.before['control'] = waits.wait
        self.health.check([KEY[0]])
        self.wait_for(lambda: 'control' not in self.machine.before)
        self.failed()
        self.failed(other)
        before = self.log.output
        waits.set()
        self.wait_for(lambda: 'odd' in self.log.output)
        self.assertEqual('something odd; 1 more of its limits failed\n',
                         self.log.output[len(before):])
        self.assertEqual([other], self.reset)

    def test_a_failure_while_libvirt_is_gone(self) -> None:
        self.health.lost('it is gone')
        self.failed()
        self.health.lost('still gone')
        self.assertEqual('cannot be reached', self.health.facts()['state'])
        self.health.back()
        self.assertEqual([KEY], self.reset)
        first, last = self.log.output.splitlines()
        self.assertIn('libvirt cannot be reached (it is gone)', first)
        self.assertIn('limits that were late: 1', last)
        self.assertEqual('answers', self.health.facts()['state'])

    def test_one_that_fails_before_libvirt_is_known_to_be_gone(self
                                                               ) -> None:
        self.machine.before['control'] = lambda: self.health.lost('gone')
        self.failed()
        self.wait_for(lambda: self.health.down)
        self.failed()
        self.health.back()
        self.assertNotIn('odd', self.log.output)
        self.assertEqual([KEY, KEY], self.reset)

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
        end = self.hang(qemu=False)
        self.wait_for(lambda: self.log.output)
        self.assertEqual(('is slow', [f'{libvirtd.UUID} cpu_cores'], {}), (
            self.health.facts()['state'], self.health.facts()['waits'],
            self.health.facts()['domains']))
        end()
        self.wait_for(lambda: 'again' in self.log.output)
        first, last = self.log.output.splitlines()
        self.assertIn('libvirt is slow', first)
        self.assertIn('limits that were late: 1', last)

    def test_late_by_a_little(self) -> None:
        self.executor.patience_s = libvirtd.DEADLINE_S
        end = self.hang(qemu=False)
        end()
        self.wait_for(lambda: not self.health.facts()['waits'])
        before = self.asked()
        self.health.suspect()
        time.sleep(0.05)
        self.assertEqual((before, ''), (self.asked(), self.log.output))

    def test_one_that_is_late_with_each_answer(self) -> None:
        """That is logged once, and again when it lasts or its QEMU is new."""
        def lines() -> list[str]:
            return [line.split('its QEMU ')[1].split()[0]
                    for line in self.log.output.splitlines()]

        def fault(*, logged: bool = True) -> None:
            before = len(lines())
            self.machine.occupied = True
            self.health.check([libvirtd.UUID])
            self.wait_for(lambda: self.health.facts()['domains'])
            self.wait_for(lambda: not logged or len(lines()) > before)

        def over() -> None:
            self.machine.occupied = False
            self.wait_for(lambda: not self.health.facts()['domains'])

        first = ['does', 'answers']
        fault()
        over()
        for _ in range(2):
            fault(logged=False)
            over()
        self.assertEqual(first, lines())
        self.health.gone(libvirtd.UUID)
        fault()
        over()
        self.assertEqual(2 * first, lines())
        fault(logged=False)
        self.assertEqual(2 * first, lines())
        self.useFixture(fixtures.MonkeyPatch(
            f'{health.__name__}.QUIET_S', 0.1))
        self.wait_for(lambda: len(lines()) == 5)
        over()
        self.assertEqual(3 * first, lines())
