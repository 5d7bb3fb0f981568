# SPDX-License-Identifier: Apache-2.0

"""Figures, criteria and the verdict.

*Memory violations.*  A step up of the service's memory *met the wall* when
the host (the cgroup that plays it) refused a page during that step: the
count of refusals is read right before and right after it.  It was left
*unanswered* when the step took longer than its half second by one tick and
a quarter, or when after that time and before the next step less than 2 %
of the host's memory was free: the next step would meet the wall, too.
Both are seen from outside; the agent is not asked.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from scavenger_openstack.demo import figures
from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo.filling import verdict
from scavenger_openstack.demo.load import load

SCHEMA = 2
ANSWER_S = 1.25
WALL_SHARE = 0.02
HOG_SHARE = 0.9
"""What the memory user takes of its limit (:file:`hoard.c`)."""

WORK = ('cpu', 'memory', 'network')
FIGURES = ('p50_ms', 'p99_ms', 'p999_ms', 'foreground_transfer_s',
           'memory_violations', 'memory_unanswered', 'cpu_use',
           'kills', 'caps_set', 'step_s')


def at_the_wall(steps: Iterable[Sequence[float]]
                ) -> list[tuple[float, float]]:
    """(moment, how long it took) of the steps up that met the wall; 0 s
    is one that is still under way."""
    found = []
    for step in map(load.Step._make, steps):
        if (step.due_s >= 0 and step.change_mib > 0
                and step.refused_after > step.refused_before):
            found.append((step.begun_s, step.took_s))
    return found


def violations(steps: Sequence[load.Step],
               samples: Sequence[Mapping[str, Any]],
               memory_bytes: int) -> tuple[int, int]:
    """Steps that met the wall, and those of them left unanswered."""
    met = unanswered = 0
    for step, following in zip(steps, [*steps[1:], None], strict=False):
        if not at_the_wall([step]):
            continue
        met += 1
        answer_s = (step.begun_s + ANSWER_S
                    + step.change_mib / load.STORE_MIB_PER_S)
        until_s = following.begun_s if following else math.inf
        end_s = step.begun_s + step.took_s if step.took_s else math.inf
        unanswered += end_s > answer_s or any(
            memory_bytes - sample['memory_bytes'] < WALL_SHARE * memory_bytes
            for sample in samples if answer_s <= sample['at_s'] < until_s)
    return met, unanswered


def transfers(files: Sequence[load.File], end_s: float) -> list[float]:
    """How long each file took, in s.

    One that is still on its way counts as long as it is on its way
    already, once that is longer than an undisturbed one takes.
    """
    undisturbed_s = load.FILE_BYTES / load.FILE_BYTES_PER_S
    return ([file.took_s for file in files
             if file.took_s and file.begun_s + file.took_s >= 0]
            + [end_s - file.begun_s for file in files
               if not file.took_s and end_s - file.begun_s > undisturbed_s])


def record(*, phase: str, number: int,
           requests: Sequence[tuple[float, float]], unserved: int,
           steps: Sequence[load.Step], files: Sequence[load.File],
           samples: Sequence[dict[str, Any]], caps_set: int, kills: int,
           cpus: int, memory_bytes: int,
           outside_late_s: Sequence[float] = (),
           other: Mapping[str, Any]) -> dict[str, Any]:
    """One phase of one round: its figures and, under ``series``, its plots.

    ``background_work`` is per second: CPU seconds (so CPUs kept busy), GiB
    held, bytes delivered.

    :param requests: (moment due in s, latency in s), measured ones only
    :param outside_late_s: what :file:`outside.c` recorded
    """
    first, last = samples[0], samples[-1]
    seconds = last['at_s'] - first['at_s'] or 1.0

    def per_s(key: str) -> float:
        return float(last[key] - first[key]) / seconds

    latencies = [latency_s * 1000 for _, latency_s in requests]
    sent = transfers(files, last['at_s'])
    up = [step for step in steps if step.due_s >= 0 and step.change_mib > 0]
    met, unanswered = violations(steps, samples, memory_bytes)
    return {
        'phase': phase, 'round': number,
        'p50_ms': figures.percentile(latencies, 0.5),
        'p99_ms': figures.percentile(latencies, 0.99),
        'p999_ms': figures.percentile(latencies, 0.999),
        'requests': len(latencies), 'unserved': unserved,
        'background_work': {'cpu': per_s('work_cpu_s'),
                            'memory': per_s('work_memory_gib_s'),
                            'network': per_s('work_network_bytes')},
        'foreground_transfer_s': figures.median(sent), 'transfers': len(sent),
        'memory_steps': len(up), 'memory_violations': met,
        'memory_unanswered': unanswered,
        'step_s': figures.median(step.took_s or last['at_s'] - step.begun_s
                         for step in up),
        'foreground_peak_bytes': max(sample['foreground_bytes']
                                     for sample in samples),
        'cpu_use': per_s('cpu_s') / cpus,
        'outside_late_s': outside_late_s[0] if outside_late_s else None,
        'others': dict(other), 'kills': kills,
        'caps_set': caps_set,
        'series': {'requests': list(requests), 'samples': list(samples),
                   'steps': [tuple(step) for step in up]}}


def summary(records: Sequence[Mapping[str, Any]],
            settings: Mapping[str, Any],
            pairs: Sequence[Mapping[str, Any]] = (),
            problem: str = '') -> dict[str, Any]:
    """The content of :file:`result.json`.

    Figures are medians over the rounds.  What is compared with another
    phase is compared within each round, where both had the same requests;
    the median of these ratios counts.  A disturbed phase is set aside when
    the same phase was undisturbed in another round.  The P99 of
    ``scavenger`` against ``alone`` comes from the turns, where there are any.

    :param pairs: as :class:`turns.Turns` makes them
    :param problem: what ended the demo too early
    """
    phases, turned = _phases(records), compare(pairs)
    if 'scavenger' in phases and turned and turned['p99_to_alone']:
        phases['scavenger']['p99_to_alone'] = turned['p99_to_alone']
    tests = verdict.criteria(phases, turned)
    noise = verdict.disturbance(records, pairs)
    found, why = verdict.judge(phases, tests, noise, problem)
    return {'schema': SCHEMA, 'verdict': found, 'why': why,
            'phases': phases, 'turns': turned, 'criteria': tests,
            'disturbed': noise, 'problem': problem,
            'memory_by_hindsight_gib': _hindsight(records, settings),
            'settings': dict(settings)}


def rounds(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many each phase had, and how many more all of
    :data:`verdict.NEEDED`.  One that was broken off counts for neither."""
    played = collections.Counter(str(one['phase']) for one in records)
    least = min(played.values())
    return {'rounds': least, 'more_rounds': max(0, min(
        played[name] for name in verdict.NEEDED) - least)}


