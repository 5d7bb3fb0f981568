# SPDX-License-Identifier: Apache-2.0


"""What the rule of the paper does to memory and links over c and w.

It is that of the agent's own controller.  A sample is judged when the rule had
a model before it: what it had reserved, against what the foreground then
used.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import random
import statistics
from typing import Any
from typing import NamedTuple

from traces import DAY_S
from traces import Group
from traces import MEMORY
from traces import Trace

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PAPER

RESAMPLES = 1000
CONFIDENCE = 0.95
LEAST_HELD = 0.5


class Setting(NamedTuple):
    """c, w in samples, and the least headroom as a share of capacity."""

    c: float
    size: int
    min_headroom: float


@dataclasses.dataclass(slots=True)
class Tally:
    """What one trace saw; sums are in shares of the capacity."""

    samples: int = 0
    judged: int = 0
    judged_s: float = 0.0
    violations: int = 0
    overshoot: float = 0.0
    largest: float = 0.0
    afforded: float = 0.0
    possible: float = 0.0


class Range(NamedTuple):
    """An estimate and its interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a setting did to a group.

    ``per_day``: violations per judged day.  ``worst``: the same in the
    worst unit.  ``share``: of judged samples that were violations.
    ``overshoot``, ``largest``: by how much, in shares of the capacity.
    ``afforded``: mean budget of the background as a share of the capacity;
    ``of_oracle``: as a share of what is left to one who knows x.  ``held``:
    share of the samples that could be judged.
    """

    per_day: Range
    worst: float
    share: float
    overshoot: float
    largest: float
    afforded: Range
    of_oracle: float
    held: float


def params(setting: Setting, resource: str,
           interval_s: float) -> scavenger.Params:
    """The agent's parameters with this c and w for this resource."""
    memory = resource == MEMORY
    what = 'memory' if memory else 'network'
    values: dict[str, Any] = {
        f'{what}_c': setting.c,
        f'{what}_window_s': setting.size * interval_s}
    return regulates_only(scavenger.Params(
        reserve_rule=RESERVE_PAPER, min_headroom=setting.min_headroom,
        **values), memory=memory)


def regulates_only(params: scavenger.Params, *,
                   memory: bool) -> scavenger.Params:
    """The same parameters, with the rule of memory or of links alone."""
    return dataclasses.replace(
        params, use_memory=memory, use_network=not memory, use_ipc=False,
        use_cpu_idle=False, use_cpu_set=False)


def run(trace: Trace, setting: Setting, *,
        block_s: float = math.inf) -> list[Tally]:
    """Let the controller watch a trace; a tally per block of time."""
    controller = scavenger.Controller(
        params(setting, trace.resource, trace.interval_s),
        interval_s=trace.interval_s)
    memory, link = trace.resource == MEMORY, trace.resource
    tallies: list[Tally] = []
    upper = before_s = 0.0
    until_s = -math.inf
    violations = 0
    held = False
    for tick in trace.ticks:
        if tick.time_s >= until_s:
            tally = Tally()
            tallies.append(tally)
            until_s = tick.time_s + block_s
        tally.samples += 1
        found: Mapping[str, Any] = controller.step(tick.time_s, tick).facts
        facts = found['memory'] if memory else found['network'].get(link)
        if not facts or facts['rule'] == 'off' or facts['missing_ticks']:
            held = False
            continue
        holding = facts['rule'] == 'holding'
        capacity = facts['capacity']
        if held and holding:
            x = facts['x']
            tally.judged += 1
            tally.judged_s += tick.time_s - before_s
            tally.afforded += max(0.0, 1 - upper / capacity)
            tally.possible += max(0.0, 1 - x / capacity)
            if facts['violations'] > violations:
                over = max(0.0, (x - upper) / capacity)
                tally.violations += 1
                tally.overshoot += over
                tally.largest = max(tally.largest, over)
        upper, violations = facts['upper'], facts['violations']
        before_s, held = tick.time_s, holding
    return tallies


def ratio(tallies: Iterable[Tally], over: str, under: str) -> float:
    """Sum over sum: traces count as much as they were judged."""
    above = below = 0.0
    for tally in tallies:
        above += getattr(tally, over)
        below += getattr(tally, under)
    return above / below if below else 0.0


def resamples(count: int, seed: int = 1) -> list[list[int]]:
    """Which traces to take, with replacement, each time."""
    rng = random.Random(seed)
    return [rng.choices(range(count), k=count) for _ in range(RESAMPLES)]


def interval(tallies: Sequence[Tally], over: str, under: str,
             draws: Sequence[Sequence[int]]) -> Range:
    """A ratio and its bootstrapped percentile interval over traces."""
    value = ratio(tallies, over, under)
    if len(tallies) < 2:
        return Range(value, value, value)
    pairs = [(getattr(one, over), getattr(one, under)) for one in tallies]
    found = []
    for draw in draws:
        above = below = 0.0
        for place in draw:
            above += pairs[place][0]
            below += pairs[place][1]
        if below:
            found.append(above / below)
    found.sort()
    if not found:
        return Range(value, value, value)
    tail = (1 - CONFIDENCE) / 2
    return Range(value, found[int(tail * len(found))],
                 found[int((1 - tail) * len(found)) - 1])


