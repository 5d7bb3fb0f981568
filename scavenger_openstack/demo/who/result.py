# SPDX-License-Identifier: Apache-2.0



"""What the second act showed: who was named, and what limiting them did."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import statistics
from typing import Any

from scavenger_openstack.demo import figures
from scavenger_openstack.demo import others
from scavenger_openstack.demo import table
from scavenger_openstack.demo.table import number
from scavenger_openstack.demo.table import percent
from scavenger_openstack.demo.who import play

ALONE, DISTURBED, LIMITED = 'alone', 'disturbed', 'limited'

RESTORED = 0.75
"""Part of the harm that a limit has to take away."""

DISTURBED_SHARE = 0.1
"""Part of the looks, 10 s apart, that may find other load."""

TITLES = ('service', 'suffers from', 'by', 'named after', 'mean ms alone',
          'disturbed', 'limited', 'P99 ms alone', 'disturbed', 'limited',
          'batch work left')


def summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one act, plain JSON values.

    ``named_s`` is the time since the antagonist first worked, and
    ``worked_s`` how much of it that did.
    """
    victims = {}
    for job in play.JOBS:
        if job.victim:
            victims[job.victim] = _victim(record, job)
    guilty = {job.group for job in play.JOBS if job.victim}
    named = {name for look in record['looks'] for one in look['incidents']
             for name in one['antagonists']}
    limited = {name for look in record['looks'] for name in look['caps']}
    left = record['looks'][-1]['caps']
    criteria = [
        (f'{job.group} is named for {job.victim}, cause {job.cause}',
         victims[job.victim]['named_s'] is not None) for job in play.JOBS
        if job.victim] + [
        (f'limiting it takes {RESTORED:.0%} of the harm away from '
         f'{name}', (one['restored'] or 0.0) >= RESTORED)
        for name, one in victims.items()] + [
        ('no other workload is named or limited',
         not (named | limited) - guilty),
        ('all is as before at the end', not record['knobs_left'])]
    found, why = _verdict(record, [name for name, passed in criteria
                                   if not passed])
    return {
        'verdict': found, 'why': why, 'problem': record['problem'],
        'seconds': record['seconds'], 'sample_s': record['sample_s'],
        'cpus': record['cpus'], 'victims': victims,
        'named': sorted(named), 'limited': sorted(limited),
        'in_force_at_the_end': left, 'knobs_left': record['knobs_left'],
        'criteria': [{'name': name, 'outcome': figures.PASSED if passed
                      else figures.FAILED} for name, passed in criteria]}


def _verdict(record: Mapping[str, Any],
             failed: Sequence[str]) -> tuple[str, str]:
    """passed, failed or inconclusive, and why.

    Other load makes it inconclusive, whatever was found: it may have hidden
    an antagonist, or been one itself.
    """
    if record['problem']:
        return figures.FAILED, (f'{record["problem"]}; what follows ends '
                          f'{record["looks"][-1]["at_s"]:.0f} s after the '
                          'start')
    if record['knobs_left']:
        return figures.FAILED, figures.LIMITS_LEFT
    disturbed = [one for one in record['others'] if one['disturbed']]
    if len(disturbed) > DISTURBED_SHARE * len(record['others']):
        return figures.INCONCLUSIVE, (
            f'the machine was not quiet: {others.said(disturbed)}, in '
            f'{len(disturbed)} of {len(record["others"])} looks')
    if failed:
        return figures.FAILED, ', '.join(f'not so: {name}' for name in failed)
    return figures.PASSED, 'both antagonists were named, and no other workload'


