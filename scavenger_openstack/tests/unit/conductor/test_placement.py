# SPDX-License-Identifier: Apache-2.0

"""What Placement is told, from what agents report."""

from __future__ import annotations

import math
import random

import testtools

from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor.placement import Amount
from scavenger_openstack.conductor.placement import HostReport
from scavenger_openstack.conductor.placement import MEMORY_MIB
from scavenger_openstack.conductor.placement import State
from scavenger_openstack.conductor.placement import VCPU

PARAMS = placement.Params(smooth_s=300.0, step=0.1, interval_s=60.0,
                          silent_s=120.0)
NOW = 1e6


def seen(vcpu: float = 4.0, memory_mib: float = 2048.0, time_s: float = NOW,
         **more: object) -> HostReport:
    return HostReport(time_s, {VCPU: vcpu, MEMORY_MIB: memory_mib},
                      **more)  # type: ignore[arg-type]


def step(state: State, what: HostReport | None, now: float = NOW,
         **allocated: int) -> tuple[State, placement.Inventory | None]:
    """One look at a host: what is written, and the state after that."""
    state = placement.smoothed(state, what, now, PARAMS)
    found = placement.plan(state, allocated, now, PARAMS)
    if found is not None:
        state = placement.written(state, found, now)
    return state, found


class Offers(testtools.TestCase):

    def test_headroom_and_use(self) -> None:
        self.assertEqual(
            {VCPU: 3.5, MEMORY_MIB: 3.0}, placement.offer(
                {'cpu': 2.5, 'memory': 2.0 * 2 ** 20, 'network': 1.0},
                {'cpu': 1.0, 'memory': 2.0 ** 20}))

    def test_use_that_is_not_known_is_not_offered_again(self) -> None:
        self.assertEqual({VCPU: 2.5}, placement.offer({'cpu': 2.5}, {}))

    def test_numbers_that_cannot_be(self) -> None:
        """An agent may report any; those of one host concern no other."""
        found = placement.offer({'cpu': 1e308, 'memory': 1e308},
                                {'cpu': 1e308, 'memory': 0.0})
        state = placement.smoothed(State(), HostReport(NOW, found), NOW,
                                   PARAMS)
        self.assertEqual(
            [2 ** 31 - 1] * 2, [placement.amount(level, 0).total
                                for level in state.level.values()])

    def test_no_more_than_nova_has_written(self) -> None:
        """What a host says of itself draws no more instances to it."""
        much = HostReport(NOW, placement.offer({'cpu': 2.0 ** 60,
                                                'memory': 2.0 ** 60}, {}))
        for root, offered in (
                ({'VCPU': Amount(32, 0), 'PCPU': Amount(16, 2),
                  'MEMORY_MB': Amount(65_536, 512)},
                 {VCPU: 48, MEMORY_MIB: 65_536}),
                ({'PCPU': Amount(16, 0)},
                 {VCPU: 16, MEMORY_MIB: 2.0 ** 31 - 1}),
                ({}, much.offer)):
            bounded = placement.within(much, root)
            assert bounded is not None
            self.assertEqual(offered, bounded.offer)
        self.assertEqual(seen(4.0), placement.within(
            seen(4.0), {'VCPU': Amount(32, 0)}))
        self.assertIsNone(placement.within(None, {}))

    def test_headroom_that_is_not_known_is_not_offered(self) -> None:
        self.assertEqual({}, placement.offer({}, {'cpu': 1.0}))


class Amounts(testtools.TestCase):

    def test_whole_units(self) -> None:
        self.assertEqual(Amount(3, 0), placement.amount(3.99, 0))

    def test_nothing_is_all_reserved(self) -> None:
        """Placement refuses a total of 0."""
        self.assertEqual(Amount(1, 1), placement.amount(0.9, 0))

    def test_below_what_is_allocated(self) -> None:
        found = placement.amount(1.5, 4)
        self.assertEqual((Amount(4, 3), 1), (found, found.offered))

    def test_nothing_left_of_what_is_allocated(self) -> None:
        self.assertEqual(Amount(4, 4), placement.amount(0.0, 4))

    def test_as_placement_takes_it(self) -> None:
        self.assertEqual(
            {'total': 4, 'reserved': 3, 'min_unit': 1, 'max_unit': 4,
             'step_size': 1, 'allocation_ratio': 1.0},
            Amount(4, 3).inventory())


class Smoothing(testtools.TestCase):

    def test_the_first_report_counts_at_once(self) -> None:
        state = placement.smoothed(State(), seen(4.0), NOW, PARAMS)
        self.assertEqual(4.0, state.level[VCPU])

    def test_less_counts_at_once(self) -> None:
        state = State({VCPU: 8.0, MEMORY_MIB: 1.0}, NOW - 1)
        state = placement.smoothed(state, seen(3.0), NOW, PARAMS)
        self.assertEqual(3.0, state.level[VCPU])

    def test_more_comes_slowly(self) -> None:
        """After one time constant 63 % of the difference is there, in one
        step or in many."""
        for steps in (1, 100):
            state = State({VCPU: 2.0, MEMORY_MIB: 2048.0}, NOW)
            for number in range(1, steps + 1):
                now = NOW + PARAMS.smooth_s * number / steps
                state = placement.smoothed(state, seen(10.0, time_s=now), now,
                                           PARAMS)
            self.assertAlmostEqual(2 + 8 * (1 - math.exp(-1)),
                                   state.level[VCPU], 9, str(steps))

    def test_a_clock_that_was_set_back(self) -> None:
        state = State({VCPU: 2.0, MEMORY_MIB: 1.0}, NOW + 500)
        state = placement.smoothed(state, seen(10.0), NOW, PARAMS)
        self.assertEqual((2.0, NOW), (state.level[VCPU], state.level_s))

    def test_a_silent_host_offers_nothing(self) -> None:
        state = State({VCPU: 8.0, MEMORY_MIB: 1.0}, NOW - 1)
        late = seen(time_s=NOW - PARAMS.silent_s - 1)
        for what in (late, None):
            found = placement.smoothed(state, what, NOW, PARAMS).level
            self.assertEqual({VCPU: 0.0, MEMORY_MIB: 0.0}, found)

    def test_what_is_not_reported_is_not_offered(self) -> None:
        state = State({VCPU: 8.0, MEMORY_MIB: 100.0}, NOW - 1)
        state = placement.smoothed(
            state, HostReport(NOW, {MEMORY_MIB: 100.0}), NOW, PARAMS)
        self.assertEqual({VCPU: 0.0, MEMORY_MIB: 100.0}, state.level)


