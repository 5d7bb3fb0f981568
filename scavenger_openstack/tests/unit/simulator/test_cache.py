# SPDX-License-Identifier: Apache-2.0

"""Shared caches and the memory bus."""

from __future__ import annotations

import testtools

from scavenger_openstack.simulator import cache


class MissRatio(testtools.TestCase):

    def test_ends(self) -> None:
        self.assertEqual(0.02, cache.miss_ratio(0.02, 0.6, 100, 100, 1.5))
        self.assertEqual(0.02, cache.miss_ratio(0.02, 0.6, 100, 500, 1.5))
        self.assertEqual(0.6, cache.miss_ratio(0.02, 0.6, 100, 0, 1.5))

    def test_first_bytes_help_most(self) -> None:
        self.assertLess(cache.miss_ratio(0, 1, 100, 50, 2.0), 0.5)


class Occupancy(testtools.TestCase):

    def test_by_insertion(self) -> None:
        self.assertEqual([25.0, 75.0], cache.occupancy(
            [1, 3], [1000, 1000], 100))

    def test_who_inserts_nothing_holds_nothing(self) -> None:
        self.assertEqual([0.0, 100.0], cache.occupancy(
            [0, 1], [1000, 1000], 100))

    def test_never_more_than_the_cache(self) -> None:
        held = cache.occupancy([3, 1, 8, 2], [30, 90, 40, 20], 100)
        self.assertLessEqual(sum(held), 100 + 1e-9)


class Bus(testtools.TestCase):

    def test_empty_and_monotonic(self) -> None:
        self.assertEqual(1.0, cache.latency(0.0))
        values = [cache.latency(n / 50) for n in range(100)]
        self.assertEqual(sorted(values), values)

    def test_half_load_hardly_shows(self) -> None:
        self.assertAlmostEqual(1.25, cache.latency(0.5))

    def test_solution_is_one(self) -> None:
        """The latency that it finds is the one that its load makes."""
        for users in ([(2.0, 1.0, 0.5)], [(0.3, 1.0, 0.0)],
                      [(8.0, 0.5, 0.1), (0.5, 1.0, 2.0)],
                      [(50.0, 0.5, 0.3)], []):
            for before in (1.0, 3.0, 100.0):
                found = cache.bus_latency(users, before)
                load = sum(one / (fixed + stall * found)
                           for one, fixed, stall in users)
                self.assertLess(abs(cache.latency(load) / found - 1), 0.06,
                                (users, before, found))
