# SPDX-License-Identifier: Apache-2.0


"""What has to hold, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from scavenger_openstack.demo import figures
from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo import others

P99_LIMIT = 1.10
TRANSFER_LIMIT = 1.10
CPU_WORK_LIMIT = 0.85
EFFECT = 1.3
"""Below this P99 of unmanaged against alone there is nothing to show."""

P99 = 'P99 against alone'
CPU_WORK = 'batch CPU work against unmanaged'
TRANSFER = 'file transfer against alone'
KNOBS_LEFT = 'knobs left changed'
NEEDED = ('alone', 'unmanaged', 'scavenger')
"""Phases without which nothing is judged."""
ENOUGH = 3
"""Rounds after which the work, or the file transfer, can have missed its limit
for good, at the earliest: one of 12 s scatters by 0.1."""
CHANCE = 2 ** -ENOUGH
"""The chance that :data:`ENOUGH` rounds all miss where a round holds as often
as it misses.  Rounds of which as few hold by a larger chance than this have
not failed: nothing is said.  Where a round scatters by 0.1, and the true ratio
is 0.90, 0.85, 0.80 and 0.75, the quick demo says passed in 84, 63, 37 and 18 %
of cases and failed in 3, 13, 33 and 59 %: one round that holds at once is
enough for it."""


def disturbance(records: Sequence[Mapping[str, Any]],
                pairs: Sequence[Mapping[str, Any]]) -> str:
    """Other load in what had to be set aside, in words; '' for none."""
    looks = [one['others'] for one in records if one['others']['disturbed']]
    looks += [pair[name]['others'] for pair in pairs
              for name in ('alone', 'scavenger')
              if pair[name]['others']['disturbed']]
    if not looks:
        return ''
    phases = [one for one in records if one['others']['disturbed']]
    turns = [pair for pair in pairs if pair['disturbed']]
    return (f'{others.said(looks)}, in {len(phases)} of {len(records)} '
            f'phases and {len(turns)} of {len(pairs)} pairs of turns')


def criteria(phases: Mapping[str, Mapping[str, Any]],
             turned: Mapping[str, Any] | None = None
             ) -> list[dict[str, Any]]:
    """What has to hold; a criterion without its figures is left out.

    ``outcome`` is passed, failed or inconclusive.
    """
    ours, half = phases.get('scavenger'), phases.get('static_half')
    found: list[dict[str, Any]] = []

    def add(name: str, value: float | None, sign: str,
            limit: float) -> None:
        if value is not None:
            found.append({'name': name, 'value': value, 'sign': sign,
                          'limit': limit,
                          'outcome': figures.PASSED
                          if _holds(value, sign, limit)
                          else figures.FAILED})

    def add_rounds(name: str, values: Sequence[float], sign: str,
                   limit: float) -> None:
        add(name, figures.median(values), sign, limit)
        if values:
            found[-1]['rounds'] = list(values)
        holding = sum(_holds(value, sign, limit) for value in values)
        if values and (
                found[-1]['outcome'] == figures.FAILED
                and _chance(holding, len(values)) > CHANCE
                # Two that differ: their median is only their mean.
                or len(values) < ENOUGH and 0 < holding < len(values)):
            found[-1]['outcome'] = figures.INCONCLUSIVE

    if turned and turned['pairs'] and turned['p99_to_alone']:
        known = interval.Interval(turned['p99_to_alone'], turned['low'],
                                  turned['high'])
        found.append({
            'name': P99, 'value': known.value, 'low': known.low,
            'high': known.high, 'pairs': turned['pairs'], 'sign': '<=',
            'limit': P99_LIMIT,
            'outcome': known.against(P99_LIMIT)
            if turned['pairs'] >= interval.LEAST else figures.INCONCLUSIVE})
    if ours:
        add_rounds(CPU_WORK, ours['cpu_to_unmanaged_each'], '>=',
                   CPU_WORK_LIMIT)
        add('memory violations left unanswered',
            sum(one['memory_unanswered'] for one in quiet(ours['rounds'])),
            '<=', 0)
        add_rounds(TRANSFER, ours['transfer_to_alone_each'], '<=',
                   TRANSFER_LIMIT)
    if ours and half and not half['disturbed']:
        whole = {'memory': not any(one['memory_violations']
                                   for one in half['rounds']),
                 'network': (half['transfer_to_alone'] or math.inf)
                 <= TRANSFER_LIMIT}
        for kind, kept in whole.items():
            if kept:
                add(f'batch {kind} work against the half that also keeps '
                    'the service whole', _to_half(ours, half, kind), '>',
                    1.0)
    add(KNOBS_LEFT, len(knobs_left({'phases': phases})), '<=', 0)
    return found


def _to_half(ours: Mapping[str, Any], half: Mapping[str, Any], kind: str
             ) -> float | None:
    """Within a round; where both were quiet in none, of the medians."""
    found: float | None = ours['work_to_half'][kind]
    return found if found is not None else figures.ratio(
        ours['background_work'][kind], half['background_work'][kind])


def _holds(value: float, sign: str, limit: float) -> bool:
    return {'<=': value <= limit, '>=': value >= limit,
            '>': value > limit}[sign]


def _chance(holding: int, count: int) -> float:
    """The chance that at most so many of the rounds hold, where each holds as
    often as it misses: a sign test."""
    return sum(math.comb(count, k) for k in range(holding + 1)) / 2 ** count


def takes_a_round(tests: Sequence[Mapping[str, Any]]) -> bool:
    """Whether another round would tell what is not decided yet."""
    by_name = {str(test['name']): test for test in tests}
    return (by_name.get(P99, {}).get('outcome') == figures.PASSED
            and all(test['outcome'] != figures.FAILED for test in tests)
            and any(test['outcome'] == figures.INCONCLUSIVE
                    and len(test['rounds']) < ENOUGH
                    for test in tests if 'rounds' in test))


def knobs_left(result: Mapping[str, Any]) -> list[str]:
    """Limits that the agent left in force."""
    return [what for phase in result['phases'].values()
            for one in phase['rounds']
            for what in one.get('knobs_left') or ()]


def judge(phases: Mapping[str, Mapping[str, Any]],
          tests: Sequence[Mapping[str, Any]], noise: str = '',
          problem: str = '') -> tuple[str, str]:
    """``passed``, ``failed``, ``inconclusive`` or ``not judged``, and why.

    Other load makes a result inconclusive, whatever the figures say.
    """
    names = [name for name in NEEDED if name not in phases]
    by_name = {str(test['name']): test for test in tests}
    if problem:
        return figures.FAILED, problem + (
            f'; missing: {", ".join(names)}' if names else
            '' if P99 in by_name else '; the turns are missing')
    if by_name[KNOBS_LEFT]['outcome'] == figures.FAILED:
        return figures.FAILED, figures.LIMITS_LEFT
    if names:
        return figures.NOT_JUDGED, f'that takes {", ".join(NEEDED)}'
    missing = [name for name in (P99, CPU_WORK, TRANSFER)
               if name not in by_name]
    if noise and (missing or any(phases[name]['disturbed']
                                 for name in NEEDED)
                  or by_name[P99]['outcome'] == figures.INCONCLUSIVE):
        return figures.INCONCLUSIVE, f'the machine was not quiet: {noise}'
    if missing:
        return figures.INCONCLUSIVE, f'no figure for: {", ".join(missing)}'
    effect = phases['unmanaged']['p99_to_alone']
    if effect is None or effect < EFFECT:
        return figures.INCONCLUSIVE, (
            'the batch work does not disturb the service here, even '
            'unmanaged: there is nothing to show')
    pairs = by_name[P99]['pairs']
    if pairs < interval.LEAST:
        return figures.INCONCLUSIVE, (
            f'{P99}: only {pairs} of {interval.LEAST} pairs of turns')
    failed = [name for name, test in by_name.items()
              if test['outcome'] == figures.FAILED]
    if failed:
        return figures.FAILED, ', '.join(failed)
    if by_name[P99]['outcome'] == figures.INCONCLUSIVE:
        return figures.INCONCLUSIVE, f'{P99}: the interval holds the bar'
    for name, test in by_name.items():
        if test['outcome'] == figures.INCONCLUSIVE:
            holding = sum(_holds(value, test['sign'], test['limit'])
                          for value in test['rounds'])
            return figures.INCONCLUSIVE, (
                f'{name}: holds in {holding} of {len(test["rounds"])} rounds'
                + ('' if len(test['rounds']) >= ENOUGH else
                   f', and {ENOUGH} rounds are needed to say that it does '
                   'not'))
    return figures.PASSED, 'everything holds that has to'


def quiet(rounds: Sequence[Mapping[str, Any]]
          ) -> Sequence[Mapping[str, Any]]:
    """The undisturbed ones; all of them when there is none."""
    return [one for one in rounds
            if not one['others']['disturbed']] or rounds
