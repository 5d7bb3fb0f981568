# SPDX-License-Identifier: Apache-2.0


"""Counters of all workloads that stand still."""

from __future__ import annotations

import testtools

from scavenger_openstack.drivers.perf import standstill

SECOND = 1_000_000_000
RAN = (SECOND, SECOND, 1000)
TAKEN = (SECOND, SECOND // 10, 100)
NOTHING = (SECOND, SECOND, 0)


class TestStandstill(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.judged = standstill.Standstill(0.2)

    def news(self, *ticks: tuple[int, int, int]) -> list[bool]:
        return [self.judged.judge(*tick) for tick in ticks]

    def test_it_takes_three_ticks_and_ends_with_one(self) -> None:
        self.assertEqual([False, False, True, False, False],
                         self.news(*[TAKEN] * 5))
        self.assertIn('ran for 10 % of the time', self.judged.why)
        self.assertEqual([True, False], self.news(RAN, RAN))
        self.assertEqual('', self.judged.why)

    def test_a_tick_that_counts_begins_again(self) -> None:
        self.assertEqual([False] * 5,
                         self.news(TAKEN, TAKEN, RAN, TAKEN, TAKEN))

    def test_a_pmu_that_counts_nothing(self) -> None:
        self.assertEqual([False, False, True], self.news(*[NOTHING] * 3))
        self.assertIn('the PMU counts nothing', self.judged.why)

    def test_ticks_that_say_nothing(self) -> None:
        """In which nothing ran, or hardly."""
        self.assertEqual(
            [False] * 9,
            self.news(*[(0, 0, 0)] * 4,
                      *[(standstill.LITTLE_NS - 1,) * 2 + (0,)] * 5))
        self.assertEqual('', self.judged.why)
        self.news(*[TAKEN] * 3)
        self.assertEqual([False], self.news((0, 0, 0)))
        self.assertNotEqual('', self.judged.why)
