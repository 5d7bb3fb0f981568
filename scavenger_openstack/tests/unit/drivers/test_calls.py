# SPDX-License-Identifier: Apache-2.0


"""Calls that hang keep nothing waiting but their own target."""

from __future__ import annotations

import threading
import time

import fixtures
import testtools

from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack import log_once

LONG_S = 20.0


class TestExecutor(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.calls = calls.Executor('call-{}', 0.01)
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.addCleanup(self.go.set)

    def hang(self, target: str) -> calls.Call:
        """One that has begun, and does not come back."""
        def do() -> None:
            self.begun.release()
            self.go.wait(LONG_S)

        call = self.calls.submit(target, do)
        self.assertTrue(self.begun.acquire(timeout=LONG_S))
        return call

    def test_what_comes_of_a_call(self) -> None:
        def fail() -> None:
            raise errors.DriverError('libvirt says no')

        def odd() -> None:
            raise KeyError('odd')

        found = [self.calls.submit(str(number), do) for number, do in
                 enumerate((lambda: 7, fail, odd))]
        for call in found:
            self.assertTrue(call.done.wait(LONG_S))
        self.assertEqual([7, None, None], [call.result for call in found])
        self.assertEqual([None, 'libvirt says no', None], [
            call.error and str(call.error) for call in found])
        self.assertIn('2: unexpected failure', self.log.output)
        self.assertEqual(frozenset(), self.calls.busy)

    def test_one_target_at_a_time_in_order(self) -> None:
        order: list[int] = []
        first = self.hang('a')
        later = [self.calls.submit('a', lambda number=number: (  # type: ignore[misc]
            order.append(number))) for number in range(3)]
        self.assertTrue(self.calls.submit('b', str).done.wait(LONG_S))
        self.assertEqual((frozenset('a'), []), (self.calls.busy, order))
        self.assertFalse(first.done.is_set())
        self.go.set()
        self.assertTrue(later[-1].done.wait(LONG_S))
        self.assertEqual([0, 1, 2], order)

    def test_one_that_is_given_up_does_not_count(self) -> None:
        self.calls = calls.Executor('call', LONG_S)
        hanging = [self.hang(str(number)) for number in range(calls.MOST)]
        other = self.calls.submit('other', str)
        self.assertFalse(other.done.wait(0.05))
        for call in hanging[:1] * 2:    # its turn is one turn
            self.calls.give_up(call)
        self.assertTrue(other.done.wait(LONG_S))
        start_s = time.monotonic()
        self.assertTrue(self.calls.submit('more', str).done.wait(LONG_S))
        self.assertLess(time.monotonic() - start_s, LONG_S / 2)

    def test_one_that_is_given_up_before_its_turn(self) -> None:
        """It gets none, however long it hangs then."""
        self.calls = calls.Executor('call', LONG_S)
        hanging = [self.hang(str(number)) for number in range(calls.MOST)]
        late = self.calls.submit('late', lambda: self.go.wait(LONG_S))
        self.calls.give_up(late)
        self.calls.give_up(hanging[0])
        start_s = time.monotonic()
        for number in range(2):
            self.assertTrue(self.calls.submit(
                f'more {number}', str).done.wait(LONG_S))
        self.assertLess(time.monotonic() - start_s, LONG_S / 2)

    def test_no_thread_can_be_started(self) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.calls.LOGGED', log_once.LogOnce()))
        with fixtures.MonkeyPatch('threading.Thread.start', refuse):
            for _ in range(5):
                call = self.calls.submit('a', self.fail)
                self.assertTrue(call.done.is_set())
                self.assertIsInstance(call.error, calls.NoThread)
        self.assertEqual(1, self.log.output.count('TasksMax'))
        self.assertEqual(frozenset(), self.calls.busy)
        self.assertTrue(self.calls.submit('a', str).done.wait(LONG_S))
