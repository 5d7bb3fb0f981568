# SPDX-License-Identifier: Apache-2.0


"""The window against the textbook formula."""

from __future__ import annotations

import json
import math
import random
import statistics

import testtools

from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.algorithms.window import Window


class WindowTest(testtools.TestCase):

    def test_mean_and_deviation_by_hand(self) -> None:
        window = Window(4)
        self.assertEqual((None, None), (window.mean, window.stddev))
        window.add(2)
        self.assertEqual((2, None), (window.mean, window.stddev))
        window.add(4)
        # mean 3, squares 1 + 1, over n - 1 = 1
        self.assertEqual((3, math.sqrt(2)), (window.mean, window.stddev))
        window.add(4)
        window.add(6)
        # mean 4, squares 4 + 0 + 0 + 4, over 3
        self.assertTrue(window.full)
        self.assertEqual(4, window.mean)
        self.assertAlmostEqual(math.sqrt(8 / 3), window.stddev or 0.0)
        window.add(10)
        # 4, 4, 6, 10: mean 6, squares 4 + 4 + 0 + 16, over 3
        self.assertEqual((4, 6), (len(window), window.mean))
        self.assertAlmostEqual(math.sqrt(8), window.stddev or 0.0)

    def test_days_of_samples(self) -> None:
        dice = random.Random(7)
        window = Window(60)
        last: list[float] = []
        for tick in range(20000):
            value = 1e12 * dice.random() if tick % 997 == 0 else (
                3e9 + dice.random())
            window.add(value)
            last = [*last[-59:], value]
            if tick % 501 == 500:
                self.assertAlmostEqual(
                    1, (window.mean or 0.0) / statistics.fmean(last))
                self.assertAlmostEqual(
                    1, (window.stddev or 0.0) / statistics.stdev(last),
                    places=6)

    def test_constant_has_no_deviation(self) -> None:
        for value in (0.1, 1 / 3, 6.4e10, 12345.678, 0.0):
            window = Window(15)
            window.add(1e15)
            for _ in range(15):
                window.add(value)
            self.assertEqual((value, 0), (window.mean, window.stddev))

    def test_what_is_not_a_sample(self) -> None:
        window = Window(2)
        for value in (None, math.nan, math.inf, -math.inf):
            self.assertFalse(window.add(value))
        self.assertEqual(0, len(window))
        self.assertTrue(window.add(0))
        self.assertEqual(1, len(window))

    def test_shift(self) -> None:
        window = Window(3)
        for value in (5, 7, 9):
            window.add(value)
        self.assertEqual((7, 2), (window.mean, window.stddev))
        window.shift(-4)
        self.assertEqual((3, 2), (window.mean, window.stddev))
        window.shift(math.nan)
        self.assertEqual((3, 2), (window.mean, window.stddev))

    def test_clear(self) -> None:
        window = Window(3)
        window.add(1)
        window.clear()
        self.assertEqual((0, None), (len(window), window.mean))

    def test_one_sample_is_no_window(self) -> None:
        self.assertRaises(ValueError, Window, 1)

    def test_state(self) -> None:
        window = Window(3)
        for value in (1.5, 2, 4):
            window.add(value)
        state = json.loads(json.dumps(window.state()))
        other = Window(3)
        other.load(state)
        self.assertEqual((window.mean, window.stddev, True),
                         (other.mean, other.stddev, other.full))
        shorter = Window(2)
        shorter.load(state)
        self.assertEqual(3, shorter.mean)

    def test_garbage_state(self) -> None:
        window = Window(3)
        window.add(1)
        for state in ({}, {'values': None}, {'values': ['x']},
                      {'values': [math.nan]}, {'values': [True]}):
            self.assertRaises(ValueError, window.load, state)
        self.assertEqual(1, len(window))

    def test_quantity(self) -> None:
        self.assertEqual(1.5, quantity(1.5))
        for value in (-1, math.nan, math.inf, 'x'):
            self.assertRaises(ValueError, quantity, value)
        self.assertRaises(TypeError, quantity, None)
