# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import testtools

from scavenger_openstack.drivers.kernel import token_bucket

RATES = [digit * 10**exponent for exponent in range(1, 11)
         for digit in (1, 2, 5)]
MTUS = (68, 1500, 9000, 65535)


class Bucket(testtools.TestCase):
    """Sizes along the whole range of rates, recomputed by hand."""

    def test_slow_rates_hold_a_whole_gso_packet(self) -> None:
        # 72 KiB; 5 ms of 125000 B/s is 625 bytes only.
        self.assertEqual((125000, 73728, 73728 + 262144, 73728),
                         token_bucket.bucket(125000, 1500))

    def test_long_packets_fit(self) -> None:
        self.assertEqual(4 * 65553, token_bucket.bucket(125000, 65535).burst)

    def test_fast_rates_hold_five_milliseconds(self) -> None:
        # 200 Mbit/s: 25e6 / 200 = 125000, 25e6 / 20 = 1.25e6
        self.assertEqual((25000000, 125000, 125000 + 1250000, 73728),
                         token_bucket.bucket(25000000, 1500))

    def test_never_less_than_either(self) -> None:
        for rate in RATES:
            _, burst, limit, _ = token_bucket.bucket(rate, 1500)
            self.assertGreaterEqual(burst, rate // 200)
            self.assertGreaterEqual(burst, 73728)
            self.assertGreaterEqual(limit - burst, rate // 20)

    def test_what_was_admitted_fits_after_any_change(self) -> None:
        for mtu in MTUS:
            found = [token_bucket.bucket(rate, mtu) for rate in RATES]
            longest, = {each.longest for each in found}
            self.assertLessEqual(longest, min(each.burst for each in found))
            self.assertGreaterEqual(longest, 4 * (mtu + 18))
