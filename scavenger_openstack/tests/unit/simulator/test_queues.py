# SPDX-License-Identifier: Apache-2.0

"""Disks and links."""

from __future__ import annotations

import testtools

from scavenger_openstack.simulator import queues


class Disk(testtools.TestCase):

    def test_open_is_mm1(self) -> None:
        # s / (1 - rho) at rho = 0.5 and 0.8.
        self.assertAlmostEqual(0.02, queues.disk_response(0.01, 50, []))
        self.assertAlmostEqual(0.05, queues.disk_response(0.01, 80, []))

    def test_open_and_closed(self) -> None:
        # R = s (1 + 4) / (1 - 0.5).
        self.assertAlmostEqual(0.1, queues.disk_response(
            0.01, 50, [(4, float('inf'))]))

    def test_a_cap_makes_the_closed_one_open(self) -> None:
        # 20 op/s of a depth of 4: R = s / (1 - 0.7) = 33 ms, of which it
        # keeps 0.67 in flight, less than its depth.
        self.assertAlmostEqual(0.01 / 0.3, queues.disk_response(
            0.01, 50, [(4, 20)]))

    def test_the_disk_does_no_more_than_it_can(self) -> None:
        for rate in (0, 20, 60):
            for depth in (1, 8, 64):
                found = queues.disk_response(0.01, rate,
                                             [(depth, float('inf'))])
                self.assertLessEqual(rate + queues.closed_rate(
                    0.01, found, depth, float('inf')), 100 + 1e-9)

    def closed(self, *depths: float, rate: float = 0.0) -> list[float]:
        found = queues.disk_response(
            0.01, rate, [(depth, float('inf')) for depth in depths])
        return [round(queues.closed_rate(0.01, found, depth, float('inf')),
                      6) for depth in depths]

    def test_who_is_alone_never_waits(self) -> None:
        # One operation in flight, for a part of the time or always.
        self.assertEqual([20.0], self.closed(0.2))
        self.assertEqual([100.0], self.closed(1))
        self.assertEqual([100.0], self.closed(9))

    def test_closed_beside_open(self) -> None:
        # Mean value analysis by hand: R = s (1 + N), N = 0.5 / s x R', where
        # those that come from outside find R' = s (1 + N + 1): R = 3 s.
        self.assertEqual([round(100 / 3, 6)], self.closed(1, rate=50))

    def test_a_cap_on_the_closed_one(self) -> None:
        found = queues.disk_response(0.01, 0.0, [(4, 20)])
        self.assertEqual(20, queues.closed_rate(0.01, found, 4, 20))


class Link(testtools.TestCase):

    def test_fair(self) -> None:
        self.assertEqual([10, 45, 45], queues.fair([10, 80, 60], 100))
        self.assertEqual([10, 20], queues.fair([10, 20], 100))
        self.assertEqual([], queues.fair([], 100))

    def test_wait(self) -> None:
        # Half loaded, M/M/1 with bursts of 64 KiB: one burst's time.
        self.assertAlmostEqual(65536 / 1e8, queues.link_wait(
            0.5, 1e8, 1.5e6))

    def test_quantiles_keep_the_mean(self) -> None:
        points = queues.quantiles(0.01, 0.02, 0.003)
        self.assertAlmostEqual(1.0, sum(share for share, _ in points))
        mean = sum(share * value for share, value in points)
        self.assertLess(abs(mean / 0.033 - 1), 0.05)
