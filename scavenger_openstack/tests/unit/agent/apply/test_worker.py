# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
import functools
import threading
import time

import fixtures
import testtools

from scavenger_openstack.agent.apply import worker
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import calls
from scavenger_openstack.types import Knob

KEY = ('/a', Knob.MEMORY_BYTES)
OTHER = ('/b', Knob.MEMORY_BYTES)
LONG_S = 30.0


def job(keys: list[tuple[str, Knob]], do: Callable[[], object],
        queue: str = 'memory') -> worker.Job:
    return worker.Job(queue, keys, do)  # type: ignore[arg-type]


class WorkerTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())

    def test_done_in_time(self) -> None:
        found = worker.Worker(LONG_S)
        done: list[str] = []
        self.assertEqual([True], found.run([job(
            [KEY], lambda: done.append(threading.current_thread().name))]))
        self.assertEqual(['call memory'], done)
        self.assertEqual(set(), found.pending)

    def test_late(self) -> None:
        """The caller goes on; what it gave away is pending till then."""
        found = worker.Worker(0.01)
        kernel = threading.Event()
        self.addCleanup(kernel.set)

        def reclaim() -> None:
            kernel.wait(LONG_S)

        self.assertEqual([False], found.run([job([KEY], reclaim)]))
        self.assertIn('1 limit not in force', self.log.output)
        self.assertEqual({KEY}, found.pending)
        done = threading.Event()
        self.assertEqual([False], found.run([job([OTHER], done.set)]))
        self.assertEqual({KEY, OTHER}, found.pending)
        kernel.set()
        self.assertTrue(done.wait(LONG_S))
        ended = threading.Event()
        found.run([job([], ended.set)])
        self.assertTrue(ended.wait(LONG_S))
        self.assertEqual(set(), found.pending)

    def test_who_else_says_that_it_is_late(self) -> None:
        told: list[object] = []

        def late(one: base.TimedOut) -> bool:
            told.append((one.keys, one.done.is_set()))
            return one.keys == [KEY]

        found = worker.Worker(0.01, late)
        kernel = threading.Event()
        self.addCleanup(kernel.set)
        found.run([job([key], lambda: kernel.wait(LONG_S), key[0])
                   for key in (KEY, OTHER)])
        self.assertEqual([([KEY], False), ([OTHER], False)], told)
        self.assertIn('1 limit not in force', self.log.output)
        self.assertNotIn('/a', self.log.output)

    def test_outlives_a_failing_job(self) -> None:
        found = worker.Worker(LONG_S)
        self.assertEqual([True], found.run([job([KEY], self.fail)]))
        self.assertIn('unexpected failure', self.log.output)
        self.assertEqual(set(), found.pending)
        self.assertEqual([True], found.run([job([KEY], lambda: None)]))

    def test_lanes_do_not_wait_for_one_another(self) -> None:
        found = worker.Worker(0.5)
        hangs = threading.Event()
        self.addCleanup(hangs.set)
        self.assertEqual([False, True], found.run([
            job([KEY], lambda: hangs.wait(LONG_S), 'a'),
            job([OTHER], lambda: None, 'b')]))
        self.assertEqual({KEY}, found.pending)
        self.assertEqual([True], found.run([job([OTHER], lambda: None,
                                                'b')]))
        self.assertIn('not finished: a', self.log.output)
        ended = threading.Event()
        self.assertEqual([False], found.run([job([], ended.set, 'a')]))
        hangs.set()
        self.assertTrue(ended.wait(LONG_S))

    def test_those_without_a_slot_are_first_the_next_time(self) -> None:
        """So none waits for ever where calls take long."""
        executor = calls.Executor('call', LONG_S, 1, reserved=0)
        some = worker.Worker(0.05, lambda event: True, executor)
        names = [str(number) for number in range(4)]
        made: list[str] = []
        for _ in names:
            go_on = threading.Event()

            def work(name: str, go_on: threading.Event = go_on) -> None:
                made.append(name)
                go_on.wait(LONG_S)

            some.run([job([(name, Knob.CPU_CORES)],
                          functools.partial(work, name), name)
                      for name in names])
            go_on.set()
            end_s = time.monotonic() + LONG_S
            while executor.busy:
                self.assertLess(time.monotonic(), end_s)
                time.sleep(0.001)
        self.assertEqual(names, sorted(made))

    def test_few_at_once(self) -> None:
        found = worker.Worker(LONG_S)
        mutex, now, most = threading.Lock(), [0], [0]

        def work() -> None:
            with mutex:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.005)
            with mutex:
                now[0] -= 1

        many = range(5 * calls.MOST)
        self.assertEqual([True] * len(many), found.run([
            job([(str(n), Knob.CPU_CORES)], work, str(n)) for n in many]))
        self.assertEqual(calls.MOST - 1, most[0])

    def test_while_all_slots_hang_others_fail(self) -> None:
        """They are not pending: the next tick may try them again."""
        found = worker.Worker(0.2)
        hangs, began = threading.Event(), threading.Semaphore(0)
        self.addCleanup(hangs.set)

        def hang() -> None:
            began.release()
            hangs.wait(LONG_S)

        keys = [(str(n), Knob.CPU_CORES) for n in range(3 * calls.MOST)]
        reasons: list[str] = []
        found.run([worker.Job(key[0], [key], hang, reasons.append)
                   for key in keys])
        slots = calls.MOST - 1
        self.assertEqual({*keys[:slots]}, found.pending)
        self.assertEqual(len(keys) - slots, len(reasons))
        self.assertTrue(all('not called' in why for why in reasons), reasons)
        self.assertEqual([True], found.run([worker.Job(
            'b', [OTHER], self.fail, reasons.append)]))
        self.assertNotIn(OTHER, found.pending)
        # What the kernel does waits for no VM.
        done = threading.Event()
        self.assertEqual([True], found.run([job([OTHER], done.set)]))
        self.assertTrue(done.is_set())
        hangs.set()
        deadline_s = time.monotonic() + LONG_S
        while found.pending:
            self.assertLess(time.monotonic(), deadline_s)
            time.sleep(0.001)
        self.assertEqual([True], found.run([job([OTHER], done.clear, 'b')]))
        self.assertFalse(done.is_set())
        for _ in range(slots):      # and no other was ever begun
            self.assertTrue(began.acquire(blocking=False))
        self.assertFalse(began.acquire(blocking=False))
