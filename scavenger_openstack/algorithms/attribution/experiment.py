# SPDX-License-Identifier: Apache-2.0

"""Whether a victim is better off while some suspects are limited: turns with
and without limits, of some seconds each, in a random order.

Chance is counted over the orders: under each other one the limits would have
looked as good by luck alone (Fisher, *The design of experiments*, 1935, the
randomisation test).  None of the constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import itertools
import math
from typing import NamedTuple

TURN_TICKS = 3
"""Of a turn; the first one is not looked at, since a limit may act late."""

TURN_S = 3.0
"""At least."""

PAIRS = 8
"""Pairs of a turn with limits and one without: 256 orders."""

CUT = 0.7
"""Part of its use that a suspect loses for a turn."""

WORKING = 0.5
"""Part of its use before from which a suspect counts as at work while it is
not limited: of one that rests nothing is learnt."""

MOST_BROKEN = 0.25
"""Part of the turns of which nothing may be learnt."""

SLACK = 0.01
"""Part of a turn by which ticks are not punctual."""


class Result(NamedTuple):
    """The signal without and with limits, and the probability that innocents
    look so guilty."""

    free: float
    limited: float
    chance: float


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
        self._used: list[dict[str, list[float]]] = [
            {name: [] for name in uses} for _ in range(2 * PAIRS)]
        self._held: dict[str, float] = {}
        self._began_s: float | None = None
        self._turn: int | None = None

    @property
    def limits(self) -> bool:
        """Whether the suspects are limited in the turn that goes on."""
        return self._turn is not None and self._limits(self._turn)

    def step(self, now: float, level: float | None,
             uses: Mapping[str, float], held: Mapping[str, float]) -> bool:
        """Take a tick; false when all turns are over.

        :param level: the victims' signal in it
        :param uses: what the suspects used
        :param held: what each can use at most under its limit
        """
        if self._began_s is None:
            self._began_s = now
        self._held |= held
        ended, self._turn = self._turn, self._turn_at(now)
        if ended is not None and self._at(now) - ended * self._turn_s > (
                1 + SLACK) * self._turn_s / TURN_TICKS:
            if level is not None and math.isfinite(level):
                self._levels[ended].append(level)
            for name in self.uses:
                if name in uses:
                    self._used[ended][name].append(uses[name])
        return self._turn is not None

    def unheld(self) -> set[str]:
        """The suspects that did not keep to their limits."""
        return {name for name in self.uses if self._broken(name, True)}

    def idle(self) -> set[str]:
        """Those that rested while they were not limited."""
        return {name for name in self.uses if self._broken(name, False)}

    def result(self) -> Result | None:
        """``None`` where too little was measured."""
        means = [sum(levels) / len(levels) if levels else None
                 for levels in self._levels]
        free: list[float] = []
        limited: list[float] = []
        for first, second, limits in zip(means[::2], means[1::2],
                                         self._order, strict=True):
            if first is not None and second is not None:
                free.append(second if limits else first)
                limited.append(first if limits else second)
        if len(free) < PAIRS - 1 or not sum(free) > 0:
            return None
        return Result(sum(free) / len(free), sum(limited) / len(limited),
                      chance([without - with_ for without, with_
                              in zip(free, limited, strict=True)]))

    def _at(self, now: float) -> float:
        return now - (self._began_s or 0.0)

    def _turn_at(self, now: float) -> int | None:
        turn = int(self._at(now) / self._turn_s + SLACK)
        return turn if 0 <= turn < len(self._levels) else None

    def _limits(self, turn: int) -> bool:
        return self._order[turn // 2] == (turn % 2 == 0)

    def _broken(self, name: str, limits: bool) -> bool:
        """Whether too many turns of one kind tell nothing of a suspect."""
        turns = [turn for turn in range(len(self._levels))
                 if self._limits(turn) is limits]
        broken = 0
        for turn in turns:
            used = self._used[turn][name]
            mean = sum(used) / len(used) if used else None
            broken += (mean is None or (
                mean > self._held.get(name, math.inf) if limits
                else mean < WORKING * self.uses[name]))
        return broken > MOST_BROKEN * len(turns)


def chance(steps: Sequence[float]) -> float:
    """Share of all orders under which the steps add up to as much."""
    if not all(map(math.isfinite, steps)):
        return 1.0
    least = sum(steps) - 1e-12 * sum(map(abs, steps))
    orders = itertools.product(*[(step, -step) for step in steps])
    count = sum([sum(order) >= least for order in orders])
    return float(count / 2 ** len(steps))


def halves(weights: Mapping[str, float], names: Collection[str]
           ) -> list[list[str]]:
    """The likeliest of some suspects, those of the highest weights that
    together have half of all, and the rest."""
    total, likely = sum([weights[name] for name in names]), 0.0
    first: list[str] = []
    rest: list[str] = []
    for name in sorted(names, key=lambda name: (-weights[name], name)):
        (first if likely < total / 2 else rest).append(name)
        likely += weights[name]
    return [half for half in (first, rest) if half]
