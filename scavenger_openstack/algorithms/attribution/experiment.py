# SPDX-License-Identifier: Apache-2.0

"""Whether a victim is better off while some suspects are limited: turns with
and without limits, of some seconds each, in a random order.

A turn waits while its suspects rest: of two antagonists that alternate the
victim is compared with itself under the same one.

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

RESTS = WORKING * (1 - CUT)
"""Part of its use before below which a suspect rests, with a limit or without:
were it less under a limit, turns with and without would be of other times."""

LONGEST = 4
"""Times as long as its turns an experiment lasts at most with all waiting."""

MOST_BROKEN = 0.25
"""Part of the turns of which nothing may be learnt."""

LATEST = 2
"""Turns without limits by which a victim suffers still, or does not."""

SLACK = 0.01
"""Part of a turn by which ticks are not punctual."""


class Suspect(NamedTuple):
    """A suspect: what it uses, in the unit of the knob, and how likely it
    is."""

    use: float
    weight: float


class Result(NamedTuple):
    """The signal without and with limits, and the probability that innocents
    look so guilty."""

    free: float
    limited: float
    chance: float


class Experiment:
    """Turns with and without limits on some suspects.

    :param suspects: those that are limited together
    :param turn_s: how long a turn lasts
    :param seed: the order of the turns follows from it
    """

    def __init__(self, suspects: Mapping[str, Suspect], turn_s: float,
                 seed: str) -> None:
        self.suspects = dict(suspects)
        self._turn_s = turn_s
        bits = hashlib.sha256(seed.encode('utf-8', 'surrogatepass')).digest()
        self._order = [byte % 2 == 0 for byte in bits[:PAIRS]]
        self._levels: list[list[float]] = [[] for _ in range(2 * PAIRS)]
        self._used: list[dict[str, list[float]]] = [
            {name: [] for name in suspects} for _ in range(2 * PAIRS)]
        self._held: dict[str, float] = {}
        self._ends_s: float | None = None
        self._turn = 0      # that goes on, or is next
        self._began_s: float | None = None

    @property
    def limits(self) -> bool:
        """Whether the suspects are limited in the turn that goes on."""
        return not self.waits and self._limits(self._turn)

    def step(self, now: float, level: float | None,
             uses: Mapping[str, float], held: Mapping[str, float]) -> bool:
        """Take a tick; false when all turns are over, or have waited for too
        long.

        :param level: the victims' signal in it
        :param uses: what the suspects used
        :param held: what each can use at most under its limit
        """
        if self._ends_s is None:
            self._ends_s = now + LONGEST * len(self._levels) * self._turn_s
            self._began_s = now
            return True
        self._held |= held
        if self._began_s is None:
            self._began_s = None if self._rest(uses) else now
        elif now - self._began_s > (1 + SLACK) * self._turn_s / TURN_TICKS:
            self._take(now - self._began_s, now, level, uses)
        return now < self._ends_s and self._turn < len(self._levels)

    def _take(self, elapsed_s: float, now: float, level: float | None,
              uses: Mapping[str, float]) -> None:
        """Take a tick of a turn that is not its first."""
        levels, used = self._levels[self._turn], self._used[self._turn]
        if self._rest(uses):        # the turn begins again when they work
            levels.clear()
            for values in used.values():
                values.clear()
            self._began_s = None
            return
        if level is not None and math.isfinite(level):
            levels.append(level)
        for name, values in used.items():
            if name in uses:
                values.append(uses[name])
        if elapsed_s > (1 - SLACK) * self._turn_s:
            self._turn, self._began_s = self._turn + 1, now

    def _rest(self, uses: Mapping[str, float]) -> bool:
        """Whether those that rest are the likelier half of the suspects."""
        weights = {name: suspect.weight
                   for name, suspect in self.suspects.items()}
        return sum([weight for name, weight in weights.items()
                    if uses.get(name, math.inf)
                    < RESTS * self.suspects[name].use]
                   ) > sum(weights.values()) / 2

    @property
    def waits(self) -> bool:
        """Whether no turn goes on, since the suspects rest."""
        return self._began_s is None

    @property
    def free(self) -> float | None:
        """The signal in the latest turns without limits; ``None`` before."""
        free = [levels for turn, levels in enumerate(
            self._levels[:self._turn]) if levels and not self._limits(turn)]
        latest = [level for levels in free[-LATEST:] for level in levels]
        return (sum(latest) / len(latest) if len(free) >= LATEST else None)

    def unheld(self) -> set[str]:
        """The suspects that did not keep to their limits."""
        return {name for name in self.suspects if self._too_many([
            mean is not None and mean > self._held.get(name, math.inf)
            for mean in self._means(name, limits=True)])}

    def idle(self) -> set[str]:
        """Return suspects that rested while they were not limited, or of which
        nothing is known."""
        return {name for name, suspect in self.suspects.items()
                if self._too_many([
                    mean is None or mean < WORKING * suspect.use
                    for mean in self._means(name, limits=False)])
                or self._too_many([mean is None for mean in self._means(
                    name, limits=True)])}

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

    def _limits(self, turn: int) -> bool:
        return self._order[turn // 2] == (turn % 2 == 0)

    def _means(self, name: str, *, limits: bool) -> list[float | None]:
        """Return what a suspect used in each turn of one kind."""
        return [sum(used) / len(used) if (used := uses[name]) else None
                for turn, uses in enumerate(self._used)
                if self._limits(turn) is limits]

    @staticmethod
    def _too_many(broken: Sequence[bool]) -> bool:
        """Whether too many turns tell nothing of a suspect."""
        return sum(broken) > MOST_BROKEN * len(broken)


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
