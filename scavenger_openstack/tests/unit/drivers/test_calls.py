# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
import functools
import os
import signal
import subprocess
import threading
import time

import fixtures
import testtools

from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack import log_once

LONG_S = 20.0
PATIENCE_S = 0.05


class CallsCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.executor = calls.Executor('call', PATIENCE_S, own=('kernel',))
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.addCleanup(self.go.set)

    def hang(self, target: str, *, brief: bool = False) -> calls.Call:
        """Begin a call that does not come back."""
        def do() -> None:
            self.begun.release()
            self.go.wait(LONG_S)

        call = self.executor.submit(target, do, brief=brief)
        self.assertTrue(self.begun.acquire(timeout=LONG_S))
        return call

    def wait_for(self, done: Callable[[], object]) -> None:
        end_s = time.monotonic() + LONG_S
        while not done():
            self.assertLess(time.monotonic(), end_s)
            time.sleep(0.001)

    def done(self, target: str, *, brief: bool = False) -> calls.Call:
        """Make a call that comes back at once, if it has a slot in time."""
        call = self.executor.submit(target, lambda: 7, brief=brief)
        self.assertTrue(self.executor.wait(call, LONG_S))
        return call


class TestExecutor(CallsCase):

    def test_what_comes_of_a_call(self) -> None:
        def fail() -> None:
            raise errors.DriverError('libvirt says no')

        def odd() -> None:
            raise KeyError('odd')

        made = [self.executor.submit(str(number), do) for number, do in
                enumerate((lambda: 7, fail, odd))]
        for call in made:
            self.assertTrue(self.executor.wait(call, LONG_S))
        self.assertEqual([7, None, None], [call.result for call in made])
        self.assertEqual([None, 'libvirt says no', None], [
            call.error and str(call.error) for call in made])
        self.assertIn('2: unexpected failure', self.log.output)
        self.assertEqual(frozenset(), self.executor.busy)

    def test_one_target_at_a_time_in_order(self) -> None:
        order: list[int] = []
        first = self.hang('a')
        later = [self.executor.submit('a', lambda number=number: (  # type: ignore[misc]
            order.append(number))) for number in range(3)]
        self.assertEqual(7, self.done('b').result)
        self.assertEqual((frozenset('a'), []), (self.executor.busy, order))
        self.assertFalse(first.done.is_set())
        # It waits for its own target: it is not given up.
        self.assertFalse(self.executor.wait(later[-1], 0.0))
        self.go.set()
        self.assertTrue(later[-1].done.wait(LONG_S))
        self.assertEqual([0, 1, 2], order)

    def test_a_target_that_hangs_is_not_called(self) -> None:
        """Until its call comes back; all others are."""
        self.hang('a')
        self.wait_for(lambda: self.executor.hanging)
        self.assertEqual(['a'], list(self.executor.hanging))
        call = self.executor.submit('a', self.fail)
        self.assertTrue(call.done.is_set())
        self.assertIsInstance(call.error, calls.NotCalled)
        self.assertEqual(7, self.done('b').result)
        self.go.set()
        self.wait_for(lambda: not self.executor.busy)
        self.assertEqual(7, self.done('a').result)

    def test_one_slot_is_for_brief_calls(self) -> None:
        for number in range(calls.MOST - 1):
            self.hang(str(number))
        self.wait_for(lambda: self.executor.is_full)
        refused = self.executor.submit('more', self.fail)
        self.assertTrue(self.executor.wait(refused, 0.0))
        self.assertIsInstance(refused.error, calls.NotCalled)
        self.assertIn('not come back (0, 1, 2)', str(refused.error))
        for _ in range(3):
            self.assertEqual(7, self.done('libvirt', brief=True).result)
        self.hang('look', brief=True)
        refused = self.executor.submit('libvirt', self.fail, brief=True)
        self.assertTrue(self.executor.wait(refused, 0.0))
        self.assertIsInstance(refused.error, calls.NotCalled)

    def test_some_targets_have_slots_of_their_own(self) -> None:
        for number in range(calls.MOST - 1):
            self.hang(str(number))
        self.assertEqual(7, self.done('kernel').result)
        self.hang('kernel')
        self.wait_for(lambda: len(self.executor.hanging) == calls.MOST - 1)
        self.assertNotIn('kernel', self.executor.hanging)
        self.go.set()
        self.assertEqual(7, self.done('more').result)

    def test_those_that_wait_are_served_in_turn(self) -> None:
        """A target with many calls does not keep others from theirs."""
        self.executor = calls.Executor('call', LONG_S, 1, reserved=0)
        order: list[str] = []
        self.hang('a')
        made = [self.executor.submit(target, lambda target=target: (  # type: ignore[misc]
            order.append(target))) for target in 'aabc']
        self.go.set()
        for call in made:
            self.assertTrue(call.done.wait(LONG_S))
        self.assertEqual(['b', 'c', 'a', 'a'], order)

    def test_no_thread_can_be_started(self) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.calls.LOGGED', log_once.LogOnce()))
        with fixtures.MonkeyPatch('threading.Thread.start', refuse):
            for _ in range(5):
                call = self.executor.submit('a', self.fail)
                self.assertTrue(call.done.is_set())
                self.assertIsInstance(call.error, calls.NoThread)
        self.assertEqual(1, self.log.output.count('TasksMax'))
        self.assertEqual(frozenset(), self.executor.busy)
        self.assertEqual(7, self.done('a').result)


