# SPDX-License-Identifier: Apache-2.0

"""Times: UNIX seconds inside, ISO 8601 in UTC outside."""

from __future__ import annotations

import datetime
import math
from typing import overload


@overload
def iso(time_s: float) -> str: ...


@overload
def iso(time_s: None) -> None: ...


def iso(time_s: float | None) -> str | None:
    """Such as ``2026-11-22T23:57:44.250Z``; ``None`` for what no calendar
    has."""
    if time_s is None or not math.isfinite(time_s):
        return None
    try:
        at = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')


def seconds(text: str) -> float:
    """The UNIX time of an ISO 8601 text, which is in UTC if it names no
    zone.

    :raises ValueError: it is none.
    """
    at = datetime.datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    try:
        return at.timestamp()
    except OverflowError as exc:
        raise ValueError(str(exc)) from exc
