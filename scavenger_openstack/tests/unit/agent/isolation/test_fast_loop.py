# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
import threading
import time

import fixtures
import testtools

from scavenger_openstack.agent.isolation import fast_loop
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import errors
from scavenger_openstack.types import Cpu

FOUR = frozenset(range(4))
TOPOLOGY = {cpu: Cpu(cpu, 0, 0) for cpu in FOUR}


class Cpus:
    """A host whose number of idle CPUs the test sets."""

    def __init__(self, idle: int) -> None:
        self.number = idle
        self.watched: frozenset[int] = frozenset()
        self.closed = 0
        self.looks = 0

    def idle_count(self, cpus: frozenset[int]) -> int:
        self.watched = cpus
        return self.number

    def refresh(self) -> None:
        self.looks += 1

    def observe(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class FastLoopTestCase(testtools.TestCase):
    """A buffer of 1 on four CPUs, one more every 5 ms."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.isolation.fast_loop.RETRY_S', 0.05))
        self.cpus = Cpus(idle=1)
        self.written = []
        self.failure = None
        self.lease_failure = None
        self.loop = self.make()

    def make(self, interval_s=0.001, current=FOUR, **more):
        loop = fast_loop.FastLoop(
            self.cpus, perfiso.Controller(
                perfiso.Params(buffer_cores=1, grow_interval_ms=5),
                topology=TOPOLOGY, current=current),
            self.write, self.check, perfiso.Bounds(FOUR, FOUR, 1),
            interval_s, **more)
        self.addCleanup(loop.stop)
        return loop

    def write(self, cpus):
        if self.failure:
            raise self.failure
        self.written.append(cpus)

    def check(self):
        if self.lease_failure:
            raise self.lease_failure

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f'not within 30 s; {self.loop.facts()}')
            time.sleep(0.001)

    def wait_polls(self, number):
        end = self.loop.facts()['polls'] + number
        self.wait_for(lambda: self.loop.facts()['polls'] >= end)

    def test_interval_out_of_bounds(self):
        for interval_s in (0.0, 0.00005, 0.02, float('nan')):
            exc = self.assertRaises(errors.ConfigError, self.make, interval_s)
            self.assertIn('choose 0.1 to 10 ms', str(exc))

    def test_no_cpu_allowed(self):
        exc = self.assertRaises(
            errors.DriverError, setattr, self.loop, 'bounds',
            self.loop.bounds._replace(allowed=frozenset()))
        self.assertIn('at least one', str(exc))
        self.assertEqual(FOUR, self.loop.bounds.allowed)

    def test_it_finds_out_which_cpus_are_online(self):
        self.loop.start()
        self.wait_for(lambda: self.cpus.looks >= 3)
        self.assertGreater(self.loop.facts()['polls'], self.cpus.looks)

    def test_written_on_change_only(self):
        fast_loop.RETRY_S = 60
        self.loop.start()
        self.wait_polls(20)
        self.assertEqual([FOUR], self.written)
        self.cpus.number = 0
        self.wait_for(lambda: len(self.written) == 4)
        self.cpus.number = 1
        self.wait_polls(20)
        # One CPU less per poll while one is missing, down to one.
        self.assertEqual([4, 3, 2, 1], [len(cpus) for cpus in self.written])
        facts = self.loop.facts()
        self.assertEqual((3, 0, 1), (facts['shrinks'], facts['grows'],
                                     facts['cpus']))

    def test_grows_one_at_a_time(self):
        fast_loop.RETRY_S = 60
        self.loop = self.make(current=())
        self.cpus.number = 4
        start = time.monotonic()
        self.loop.start()
        self.wait_for(lambda: self.loop.cpus == FOUR)
        # From one CPU to two at once, then 5 ms after each change.
        self.assertGreaterEqual(time.monotonic() - start, 0.01)
        self.wait_polls(20)
        self.assertEqual([2, 3, 4], [len(cpus) for cpus in self.written])

    def test_grows_more_slowly_where_a_write_costs_much(self):
        fast_loop.RETRY_S = 60
        self.loop = self.make(current=())
        self.cpus.number = 4

        def write(cpus):
            self.written.append(cpus)
            end = time.thread_time() + 0.002
            while time.thread_time() < end:
                pass
        self.loop._set_cpus = write
        start = time.monotonic()
        self.loop.start()
        self.wait_for(lambda: self.loop.cpus == FOUR)
        self.assertGreaterEqual(time.monotonic() - start,
                                2 * perfiso.GROW_RESTS * 0.002)

    def test_unchanged_set_is_written_now_and_then(self):
        self.loop.start()
        self.wait_for(lambda: len(self.written) == 3)
        self.assertEqual([FOUR] * 3, self.written)

    def test_bounds_replaced(self):
        self.loop.start()
        self.wait_polls(3)
        self.assertEqual(FOUR, self.cpus.watched)
        self.loop.bounds = perfiso.Bounds(
            frozenset({2, 3}), frozenset({0, 1, 2, 3, 4}), 1)
        self.wait_for(lambda: self.loop.cpus == {2, 3})
        self.assertEqual({0, 1, 2, 3, 4}, self.cpus.watched)

    def test_what_it_has_beside(self):
        fast_loop.RETRY_S = 60
        self.loop.start()
        self.wait_for(lambda: self.loop.cpus == FOUR)
        beside, self.cpus.number = frozenset({6, 7}), 0
        self.loop.bounds = self.loop.bounds._replace(beside=beside)
        self.wait_for(lambda: self.loop.cpus == beside)
        self.loop.short()
        self.wait_polls(20)
        self.assertFalse(self.loop.short())
        self.loop.bounds = self.loop.bounds._replace(beside=frozenset({6}))
        self.wait_for(lambda: self.loop.cpus == {6})
        self.cpus.number = 1
        self.wait_polls(20)
        self.loop.bounds = self.loop.bounds._replace(beside=frozenset())
        self.wait_for(lambda: len(self.loop.cpus & FOUR) == 1)
        self.assertNotIn(frozenset(), self.written)

    def test_no_lease_no_write_until_there_is_one(self):
        self.lease_failure = errors.LeaseError('ran out')
        self.loop.start()
        self.wait_for(lambda: self.loop.problem == 'ran out')
        time.sleep(0.1)
        self.assertEqual([], self.written)
        self.assertEqual('ran out', self.loop.facts()['problem'])
        self.lease_failure = None
        self.wait_for(lambda: self.written)
        self.wait_for(lambda: self.loop.problem == '')

    def test_a_write_that_fails_is_tried_again(self):
        self.failure = errors.WorkloadGone('/batch: is gone')
        self.loop.start()
        self.wait_for(lambda: self.loop.problem)
        self.assertEqual('/batch: is gone', self.loop.problem)
        self.failure = None
        self.wait_for(lambda: self.written)
        self.wait_for(lambda: self.loop.problem == '')

    def test_even_what_nothing_expects_is_told(self):
        self.failure = ZeroDivisionError('oops')
        self.loop.start()
        self.wait_for(lambda: 'oops' in self.loop.problem)
        self.failure = None
        self.wait_for(lambda: self.written)

    def test_stop_ends_all_writing(self):
        self.loop.start()
        self.assertLess(sys.getswitchinterval(),
                        fast_loop.USUAL_SWITCH_INTERVAL_S)
        self.wait_polls(3)
        self.loop.stop()
        self.cpus.number = 0
        count = len(self.written)
        time.sleep(0.03)
        self.assertEqual(count, len(self.written))
        self.assertEqual(1, self.cpus.closed)
        self.assertEqual(fast_loop.USUAL_SWITCH_INTERVAL_S,
                         sys.getswitchinterval())

    def test_stop_does_not_wait_for_a_retry(self):
        fast_loop.RETRY_S = 60
        self.failure = errors.DriverError('no')
        self.loop.start()
        self.wait_for(lambda: self.loop.problem)
        start = time.monotonic()
        self.loop.stop()
        self.assertLess(time.monotonic() - start, 30)

    def test_stop_never_started(self):
        self.loop.stop()
        self.assertEqual(1, self.cpus.closed)

    def test_a_write_that_hangs(self):
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.isolation.fast_loop.STOP_TIMEOUT_S',
            0.02))
        release = threading.Event()
        self.addCleanup(release.set)
        entered = threading.Event()

        def hang(cpus):
            entered.set()
            release.wait(60)

        self.loop = fast_loop.FastLoop(
            self.cpus, perfiso.Controller(topology=TOPOLOGY), hang,
            self.check, perfiso.Bounds(FOUR, FOUR, 1), 0.001)
        self.loop.start()
        self.assertTrue(entered.wait(30))
        exc = self.assertRaises(errors.DriverError, self.loop.stop)
        self.assertIn('tries again', str(exc))
        fast_loop.STOP_TIMEOUT_S = 40
        began_s = time.monotonic()
        self.assertRaises(errors.DriverError, self.loop.stop)
        self.assertLess(time.monotonic() - began_s, 30)  # the tick goes on
        self.assertEqual(0, self.cpus.closed)
        release.set()
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.isolation.fast_loop.STOP_AGAIN_S', 30))
        self.loop.stop()
        self.assertEqual(1, self.cpus.closed)

    def test_facts_are_plain(self):
        self.loop.start()
        self.wait_for(lambda: self.loop.cpus)
        facts = json.loads(json.dumps(self.loop.facts()))
        self.assertEqual('0-3', facts['cpu_set'])
        self.assertGreater(facts['longest_gap_s'], 0)
        self.assertIn(facts['scheduled'], ('real-time', 'nice', 'normal'))
