# SPDX-License-Identifier: Apache-2.0

"""Phases and noise of a load."""

from __future__ import annotations

import math
import random
import statistics

import testtools

from scavenger_openstack.simulator.load import Load
from scavenger_openstack.simulator.load import Noise
from scavenger_openstack.simulator.load import Phase


def loads(*phases: Phase, until: int = 100, repeat: bool = True,
          ) -> list[float]:
    load = Load(phases, noise=0.0, repeat=repeat, random_=random.Random(1))
    return [load.at(second, 1.0) for second in range(until)]


class Phases(testtools.TestCase):

    def test_one_after_the_other_and_again(self) -> None:
        found = loads(Phase(for_s=2, level=1), Phase(for_s=3, level=0),
                      until=8)
        self.assertEqual([1, 1, 0, 0, 0, 1, 1, 0], found)

    def test_ramp_starts_where_the_last_ended(self) -> None:
        found = loads(Phase(for_s=2, level=1),
                      Phase(shape='ramp', for_s=4, level=3), until=6)
        self.assertEqual([1, 1, 1, 1.5, 2, 2.5], found)

    def test_bursts(self) -> None:
        found = loads(Phase(shape='bursts', period_s=4, share=0.25,
                            level=2, low=0.5), until=8)
        self.assertEqual([2, 0.5, 0.5, 0.5] * 2, found)

    def test_wave(self) -> None:
        found = loads(Phase(shape='wave', period_s=40, depth=0.5, level=2),
                      until=40)
        self.assertAlmostEqual(3.0, max(found))
        self.assertAlmostEqual(1.0, min(found))
        self.assertAlmostEqual(2.0, statistics.fmean(found))

    def test_a_late_start_is_in_the_right_phase(self) -> None:
        load = Load((Phase(for_s=10, level=1), Phase(for_s=10, level=0)),
                    noise=0.0, repeat=True, random_=random.Random(1))
        self.assertEqual(0, load.at(1015.0, 1.0))


class Wandering(testtools.TestCase):

    def test_mean_spread_and_memory(self) -> None:
        noise = Noise(0.3, 5.0, random.Random(1))
        found = [noise.at(1.0) for _ in range(50000)]
        self.assertLess(abs(statistics.fmean(found) - 1), 0.02)
        logs = [math.log(one) for one in found]
        self.assertLess(abs(statistics.pstdev(logs) - 0.3), 0.02)
        self.assertLess(abs(statistics.correlation(logs[:-5], logs[5:])
                            - math.exp(-1)), 0.05)

    def test_the_length_of_a_step_does_not_matter(self) -> None:
        noise = Noise(0.3, 5.0, random.Random(1))
        logs = [math.log(noise.at(0.01)) for _ in range(300000)]
        self.assertLess(abs(statistics.pstdev(logs) - 0.3), 0.03)