class TestStoppedProcesses(CallsCase):
    """Each stands for a QEMU: it answers each line, unless it is stopped."""

    def setUp(self) -> None:
        super().setUp()
        self.mutex = threading.Lock()
        self.now = self.most = 0

    def qemu(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(['cat'], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(os.kill, process.pid, signal.SIGCONT)
        return process

    def ask(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdin and process.stdout
        with self.mutex:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            process.stdin.write(b'?\n')
            process.stdin.flush()
            return process.stdout.readline()
        finally:
            with self.mutex:
                self.now -= 1

    def round(self, processes: list[subprocess.Popen[bytes]]
              ) -> list[object]:
        """Ask each, as ticks do; return the answers, or why there is none."""
        made = [self.executor.submit(str(process.pid), functools.partial(
            self.ask, process)) for process in processes]
        end_s = time.monotonic() + 4 * PATIENCE_S
        return [(call.error or call.result) if self.executor.wait(
            call, max(0.0, end_s - time.monotonic())) else None
            for call in made]

    def test_twenty_that_hang(self) -> None:
        threads = threading.active_count()
        self.executor = calls.Executor('call', 1.0)
        processes = [self.qemu() for _ in range(25)]
        self.wait_for(lambda: self.round(processes) == [b'?\n'] * 25)
        self.executor.patience_s = PATIENCE_S
        hung, healthy = processes[:20], processes[20:]
        for process in hung[:2]:
            os.kill(process.pid, signal.SIGSTOP)
        # While fewer hang than there are slots, the others are served.
        self.round(hung[:2])
        for _ in range(3):
            self.wait_for(lambda: self.round(healthy) == [b'?\n'] * 5)
        for process in hung:
            os.kill(process.pid, signal.SIGSTOP)
        for _ in range(3):
            self.round(processes)
        self.assertLessEqual(self.most, calls.MOST)
        self.assertEqual(calls.MOST - 1, len(self.executor.hanging))
        self.assertLessEqual(threading.active_count() - threads, calls.MOST)
        for answer in self.round(healthy):
            self.assertIsInstance(answer, calls.NotCalled)
        self.assertEqual(b'here', self.executor_answers())
        # When one comes back, the others are served again.
        for process in hung:
            os.kill(process.pid, signal.SIGCONT)
        self.wait_for(lambda: not self.executor.busy)
        self.wait_for(lambda: self.round(processes) == [b'?\n'] * 25)
        self.assertLessEqual(self.most, calls.MOST)

    def executor_answers(self) -> object:
        call = self.executor.submit('libvirt', lambda: b'here', brief=True)
        self.assertTrue(self.executor.wait(call, LONG_S))
        return call.result
