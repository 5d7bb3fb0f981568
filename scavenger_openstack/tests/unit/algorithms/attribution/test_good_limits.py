# SPDX-License-Identifier: Apache-2.0

"""The good limits of antagonists, and what begins at one of them."""

from __future__ import annotations

import json
import math

import testtools

from scavenger_openstack.algorithms.attribution.cubic import Cubic
from scavenger_openstack.algorithms.attribution.good_limits import GoodLimits
from scavenger_openstack.types import Knob

HOG = 'hog', Knob.CPU_CORES
WEB, DB = (('web',), 'cpi'), (('', 'db'), 'run_delay')


class GoodLimitsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.limits = GoodLimits()
        self.limits.remember_s = 100.0
        self.cap = Cubic(4.0, 2.0, floor=0.1, cut=0.5, plateau=24)

    def values(self, now: float) -> list[float | None]:
        return [None if good is None else good.value
                for good in (self.limits.find(now, HOG, WEB),
                             self.limits.find(now, HOG, DB))]

    def test_each_pair_has_one_of_its_own_for_a_while(self) -> None:
        self.limits.remember(0.0, HOG, [WEB], 0.5, self.cap)
        self.limits.remember(50.0, HOG, [DB], 1.5, self.cap)
        self.assertEqual([0.5, 1.5], self.values(99.0))
        self.assertEqual([None, 1.5], self.values(100.0))
        self.assertEqual([HOG], self.limits.forget_old(100.0))
        self.assertEqual([HOG], list(self.limits))
        self.assertEqual([HOG], self.limits.forget_old(150.0))
        self.assertEqual([], list(self.limits))

    def test_the_age_is_that_of_the_newest(self) -> None:
        disk = 'hog', Knob.IO_BYTES_PER_S
        self.limits.remember(0.0, HOG, [WEB], 0.5, self.cap)
        self.limits.remember(50.0, disk, [DB], 1e6, self.cap)
        self.assertEqual({'hog': 10.0}, self.limits.ages(60.0, ()))
        self.assertEqual({'hog': 60.0}, self.limits.ages(60.0, {disk}))
        self.assertEqual({}, self.limits.ages(150.0, ()))

    def test_the_use_that_did_harm_outlives_a_rest(self) -> None:
        """Until the plateau is over it grows to it, and no further."""
        for _ in range(8):
            self.cap.quiet(self.cap.value)
        harmful = self.cap.value
        self.cap.contended(harmful, cut=0.3)
        self.limits.remember(0.0, HOG, [WEB], self.cap.value, self.cap)
        good = self.limits.find(1.0, HOG, WEB)
        assert good is not None
        again = good.cap(4.0, 0.1, cut=0.5, plateau=24)
        self.assertAlmostEqual(0.7 * harmful, again.value)
        for _ in range(24):
            self.assertLess(again.value, harmful)
            again.quiet(again.value)
        self.assertAlmostEqual(harmful, again.value)

    def test_state(self) -> None:
        """One that a restart has to read, and one that nothing made."""
        state = [['hog', 'cpu_cores', ['', 'db'], 'run_delay', 1.5, True,
                  100.0, None],
                 ['mate', 'io_bytes_per_s', ['web'], 'cpi', 1e6, False, 150.0,
                  2e6]]
        self.limits.load(state)
        self.assertEqual([None, 1.5], self.values(99.0))
        self.assertEqual(state, json.loads(json.dumps(self.limits.state())))
        for row in (['hog'], ['a', 'b', 1, 2],
                    ['hog', 'memory_bytes', *state[0][2:]],
                    [*state[0][:4], math.nan, *state[0][5:]],
                    [*state[0][:6], math.inf, None], [*state[0][:7], -1.0],
                    [*state[0][:7], 'x']):
            self.assertRaises((ValueError, TypeError), self.limits.load, [row])
        self.assertEqual([None, 1.5], self.values(99.0))
        self.limits.keep({'mate'})
        self.assertEqual(state[1:], self.limits.state())
