# SPDX-License-Identifier: Apache-2.0

"""How busy a link may be before what the foreground sends waits too long.

Not in the paper.  Scavenger, section 4.3, gives the background all but the
reserve.  The link is then nearly always full, and each packet of the
foreground waits, however large the reserve is: a wait grows with the share
in which the link is busy, not with the foreground's use.

Letters: C is the capacity in bytes per second, B what a sender hands to the
network card at once in bytes, rho the busy share of the link, W the mean
time in seconds that a packet waits.
"""

from __future__ import annotations

BURST_BYTES = 65536.0
"""The largest burst: what segmentation offload hands over at once."""

BURST_S = 0.001
"""A sender hands over no more than it sends in this time (TSO autosizing),
so bursts are smaller on slow links."""

LEAST_SHARE = 0.1
"""Part of what the reserve leaves that the background has in any case: where
the foreground alone makes a link busier than it may be, its transfers take
at most 1 / (1 - 0.1) times as long for the background's sake."""


def busy_share(capacity: float, wait_s: float) -> float:
    """Return rho, up to which a packet waits for ``wait_s`` on average.

    Bursts that come at random wait at a single server (M/M/1) for
    W = B / C * rho / (1 - rho).
    """
    burst_s = min(BURST_BYTES / capacity, BURST_S)
    return wait_s / (wait_s + burst_s)


def budget(capacity: float, reserved: float, wait_s: float) -> float:
    """Return what the background may send, in bytes per second.

    :param capacity: above 0
    :param reserved: what the foreground keeps, in bytes per second
    :param wait_s: 0: it may fill the link up to the reserve, as in the paper
    """
    left = max(0.0, capacity - reserved)
    if not wait_s:
        return left
    return max(busy_share(capacity, wait_s) * capacity - reserved,
               LEAST_SHARE * left)
