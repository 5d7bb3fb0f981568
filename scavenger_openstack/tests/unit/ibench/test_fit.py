# SPDX-License-Identifier: Apache-2.0

"""The line through the points of a validation."""

from __future__ import annotations

import math

import testtools

from scavenger_openstack.ibench.validation import measure


class Line(testtools.TestCase):

    def test_r2_as_defined(self) -> None:
        points = [(10.0, 1.0), (20.0, 2.5), (30.0, 2.6), (40.0, 4.4)]
        line = measure.fit_line(points)
        assert line is not None
        mean = sum(y for _, y in points) / len(points)
        left = sum((y - line.intercept - line.slope * x) ** 2
                   for x, y in points)
        whole = sum((y - mean) ** 2 for _, y in points)
        self.assertTrue(math.isclose(1 - left / whole, line.r2))
        self.assertTrue(line.monotone)

    def test_noise_is_no_step_down(self) -> None:
        for last, monotone in ((96.0, True), (90.0, False)):
            line = measure.fit_line(
                [(0, 0.0), (1, 50.0), (2, 100.0), (3, last)])
            assert line is not None
            self.assertIs(monotone, line.monotone)

    def test_falling_in_small_steps_is_not_monotone(self) -> None:
        line = measure.fit_line([(x, -float(x)) for x in range(50)])
        assert line is not None
        self.assertFalse(line.monotone)

    def test_no_line(self) -> None:
        for points in ([], [(1.0, 2.0), (2.0, 3.0)],
                       [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]):
            self.assertIsNone(measure.fit_line(points))
