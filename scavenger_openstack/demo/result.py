# SPDX-License-Identifier: Apache-2.0

"""The result of the act: figures, criteria and the verdict.

The limits are wide on purpose: a hog makes the P99 of the service several
times as long, and the agent has to take away half of that.  The effect of
other programs on both figures is small beside.  How close a managed service
comes to one alone is measured by ``benchmarks/agent/demos.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.agent.events import sentences
from scavenger_openstack import amounts
from scavenger_openstack.demo import play
from scavenger_openstack.demo import service
from scavenger_openstack.events import incident_event
from scavenger_openstack.text import columns
from scavenger_openstack.text import wrap
from scavenger_openstack import types
from scavenger_openstack.wire import json_fields

PASSED, FAILED, INCONCLUSIVE = 'passed', 'failed', 'inconclusive'
EXIT = {PASSED: 0, FAILED: 1, INCONCLUSIVE: 3}

EFFECT = 1.5
"""P99 beside the hog over the lower of those alone and under the agent, below
which there is nothing to show."""
RESTORED = 0.5
"""Part of the harm that the agent has to take away."""
BUSY_CPUS = 0.5
"""CPU time of other programs, in CPUs, above which a criterion that does not
hold makes the verdict inconclusive instead of failed."""
CURVE_S = 2.0
"""Time of each point of the curves."""

ALONE, UNMANAGED, MANAGED = 'alone', 'beside the hog', 'under the agent'

TITLES = ('service', 'requests', 'P50 ms', 'P99 ms', 'against alone',
          'service CPUs', 'hog CPUs')
LISTING = ('Antagonist', 'Host', 'Project', 'Incidents', 'Victims',
           'Interference', 'Causes', 'Disturbs Now', 'Limited Now')
"""The columns of ``openstack antagonist list``."""
LISTING_WORDS = ('What "openstack antagonist list" prints of it; made of what '
                 'the agent reports, since no control plane runs (--keep '
                 'starts one):')


def summary(record: Mapping[str, Any], knobs_left: Sequence[str] | None
            ) -> dict[str, Any]:
    """Return the result of an act, in plain JSON values.

    :param record: that of :meth:`play.Act.play`
    :param knobs_left: knobs that the agent left changed; ``None``: it still
        runs
    """
    spans = {ALONE: (0.0, record['hog_s']),
             UNMANAGED: (record['hog_s'], record['agent_s'])}
    if record['managed_s'] is not None:
        spans[MANAGED] = (record['managed_s'], record['end_s'])
    phases = {name: _phase(record, *span) for name, span in spans.items()}
    alone, unmanaged, managed = (
        phases.get(name, {}).get('p99_ms')
        for name in (ALONE, UNMANAGED, MANAGED))
    # What other programs did to the service alone is no harm of the hog.
    base = min(filter(None, (alone, managed)), default=None)
    effect = unmanaged / base if unmanaged and base else None
    restored = ((unmanaged - managed) / (unmanaged - base)
                if unmanaged and base and managed and unmanaged > base
                else None)
    others = set(record['named']) - {play.HOG}
    criteria = [
        ('the agent names the hog and limits it',
         record['limited_s'] is not None),
        (f'that takes at least {RESTORED:.0%} of the harm away',
         restored is not None and restored >= RESTORED),
        ('nothing else is named', not others)]
    if knobs_left is not None:
        criteria.append(('all limits are as before at the end',
                         not knobs_left))
    other_cpus = _other_cpus(record)
    named_s = record['named'].get(play.HOG)
    result = {
        'cpus': len(record['cpus']), 'phases': phases, 'effect': effect,
        'restored': restored, 'other_cpus': other_cpus,
        'named_after_s': (None if named_s is None
                          else named_s - record['hog_s']),
        'limit_cores': record['samples'][-1]['limits'].get(play.HOG),
        'moments': {name: record[name] for name in (
            'hog_s', 'agent_s', 'limited_s', 'managed_s', 'end_s')}
        | {'named_s': named_s},
        'incidents': [sentences.of_incident(incident_event(
            0.0, 'changed', '', incident, 0.0))
            for incident in _incidents(record)],
        'antagonists': listing(record), 'problems': record['problems'],
        'knobs_left': list(knobs_left or ()),
        'criteria': [{'name': name, 'outcome': PASSED if holds else FAILED}
                     for name, holds in criteria],
        'curves': _curves(record)}
    verdict, why = _verdict(result, others)
    return {'verdict': verdict, 'why': why, **result}


def _verdict(result: Mapping[str, Any], others: set[str]) -> tuple[str, str]:
    failed = [row['name'] for row in result['criteria']
              if row['outcome'] != PASSED]
    if result['knobs_left']:
        return FAILED, f'at the end: {result["knobs_left"][0]}'
    if others:
        return FAILED, f'{", ".join(sorted(others))} is named, too'
    busy = ('' if result['other_cpus'] < BUSY_CPUS else
            f'; other programs used {result["other_cpus"]:.1f} of '
            f'{result["cpus"]} CPUs: run it again when they have ended')
    if not result['effect'] or result['effect'] < EFFECT:
        return INCONCLUSIVE, ('the hog does not disturb the service here: '
                              'there is nothing to show' + busy)
    if failed:
        why = 'not so: ' + ', '.join(failed)
        return (INCONCLUSIVE, why + busy) if busy else (FAILED, why)
    return PASSED, (
        f'the agent named the hog {result["named_after_s"]:.0f} s after it '
        f'began, and limiting it took {result["restored"]:.0%} of the harm '
        'away')


def _phase(record: Mapping[str, Any], begin_s: float, end_s: float
           ) -> dict[str, Any]:
    values = [1000 * latency_s for due_s, latency_s in record['latencies']
              if begin_s <= due_s < end_s]
    samples = [sample for sample in record['samples']
               if begin_s <= sample['at_s'] < end_s]
    return {'seconds': end_s - begin_s, 'requests': len(values),
            'p50_ms': service.percentile(values, 0.5),
            'p99_ms': service.percentile(values, 0.99),
            **{f'{group.rpartition("/")[2]}_cores': _cores(samples, group)
               for group in play.GROUPS}}


def _cores(samples: Sequence[Mapping[str, Any]], group: str) -> float | None:
    """Return the CPUs that a group used from the first sample to the last."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    return float((last['cpu_s'][group] - first['cpu_s'][group])
                 / (last['at_s'] - first['at_s']))


