# SPDX-License-Identifier: Apache-2.0


"""Blind isolation and the choice of CPUs."""

from __future__ import annotations

import random

import testtools

from scavenger_openstack.algorithms.perfiso.perfiso import bounds
from scavenger_openstack.algorithms.perfiso.perfiso import Bounds
from scavenger_openstack.algorithms.perfiso.perfiso import buffer_cores
from scavenger_openstack.algorithms.perfiso.perfiso import choose_cpus
from scavenger_openstack.algorithms.perfiso.perfiso import Controller
from scavenger_openstack.algorithms.perfiso.perfiso import grow_or_shrink
from scavenger_openstack.algorithms.perfiso.perfiso import Params
from scavenger_openstack.algorithms.perfiso.perfiso import Shortage
from scavenger_openstack.types import Cpu

# Two sockets, each two caches of two cores of two threads: CPU n and n + 8
# are siblings, CPUs 0-3 (and 8-11) sit on socket 0, of these 0-1 (8-9) on
# cache 0.
SMT = {cpu: Cpu(cpu % 8, cpu % 8 // 2, cpu % 8 // 4) for cpu in range(16)}
FLAT = {cpu: Cpu(cpu, 0, 0) for cpu in range(8)}


class BufferTest(testtools.TestCase):

    def test_automatic(self) -> None:
        # The paper's 8 of 48 is one in six, rounded up.
        for cpus, wanted in ((1, 0), (2, 0), (7, 0), (8, 2), (12, 2),
                             (16, 3), (48, 8), (96, 16)):
            self.assertEqual(wanted, buffer_cores(Params(), cpus),
                             str(cpus))

    def test_given(self) -> None:
        for given, cpus, wanted in ((0, 48, 0), (1, 2, 1), (2, 2, 1),
                                    (9, 8, 7), (1, 1, 0)):
            self.assertEqual(wanted, buffer_cores(
                Params(buffer_cores=given), cpus))


class BoundsTest(testtools.TestCase):

    def test_foreground_that_may_run_anywhere(self) -> None:
        every, some = frozenset(range(8)), frozenset({2, 3})
        self.assertEqual(Bounds(every, every, 2),
                         bounds(every, every, 2, FLAT))
        self.assertEqual(Bounds(some, every, 2),
                         bounds(some, every, 2, FLAT))

    def test_foreground_that_runs_on_some(self) -> None:
        every, low = frozenset(range(8)), frozenset(range(6))
        self.assertEqual(
            Bounds(low, low, 2, frozenset({6, 7})),
            bounds(every, low, 2, FLAT))
        self.assertEqual(
            Bounds(low, low, 3, frozenset({7})),
            bounds(every, low, 4, FLAT))
        self.assertEqual(
            Bounds(frozenset({5}), low, 2, frozenset({6, 7})),
            bounds(frozenset({5, 6, 7}), low, 2, FLAT))

    def test_the_background_is_elsewhere(self) -> None:
        high = frozenset({6, 7})
        self.assertEqual(Bounds(high, high, 1),
                         bounds(high, frozenset(range(6)), 2, FLAT))

    def test_hardly_a_cpu(self) -> None:
        one = frozenset({7})
        self.assertEqual(Bounds(one, one, 1), bounds(one, one, 2, FLAT))
        found = bounds(frozenset({6, 7}), one, 2, FLAT)
        self.assertEqual(Bounds(one, one, 1, frozenset({6})), found)


class GrowOrShrinkTest(testtools.TestCase):

    def test_the_papers_example(self) -> None:
        # 48 CPUs, B = 4, the primary goes from 20 to 24: 24 become 20.
        self.assertEqual(24, grow_or_shrink(S=24, I=4, B=4))
        self.assertEqual(20, grow_or_shrink(S=24, I=0, B=4))

    def test_whole_curve(self) -> None:
        wanted = {0: 6, 1: 7, 2: 8, 3: 9, 4: 10, 5: 11, 6: 11, 48: 11}
        self.assertEqual(wanted, {
            idle: grow_or_shrink(S=10, I=idle, B=4) for idle in wanted})


class ChooseCpusTest(testtools.TestCase):

    def test_whole_cores_of_one_cache_then_one_node(self) -> None:
        seen = []
        held: frozenset[int] = frozenset()
        for count in range(1, 17):
            grown = choose_cpus(count, range(16), SMT, held)
            self.assertTrue(held < grown)
            seen += sorted(grown - held)
            held = grown
        self.assertEqual([15, 7, 14, 6, 13, 5, 12, 4,
                          11, 3, 10, 2, 9, 1, 8, 0], seen)

    def test_at_once_is_the_same(self) -> None:
        for count in range(17):
            self.assertEqual(
                frozenset([15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8,
                           0][:count]), choose_cpus(count, range(16), SMT))

    def test_gives_up_the_node_where_it_has_least(self) -> None:
        self.assertEqual({0, 8, 2, 10}, choose_cpus(
            4, range(16), SMT, {7, 15, 0, 8, 2, 10}))

    def test_grows_in_its_cache_then_in_its_node(self) -> None:
        self.assertEqual({0, 8, 1, 9}, choose_cpus(
            4, range(16), SMT, {0, 8}))
        self.assertEqual({0, 8, 1, 9, 3, 11}, choose_cpus(
            6, range(16), SMT, {0, 8, 1, 9}))

    def test_prefers_the_larger_node(self) -> None:
        allowed = frozenset((0, 8, 1, 9, 2, 10, 7, 15))
        self.assertEqual({0, 8, 1, 9}, choose_cpus(4, allowed, SMT))

    def test_no_longer_allowed(self) -> None:
        self.assertEqual({6, 14}, choose_cpus(2, {6, 14, 5}, SMT, {7, 15}))
        self.assertEqual({3}, choose_cpus(2, {3}, SMT, {7}))

    def test_unknown_topology(self) -> None:
        self.assertEqual({2, 1}, choose_cpus(2, {0, 1, 2}, {}))

    def test_prefers_cores_that_it_can_have_whole(self) -> None:
        # CPU 15 is another workload's: core 7 could only be had by half.
        self.assertEqual({6, 14}, choose_cpus(2, {7, 6, 14}, SMT))
        # ... and the node where it can have most.
        self.assertEqual({3, 11}, choose_cpus(2, range(15), SMT))


class ControllerTest(testtools.TestCase):

    def controller(self, buffer: int = 2, current: object = (),
                   ) -> Controller:
        return Controller(
            Params(buffer_cores=buffer, grow_interval_ms=10.0),
            topology=FLAT, current=current)  # type: ignore[arg-type]

    def test_growing_waits_after_a_shrink(self) -> None:
        controller = self.controller(current=range(8))
        allowed = frozenset(range(8))
        self.assertEqual(7, len(controller.step(1.0, 1, allowed)))
        self.assertEqual(7, len(controller.step(1.009, 5, allowed)))
        self.assertEqual(8, len(controller.step(1.0101, 5, allowed)))

    def test_growing_waits_for_what_a_write_costs(self) -> None:
        """At most a twentieth of the time grows; shrinking never waits."""
        controller = self.controller(current=range(4))
        allowed = frozenset(range(8))
        now = 1.0
        for cost_s, rest_s in ((0.002, 0.04), (0.01, 0.2), (0.0004, 0.01)):
            size = len(controller.step(now, 5, allowed))
            controller.wrote(cost_s)
            self.assertEqual(size, len(controller.step(
                now + rest_s - 0.001, 5, allowed)))
            now += rest_s + 0.001
            self.assertEqual(size + 1, len(controller.step(now, 5, allowed)))
            self.assertEqual(size, len(controller.step(now, 1, allowed)))
            now += 1.0

    def test_clamps(self) -> None:
        controller = self.controller(current=range(8))
        self.assertEqual({1, 2}, controller.step(
            1.0, 2, frozenset((1, 2))))
        self.assertEqual({5}, controller.step(1.1, 2, frozenset((5,))))
        self.assertEqual({5}, controller.step(1.2, 8, frozenset((5,))))
        self.assertEqual({5}, controller.step(1.3, 8, frozenset()))
        self.assertEqual({4, 5}, controller.step(
            1.4, 8, frozenset((4, 5))))

    def test_no_buffer(self) -> None:
        controller = Controller(topology={0: Cpu(0, 0, 0), 1: Cpu(1, 0, 0)})
        self.assertEqual(0, controller.buffer_cores)
        self.assertEqual({0, 1}, controller.step(
            1.0, 0, frozenset((0, 1))))

    def test_invariants(self) -> None:
        dice = random.Random(2)
        controller = Controller(Params(buffer_cores=3), topology=SMT)
        before, now = controller.step(0.0, 3, range(16)), 0.0
        allowed = frozenset(range(16))
        for _ in range(5000):
            now += dice.choice((0.001, 0.02))
            if dice.random() < 0.02:
                allowed = frozenset(dice.sample(range(16),
                                                dice.randint(1, 16)))
            idle = dice.randrange(9)
            cpus = controller.step(now, idle, allowed)
            self.assertTrue(cpus and cpus <= allowed)
            stays = before & allowed
            if idle < 3 and stays:
                self.assertEqual(max(1, len(stays) - (3 - idle)), len(cpus))
            elif stays:
                self.assertLessEqual(len(cpus), len(stays) + 1)
            before = cpus


class ShortageTest(testtools.TestCase):

    def test_it_begins_with_most_polls_and_ends_with_none(self) -> None:
        shortage, polls, short = Shortage(), 0, 0
        for now, lasts in ((50, False), (51, True), (49, True), (1, True),
                           (0, False), (49, False), (100, True), (0, False)):
            polls, short = polls + 100, short + now
            self.assertEqual(lasts, shortage.update(polls, short), str(now))