def takes_a_round(records: Sequence[Mapping[str, Any]],
                  pairs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether another round of :data:`verdict.NEEDED` would tell more."""
    return verdict.takes_a_round(
        verdict.criteria(_phases(records), compare(pairs)))


def _phases(records: Sequence[Mapping[str, Any]]
            ) -> dict[str, dict[str, Any]]:
    """The figures of each phase over its rounds."""
    phases: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(str(one['phase']) for one in records):
        rounds = _rounds(records, name)
        phase: dict[str, Any] = {
            key: figures.median(one[key] for one in verdict.quiet(rounds))
            for key in FIGURES}
        phase['background_work'] = {
            kind: figures.median(one['background_work'][kind]
                         for one in verdict.quiet(rounds))
            for kind in WORK}
        phase['p99_to_alone'] = figures.median(
            _against(records, name, 'alone', 'p99_ms'))
        phase['transfer_to_alone_each'] = _against(
            records, name, 'alone', 'foreground_transfer_s')
        phase['transfer_to_alone'] = figures.median(
            phase['transfer_to_alone_each'])
        phase['cpu_to_unmanaged_each'] = _against(records, name, 'unmanaged',
                                                  'cpu')
        phase['background_to_unmanaged'] = {
            kind: figures.median(_against(records, name, 'unmanaged', kind))
            for kind in WORK}
        phase['work_to_half'] = {
            kind: figures.median(_against(records, name, 'static_half', kind))
            for kind in WORK}
        phase['disturbed'] = all(one['others']['disturbed']
                                 for one in rounds)
        phase['rounds'] = [{key: value for key, value in one.items()
                            if key not in ('series', 'phase')}
                           for one in rounds]
        phases[name] = phase
    return phases


def compare(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the turns tell, plain JSON values; None without any.

    ``run_delay`` is a second witness: the time that the service's threads
    waited for a CPU, in s per s of work, counted by the kernel.
    """
    if not pairs:
        return None
    known = [pair for pair in pairs if not pair['disturbed']]
    found = interval.p99_ratio([
        interval.Pair(pair['alone']['latencies'],
                      pair['scavenger']['latencies']) for pair in known])
    return {
        'pairs': len(known), 'set_aside': len(pairs) - len(known),
        'p99_to_alone': found and found.value,
        'low': found and found.low, 'high': found and found.high,
        **{name: _side(known, name) for name in ('alone', 'scavenger')},
        'each': [{'disturbed': pair['disturbed'],
                  **{name: {
                      'p99_ms': figures.percentile(
                          [1000 * value
                           for value in pair[name]['latencies']], 0.99),
                      **{key: value for key, value in pair[name].items()
                         if key != 'latencies'}}
                     for name in ('alone', 'scavenger')}}
                 for pair in pairs]}


def _side(pairs: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """One side of all pairs."""
    latencies_ms = [1000 * value for pair in pairs
                    for value in pair[name]['latencies']]
    return {'p99_ms': figures.percentile(latencies_ms, 0.99),
            'p999_ms': figures.percentile(latencies_ms, 0.999),
            **{key: figures.median(pair[name][key] for pair in pairs)
               for key in ('run_delay', 'background_cpu')}}


def _rounds(records: Sequence[Mapping[str, Any]],
            name: str) -> list[Mapping[str, Any]]:
    return sorted((one for one in records if one['phase'] == name),
                  key=lambda one: int(one['round']))


def _against(records: Sequence[Mapping[str, Any]], name: str, base: str,
             key: str) -> list[float]:
    """The ratio in each round that has both."""
    def value(one: Mapping[str, Any]) -> float | None:
        work: Mapping[str, float] = one['background_work']
        found: float | None = work[key] if key in WORK else one[key]
        return found

    bases = {one['round']: value(one)
             for one in verdict.quiet(_rounds(records, base))}
    ratios = (figures.ratio(value(one), bases.get(one['round']))
              for one in verdict.quiet(_rounds(records, name)))
    return [found for found in ratios if found is not None]


def _hindsight(records: Sequence[Mapping[str, Any]],
               settings: Mapping[str, Any]) -> float | None:
    """GiB that the best fixed split could have given to the batch work:
    all but the service's peak, had it been known before."""
    peaks = [one['foreground_peak_bytes'] for one in records]
    if not peaks:
        return None
    left = float(settings['memory_bytes']) - max(peaks)
    return HOG_SHARE * left / 2**30
