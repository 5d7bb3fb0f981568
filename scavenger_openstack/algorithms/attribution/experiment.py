# SPDX-License-Identifier: Apache-2.0

"""Who disturbs, where neither direct evidence nor timing tells: limit some
suspects for seconds, at random, and see whether the victim is better off then.

What is limited does not know when, so the order of the turns makes chance
count: under each other order it would have looked as good by luck alone
(Fisher, *The design of experiments*, 1935, the randomisation test).  None of
the constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import itertools

TURN_S = 2.0
"""A limit is there, or is not, for so long, but at least for a tick."""

SLACK = 0.01
"""Part of a turn by which ticks are not punctual."""

PAIRS = 8
"""Pairs of a turn with and one without: 256 orders."""

CUT = 0.7
"""Part of its use that a suspect loses for a turn."""

MOST_EXPERIMENTS = 4
"""Of one search; ``max_chance`` is for all of them together."""

WORKING = 0.5
"""Part of its use before from which a suspect counts as at work while it is
not limited: one that rests then tells nothing."""

MOST_BROKEN = 0.25
"""Part of the turns that may tell nothing."""


class Experiment:
    """Turns with and without limits on some suspects.

    :param uses: what each of them uses, in the unit of the knob
    :param turn_s: how long a turn lasts
    :param seed: the order of the turns follows from it
    """

    def __init__(self, uses: Mapping[str, float], turn_s: float, seed: str
                 ) -> None:
        self.uses = dict(uses)
        self._turn_s = turn_s
        bits = hashlib.sha256(seed.encode('utf-8', 'surrogatepass')).digest()
        self._order = [byte % 2 == 0 for byte in bits[:PAIRS]]
        self._levels: list[list[float]] = [[] for _ in range(2 * PAIRS)]
        self._broken: set[int] = set()
        self._began_s: float | None = None

    def turn(self, now: float) -> int | None:
        """Which turn it is, ``None`` when all are over."""
        if self._began_s is None:
            self._began_s = now
        turn = int((now - self._began_s) / self._turn_s + SLACK)
        return turn if 0 <= turn < len(self._levels) else None

    def limits(self, turn: int) -> bool:
        """Whether the suspects are limited in this turn."""
        return self._order[turn // 2] == (turn % 2 == 0)

    def add(self, turn: int, level: float | None, uses: Mapping[str, float],
            held: float) -> None:
        """Take what was measured in a turn.

        :param level: the victim's signal
        :param uses: what the suspects used
        :param held: what they use together under their limits, at most
        """
        used = sum([uses.get(name, 0.0) for name in self.uses])
        if level is None or (
                used > held if self.limits(turn)
                else used < WORKING * sum(self.uses.values())):
            self._broken.add(turn)
        else:
            self._levels[turn].append(level)

    @property
    def broken(self) -> bool:
        """Whether it tells nothing: the suspects rested, or were not held."""
        return len(self._broken) > MOST_BROKEN * len(self._levels)

    def result(self) -> tuple[float, float, float] | None:
        """The signal without and with limits, and the probability that an
        innocent looks so guilty; ``None`` where too little was measured.
        """
        means = [sum(levels) / len(levels) if levels else None
                 for levels in self._levels]
        free: list[float] = []
        limited: list[float] = []
        for first, second, limits in zip(means[::2], means[1::2],
                                         self._order, strict=True):
            if first is not None and second is not None:
                free.append(second if limits else first)
                limited.append(first if limits else second)
        if self.broken or len(free) < PAIRS - 1:
            return None
        steps = [one - two for one, two in zip(free, limited, strict=True)]
        return (sum(free) / len(free), sum(limited) / len(limited),
                chance(steps))


def chance(steps: Sequence[float]) -> float:
    """Share of all orders under which the steps add up to as much."""
    least = sum(steps) - 1e-12 * sum(map(abs, steps))
    orders = itertools.product(*[(step, -step) for step in steps])
    count = sum([sum(order) >= least for order in orders])
    return float(count / 2 ** len(steps))


def halves(weights: Mapping[str, float]) -> list[list[str]]:
    """The likeliest suspects, those of the highest weights that together have
    half of all, and the rest."""
    total, likely = sum(weights.values()), 0.0
    first: list[str] = []
    rest: list[str] = []
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        (first if likely < total / 2 else rest).append(name)
        likely += weights[name]
    return [names for names in (first, rest) if names]
