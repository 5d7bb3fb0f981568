# SPDX-License-Identifier: Apache-2.0

"""The rules for a reserve side by side, and beside two that no agent has.

*Last day's maximum* keeps the highest use of the last 24 hours.  *Next hour's
oracle* keeps the highest use of the coming hour, so it has no violations and
no model: a rule that gives away much more than it does not reserve enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import NamedTuple

import charts
from charts import number
from charts import percent
from sweep import regulates_only
from traces import DAY_S
from traces import Group
from traces import HOUR_S
from traces import MEMORY
from traces import OTHERS
from traces import Trace

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PEAK
from scavenger_openstack.algorithms.scavenger.params import RESERVE_RULES
from scavenger_openstack.algorithms.scavenger.scavenger import Params

PERIODS_S = (600.0, 1800.0, 3600.0, 7200.0, 18000.0)
LEAST_OF_ORACLE = 0.75
OLDEST_S = 6 * HOUR_S


class Kept(NamedTuple):
    """What one tick left, in shares of the capacity.

    ``upper``: the reserve, ``None`` without one; ``age_s``: how long ago its
    model was made.
    """

    time_s: float
    x: float
    upper: float | None
    age_s: float = 0.0


@dataclasses.dataclass(slots=True)
class Result:
    """What one rule did to one trace; sums are in shares of the capacity.

    ``idle``: what was not used; ``oracle``: what next hour's oracle gives.
    """

    samples: int = 0
    judged: int = 0
    judged_s: float = 0.0
    violations: int = 0
    given: float = 0.0
    idle: float = 0.0
    oracle: float = 0.0
    oldest_s: float = 0.0

    @property
    def per_day(self) -> float:
        """Violations a judged day."""
        return (self.violations * DAY_S / self.judged_s if self.judged_s
                else 0.0)


class Total(NamedTuple):
    """What one rule did to a group; shares are ``None`` where nothing was
    judged."""

    per_day: float
    worst: float
    of_idle: float | None
    of_oracle: float | None
    oldest_s: float
    held: float


def play(trace: Trace, params: Params) -> Iterator[Kept]:
    """Yield what the agent's own controller keeps at each tick."""
    memory = trace.resource == MEMORY
    controller = scavenger.Controller(
        regulates_only(params, memory=memory), interval_s=trace.interval_s)
    peak = params.reserve_rule == RESERVE_PEAK
    made_s, level = 0.0, None
    for tick in trace.ticks:
        found: Any = controller.step(tick.time_s, tick).facts
        facts = (found['memory'] if memory
                 else found['network'].get(trace.resource))
        if not facts or facts['rule'] == 'off' or facts['missing_ticks']:
            continue
        before, level = level, facts['level']
        # A maximum is as old as the sample that makes it, a mean as old as
        # the last change of it.
        if level is None or level != before or peak and facts['x'] >= level:
            made_s = tick.time_s
        capacity = facts['capacity']
        yield Kept(tick.time_s, facts['x'] / capacity, (
            facts['upper'] / capacity if facts['rule'] == 'holding'
            else None), tick.time_s - made_s)


def last_maximum(points: Iterable[Kept],
                 period_s: float = DAY_S) -> Iterator[Kept]:
    """Yield the highest use of the last ``period_s`` as the reserve."""
    highest: deque[tuple[float, float]] = deque()
    for time_s, x, *_ in points:
        while highest and highest[-1][1] <= x:
            highest.pop()
        highest.append((time_s, x))
        while highest[0][0] < time_s - period_s:
            highest.popleft()
        yield Kept(time_s, x, highest[0][1], time_s - highest[0][0])


def next_maximum(points: Sequence[Kept],
                 period_s: float = HOUR_S) -> list[Kept]:
    """Return the highest use of the coming ``period_s`` as the reserve;
    ``None`` where no sample is within it."""
    found: list[Kept] = []
    highest: deque[tuple[float, float]] = deque()
    for place in reversed(range(len(points))):
        time_s, x, *_ = points[place]
        while highest and highest[0][0] > time_s + period_s:
            highest.popleft()
        found.append(Kept(time_s, x, highest[0][1] if highest else None))
        while highest and highest[-1][1] <= x:
            highest.pop()
        highest.append((time_s, x))
    return found[::-1]


def judge(points: Sequence[Kept], oracle: Sequence[Kept]) -> Result:
    """Compare what was kept with what is used at the next tick."""
    result = Result(samples=max(0, len(points) - 1))
    for before, coming, now in zip(points, oracle, points[1:], strict=False):
        if before.upper is None or coming.upper is None:
            continue
        result.judged += 1
        result.judged_s += now.time_s - before.time_s
        result.given += max(0.0, 1 - before.upper)
        result.idle += max(0.0, 1 - now.x)
        result.oracle += max(0.0, 1 - coming.upper)
        result.oldest_s = max(result.oldest_s, before.age_s)
        result.violations += now.x > before.upper + 1e-12
    return result