def _victim(record: Mapping[str, Any], job: play.Job) -> dict[str, Any]:
    looks = record['looks']
    first = next((look for look in looks if _names(look, job)), None)
    begun_s = play.QUIET_S + job.offset_s
    states = spans(looks, job)
    latencies: dict[str, list[float]] = {
        ALONE: [], DISTURBED: [], LIMITED: []}
    for at_s, latency_s in record['latencies'][job.victim]:
        state = _at(states, at_s)
        if state in latencies:
            latencies[state].append(1000 * latency_s)
    mean = {state: statistics.fmean(found) if found else None
            for state, found in latencies.items()}
    full, left = (_work(looks, states, job.group, state)
                  for state in (DISTURBED, LIMITED))
    return {
        'signal': job.signal, 'cause': job.cause, 'antagonist': job.group,
        'named_s': first and first['at_s'] - begun_s,
        'worked_s': first and sum(
            after['at_s'] - before['at_s'] for before, after
            in zip(looks, looks[1:], strict=False)
            if before['working'].get(job.group)
            and after['at_s'] <= first['at_s']),
        'outcome': next((one['outcome'] for look in reversed(looks)
                         for one in look['incidents']
                         if one['outcome'] != 'open'
                         and job.group in one['antagonists']), 'open'),
        'mean_ms': mean,
        'p99_ms': {state: figures.percentile(found, 0.99)
                   for state, found in latencies.items()},
        'restored': restored(mean),
        'work_left': left / full if full and left is not None else None}


def _names(look: Mapping[str, Any], job: play.Job) -> bool:
    return any(one['victim'] == job.victim and one['cause'] == job.cause
               and job.group in one['antagonists']
               for one in look['incidents'])


def spans(looks: Sequence[Mapping[str, Any]], job: play.Job
          ) -> list[tuple[float, float, str]]:
    """(from, to, state) of a victim, while one is judged.

    Alone is while neither antagonist works, before the first does.
    """
    found = []
    capped_s: float | None = None
    for before, after in zip(looks, looks[1:], strict=False):
        if job.group in before['caps']:
            capped_s = before['at_s'] if capped_s is None else capped_s
        else:
            capped_s = None
        state = ''
        if 0 <= before['at_s'] and after['at_s'] <= play.QUIET_S:
            state = ALONE
        elif before['working'].get(job.group):
            if capped_s is None:
                state = DISTURBED
            elif before['at_s'] - capped_s >= play.SETTLE_S:
                state = LIMITED
        if state:
            found.append((before['at_s'], after['at_s'], state))
    return found


def _at(states: Iterable[tuple[float, float, str]], at_s: float) -> str:
    return next((state for begin_s, end_s, state in states
                 if begin_s <= at_s < end_s), '')


def _work(looks: Sequence[Mapping[str, Any]],
          states: Iterable[tuple[float, float, str]], group: str,
          wanted: str) -> float | None:
    """Units per second in one state."""
    wanted_at = {begin_s for begin_s, _, state in states if state == wanted}
    units = seconds = 0.0
    for before, after in zip(looks, looks[1:], strict=False):
        if before['at_s'] in wanted_at:
            units += after['work'][group] - before['work'][group]
            seconds += after['at_s'] - before['at_s']
    return units / seconds if seconds else None


def restored(mean: Mapping[str, float | None]) -> float | None:
    """Part of the harm that is gone; ``None`` if there was none."""
    alone, disturbed, limited = (mean[state] for state
                                 in (ALONE, DISTURBED, LIMITED))
    if (alone is None or disturbed is None or limited is None
            or disturbed <= alone):
        return None
    return (disturbed - limited) / (disturbed - alone)


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row per victim, below :data:`TITLES`."""
    return [(
        name, f'{one["signal"]} ({one["cause"]})',
        one['antagonist'] if one['named_s'] is not None else '-',
        f'{number(one["named_s"], 0)} s, {number(one["worked_s"], 0)} '
        'of them at work',
        *(number(one[key][state], digits)
          for key, digits in (('mean_ms', 2), ('p99_ms', 1))
          for state in (ALONE, DISTURBED, LIMITED)),
        percent(one['work_left'])) for name, one in result['victims'].items()]


def text(result: Mapping[str, Any]) -> str:
    """The table, the criteria and the verdict."""
    return table.text(result, [
        f'Who did it? {result["seconds"]:g} s on {result["cpus"]} CPUs, in '
        f'samples of {result["sample_s"]:g} s.'], TITLES, rows(result))
