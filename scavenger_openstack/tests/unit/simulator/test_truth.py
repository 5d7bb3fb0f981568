# SPDX-License-Identifier: Apache-2.0

"""What a tenant's own users saw."""

from __future__ import annotations

import random

import testtools

from scavenger_openstack.simulator.truth import Truth


class Latencies(testtools.TestCase):

    def test_percentiles_within_a_bin(self) -> None:
        random_ = random.Random(1)
        values = sorted(random_.lognormvariate(-5, 1) for _ in range(5000))
        truth = Truth()
        for value in values:
            truth.add(1.0, value)
        for share in (0.5, 0.9, 0.99):
            found = truth.percentile(share)
            assert found is not None
            self.assertLess(abs(found / values[int(share * 5000)] - 1), 0.06)
        mean = truth.result().mean_s
        assert mean is not None
        self.assertAlmostEqual(sum(values) / 5000, mean)

    def test_nothing_seen_is_none(self) -> None:
        result = Truth().result()
        self.assertIsNone(result.p50_s)
        self.assertIsNone(result.p99_s)
        self.assertIsNone(result.mean_s)

    def test_reset_forgets(self) -> None:
        truth = Truth()
        truth.add(5.0, 1.0)
        truth.cpu_work_s = truth.seconds = 3.0
        truth.reset()
        self.assertEqual(Truth().result(), truth.result())
