# SPDX-License-Identifier: Apache-2.0


"""Which ticks are measured, where measuring all the time is not wanted."""

from __future__ import annotations

SLACK_S = 0.001
"""Ticks are not quite punctual; as in algorithms/sampling."""


class Duty:
    """Which ticks are measured: the last ``sample_s`` of each period.

    The same rule as that of algorithms/sampling, on the same ticks, so that
    what is measured here is what CPI2 looks at.
    """

    def __init__(self, sample_s: float, period_s: float) -> None:
        self._sample_s = sample_s
        self._period_s = period_s
        self._began_s: float | None = None

    def next_is_measured(self, now: float) -> bool:
        """Return whether the tick that begins ``now`` is."""
        if self._period_s <= self._sample_s:
            return True
        if self._began_s is None or not (
                0 <= now - self._began_s <= self._period_s + self._sample_s):
            self._began_s = now     # the first, or the clock jumped
        if now - self._began_s >= self._period_s - SLACK_S:
            self._began_s = now
        return now - self._began_s > (self._period_s - self._sample_s
                                      - SLACK_S)