def outcome(tallies: Sequence[Tally],
            draws: Sequence[Sequence[int]]) -> Outcome:
    """What all units of a group say about one setting."""
    per_day = interval(tallies, 'violations', 'judged_s', draws)
    return Outcome(
        per_day=Range(*(rate * DAY_S for rate in per_day)),
        worst=max((one.violations * DAY_S / one.judged_s for one in tallies
                   if one.judged_s), default=0.0),
        share=ratio(tallies, 'violations', 'judged'),
        overshoot=ratio(tallies, 'overshoot', 'violations'),
        largest=max((one.largest for one in tallies), default=0.0),
        afforded=interval(tallies, 'afforded', 'judged', draws),
        of_oracle=ratio(tallies, 'afforded', 'possible'),
        held=ratio(tallies, 'judged', 'samples'))


def sizes(group: Group, windows_s: Iterable[float]) -> list[int]:
    """The windows in samples, as the agent makes them, each once.

    Those that a typical trace does not hold six times are left out: most of
    it would go by while they are learnt.
    """
    most = statistics.median(len(trace.ticks) for trace in group.traces) / 6
    return sorted({size for window_s in windows_s for size in (
        scavenger.samples(window_s, group.interval_s),) if size <= most})


def sweep(group: Group, settings: Iterable[Setting],
          ) -> dict[Setting, Outcome]:
    """Every setting on every trace of a group."""
    draws: list[list[int]] = []
    found = {}
    for setting in settings:
        tallies = [tally for trace in group.traces for tally in
                   run(trace, setting, block_s=group.block_s)]
        draws = draws or resamples(len(tallies))
        found[setting] = outcome(tallies, draws)
    return found


class Choice(NamedTuple):
    """A c and a w in seconds, with what they do to each group."""

    c: float
    window_s: float
    outcomes: tuple[Outcome, ...]

    @property
    def of_oracle(self) -> float:
        """Mean over the groups."""
        return statistics.fmean(one.of_oracle for one in self.outcomes)

    @property
    def per_day(self) -> float:
        """Violations a day in the group that has most."""
        return max(one.per_day.value for one in self.outcomes)


def choices(studies: Sequence[tuple[Group, Mapping[Setting, Outcome]]],
            cs: Iterable[float], windows_s: Iterable[float],
            min_headroom: float) -> list[Choice]:
    """What can be chosen for all groups at once.

    On a coarse trace several windows are the same number of samples.  What
    was learning for most of the time says too little.
    """
    found = []
    for c in cs:
        for window_s in windows_s:
            outcomes = tuple(
                study[setting] for group, study in studies
                for setting in (Setting(c, scavenger.samples(
                    window_s, group.interval_s), min_headroom),)
                if setting in study)
            if len(outcomes) == len(studies) and all(
                    one.held >= LEAST_HELD for one in outcomes):
                found.append(Choice(c, window_s, outcomes))
    return found


def best(found: Iterable[Choice], per_day: float) -> Choice | None:
    """The most background with no more violations a day in any group."""
    return max((one for one in found if one.per_day <= per_day),
               key=lambda one: one.of_oracle, default=None)


def nearest(found: Sequence[Choice], per_day: float, now: Choice, *,
            as_good: float = 0.05) -> Choice | None:
    """Of the choices as good as the best, the one closest to ``now``.

    As good: at most ``as_good`` less of what the oracle gives.  Half a c
    counts as much as a factor of 2 in w.
    """
    top = best(found, per_day)
    if top is None:
        return None

    def distance(one: Choice) -> tuple[float, float]:
        return (abs(one.c - now.c) / 0.5
                + abs(math.log2(one.window_s / now.window_s)),
                -one.of_oracle)

    return min((one for one in found if one.per_day <= per_day
                and one.of_oracle >= top.of_oracle - as_good), key=distance)


class Shape(NamedTuple):
    """Of ``steps`` to the next larger c, or w, with all else the same:
    after how many there were no more violations, and no more background."""

    steps: int
    violations: int
    afforded: int


def shape(study: Mapping[Setting, Outcome], along: str,
          min_headroom: float) -> Shape:
    """Which way the curves of a group go; ``along`` is ``c`` or ``size``."""
    other = 'size' if along == 'c' else 'c'
    rows: dict[float, list[Setting]] = {}
    for setting in study:
        if setting.min_headroom == min_headroom:
            rows.setdefault(getattr(setting, other), []).append(setting)
    steps = violations = afforded = 0
    for row in rows.values():
        row.sort()
        for less, more in zip(row, row[1:], strict=False):
            before, after = study[less], study[more]
            steps += 1
            violations += after.per_day.value <= before.per_day.value
            afforded += after.afforded.value <= before.afforded.value
    return Shape(steps, violations, afforded)
