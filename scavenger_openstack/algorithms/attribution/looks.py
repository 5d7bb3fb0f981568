# SPDX-License-Identifier: Apache-2.0

"""When the timing of victims is looked at, and what chance each look takes.

Whatever is looked at again and again shows a coincidence in the end.  So the
k-th look takes 6 / (pi k)**2 of the chance, which makes one of all together
(alpha spending), and looks come further apart, since they are at much the same
samples.  None of the constants is in a paper.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.disturbance import Pair

LONGER = 1.0
"""The next look comes after so much more of the time since the first."""

LEAST_SAMPLES = 3
"""Between two looks."""


class _Looks(NamedTuple):
    """The analyses of one pair: the times of the first and of the latest, and
    how many."""

    first_s: float
    latest_s: float
    number: int


class Looks:
    """The analyses of one host, and the chance that each may take.

    :param sample_s: so long a sample is
    :param window_s: the longest time between two looks at what suffers on
    """

    def __init__(self, sample_s: float, window_s: float) -> None:
        self._sample_s, self._window_s = sample_s, window_s
        self._looks: dict[Pair, _Looks] = {}

    def latest_s(self, pair: Pair) -> float:
        """Return when a pair was analysed last."""
        looks = self._looks.get(pair)
        return -math.inf if looks is None else looks.latest_s

    def part(self, now: float, pair: Pair) -> float:
        """The part of the chance that a look now may take; 0: it is not due.

        A look that is due counts.
        """
        looks = self._looks.get(pair, _Looks(now, -math.inf, 0))
        wait_s = LONGER * (looks.latest_s - looks.first_s)
        if now - looks.latest_s < min(self._window_s,
                                      max(
                                          LEAST_SAMPLES * self._sample_s,
                                          wait_s)):
            return 0.0
        number = looks.number + 1
        self._looks[pair] = _Looks(looks.first_s, now, number)
        return 6 / (math.pi * number) ** 2

    def forget(self, now: float, remember_s: float) -> None:
        """Forget those that were not looked at for so long."""
        self._looks = {pair: looks for pair, looks in self._looks.items()
                       if now - looks.latest_s < max(remember_s,
                                                     self._window_s)}
