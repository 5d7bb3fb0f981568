# SPDX-License-Identifier: Apache-2.0


"""Which suspects a victim's signal follows, alone or together.

Beyond the papers: CPI2 looks at one suspect at a time (section 4.2 names
groups as its gap) and PerfCloud takes all that correlate; both take a
coincidence for a cause, and attribute to others what a victim does itself.
Here the victim's own load is taken out first, suspects are taken in one after
the other as long as chance does not explain them (DESIGN 7.13), and a suspect
that hardly uses the resource cannot be named however well it correlates.
None of the constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution.evidence import Series

MIN_SAMPLES = 12
"""Samples below which nothing is explained."""

MOST_NAMED = 5
"""Rounds of naming: a sixth is not looked for."""

MOST_SHIFTED = 8
"""Suspects that are shifted in time to see what chance can do."""

MIN_CORRELATION = 0.2
"""Below it a suspect is not looked at; it spares the time."""

ALIKE = 0.8
"""Correlation from which two suspects cannot be told apart in time."""

ALIKE_SHARE = 0.4
"""A suspect that cannot be told apart from an antagonist and moves the
resource at least so much is named with it."""


EXPLAINED = 1e-6
"""Part of a suspect's use that is left when the others explain it all."""


class Explanation(NamedTuple):
    """The suspects that a signal follows.

    ``named``: antagonist -> chance that any innocent scores as high.
    ``scores``: of all that were looked at, the correlation with what the
    victim's own load leaves of the signal, highest first.  ``base`` and
    ``raised``: the signal while the antagonists rest and while they work,
    in the unit of the signal.  ``together``: their use, added up.
    """

    named: Mapping[str, float]
    scores: Sequence[tuple[str, float]]
    base: float
    raised: float
    together: Sequence[float]


def explain(signal: Series, own: Sequence[Series],
            uses: Mapping[str, Series], *, total: Series, max_chance: float,
            min_share: float, min_use: float = 0.0) -> Explanation:
    """Find the suspects whose use a signal follows.

    :param signal: one number per sample, at least :data:`MIN_SAMPLES`
    :param own: what the victim does of itself; it is no suspect's fault
    :param uses: of the contended resource, by suspect; 0 where it is not
    :param total: use of all workloads, the victim's too
    :param max_chance: that any innocent among all suspects is named
    :param min_share: of a high total, by which a suspect's use has to vary;
        a workload that suffers uses more too, but never much
    :param min_use: the same in the unit of the use
    """
    count = len(signal)
    own_span = evidence.span([[1.0] * count, *own])
    known_changes = evidence.span([evidence.changes(values) for values in own])
    left = evidence.without(signal, own_span)
    mean = sum(signal) / count
    nothing = Explanation({}, (), mean, mean, [0.0] * count)
    if evidence.dot(left, left) <= evidence.NEGLIGIBLE * count * mean * mean:
        return nothing
    least = max(min_use, min_share * evidence.low_and_high(total)[1])
    material = [name for name, use in uses.items()
                if _spread(use) >= least > 0]
    if not material:
        return nothing
    moves = {name: evidence.without(uses[name], own_span) for name in material}
    scores = sorted(
        [(name, evidence.correlation(move, left))
         for name, move in moves.items()],
        key=lambda item: (-item[1], item[0]))
    steps = {name: evidence.without(evidence.changes(use), known_changes)
             for name, use in uses.items()}
    named = _name(left, evidence.without(evidence.changes(signal),
                                         known_changes),
                  moves, steps, len(own_span), len(uses), max_chance)
    if not named:
        return nothing._replace(scores=scores)
    _add_those_alike(named, moves, uses)
    together = [sum(at) for at in zip(*[uses[name] for name in named],
                                      strict=True)]
    base, raised = _effect(signal, left, together, own_span)
    return Explanation(named, scores, base, raised, together)


def _name(left: Series, left_steps: Series, moves: Mapping[str, Series],
          steps: Mapping[str, Series], removed: int, suspects: int,
          max_chance: float) -> dict[str, float]:
    """Take suspects in, best first, while chance does not explain them.

    What one explains is taken out of the signal, and out of those that are
    left, before the next is looked for.
    """
    level = evidence.Residuals(left, moves)
    timing = evidence.Residuals(left_steps, steps)
    material = list(moves)
    named: dict[str, float] = {}
    while material and len(named) < MOST_NAMED:
        best = max(material, key=lambda name: (
            level.correlation(name) + timing.correlation(name)))
        if level.correlation(best) < MIN_CORRELATION:
            break
        chance = _chance(best, material, level, timing, removed, suspects,
                         max_chance)
        if chance > max_chance:
            break
        named[best] = chance
        before = {name: level.square(name) for name in material}
        level.take_out(best)
        timing.take_out(best)
        material = [name for name in material if name != best
                    and level.square(name) > EXPLAINED * before[name]]
        removed += 1
    return named


def _chance(name: str, material: Sequence[str], level: evidence.Residuals,
            timing: evidence.Residuals, removed: int, suspects: int,
            max_chance: float) -> float:
    """Chance that any innocent follows the signal as well as this one.

    Two tests that hardly depend on each other: of the levels, and of when
    they change.  Where the second could not save it, it is spared.
    """
    own = level.of(name)
    levels = evidence.by_chance(
        level.correlation(name),
        evidence.effective_samples(len(own), evidence.memory(own),
                                   evidence.memory(level.target)), removed)
    others = [other for other in material if other != name]
    there = set(material)
    others += [name for name in timing.names if name not in there]
    shifted = [name, *others[:MOST_SHIFTED - 1]]

    def any_of(timely: float) -> float:
        return evidence.any_of(
            timely if levels is None else evidence.both(levels, timely),
            suspects)

    least = any_of(1 / (1 + len(shifted) * len(timing.target)))
    if least > max_chance:
        return least
    return any_of(evidence.by_shifts(
        timing.correlation(name), timing.target,
        [timing.of(shift) for shift in shifted]))


def _add_those_alike(named: dict[str, float], moves: Mapping[str, Series],
                     uses: Mapping[str, Series]) -> None:
    """Add workloads that work and rest with an antagonist, and use about as
    much."""
    for first, chance in list(named.items()):
        for name, move in moves.items():
            if (name not in named
                    and _spread(uses[name]) >= ALIKE_SHARE * _spread(
                        uses[first])
                    and evidence.correlation(move, moves[first]) >= ALIKE):
                named[name] = chance


def _effect(signal: Series, left: Series, together: Series,
            own_span: Sequence[Series]) -> tuple[float, float]:
    """The signal while the antagonists rest and while they work.

    Queues are convex, so a straight line ends too low, even below 0: the
    base is never below what was measured.
    """
    move = evidence.without(together, own_span)
    slope = evidence.dot(move, left) / evidence.dot(move, move)
    low, high = evidence.low_and_high(together)
    base = (sum(signal) / len(signal)
            - slope * (sum(together) / len(together) - low))
    raised = base + slope * (high - low)
    return max(base, evidence.low_and_high(signal)[0]), raised


def _spread(use: Series) -> float:
    low, high = evidence.low_and_high(use)
    return high - low
