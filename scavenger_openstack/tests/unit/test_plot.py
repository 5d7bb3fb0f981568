# SPDX-License-Identifier: Apache-2.0

"""Drawing: axes, gaps, and what is escaped."""

from __future__ import annotations

import testtools

from scavenger_openstack.plot import panels


class PlotTest(testtools.TestCase):

    def test_linear_axis(self) -> None:
        axis = panels.Axis(0.0, 10.0, ())
        for value, share in ((0, 0.0), (5, 0.5), (10, 1.0), (99, 1.0),
                             (-1, 0.0)):
            self.assertEqual(share, axis.share(value))

    def test_logarithmic_axis(self) -> None:
        axis = panels.Axis(1.0, 10000.0, (), log=True)
        for value, share in ((1, 0.0), (100, 0.5), (10000, 1.0), (0, 0.0)):
            self.assertAlmostEqual(share, axis.share(value))

    def test_a_missing_value_leaves_a_gap(self) -> None:
        self.assertEqual([[(0, 1.0)], [(2, 3.0), (3, 4.0)]], panels.runs(
            [(0, 1.0), (1, None), (2, 3.0), (3, 4.0)]))
        self.assertEqual([], panels.runs([(0, None)]))
