# SPDX-License-Identifier: Apache-2.0


"""How sure a ratio of two P99s is, from pairs of short turns.

The service is given the same requests twice, a few seconds apart: once alone
and once beside the regulated batch work.  Such a pair shares whatever the
machine does for longer than that.  The figure is the P99 of all requests
beside the batch work over the P99 of all requests alone, so harm in a few
turns is not lost as it would be in a median.  How far it may be off is found
by a bootstrap: pairs are drawn with replacement, and the ratio is computed of
each draw.  Pairs, not requests, are drawn, since requests that wait in one
queue are not independent.

How often it is wrong was simulated: 730 requests per turn, each turn slower or
faster by 8 % of itself (as seen on a virtual machine of two CPUs), 12 to 24
pairs, a bar of 1.10, 60 demos each; the model is that of the unit test::

    true ratio  passed  failed  inconclusive
    1.00          60       0         0
    1.05          43       0        17
    1.10           9       7        44
    1.15           0      30        30
    1.20           0      54         6
    1.30           0      60         0
"""

from __future__ import annotations

from collections.abc import Sequence
import math
import random
import statistics
from typing import NamedTuple

from scavenger_openstack.demo import figures

LEVEL = 0.90
"""Share of the draws inside the interval; one in twenty lies above it."""
DRAWS = 400
LEAST = 12
"""Pairs before anything is decided."""
EVERY = 4
"""Pairs between two decisions: each look at the figures is one more chance
to be wrong."""
SHARE = 0.99
TAIL = 0.05
"""Largest requests that can be the P99 of a draw: the others are left out
of the draws, which makes them thirty times as fast."""


class Pair(NamedTuple):
    """Latencies in s of the same requests, in two turns."""

    alone: Sequence[float]
    beside: Sequence[float]


class Interval(NamedTuple):
    """A figure, and where it lies with a probability of :data:`LEVEL`."""

    value: float
    low: float
    high: float

    def against(self, limit: float) -> str:
        """``passed`` when all of it is at ``limit`` or below, ``failed`` when
        all of it is above, else ``inconclusive``."""
        if self.high <= limit:
            return figures.PASSED
        return (figures.FAILED if self.low > limit
                else figures.INCONCLUSIVE)


def p99_ratio(pairs: Sequence[Pair], *, seed: str = '1') -> Interval | None:
    """P99 beside the batch work over P99 alone; None without any request."""
    alone = _Side([pair.alone for pair in pairs])
    beside = _Side([pair.beside for pair in pairs])
    every = range(len(pairs))
    if not alone.p99(every) or not beside.p99(every):
        return None
    rng = random.Random(seed)
    ratios = []
    for _ in range(DRAWS):
        draw = rng.choices(every, k=len(pairs))
        if p99 := alone.p99(draw):      # else it has no request alone
            ratios.append(beside.p99(draw) / p99)
    value = beside.p99(every) / alone.p99(every)
    ratios = sorted(ratios) or [value]
    cut = round((1 - LEVEL) / 2 * len(ratios))
    least = math.exp(_scatter(alone, beside, len(pairs)))
    return Interval(value, min(ratios[cut], value / least),
                    max(ratios[-1 - cut], value * least))


def _scatter(alone: _Side, beside: _Side, count: int) -> float:
    """How far the mean of the pairs' own ratios may be off, as a logarithm.

    The P99 of all rests on the few worst turns when turns differ much: then
    the draws have too little to draw from, and their interval is too short.
    """
    known = [math.log(beside.p99([i]) / alone.p99([i]))
             for i in range(count) if alone.p99([i]) and beside.p99([i])]
    if len(known) < 2:
        return 0.0
    z = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2)
    return z * statistics.stdev(known) / math.sqrt(len(known))


class _Side:
    """The slowest requests of each turn, ready to be drawn."""

    def __init__(self, turns: Sequence[Sequence[float]]) -> None:
        every = sorted(value for turn in turns for value in turn)
        least = (every[int((1 - TAIL) * len(every))] if every else 0.0)
        self._counts = [len(turn) for turn in turns]
        self._tails = [[value for value in turn if value >= least]
                       or [max(turn, default=0.0)] for turn in turns]

    def p99(self, draw: Sequence[int]) -> float:
        """The smallest value that 99 % of a draw do not exceed; 0 of an
        empty one."""
        count = sum(self._counts[i] for i in draw)
        above = count - math.ceil(SHARE * count)
        tail = sorted((value for i in draw for value in self._tails[i]),
                      reverse=True)
        return tail[min(above, len(tail) - 1)] if tail else 0.0
