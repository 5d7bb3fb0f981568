# SPDX-License-Identifier: Apache-2.0


"""The window against the textbook formula."""

from __future__ import annotations

import math
import random
import statistics

import testtools

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

    def test_clear(self) -> None:
        window = Window(3)
        window.add(1)
        window.clear()
        self.assertEqual((0, None), (len(window), window.mean))

    def test_one_sample_is_no_window(self) -> None:
        self.assertRaises(ValueError, Window, 1)
