# SPDX-License-Identifier: Apache-2.0


"""What holds for every window of samples."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.algorithms.window import Window
from scavenger_openstack.tests.unit.algorithms import strategies

SIZES = st.integers(2, 8)
SAMPLES = st.lists(strategies.amounts(1e12), max_size=20)


def filled(size: int, values: list[Any]) -> Window:
    window = Window(size)
    for value in values:
        window.add(value)
    return window


class WindowProperties(testtools.TestCase):

    @given(SIZES, SAMPLES)
    def test_mean_and_deviation_of_the_last_samples(
            self, size: int, values: list[float]) -> None:
        window = filled(size, values)
        last = values[-size:]
        self.assertEqual(len(last), len(window))
        self.assertEqual(len(last) == size, window.full)
        if not last:
            self.assertIsNone(window.mean)
        else:
            assert window.mean is not None
            self.assertTrue(math.isclose(statistics.fmean(last), window.mean,
                                         rel_tol=1e-12, abs_tol=1e-300))
        if len(last) < 2:
            self.assertIsNone(window.stddev)
        else:
            assert window.stddev is not None
            self.assertTrue(math.isclose(
                statistics.stdev(last), window.stddev, rel_tol=1e-6,
                abs_tol=1e-9 * max(last)))

    @given(SIZES, strategies.amounts(1e15), SAMPLES)
    def test_the_same_again_and_again_has_no_deviation(
            self, size: int, value: float, before: list[float]) -> None:
        window = filled(size, before + [value] * size)
        self.assertEqual((value, 0.0), (window.mean, window.stddev))

    @given(SIZES, st.lists(strategies.weird(strategies.amounts(1e12))))
    def test_what_is_no_number_is_no_sample(
            self, size: int, values: list[Any]) -> None:
        window = Window(size)
        for value in values:
            is_one = value is not None and math.isfinite(value)
            before = window.state()
            self.assertEqual(is_one, window.add(value))
            if not is_one:
                self.assertEqual(before, window.state())
        for number in (window.mean, window.stddev):
            self.assertTrue(number is None or math.isfinite(number))

    @given(SIZES, SAMPLES, st.floats(-1e12, 1e12))
    def test_shift_moves_the_mean_and_not_the_deviation(
            self, size: int, values: list[float], delta: float) -> None:
        window = filled(size, values)
        mean, stddev = window.mean, window.stddev
        window.shift(delta)
        scale = 1e-12 * (abs(delta) + max(values, default=0.0))
        for before, after in ((mean, window.mean), (stddev, window.stddev)):
            if before is None or after is None:
                self.assertIs(before, after)
            else:
                moved = delta if before is mean else 0.0
                self.assertTrue(abs(before + moved - after) <= scale)
                mean = None     # the deviation may be the same object

    @given(SIZES, SAMPLES, SAMPLES)
    def test_goes_on_from_its_state(
            self, size: int, values: list[float], more: list[float]) -> None:
        one, two = filled(size, values), Window(size)
        two.load(json.loads(json.dumps(one.state(), allow_nan=False)))
        for value in more:
            self.assertEqual((one.mean, one.stddev, one.full),
                             (two.mean, two.stddev, two.full))
            one.add(value)
            two.add(value)

    @given(SIZES, st.lists(strategies.weird(st.just('x')), min_size=1))
    def test_takes_no_state_that_is_none(
            self, size: int, values: list[Any]) -> None:
        window = filled(size, [1.0, 2.0])
        good = all(value not in (None, 'x') and math.isfinite(value)
                   for value in values)
        try:
            window.load({'values': values})
        except ValueError:
            self.assertFalse(good)
            self.assertEqual({'values': [1.0, 2.0]}, window.state())
        else:
            self.assertTrue(good)

    @given(strategies.weird(strategies.amounts(1e20)))
    def test_a_quantity_is_from_0_up(self, value: Any) -> None:
        if value is None:
            self.assertRaises(TypeError, quantity, value)
        elif 0 <= value < math.inf:
            self.assertEqual(value, quantity(value))
        else:
            self.assertRaises(ValueError, quantity, value)
