# SPDX-License-Identifier: Apache-2.0


"""The cap that finds its height, along its whole curve."""

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms.attribution.cubic import Cubic
from scavenger_openstack.algorithms.attribution.cubic import height


class CubicTest(testtools.TestCase):

    def test_three_regions(self) -> None:
        curve = [height(since, cut=0.3, plateau=24) for since in range(73)]
        self.assertEqual(sorted(curve), curve)
        self.assertAlmostEqual(0.7, curve[0])
        self.assertAlmostEqual(1.0, curve[24])
        self.assertAlmostEqual(1.3, curve[48])
        self.assertAlmostEqual(1 + 0.3 * 8, curve[72])
        # Fast, hardly at all, faster and faster.
        self.assertGreater(curve[6] - curve[0], 4 * (curve[24] - curve[18]))
        self.assertGreater(curve[48] - curve[42], 4 * (curve[30]
                                                       - curve[24]))

    def test_grows_by_a_part_until_contention_is_met(self) -> None:
        cap = Cubic(4.0, 0.2, floor=0.01, cut=0.5, plateau=100)
        curve = []
        for _ in range(40):
            cap.quiet(cap.value)
            curve.append(cap.value)
        self.assertAlmostEqual(0.1 * 1.2 ** 20, curve[19])
        self.assertAlmostEqual(0.1 * 1.2 ** 40, curve[39])
        cap.contended(cap.value, cut=0.5)
        peak = curve[39]
        self.assertAlmostEqual(peak / 2, cap.value)
        for _ in range(100):
            cap.quiet(cap.value)
        self.assertAlmostEqual(peak, cap.value)

    def test_does_not_grow_while_it_holds_nothing(self) -> None:
        cap = Cubic(4.0, 2.0, floor=0.1, cut=0.5, plateau=10)
        for _ in range(10):
            cap.quiet(0.5 * cap.value)
        self.assertEqual((1.0, 1.0), (cap.value, cap.good))

    def test_contention_cuts_what_was_used(self) -> None:
        cap = Cubic(4.0, 4.0, floor=0.1, cut=0.5, plateau=10)
        for _ in range(15):
            cap.quiet(cap.value)
        self.assertGreater(cap.value, 4.0)
        cap.contended(3.0, cut=0.2)     # it did not even use its cap
        self.assertAlmostEqual(3.0, cap.peak)
        self.assertAlmostEqual(2.4, cap.value)
        cap.contended(3.0, cut=0.2)     # nor could it since
        self.assertAlmostEqual(2.4 * 0.8, cap.value)

    def test_remembers_what_was_good(self) -> None:
        cap = Cubic(4.0, 4.0, floor=0.1, cut=0.5, plateau=10)
        for _ in range(8):
            cap.quiet(cap.value)
        before = cap.value
        cap.quiet(cap.value)
        self.assertEqual(before, cap.good)
        cap.contended(4.0, cut=0.5)
        self.assertEqual(before, cap.good)
