# SPDX-License-Identifier: Apache-2.0


"""A cap that finds out by itself how much is too much.

As in PerfCloud's equation 1, a cap is cut when there is contention and
grows along a cubic otherwise: fast at first, hardly near the height where
contention was met last, then faster and faster.  Unlike there it is a
multiple of that height, so no unit has to be told, and an antagonist that
comes back is met at its last good cap.  The constants are not in the paper.
"""

from __future__ import annotations

import math

PROBE = 0.2
"""Part by which a cap grows each step until contention is met at all: how
much is harmless is only guessed when it is set first."""

MOST_PROBE = 1.0
"""The same where it is known how much of the harm is left."""

BINDING = 0.8
"""Only a cap of which so much is used is proved harmless, and grows."""


class Cubic:
    """One cap, in the unit of its knob.

    :param use: what is used when the cap is set first
    :param floor: the cap never goes below it
    :param safe: what could be used without contention, as far as known
    :param cut: part that contention takes away
    :param plateau: steps after a cut until the cap is where it was
    :param met: whether contention was met at ``safe``: it is no guess then
    """

    def __init__(self, use: float, safe: float, *, floor: float,
                 cut: float, plateau: float, met: bool = False) -> None:
        self._floor = floor
        self._cut = cut
        self._plateau = plateau
        self.peak = max(floor, min(use, safe))
        self.value = max(floor, self.peak * (1 - cut))
        self.good = self.value
        self.proved = False
        self._since = 0
        self._met = met

    @property
    def at_floor(self) -> bool:
        return self.value <= self._floor

    @property
    def probing(self) -> bool:
        """Whether it grows without having met contention."""
        return not self._met

    @property
    def harmful(self) -> float | None:
        """The use at which contention was met last."""
        return self.peak if self._met else None

    def contended(self, use: float, *, cut: float) -> None:
        """Contention while ``use`` was used: less, from there."""
        self._cut = cut
        self.peak = max(self._floor, min(self.value, use))
        self.value = max(self._floor, self.peak * (1 - self._cut))
        self._since = 0
        self._met = True

    def probe(self) -> None:
        """Look for contention again: what was taken for it was none."""
        self._met = False

    def quiet(self, use: float, room: float = 1.0) -> None:
        """No contention: what it was is good, and a bit more may be.

        :param room: so many times as much harm is tolerated, if that is known
        """
        if use < BINDING * self.value:
            return
        self.good = self.value
        self.proved = True
        self._since += 1
        self.value = max(
            self._floor, 0.0 if self._met else self.value * min(
                1 + MOST_PROBE, max(1 + PROBE, room)),
            self.peak * height(self._since, cut=self._cut,
                               plateau=self._plateau))


def height(since: float, *, cut: float, plateau: float) -> float:
    """The cap over its peak, ``since`` steps after a cut.

    1 - cut at first, 1 after ``plateau`` steps, 1 + cut after twice as
    many.  Source: PerfCloud, equation 1, with gamma = beta C_max /
    plateau ^ 3.
    """
    return 1 + cut * math.pow(since / plateau - 1, 3)
