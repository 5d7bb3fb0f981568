# SPDX-License-Identifier: Apache-2.0

"""Times that hosts report: some have clocks that are wrong."""

from __future__ import annotations

SLACK_S = 60.0
"""So far apart two clocks may be."""

OLDEST_S = 90 * 86400.0
"""No agent keeps what happened for longer: then it was another clock."""


def moved_s(time_s: float, now: float) -> float:
    """By how much a time of a host has to be moved to be possible: 0, or
    what makes it ``now``.  Durations stay what they are."""
    if now - OLDEST_S <= time_s <= now + SLACK_S:
        return 0.0
    return now - time_s


def offset_s(sent_s: float, now: float) -> float:
    """How far a host's clock is ahead, 0 when it is about right."""
    offset = sent_s - now
    return offset if abs(offset) > SLACK_S else 0.0
