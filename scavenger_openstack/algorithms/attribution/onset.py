# SPDX-License-Identifier: Apache-2.0

"""When a victim's harm began: before there was evidence of what does it.

None of it is in a paper.
"""

from __future__ import annotations

from collections.abc import Iterable


def onset_s(levels: Iterable[tuple[float, float | None]], threshold: float, *,
            now: float, quiet_s: float, after_s: float) -> float:
    """Return the time of the first sample above a threshold since when there
    was no pause of ``quiet_s``: an incident ends by the same rule.

    :param levels: time in seconds and level of each sample while an
        antagonist was at work, the newest first
    :param now: the answer where no sample of the last ``quiet_s`` is above
    :param after_s: samples up to then are of an earlier incident
    """
    begun_s = now
    for time_s, level in levels:
        if time_s <= after_s or begun_s - time_s >= quiet_s:
            break
        if level is not None and level > threshold:
            begun_s = time_s
    return begun_s