class Plans(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.state, first = step(State(), seen(10.0))
        self.assertEqual({VCPU: Amount(10, 0), MEMORY_MIB: Amount(2048, 0)},
                         first)
        self.later = NOW + PARAMS.interval_s

    def test_the_same_is_not_written_again(self) -> None:
        _, found = step(self.state, seen(10.0, time_s=self.later), self.later)
        self.assertIsNone(found)

    def test_a_small_change_is_not_written(self) -> None:
        _, found = step(self.state, seen(9.0, time_s=self.later), self.later)
        self.assertIsNone(found)

    def test_a_larger_one_is(self) -> None:
        _, found = step(self.state, seen(8.9, time_s=self.later), self.later)
        assert found is not None
        self.assertEqual(Amount(8, 0), found[VCPU])

    def test_the_last_unit_is_written(self) -> None:
        big = State(written={VCPU: Amount(100, 0), MEMORY_MIB: Amount(1, 1)},
                    written_s=-math.inf, level={VCPU: 100.0,
                                                MEMORY_MIB: 1.0},
                    level_s=NOW)
        found = placement.plan(big, {}, NOW, PARAMS)
        assert found is not None
        self.assertEqual(1, found[MEMORY_MIB].offered)

    def test_not_sooner_than_the_interval(self) -> None:
        soon = self.later - 0.1
        state, found = step(self.state, seen(1.0, time_s=soon), soon)
        self.assertIsNone(found)
        _, found = step(state, seen(1.0, time_s=self.later), self.later)
        assert found is not None
        self.assertEqual(Amount(1, 0), found[VCPU])

    def test_a_silent_host_keeps_what_is_in_use(self) -> None:
        now = NOW + PARAMS.silent_s + 1
        _, found = step(self.state, seen(10.0), now,
                        **{VCPU: 3, MEMORY_MIB: 512})
        self.assertEqual({VCPU: Amount(3, 3), MEMORY_MIB: Amount(512, 512)},
                         found)

    def test_random_reports(self) -> None:
        """Whatever is reported: no class is missing, no total is 0, nothing
        is offered beyond the last report, and writes keep their distance."""
        for seed in range(50):
            chance = random.Random(seed)
            state, now, last = State(), NOW, -math.inf
            in_placement: placement.Inventory = {}
            for _ in range(200):
                now += chance.choice((1, 5, 30, 90, 400))
                offer = {name: chance.choice((0.0, 0.5, 3.0, 40.0, 1e4))
                         for name in placement.CLASSES
                         if chance.random() < 0.9}
                allocated = {VCPU: chance.randrange(6)}
                state, found = step(
                    state,
                    HostReport(now - chance.choice((0, 10, 500)), offer),
                    now, **allocated)
                if found is None:
                    continue
                self.assertEqual(set(placement.CLASSES), set(found))
                self.assertGreaterEqual(now - last, PARAMS.interval_s)
                last, in_placement = now, found
                for name, amount in in_placement.items():
                    self.assertGreaterEqual(amount.reserved, 0)
                    self.assertGreaterEqual(
                        amount.total, max(1, allocated.get(name, 0)))
                    self.assertLessEqual(amount.offered, offer.get(name, 0.0))


class Traits(testtools.TestCase):

    def test_grade_and_incident(self) -> None:
        self.assertEqual(
            {'CUSTOM_SCAVENGER_GRADE_B', placement.INTERFERENCE},
            placement.traits(seen(grade='B', interference=True), NOW, PARAMS))

    def test_no_grade(self) -> None:
        self.assertEqual(frozenset(),
                         placement.traits(seen(), NOW, PARAMS))

    def test_a_silent_host_has_none(self) -> None:
        self.assertEqual(frozenset(), placement.traits(
            seen(grade='A', interference=True), NOW + 1e4, PARAMS))

    def test_those_of_others_stay(self) -> None:
        self.assertEqual(
            ['CUSTOM_SCAVENGER_GRADE_A', 'HW_CPU_X86_AVX'],
            placement.with_traits(
                ['HW_CPU_X86_AVX', placement.INTERFERENCE],
                frozenset({'CUSTOM_SCAVENGER_GRADE_A'})))

    def test_nothing_to_do(self) -> None:
        self.assertIsNone(placement.with_traits(
            ['CUSTOM_SCAVENGER_GRADE_A', 'X'],
            frozenset({'CUSTOM_SCAVENGER_GRADE_A'})))
