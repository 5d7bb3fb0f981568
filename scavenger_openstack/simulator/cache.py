# SPDX-License-Identifier: Apache-2.0


"""What sharing a last-level cache and a memory bus does to CPI."""

from __future__ import annotations

from collections.abc import Sequence
import math

LINE_BYTES = 64
WRITE_BACK = 1.3
"""Bytes on the bus per byte missed: some lines are written back."""

REFRESH = 0.3
"""What a hit does to keep a line, as a share of what a miss does: 1 in a
cache that replaces the least recently used, 0 in one that replaces at
random; real ones lie between."""

FULL = 0.95
"""No bus does better than this share of its nominal bandwidth."""


def miss_ratio(least: float, most: float, footprint_bytes: float,
               held_bytes: float, curve: float) -> float:
    """Share of the cache accesses that miss, by what the cache holds.

    From ``most`` with nothing held down to ``least`` with the whole
    footprint; ``curve`` 1 is a straight line, above 1 the first bytes help
    most.
    """
    if held_bytes >= footprint_bytes:
        return least
    return least + (most - least) * math.pow(
        1 - held_bytes / footprint_bytes, curve)


def occupancy(insertions: Sequence[float], footprints: Sequence[float],
              size_bytes: float) -> list[float]:
    """Bytes of a cache that each of its users holds.

    The shares of a cache are the shares of what is put into it; nothing
    holds more than the footprint.
    """
    held = [0.0] * len(insertions)
    open_ = [i for i, rate in enumerate(insertions) if rate > 0]
    left = size_bytes
    while open_:
        total = sum([insertions[i] for i in open_])
        full = [i for i in open_
                if left * insertions[i] >= footprints[i] * total]
        if not full:
            for i in open_:
                held[i] = left * insertions[i] / total
            break
        for i in full:
            held[i] = footprints[i]
            left -= footprints[i]
        open_ = [i for i in open_ if i not in full]
        if left <= 0:
            break
    return held


def latency(load: float) -> float:
    """Latency of memory as a multiple of the unloaded one.

    ``load`` is the share of the bandwidth in use.  Flat at first, steep at
    the end, as measured curves are.
    """
    busy = min(load, FULL)
    factor = 1 + busy * busy / (2 * (1 - busy))
    return factor if load <= FULL else factor * load / FULL


def bus_latency(users: Sequence[tuple[float, float, float]],
                before: float) -> float:
    """Latency of memory over the unloaded one, with all its users on it.

    Each user puts ``load / (fixed + stall x latency)`` of the bandwidth on
    the bus: what waits longer asks less often.  That has one solution, which
    is sought from where it was ``before``.
    """
    low, high = 1.0, latency(sum([load / (fixed + stall)
                                  for load, fixed, stall in users]))
    if high < 1.02:
        return high
    guess = before if low < before < high else math.sqrt(high)
    for _ in range(12):
        implied = latency(sum([load / (fixed + stall * guess)
                               for load, fixed, stall in users]))
        if abs(implied - guess) < 0.01 * guess:
            break
        low = max(low, min(implied, guess))
        high = min(high, max(implied, guess))
        guess = math.sqrt(low * high)
    return guess
