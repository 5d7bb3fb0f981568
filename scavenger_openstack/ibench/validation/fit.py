# SPDX-License-Identifier: Apache-2.0

"""How linear a meter follows the intensity."""

from __future__ import annotations

from collections.abc import Sequence
import statistics
from typing import NamedTuple

TOLERANCE = 0.05
"""A step down of at most this share of the whole span is noise."""


class Fit(NamedTuple):
    """A line through points; ``r2`` is the share of the variance that it
    explains."""

    slope: float
    intercept: float
    r2: float
    monotone: bool


def fit_line(points: Sequence[tuple[float, float]]) -> Fit | None:
    """Return the line of least squares; None for fewer than three points,
    or values that are all the same.

    :param points: intensity and value, in ascending order of intensity
    """
    x = [point[0] for point in points]
    y = [point[1] for point in points]
    if len(points) < 3 or min(x) == max(x) or min(y) == max(y):
        return None
    slope, intercept = statistics.linear_regression(x, y)
    span = max(y) - min(y)
    return Fit(slope, intercept, statistics.correlation(x, y) ** 2,
               slope > 0 and all(after >= before - TOLERANCE * span
                                 for before, after
                                 in zip(y, y[1:], strict=False)))
