# SPDX-License-Identifier: Apache-2.0


"""Chance and series, against numbers worked out here."""

from __future__ import annotations

import math
import random

import testtools

from scavenger_openstack.algorithms.attribution import evidence


def noise(seed: int, count: int = 120) -> list[float]:
    rng = random.Random(seed)
    values = [rng.gauss(0, 1) for _ in range(count)]
    mean = sum(values) / count
    return [value - mean for value in values]


def slow(seed: int, count: int = 120, keeps: float = 0.9) -> list[float]:
    """Noise that keeps most of itself from sample to sample."""
    rng = random.Random(seed)
    values, last = [], 0.0
    for _ in range(count):
        last = keeps * last + rng.gauss(0, 1)
        values.append(last)
    mean = sum(values) / count
    return [value - mean for value in values]


class SpanTest(testtools.TestCase):

    def test_orthonormal(self) -> None:
        spanned = evidence.span([[1.0] * 6, [1, 2, 3, 4, 5, 6],
                                 [3, 5, 7, 9, 11, 13],     # adds nothing
                                 [1, 0, 0, 1, 0, 0]])
        self.assertEqual(3, len(spanned))
        for place, one in enumerate(spanned):
            for other_place, other in enumerate(spanned):
                self.assertAlmostEqual(float(place == other_place),
                                       evidence.dot(one, other))

    def test_without_is_the_residual_of_a_fit(self) -> None:
        # y = 1, 3, 2, 4 on a line: slope 0.8, residuals -0.3, 0.9, -0.9, 0.3
        left = evidence.without([1, 3, 2, 4], evidence.span(
            [[1.0] * 4, [0, 1, 2, 3]]))
        for expected, found in zip((-0.3, 0.9, -0.9, 0.3), left,
                                   strict=True):
            self.assertAlmostEqual(expected, found)

    def test_nothing_spans_nothing(self) -> None:
        self.assertEqual([], evidence.span([[0.0] * 4]))
        self.assertEqual([1.0, 2.0], evidence.without([1, 2], []))


class ChanceTest(testtools.TestCase):

    def test_noise_is_worth_its_samples(self) -> None:
        found = [evidence.effective_samples(
            120, evidence.memory(noise(seed)),
            evidence.memory(noise(seed + 1000))) for seed in range(50)]
        self.assertGreater(sum(found) / len(found), 105)
        self.assertLessEqual(max(found), 120)

    def test_slow_series_are_worth_less(self) -> None:
        # AR(1) with 0.9 twice: 1 + 2 x 0.81 / 0.19 = 9.5 for one.
        found = [evidence.effective_samples(
            120, evidence.memory(slow(seed)),
            evidence.memory(slow(seed + 1000))) for seed in range(50)]
        self.assertTrue(8 < sum(found) / len(found) < 45,
                        sum(found) / len(found))

    def test_fishers_z(self) -> None:
        # atanh 0.5 = 0.5493; x sqrt(28 - 1 - 2) = 2.747; beyond it 0.003.
        self.assertAlmostEqual(0.0030, evidence.by_chance(
            0.5, 28, 1) or 0.0, 4)
        self.assertEqual(1.0, evidence.by_chance(-0.5, 28, 1))
        self.assertEqual(0.0, evidence.by_chance(1.0, 28, 1))
        self.assertIsNone(evidence.by_chance(0.99, 5.9, 1))

    def test_one_coincidence_of_many(self) -> None:
        spike = [0.0] * 40
        spike[20] = 1.0
        score = evidence.correlation(spike, spike)
        # Of 37 shifts none but by 1 and by 0, which do not count, fit.
        self.assertAlmostEqual(1 / 38, evidence.by_shifts(
            score, spike, [spike]))
        # A series that always changes is in step somewhere.
        other = [1.0, -1.0] * 20
        self.assertGreater(evidence.by_shifts(
            evidence.correlation(other, spike), spike, [other]), 0.4)

    def test_nothing_moves(self) -> None:
        self.assertEqual(1.0, evidence.by_shifts(0.5, [0.0] * 9,
                                                 [[0.0] * 9]))
        self.assertEqual(0.0, evidence.correlation([0.0] * 3, [1, 2, 3]))

    def test_two_tests_and_many_suspects(self) -> None:
        # Fisher: 0.05 x 0.05 (1 - ln 0.0025) = 0.0175
        self.assertAlmostEqual(0.0175, evidence.both(0.05, 0.05), 4)
        self.assertEqual(0.0, evidence.both(0.0, 1.0))
        # 1 - 0.95 ^ 3
        self.assertAlmostEqual(0.142625, evidence.any_of(0.05, 3))
        self.assertAlmostEqual(5.7e-9, evidence.any_of(1e-10, 57), 11)
        self.assertAlmostEqual(1.0, evidence.any_of(1.0, 2))

    def test_uniform_when_nothing_is_there(self) -> None:
        """Of series that have nothing to do with each other, no more than
        the said share looks as if they had."""
        for make in (noise, slow):
            low = 0
            for seed in range(300):
                a, b = make(seed), make(seed + 1000)
                chance = evidence.by_chance(
                    evidence.correlation(a, b), evidence.effective_samples(
                        120, evidence.memory(a), evidence.memory(b)), 1)
                low += chance is not None and chance <= 0.05
            self.assertLess(low / 300, 0.09, make.__name__)


class ExtremesTest(testtools.TestCase):

    def test_low_and_high(self) -> None:
        self.assertEqual((1.0, 8.0), evidence.low_and_high(
            [9, 0, 1, 2, 5, 8, 7]))
        self.assertEqual((4.0, 4.0), evidence.low_and_high([4.0]))
        self.assertTrue(math.isclose(1.5, evidence.low_and_high([1, 2])[0]))