def total(results: Sequence[Result]) -> Total:
    """Sum up a group: each trace counts as much as it was judged."""
    def ratio(above: str, below: str) -> float | None:
        divisor = math.fsum(getattr(one, below) for one in results)
        return (math.fsum(getattr(one, above) for one in results) / divisor
                if divisor else None)

    per_s = ratio('violations', 'judged_s')
    return Total((per_s or 0.0) * DAY_S,
                 max((one.per_day for one in results), default=0.0),
                 ratio('given', 'idle'), ratio('given', 'oracle'),
                 max((one.oldest_s for one in results), default=0.0),
                 ratio('judged', 'samples') or 0.0)


def compare(group: Group, params: Params) -> dict[str, Total]:
    """Return what each rule does to a group, by its name."""
    rows: dict[str, list[Result]] = {}
    variants: dict[str, Params] = {
        name: dataclasses.replace(params, reserve_rule=name)
        for name in RESERVE_RULES if name != RESERVE_PEAK}
    for period_s in sorted({*PERIODS_S, in_use(params, group.resource)}):
        variants[peak_name(period_s)] = dataclasses.replace(
            params, reserve_rule=RESERVE_PEAK, memory_peak_s=period_s,
            network_peak_s=period_s)
    for trace in group.traces:
        played = {name: list(play(trace, one))
                  for name, one in variants.items()}
        points = next(iter(played.values()))
        oracle = next_maximum(points)
        played["last day's maximum"] = list(last_maximum(points))
        played["next hour's oracle"] = oracle
        for name, kept in played.items():
            rows.setdefault(name, []).append(judge(kept, oracle))
    return {name: total(results) for name, results in rows.items()}


def in_use(params: Params, resource: str) -> float:
    """Seconds for which the highest use counts now."""
    return (params.memory_peak_s if resource == MEMORY
            else params.network_peak_s)


def peak_name(period_s: float) -> str:
    """Return how the tables call the rule with this period."""
    return f'{RESERVE_PEAK}, {charts.seconds(period_s)}'


def section(group: Group, totals: dict[str, Total]) -> Iterator[str]:
    """Yield the table of one group."""
    yield f'### {group.title}\n'
    yield charts.table(
        ('rule', 'violations a day', 'worst trace',
         'given, % of idle', "given, % of next hour's oracle",
         'oldest model', 'held %'),
        [(name, number(one.per_day), number(one.worst),
          share(one.of_idle), share(one.of_oracle),
          f'{one.oldest_s / HOUR_S:.1f} h', f'{100 * one.held:.0f}')
         for name, one in totals.items()])


def share(value: float | None) -> str:
    """A share in percent, if there is one."""
    return '' if value is None else percent(value)


def advice(resource: str, studies: Sequence[tuple[Group, dict[str, Total]]],
           most: float, params: Params) -> tuple[str, str, str, str, str]:
    """Return the row on how long the highest use should count.

    Made-up series count where there are no traces.
    """
    traced = [study for study in studies
              if study[0].basis == OTHERS] or [*studies]
    now_s = in_use(params, resource)

    def reaches(name: str) -> bool:
        return all(
            totals[name].per_day <= most
            and (totals[name].of_oracle or 0.0) >= LEAST_OF_ORACLE
            and totals[name].oldest_s <= OLDEST_S for _, totals in traced)

    def words(name: str) -> str:
        return ', '.join(
            f'{group.key} {number(totals[name].per_day)} a day at '
            f'{share(totals[name].of_oracle)} %' for group, totals in studies)

    fitting = [period_s for period_s in PERIODS_S
               if reaches(peak_name(period_s))]
    chosen_s = (now_s if reaches(peak_name(now_s)) else min(
        fitting, key=lambda one: abs(math.log(one / now_s)), default=None))
    bars = (f'at most {number(most)} violations a day and at least '
            f"{100 * LEAST_OF_ORACLE:.0f} % of next hour's oracle in every "
            f'group of {", ".join(sorted({one[0].basis for one in traced}))}')
    if chosen_s is None:
        to, reason = 'none', f'no period has {bars}. '
    else:
        to = ('keep' if chosen_s == now_s
              else f'change: {peak_name(chosen_s)}')
        reason = f'{bars} have: ' + ', '.join(
            map(charts.seconds, fitting)) + '. '
    return (resource, peak_name(now_s), to,
            ', '.join(dict.fromkeys(one[0].basis for one in studies)),
            reason + f'With what is in use: {words(peak_name(now_s))}')
