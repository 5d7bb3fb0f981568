# SPDX-License-Identifier: Apache-2.0

"""Limits that come and go are one limit; those that must go do so at once."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

import testtools

from scavenger_openstack.algorithms.back_off import HoldTimes
from scavenger_openstack.algorithms.back_off import Stay
from scavenger_openstack.decision import decider
from scavenger_openstack.decision.linger import HOLD_TIMES
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import settle
from scavenger_openstack import knobs
from scavenger_openstack.tests.unit.decision.controllers import Fixed
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

JOB = Workload('/batch/a', Priority.BACKGROUND, group='/batch')
IDLE = Cap('/batch', Knob.CPU_IDLE, 1, 'one', 'why')
CORES = Cap('/batch/a', Knob.CPU_CORES, 0.5, 'one', 'why')


class StayTest(testtools.TestCase):

    def test_each_time_longer_up_to_the_most(self) -> None:
        stay, now, lasted = Stay(HoldTimes(10.0, 60.0)), 0.0, []
        for _ in range(5):
            stay.want(now)
            left_s = now
            while stay.release(now):
                now += 1
            lasted.append(now - left_s)
        self.assertEqual([10, 20, 40, 60, 60], lasted)
        self.assertFalse(stay.is_reset(now + 239))
        self.assertTrue(stay.is_reset(now + 240))
        stay.want(now + 240)
        self.assertEqual(10.0, stay.stay_s)


class LingerTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def begin(self) -> None:
        self.one = Fixed('one')
        self.decider = decider.Decider([(self.one, Mode.ENFORCE)])
        self.job: Workload | None = JOB
        self.orders = orders.NO_ORDERS
        self.held_back = False
        self.now = 0.0

    def turn(self, *caps: Cap, **decision: object) -> set[Knob]:
        """The knobs that are limited after one more second."""
        self.now += 1
        self.one.decision = Decision(caps, **decision)  # type: ignore
        self.decided = settle.settle(self.decider.propose_from(
            Rates(self.now, 1.0, () if self.job is None else (
                WorkloadRates(self.job, 1.0),)), orders=self.orders,
            held_back=self.held_back), {})
        return {knob for _, knob in self.decided.wanted}

    def test_one_that_comes_and_goes_is_one(self) -> None:
        """In half an hour of one second in three."""
        found = [Knob.CPU_IDLE in self.turn(*[IDLE] * (second % 3 == 0))
                 for second in range(1800)]
        self.assertEqual({True}, set(found))

    def test_one_that_comes_now_and_then_is_set_a_few_times(self) -> None:
        """For ten seconds of each 90."""
        found = [Knob.CPU_IDLE in self.turn(*[IDLE] * (second % 90 < 10))
                 for second in range(1800)]
        self.assertLessEqual(sum(
            now and not before for before, now in zip(
                [False, *found], found, strict=False)), 3)

    def test_how_long_each_stays(self) -> None:
        for knob in Knob:
            self.now += 1e6
            name = ('/batch' if knob in knobs.OF_GROUPS else 'background'
                    if knob is Knob.LLC_WAYS else '/batch/a')
            self.turn(Cap(name, knob, '0' if knob is Knob.CPU_SET else 1,
                          'one', 'why'))
            stays = 0
            while knob in self.turn():
                stays += 1
            self.assertEqual(
                HOLD_TIMES[knob].first if knob in HOLD_TIMES else 0, stays,
                knob)

    def test_a_tighter_value_counts_at_once(self) -> None:
        self.turn(CORES)
        self.turn()
        self.assertEqual({Knob.CPU_CORES}, self.turn(
            CORES._replace(value=0.25)))
        self.assertEqual(0.25, next(iter(self.decided.wanted.values())).value)

    def test_it_says_so(self) -> None:
        self.turn(CORES)
        self.turn()
        self.turn()
        [cap] = self.decided.wanted.values()
        self.assertTrue(cap.reason.startswith('why; '), cap.reason)
        self.assertIn(' 1 s', cap.reason)
        self.assertIn(' 10 s', cap.reason)

    def test_what_has_to_go_goes_at_once(self) -> None:
        def parameter() -> None:
            self.decider.tunable['one'].tune(None)

        def mode() -> None:
            self.orders = orders.Orders(modes={'one': Mode.OBSERVE})

        def off() -> None:
            self.orders = orders.Orders(modes={'one': Mode.OFF})

        def gone() -> None:
            self.job = None

        def foreground() -> None:
            self.job = dataclasses.replace(JOB, priority=Priority.FOREGROUND)

        def again() -> None:
            self.job = dataclasses.replace(JOB, created_s=7.0)

        def exempt() -> None:
            self.job = dataclasses.replace(JOB, project='p')
            self.orders = orders.Orders(exempt=frozenset({'p'}))

        changes: tuple[Callable[[], None], ...] = (
            parameter, mode, off, gone, foreground, again, exempt)
        for change in changes:
            self.begin()
            self.turn(CORES)
            change()
            self.assertEqual(set(), self.turn(), change.__name__)
            self.assertEqual(set(), self.turn(), change.__name__)

    def test_what_was_only_shown_is_not_set_later(self) -> None:
        """Nor what was removed for that while."""
        for ordered, held_back in (
                (orders.Orders(modes={'one': Mode.OBSERVE}), False),
                (orders.NO_ORDERS, True)):
            for before in (), (CORES,):
                self.begin()
                self.turn(*before)
                self.orders, self.held_back = ordered, held_back
                self.assertEqual(set(), self.turn(CORES))
                self.turn()
                self.assertEqual([CORES[:2]], [
                    cap[:2] for cap in self.decided.would])
                self.orders, self.held_back = orders.NO_ORDERS, False
                self.assertEqual(set(), self.turn())
                self.assertEqual({Knob.CPU_CORES}, self.turn(CORES))

    def test_what_its_controller_drops_for_a_reason(self) -> None:
        self.turn(CORES, IDLE)
        self.assertEqual({Knob.CPU_CORES}, self.turn(
            CORES, removal_reasons={IDLE[:2]: 'QEMU has to answer'}))

    def test_what_no_controller_wants_is_forgotten(self) -> None:
        self.turn(CORES)
        for _ in range(50):
            self.turn()
        self.now += 1e6
        self.turn(CORES)
        stays = 0
        while self.turn():
            stays += 1
        self.assertEqual(10, stays)
