# SPDX-License-Identifier: Apache-2.0

"""Fair shares of a budget: weighted max-min."""

from __future__ import annotations

from collections.abc import Sequence
import math

DEMAND_FACTOR = 1.25
"""Demand of a workload over what it uses now.  Source: DESIGN 7.6."""

LIGHTEST = 2.0 ** -100
"""A weight has to be above that: what is divided by less is not finite."""


def split(budget: float, demands: Sequence[float], weights: Sequence[float],
          floors: Sequence[float]) -> list[float]:
    """Share out a budget: weighted max-min over demand, floors first.

    Progressive filling: one water level L rises from 0, and share i is
    ``weight_i * L``, but at least ``floor_i`` and at most ``demand_i`` (or
    the floor, if that is more), until the budget is used up.  What is left
    when all demand is met goes to all by weight, so that the shares add up
    to the budget.  If the floors alone need the budget or more, the shares
    are the floors: the caller opens an incident ``overcommitted``.

    All arguments in the unit of the budget, weights without unit.  A weight
    that is not above 0 (:data:`LIGHTEST`) gets its floor and no more, except
    when none is: then all weigh the same.  A demand that is not a number
    counts as 0, so does a budget.  Source: DESIGN 7.6.

    :raises ValueError: the three sequences differ in length.
    """
    lows = list(floors)
    if not lows and not demands and not weights:
        return []
    if not any(LIGHTEST < weight < math.inf for weight in weights):
        weights = [1.0] * len(weights)
    used = math.fsum(lows)
    if not budget > used:
        if not len(demands) == len(weights) == len(lows):
            raise ValueError('demands, weights and floors differ in length')
        return lows
    highs = []
    events = []
    for demand, weight, low in zip(demands, weights, lows, strict=True):
        high = demand if demand > low else low
        highs.append(high)
        if LIGHTEST < weight < math.inf and high > low:
            events.append((low / weight, weight))
            events.append((high / weight, -weight))
    events.sort()
    level = slope = 0.0
    for at, change in events:
        step = slope * (at - level)
        if used + step >= budget:
            break
        used += step
        slope += change
        level = at
    else:
        return _give_rest(budget, highs, weights, lows)
    level += (budget - used) / slope
    shares = []
    for high, weight, low in zip(highs, weights, lows, strict=True):
        share = weight * level if LIGHTEST < weight < math.inf else low
        shares.append(low if share < low else min(share, high))
    return shares


def _give_rest(budget: float, highs: Sequence[float],
               weights: Sequence[float], lows: Sequence[float],
               ) -> list[float]:
    shares = [high if LIGHTEST < weight < math.inf else low
              for high, weight, low in zip(highs, weights, lows, strict=True)]
    total = math.fsum(weight for weight in weights
                      if LIGHTEST < weight < math.inf)
    level = max(0.0, budget - math.fsum(shares)) / total
    return [share + weight * level if LIGHTEST < weight < math.inf else share
            for share, weight in zip(shares, weights, strict=True)]
