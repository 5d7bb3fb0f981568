# SPDX-License-Identifier: Apache-2.0


"""How sure a ratio of P99s is: on figures whose truth is known."""

from __future__ import annotations

from collections import Counter
import random

import testtools

from scavenger_openstack.demo import figures
from scavenger_openstack.demo.filling import interval

REQUESTS = 730
"""In a turn of 3.5 s on two CPUs."""
LIMIT = 1.10


def pair(rng: random.Random, harm: float, noise: float) -> interval.Pair:
    """One pair of turns: latencies with a long tail, the same requests in
    both, each disturbed by itself by ``noise`` (of its logarithm)."""
    work = [rng.lognormvariate(1.0, 0.7) for _ in range(REQUESTS)]
    alone, beside = (rng.lognormvariate(0.0, noise) for _ in range(2))
    return interval.Pair(
        [alone * value * rng.lognormvariate(0, 0.1) for value in work],
        [beside * harm * value * rng.lognormvariate(0, 0.1)
         for value in work])


def outcome(seed: str, harm: float, noise: float, most: int = 24) -> str:
    """What a demo would say, that adds pairs until it can tell."""
    rng = random.Random(seed)
    pairs: list[interval.Pair] = []
    found = figures.INCONCLUSIVE
    while len(pairs) < most and found == figures.INCONCLUSIVE:
        pairs += [pair(rng, harm, noise)
                  for _ in range(interval.EVERY if pairs
                                 else interval.LEAST)]
        known = interval.p99_ratio(pairs)
        found = known.against(LIMIT) if known else figures.INCONCLUSIVE
    return found


class IntervalTest(testtools.TestCase):

    def test_value(self) -> None:
        values = [i / 1000 for i in range(1, 101)]
        found = interval.p99_ratio([
            interval.Pair(values, [1.2 * value for value in values])] * 4)
        self.assertEqual((1.2, 1.2, 1.2), tuple(round(one, 9)
                                                for one in found or ()))

    def test_value_is_that_of_all_requests(self) -> None:
        """Harm in few turns is not lost, as it would be in a median."""
        calm, slow = [0.01] * 100, [0.01] * 90 + [0.5] * 10
        pairs = [interval.Pair(calm, calm)] * 8 + [
            interval.Pair(calm, slow)] * 2
        found = interval.p99_ratio(pairs)
        assert found is not None
        self.assertAlmostEqual(50.0, found.value)
        self.assertEqual(figures.INCONCLUSIVE, found.against(LIMIT))

    def test_nothing(self) -> None:
        self.assertIsNone(interval.p99_ratio([]))
        self.assertIsNone(interval.p99_ratio([interval.Pair([], [])]))

    def test_turns_without_a_request_that_counts(self) -> None:
        slow = [0.5] * 100
        found = interval.p99_ratio([interval.Pair([], slow)] * 11
                                   + [interval.Pair([0.01] * 100, slow)])
        assert found is not None
        self.assertEqual((50.0, figures.FAILED),
                         (found.value, found.against(LIMIT)))

    def test_same_seed_same_interval(self) -> None:
        rng = random.Random('pairs')
        pairs = [pair(rng, 1.0, 0.1) for _ in range(12)]
        self.assertEqual(interval.p99_ratio(pairs),
                         interval.p99_ratio(pairs))

    def test_against(self) -> None:
        for low, high, expected in ((1.0, 1.1, 'passed'),
                                    (1.0, 1.11, 'inconclusive'),
                                    (1.10, 1.2, 'inconclusive'),
                                    (1.11, 1.2, 'failed')):
            self.assertEqual(
                expected, interval.Interval(1.1, low, high).against(LIMIT))

    def test_planted(self) -> None:
        """No harm passes, harm of 1.3 is found, noise is inconclusive."""
        for harm, noise, expected, least in (
                (1.0, 0.05, 'passed', 5), (1.3, 0.05, 'failed', 5),
                (1.3, 0.1, 'failed', 4), (1.1, 0.4, 'inconclusive', 3)):
            found = Counter(outcome(f'{i}', harm, noise, 16)
                            for i in range(5))
            self.assertGreaterEqual(found[expected], least, f'{harm} {found}')
            if harm != 1.1:
                self.assertEqual(5, found[expected] + found['inconclusive'],
                                 f'{harm} {found}')
