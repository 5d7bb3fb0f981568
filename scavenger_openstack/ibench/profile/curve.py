# SPDX-License-Identifier: Apache-2.0

"""Harm over intensity, and where it reaches the bound of a QoS.

Harm is 0 where a signal is what it is alone and 1 where it is at its bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import math
import statistics
from typing import NamedTuple

from scavenger_openstack.algorithms.profiles import Estimate

BOUND = 1.0
NORMAL = 1.4826
"""Standard deviations of normal noise in a median of absolute deviations."""


class Point(NamedTuple):
    """An intensity in percent, and the harm beside it."""

    percent: float
    harm: float


def crossing(points: Iterable[Point], limit: float = BOUND) -> float:
    """Return the intensity, 0 to 1, at which harm goes above ``limit``.

    Of several points of an intensity the median counts, and more intensity is
    taken to harm no less: isotonic regression removes what noise says
    against that.  Between intensities the curve is straight; it begins at no
    harm.  1: it never does.
    """
    levels: dict[float, list[float]] = {}
    for point in points:
        levels.setdefault(point.percent, []).append(point.harm)
    percents = sorted(levels)
    before, below = 0.0, 0.0
    for percent, harm in zip(percents, _rising(
            [levels[percent] for percent in percents]), strict=True):
        if harm > limit:
            share = (limit - below) / (harm - below)
            return (before + share * (percent - before)) / 100
        before, below = percent, max(harm, 0.0)
    return 1.0


def _rising(levels: Sequence[Sequence[float]]) -> list[float]:
    """Medians of levels, pooled where one is below that before.

    Source: pool adjacent violators (Ayer and others, 1955).
    """
    pools: list[tuple[float, int, int]] = []     # mean, weight, levels
    for values in levels:
        pool = statistics.median(values), len(values), 1
        while pools and pools[-1][0] > pool[0]:
            mean, weight, count = pools.pop()
            both = weight + pool[1]
            pool = ((mean * weight + pool[0] * pool[1]) / both, both,
                    count + pool[2])
        pools.append(pool)
    return [mean for mean, _, count in pools for _ in range(count)]


def tolerated(repeats: Sequence[Sequence[Point]], noise: float) -> Estimate:
    """Return the tolerated intensity, with the lowest and the highest of
    single repeats.

    :param noise: of a single point, as a standard deviation of harm; what is
        not above twice the noise is no harm.  The interval of one repeat is
        where its curve is when all of it is that much higher or lower.
    """
    limit = max(BOUND, 2 * noise)
    value = crossing(itertools.chain.from_iterable(repeats), limit)
    if len(repeats) > 1:
        single = [crossing(points, limit) for points in repeats]
    else:
        single = [crossing((Point(percent, harm + shift)
                            for percent, harm in repeats[0]), limit)
                  for shift in (-noise, noise)]
    return Estimate(value, min(value, *single), max(value, *single))


def caused(alone: Sequence[float], beside: Sequence[float]) -> Estimate:
    """Return the share of its rate alone that a probe loses.

    :param alone: rates, the median of which counts
    :param beside: rates, one of each repeat
    """
    reference = statistics.median(alone)

    def loss(rate: float) -> float:
        return min(1.0, max(0.0, 1 - rate / reference))

    value = loss(statistics.median(beside))
    losses = [loss(rate) for rate in beside]
    return Estimate(value, min(value, *losses), max(value, *losses))


def noise(values: Sequence[float], unit: float) -> float:
    """Return the noise of single values that should be equal, in units.

    Of values in the order of their time only differences of neighbours
    count, so a slow drift is no noise.

    :param unit: what is 1
    """
    differences = [abs(after - before)
                   for before, after in itertools.pairwise(values)]
    if not differences or not unit:
        return 0.0
    return (NORMAL * statistics.median(differences) / math.sqrt(2)
            / abs(unit))
