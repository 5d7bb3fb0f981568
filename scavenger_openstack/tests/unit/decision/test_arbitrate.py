# SPDX-License-Identifier: Apache-2.0


"""Precedence, fair shares, and when a write is worth it."""

from __future__ import annotations

import math

import testtools

from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.decision.arbitrate import arbitrate
from scavenger_openstack.decision.arbitrate import tightest
from scavenger_openstack.decision.arbitrate import worth_writing
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

CPU = Knob.CPU_CORES


def cap(value: Value, workload: str = '/a', knob: Knob = CPU,
        owner: str = 'one') -> Cap:
    return Cap(workload, knob, value, owner, f'{owner} said so')


class TightestTest(testtools.TestCase):

    def test_numbers(self) -> None:
        self.assertEqual(1.5, tightest(CPU, (2, 1.5, 3)))
        self.assertEqual(0, tightest(Knob.MEMORY_BYTES, (0, 7)))

    def test_switches(self) -> None:
        for knob in (Knob.CPU_IDLE, Knob.PAUSED):
            self.assertEqual(1, tightest(knob, (0, 1, 0)))

    def test_cpu_sets(self) -> None:
        for values, wanted in ((('0-3', '2-5'), '2-3'),
                               (('0-3', '2-5', '3'), '3'),
                               (('0-3', '6-7'), '6-7'),      # the smaller
                               (('4-5', '0-1'), '0-1'),      # first of two
                               (('0-1',), '0-1')):
            self.assertEqual(wanted, tightest(Knob.CPU_SET, values))

    def test_nothing_to_say(self) -> None:
        for knob, values in ((CPU, ()), (Knob.CPU_SET, ()),
                             (CPU, (1.0, math.nan)),
                             (Knob.CPU_SET, ('x', '1'))):
            self.assertRaises(ValueError, tightest, knob, values)


class SplitTest(testtools.TestCase):

    def same(self, wanted: list[float], found: list[float]) -> None:
        self.assertEqual(len(wanted), len(found))
        for one, other in zip(wanted, found, strict=True):
            self.assertAlmostEqual(one, other)

    def test_max_min_by_hand(self) -> None:
        # 2 is met, the other two share 10 - 2 = 8.
        self.same([2, 4, 4], split(10, [2, 6, 9], [1, 1, 1], [0, 0, 0]))
        # Water level 2 per unit of weight: 2, 4 (weight 2), 4 wanted only.
        self.same([2, 4, 4], split(10, [9, 9, 4], [1, 2, 3], [0, 0, 0]))
        # A floor of 5 leaves 5 for two.
        self.same([5, 2.5, 2.5], split(10, [9, 9, 9], [1, 1, 1], [5, 0, 0]))
        # A floor above the demand is still the floor.
        self.same([5, 5], split(10, [1, 9], [1, 1], [5, 0]))

    def test_the_rest_goes_by_weight(self) -> None:
        # Demand is 1 + 2, the rest of 9 goes 1 : 2.
        self.same([4, 8], split(12, [1, 2], [1, 2], [0, 0]))

    def test_floors_exceed_the_budget(self) -> None:
        self.assertEqual([3, 3], split(5, [9, 9], [1, 1], [3, 3]))
        self.assertEqual([3, 2], split(5, [9, 9], [1, 1], [3, 2]))
        self.assertEqual([1, 1], split(-5, [9, 9], [1, 1], [1, 1]))
        self.assertEqual([1, 1], split(math.nan, [9, 9], [1, 1], [1, 1]))

    def test_lengths_differ(self) -> None:
        self.assertRaises(ValueError, split, 10, [1], [1, 2], [0, 0])
        self.assertRaises(ValueError, split, 0, [1], [1, 2], [0, 0])


class ArbitrateTest(testtools.TestCase):

    def values(self, *args: object, **kwargs: object,
               ) -> dict[tuple[str, Knob], Value]:
        return {key: found.value for key, found
                in arbitrate(*args, **kwargs).items()}  # type: ignore

    def test_cpu_set_stays_within_the_original(self) -> None:
        key = ('/a', Knob.CPU_SET)
        for value, original, wanted in (
                ('0-1', None, '0-1'), ('0-1', '', '0-1'),
                ('0-3', '2-5', '2-3'), ('0-3', '1-2', None),
                ('0-3', '0-3', None), ('0-1', '2-3', None),
                ('0-1', 'garbage', '0-1')):
            self.assertEqual(
                {} if wanted is None else {key: wanted},
                self.values([cap(value, knob=key[1])], {key: original}, {}))

    def test_switches(self) -> None:
        key = ('/a', Knob.CPU_IDLE)
        self.assertEqual({key: 1}, self.values(
            [cap(0, knob=key[1]), cap(1, knob=key[1])], {key: 0}, {}))
        self.assertEqual({}, self.values(
            [cap(1, knob=key[1])], {key: 1}, {}))
        self.assertEqual({}, self.values(
            [cap(0, knob=key[1])], {key: 0}, {}))
        # An operator's 0 undoes the wish.
        self.assertEqual({}, self.values(
            [cap(1, knob=key[1])], {}, {},
            overrides={key: cap(0, knob=key[1])}))

    def test_wishes_that_say_nothing(self) -> None:
        for value in (math.nan, math.inf, -1.0, '1'):
            self.assertEqual({}, self.values([cap(value)], {}, {}))
            self.assertEqual({('/a', CPU): 2.0}, self.values(
                [cap(2.0), cap(value)], {}, {}))
            self.assertEqual({('/a', CPU): 2.0}, self.values(
                [cap(value), cap(2.0)], {}, {}))
        for value in ('', 'x', '3-1'):
            self.assertEqual({}, self.values(
                [cap(value, knob=Knob.CPU_SET)], {}, {}))


class WorthWritingTest(testtools.TestCase):

    def test_numbers(self) -> None:
        for current, wanted, answer in (
                (None, 5.0, True), (100.0, 100.0, False),
                (100.0, 99.999, True),        # tighter: always
                (100.0, 101.9, False), (100.0, 102.0, False),
                (100.0, 102.1, True), (0.0, 0.001, True)):
            self.assertEqual(answer, worth_writing(CPU, current, wanted))
        self.assertTrue(worth_writing(CPU, 100.0, 101.0, slack=0.0))

    def test_switches_and_sets(self) -> None:
        self.assertTrue(worth_writing(Knob.CPU_IDLE, 0, 1))
        self.assertTrue(worth_writing(Knob.PAUSED, 1, 0))
        self.assertFalse(worth_writing(Knob.CPU_IDLE, 1, 1.0))
        self.assertTrue(worth_writing(Knob.CPU_SET, '0-1', '0-2'))
        self.assertFalse(worth_writing(Knob.CPU_SET, '0-1', '1,0'))


class DefaultFloorsTest(testtools.TestCase):

    def test_design_7_6(self) -> None:
        self.assertEqual(
            {'cpu_cores': 0.1, 'memory_bytes': 67108864,
             'egress_bytes_per_s': 125000, 'ingress_bytes_per_s': 125000,
             'io_bytes_per_s': 1000000, 'io_ops_per_s': 10},
            dict(DEFAULT_FLOORS))
