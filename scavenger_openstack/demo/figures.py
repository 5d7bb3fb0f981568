# SPDX-License-Identifier: Apache-2.0

"""Figures of both acts, and what can come of them."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import math
import statistics

PASSED, FAILED, INCONCLUSIVE = 'passed', 'failed', 'inconclusive'
NOT_JUDGED = 'not judged'
LIMITS_LEFT = 'limits were not as before at the end'


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of them do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
