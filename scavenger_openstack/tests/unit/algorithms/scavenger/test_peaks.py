# SPDX-License-Identifier: Apache-2.0

"""The highest use of some hours, in a bounded memory."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.scavenger.peaks import BLOCKS
from scavenger_openstack.algorithms.scavenger.peaks import Peaks

VALUES = st.integers(0, 1000).map(float)


class PeaksTest(testtools.TestCase):

    def test_a_spike(self) -> None:
        """It counts for the period, and for at most two blocks longer."""
        for size in (1, 2, 59, 60, 61, 1800, 21600):
            peaks = Peaks(size)
            peaks.add(9.0)
            for _ in range(size):
                peaks.add(1.0)
            self.assertEqual(9.0, peaks.largest, str(size))
            for _ in range(2 * math.ceil(size / BLOCKS)):
                peaks.add(1.0)
            self.assertEqual(1.0, peaks.largest, str(size))

    def test_bounded(self) -> None:
        peaks = Peaks(21600)
        for value in range(50000):
            peaks.add(float(value))
        self.assertEqual(BLOCKS + 1, len(peaks.state()['largest']))

    def test_nothing(self) -> None:
        self.assertIsNone(Peaks(7).largest)
        self.assertRaises(ValueError, Peaks, 0)

    def test_a_pause(self) -> None:
        peaks = Peaks(120)
        peaks.add(9.0)
        peaks.skip(118)
        peaks.add(1.0)
        self.assertEqual(9.0, peaks.largest)
        peaks.skip(10 ** 9)
        self.assertIsNone(peaks.largest)
        peaks.add(2.0)
        self.assertEqual(2.0, peaks.largest)

    def test_another_period(self) -> None:
        """The largest is kept, for the new period."""
        peaks = Peaks(600)
        for value in (3.0, 7.0, 5.0):
            peaks.add(value)
        longer = Peaks(3600)
        longer.load(json.loads(json.dumps(peaks.state())))
        self.assertEqual(7.0, longer.largest)
        for _ in range(3600):
            longer.add(1.0)
        self.assertEqual(7.0, longer.largest)
        for _ in range(61):
            longer.add(1.0)
        self.assertEqual(1.0, longer.largest)

    def test_a_state_that_does_not_fit_itself(self) -> None:
        for largest, filled, wanted in (([], 3, 5.0), ([None], 3, 5.0),
                                        ([7.0], 10, 7.0)):
            peaks = Peaks(600)
            peaks.load({'block_size': 10, 'filled': filled,
                        'largest': largest})
            peaks.add(5.0)
            self.assertEqual(wanted, peaks.largest)

    @given(st.integers(1, 200), st.lists(VALUES, max_size=300),
           st.lists(VALUES, max_size=300))
    def test_the_largest_of_the_last(
            self, size: int, before: list[float], after: list[float],
            ) -> None:
        """... also over a restart."""
        first, peaks = Peaks(size), Peaks(size)
        for value in before:
            first.add(value)
        peaks.load(json.loads(json.dumps(first.state())))
        values = list(before)
        blocks = 2 * math.ceil(size / BLOCKS)
        for value in after:
            peaks.add(value)
            values.append(value)
            largest = peaks.largest or 0.0
            self.assertLessEqual(max(values[-size:]), largest)
            self.assertGreaterEqual(max(values[-size - blocks:]), largest)

    @given(st.integers(1, 200), st.lists(VALUES, min_size=1, max_size=99),
           st.integers(-1000, 1000).map(float))
    def test_shifted(self, size: int, values: list[float], delta: float,
                     ) -> None:
        one, two = Peaks(size), Peaks(size)
        for value in values:
            one.add(value)
            two.add(max(0.0, value + delta))
        one.shift(delta)
        self.assertEqual(two.largest, one.largest)
