# SPDX-License-Identifier: Apache-2.0


"""What is named, on series that were made with a known truth."""

from __future__ import annotations

import random

import testtools

from scavenger_openstack.algorithms.attribution.explanation import explain
from scavenger_openstack.algorithms.attribution.explanation import Explanation

COUNT = 120


def bursts(rng: random.Random, period: int, share: float = 0.5,
           level: float = 1.0) -> list[float]:
    """On and off, beginning anywhere."""
    begin = rng.randrange(period)
    return [level * (1.0 if (n + begin) % period < share * period else 0.05)
            * (1 + rng.gauss(0, 0.05)) for n in range(COUNT)]


class ExplainTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.rng = random.Random(7)
        self.load = [1 + 0.1 * self.rng.gauss(0, 1) for _ in range(COUNT)]
        self.innocents = {
            f'batch{n}': bursts(self.rng, self.rng.randrange(8, 60))
            for n in range(4)}

    def explain(self, signal: list[float], uses: dict[str, list[float]],
                own: list[list[float]] | None = None) -> Explanation:
        uses = self.innocents | uses
        total = [sum(at) for at in zip(*uses.values(), strict=True)]
        return explain(signal, [self.load] if own is None else own, uses,
                       total=total, max_chance=0.05, min_share=0.05)

    def signal(self, *parts: tuple[float, list[float]],
               noise: float = 0.03) -> list[float]:
        return [1 + sum([factor * use[n] for factor, use in parts])
                + self.rng.gauss(0, noise) for n in range(COUNT)]

    def test_one_antagonist(self) -> None:
        hog = bursts(self.rng, 40)
        found = self.explain(self.signal((0.5, hog)), {'hog': hog})
        self.assertEqual(['hog'], list(found.named))
        self.assertLess(found.named['hog'], 1e-3)
        self.assertEqual('hog', found.scores[0][0])
        self.assertAlmostEqual(1.0, found.base, 1)
        self.assertAlmostEqual(1.5, found.raised, delta=0.1)
        self.assertEqual(hog, list(found.together))

    def test_it_works_only_once(self) -> None:
        hog = [1.0 if 50 <= n < 90 else 0.0 for n in range(COUNT)]
        found = self.explain(self.signal((0.4, hog)), {'hog': hog})
        self.assertEqual(['hog'], list(found.named))

    def test_it_has_only_just_begun(self) -> None:
        hog = [1.0 if n >= COUNT - 3 else 0.0 for n in range(COUNT)]
        found = self.explain(self.signal((0.4, hog)), {'hog': hog})
        self.assertEqual(['hog'], list(found.named))
        self.assertAlmostEqual(1.4, found.raised, 1)

    def test_two_that_take_turns(self) -> None:
        first = [1.0 if n % 60 < 20 else 0.0 for n in range(COUNT)]
        second = [1.0 if 20 <= n % 60 < 40 else 0.0 for n in range(COUNT)]
        found = self.explain(self.signal((0.4, first), (0.4, second)),
                             {'first': first, 'second': second})
        self.assertEqual({'first', 'second'}, set(found.named))

    def test_a_group_that_works_together(self) -> None:
        begin = bursts(self.rng, 50)
        group = {f'vm{n}': [use * (1 + self.rng.gauss(0, 0.05))
                            for use in begin] for n in range(5)}
        found = self.explain(self.signal(*[(0.1, use) for use
                                           in group.values()]), group)
        self.assertEqual(set(group), set(found.named))

    def test_who_hardly_uses_it_is_not_named(self) -> None:
        hog = bursts(self.rng, 40)
        shadow = [0.01 * use for use in hog]
        found = self.explain(self.signal((0.5, hog)),
                             {'hog': hog, 'shadow': shadow})
        self.assertEqual(['hog'], list(found.named))

    def test_its_own_load_explains_it(self) -> None:
        """A look-alike works whenever the victim does."""
        day = [1 + use for use in bursts(self.rng, 30)]
        alike = [value * (1 + self.rng.gauss(0, 0.05)) for value in day]
        signal = self.signal((0.5, day))
        self.assertEqual({}, self.explain(signal, {'alike': alike},
                                          [day]).named)
        # Without the victim's load it would have been named.
        self.assertIn('alike', self.explain(signal, {'alike': alike},
                                            []).named)

    def test_the_base_is_never_below_what_was_measured(self) -> None:
        """Queues are convex: a straight line ends below 0."""
        hog = [min(0.95, use * self.rng.uniform(0.3, 1))
               for use in bursts(self.rng, 40)]
        signal = [0.01 * use / (1 - use) * self.rng.uniform(0.97, 1.03)
                  for use in hog]
        found = self.explain(signal, {'hog': hog})
        self.assertIn('hog', found.named)
        self.assertGreaterEqual(found.base, min(signal))

    def test_all_suspects_are_equal(self) -> None:
        """They cannot be told apart, so they did it together."""
        hog = bursts(self.rng, 40)
        self.innocents = {}
        found = self.explain(self.signal((0.2, hog)),
                             {f'vm{n}': list(hog) for n in range(4)})
        self.assertEqual({'vm0', 'vm1', 'vm2', 'vm3'}, set(found.named))

    def test_a_constant_signal(self) -> None:
        hog = bursts(self.rng, 40)
        found = self.explain([2.0] * COUNT, {'hog': hog})
        self.assertEqual({}, found.named)
        self.assertEqual((2.0, 2.0), (found.base, found.raised))

    def test_constant_suspects_and_none(self) -> None:
        signal = self.signal()
        self.innocents = {}
        for uses in ({'hog': [3.0] * COUNT}, {'hog': [0.0] * COUNT}):
            self.assertEqual({}, self.explain(signal, uses).named)

    def test_innocents_are_rarely_named(self) -> None:
        """At most the chance that was asked for, whatever their rhythm and
        whatever moves the signal."""
        wrong = 0
        hosts = 200
        for seed in range(hosts):
            self.rng = rng = random.Random(seed)
            hidden = bursts(rng, rng.randrange(10, 60))
            self.innocents = {
                f'batch{n}': bursts(rng, rng.randrange(6, 80),
                                    rng.uniform(0.2, 0.8))
                for n in range(6)}
            found = self.explain(self.signal((0.3, hidden)), {})
            wrong += bool(found.named)
        # Of 200 with 5 %, more than 19 are a chance of 0.2 %.
        self.assertLess(wrong, 20)