def _other_cpus(record: Mapping[str, Any]) -> float:
    first, last = record['samples'][0], record['samples'][-1]
    busy_s, demo_s = (last[key] - first[key] for key in ('busy_s', 'demo_s'))
    return float(max(0.0, busy_s - demo_s) / (last['at_s'] - first['at_s']))


def _incidents(record: Mapping[str, Any]) -> list[types.Incident]:
    """Return the incidents that the agent reported, without empty fields."""
    return [json_fields.incident(incident, 'incident')
            for incident in record['incidents']]


def listing(record: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows below :data:`LISTING`, the worst antagonist first."""
    rows = []
    by_workload: dict[str, list[types.Incident]] = {}
    for incident in _incidents(record):
        for workload in incident.antagonists:
            by_workload.setdefault(workload, []).append(incident)
    for workload, incidents in by_workload.items():
        lasted_s = sum(record['status_s'] - incident.time_s
                       for incident in incidents)
        group = workload.removeprefix(record['tree'])
        rows.append((lasted_s, [
            workload, record['host'], '-', str(len(incidents)),
            str(len({incident.victim for incident in incidents})),
            amounts.of_duration(lasted_s),
            ', '.join(sorted({incident.cause for incident in incidents})),
            'yes',
            'yes' if group in record['samples'][-1]['limits'] else 'no']))
    return [row for _, row in sorted(rows, key=lambda item: -item[0])]


def _curves(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the curves of the picture: lists of a moment and values."""
    bins: dict[int, list[float]] = {}
    for due_s, latency_s in record['latencies']:
        bins.setdefault(int(due_s / CURVE_S), []).append(1000 * latency_s)
    latency = [[(number + 0.5) * CURVE_S, service.percentile(values, 0.5),
                service.percentile(values, 0.99)]
               for number, values in sorted(bins.items())]
    samples = record['samples']
    step = max(1, round(CURVE_S / play.EVERY_S))
    pairs = list(zip(samples[::step], samples[step::step], strict=False))
    return {
        'latency_ms': latency,
        'cores': {group.rpartition('/')[2]: [
            [after['at_s'], _cores((before, after), group)]
            for before, after in pairs] for group in play.GROUPS},
        'limit_cores': [[sample['at_s'], sample['limits'].get(play.HOG)]
                        for sample in samples]}


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with so many digits; ``-`` is not known."""
    return '-' if value is None else f'{value:.{digits}f}'


def rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return one row per phase, below :data:`TITLES`."""
    alone = result['phases'][ALONE]['p99_ms']
    return [[name, str(phase['requests']), number(phase['p50_ms'], 0),
             number(phase['p99_ms'], 0),
             '-' if not alone or phase['p99_ms'] is None
             else f'{phase["p99_ms"] / alone:.1f} times',
             number(phase['service_cores'], 2),
             number(phase['hog_cores'], 2)]
            for name, phase in result['phases'].items()]


def first_line(result: Mapping[str, Any]) -> str:
    return f'{result["verdict"]}: {result["why"]}'


def text(result: Mapping[str, Any]) -> str:
    """Return the result for people: verdict, table, incident, listing."""
    marks = {PASSED: 'ok      ', FAILED: 'FAILED  '}
    lines = [first_line(result), '', *columns(TITLES, rows(result)), '']
    for incident in result['incidents']:
        lines += [*wrap(incident, 79), '']
    for problem in result['problems']:
        lines += [*wrap(f'The agent reports: {problem}', 79), '']
    lines += [marks[row['outcome']] + row['name']
              for row in result['criteria']]
    lines += result['knobs_left']
    if result['antagonists']:
        lines += ['', *wrap(LISTING_WORDS, 79), '', *columns(
            LISTING, result['antagonists'], left=range(len(LISTING)))]
    return '\n'.join(lines)
