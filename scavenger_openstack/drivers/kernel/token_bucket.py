# SPDX-License-Identifier: Apache-2.0


"""How large a token bucket for a rate is.

The kernel admits packets up to the longest that the bucket can hold at that
moment.  When a bucket is made smaller, a longer one that waits already waits
for ever, and all behind it.  So what is admitted never changes, and every
bucket can hold it.  The price: the kernel fills a bucket whenever its rate is
changed, so each change lets one bucketful through.
"""

from __future__ import annotations

from typing import NamedTuple

BURST_S = 0.005
"""A bucket holds what the rate brings in this time, so that a timer that
fires a few milliseconds late (a busy CPU) costs no throughput."""

BURST_PACKETS = 4
"""A bucket holds at least this many full packets.  A packet that the bucket
cannot hold would be dropped, and with one or two TCP cannot keep two
segments in flight."""

GSO_BYTES = 73728
"""A bucket holds at least a whole GSO packet: 64 KiB, and the headers of
segments of 500 bytes or more.  Longer ones are cut into their segments."""

QUEUE_S = 0.05
"""What may wait: what the rate carries away in this time."""

QUEUE_BYTES = 262144
"""At least this much may wait: four whole GSO packets.  With half of it a new
BBR connection at 125,000 B/s overfills the queue and loses a quarter of its
first three seconds; with this it loses nothing
(``benchmarks/drivers/egress.py``)."""

_ETHERNET_BYTES = 18


class TokenBucket(NamedTuple):
    """A token bucket: its rate, burst and limit.

    :param rate: bytes per second
    :param burst: bytes that may go at once
    :param limit: bytes that may wait
    :param longest: bytes of the longest packet that is admitted in one
        piece, no more than ``burst``
    """

    rate: int
    burst: int
    limit: int
    longest: int


def bucket(rate: int, mtu: int) -> TokenBucket:
    """The token bucket for a rate on a device.

    :param rate: bytes per second
    :param mtu: bytes, without the Ethernet header (14, and 4 for a VLAN)
    """
    longest = max(GSO_BYTES, BURST_PACKETS * (mtu + _ETHERNET_BYTES))
    burst = max(round(rate * BURST_S), longest)
    return TokenBucket(rate, burst, burst + max(round(rate * QUEUE_S),
                                                QUEUE_BYTES), longest)
