# SPDX-License-Identifier: Apache-2.0

"""The set of a step of a second, beside that of a thousand steps."""

from __future__ import annotations

import math
import statistics

import testtools

from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import settled_set
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack import types

AFTER_S = 4.0
UNTIL_S = 10.0


def cpus(drawn: Drawn, step_s: float) -> float:
    """CPUs of the background, on average over the steps."""
    simulator = Simulator(drawn.machine, drawn.tenants, seed=drawn.seed,
                          step_s=step_s, floors=bench.FLOORS)
    loop, each = bench.agent(simulator, bench.Policy(
        preset='perfiso', only=('perfiso',)), 1.0)
    assert loop is not None
    sizes: list[int] = []

    def observe(now: float) -> None:
        if each is not None:
            each(now)
        if now > AFTER_S:
            sizes.append(len(types.parse_cpus(str(
                simulator.read(GROUP, types.Knob.CPU_SET)))))

    while simulator.now < UNTIL_S:
        simulator.advance(1.0, observe)
        loop.tick(simulator.now)
    return statistics.fmean(sizes)


class SettledSetTest(testtools.TestCase):

    def test_as_in_steps_of_a_millisecond(self) -> None:
        bursts, = catalogue.find(['bursts'])
        for seed in 1, 7:
            drawn = bursts.draw(seed)
            fine, coarse = cpus(drawn, 0.001), cpus(drawn, 1.0)
            self.assertLess(fine, 4.0)
            self.assertLess(abs(fine - coarse), 0.8, (seed, fine, coarse))


class EquationsTest(testtools.TestCase):

    def test_threads_have_the_moments_that_were_asked_for(self) -> None:
        for mean, spread in (0.4, 1.0), (2.0, 1.0), (2.0, 4.0):
            parts = settled_set.threads(mean, spread, 200)
            self.assertAlmostEqual(1.0, math.fsum(parts))
            first = math.fsum(k * part for k, part in enumerate(parts))
            second = math.fsum(k * k * part for k, part in enumerate(parts))
            self.assertAlmostEqual(mean, first, 6)
            self.assertAlmostEqual(spread, (second - first ** 2) / mean, 6)

    def test_no_threads(self) -> None:
        self.assertEqual([1.0, 0.0, 0.0], settled_set.threads(0.0, 1.0, 2))

    def test_what_runs_long_is_the_deepest_by_itself(self) -> None:
        parts = settled_set.threads(2.0, 1.0, 8)
        slow = settled_set.deepest(parts, 0.001, 10.0)
        for part, low in zip(parts, slow, strict=True):
            self.assertAlmostEqual(part, low, 2)

    def test_the_faster_threads_change_the_deeper(self) -> None:
        parts = settled_set.threads(2.0, 1.0, 8)
        depths = [math.fsum(k * part for k, part in enumerate(
            settled_set.deepest(parts, 0.01, thread_s)))
            for thread_s in (1.0, 0.01, 0.001)]
        self.assertEqual(sorted(depths), depths)
        self.assertGreater(depths[2], depths[0] + 1)
