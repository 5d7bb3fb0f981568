# SPDX-License-Identifier: Apache-2.0


"""The tables of :mod:`ten_guests`: what its guests did, phase by phase."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics
from typing import Any

from scavenger_openstack.demo.result import number
from scavenger_openstack.text import columns

BEFORE, AFTER = 'before', 'after'
WORKS, LIMITED = 'works', 'limited'

SETTLE_S = 2.0
"""After a cap was set, until its effect counts."""

MB = 1e6


class Timeline:
    """Which worked, and which was limited by the knob that fits, when.

    :param record: what :mod:`ten_guests` saw
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.worked: Mapping[str, Sequence[Sequence[float]]]
        self.worked = record['worked']
        self.first_s = min(one[0][0] for one in self.worked.values() if one)
        self.last_s = max(one[-1][1] for one in self.worked.values() if one)
        self.limited: dict[str, list[list[float]]] = {}
        self.removed_s = self.last_s
        for look in record['looks']:
            if look['caps']:
                self.removed_s = math.inf
            elif self.removed_s == math.inf:
                self.removed_s = look['at_s']
            held = {cap['workload'] for cap in look['caps']
                    if cap['knob'] == record['knobs'].get(cap['workload'])}
            for name in {*held, *self.limited}:
                spans = self.limited.setdefault(name, [])
                works = bool(spans) and spans[-1][1] == math.inf
                if name in held and not works:
                    spans.append([look['at_s'], math.inf])
                elif works and name not in held:
                    spans[-1][1] = look['at_s']
        self.removed_s = max(self.removed_s, self.last_s)

    def works(self, name: str, at_s: float) -> bool:
        return any(one[0] <= at_s < one[1] for one in self.worked[name])

    def worked_s(self, name: str, until_s: float) -> float:
        """How long a guest has worked until then."""
        return sum(max(0.0, min(one[1], until_s) - one[0])
                   for one in self.worked[name])

    def is_limited(self, name: str, at_s: float) -> bool | None:
        """``None`` while a cap is so new that nothing counts."""
        for from_s, to_s in self.limited.get(name, ()):
            if from_s <= at_s < to_s:
                return True if at_s - from_s >= SETTLE_S else None
        return False

    def phase(self, at_s: float) -> str:
        """'' while it does not count."""
        if at_s < self.first_s:
            return BEFORE
        if at_s >= self.last_s:
            return AFTER if at_s >= self.removed_s else ''
        working = [name for name in self.worked if self.works(name, at_s)]
        limited = [self.is_limited(name, at_s) for name in working]
        if not working or None in limited:
            return ''
        free = [name for name, held in zip(working, limited, strict=True)
                if not held]
        return (f'{" and ".join(free)} {WORKS}' if free
                else f'{" and ".join(working)} {LIMITED}')

    def phase_of(self, from_s: float, to_s: float) -> str:
        """That of a whole span, '' when it changes."""
        found = self.phase(from_s)
        return found if found == self.phase(to_s) else ''


def text(record: Mapping[str, Any]) -> str:
    """All of it, for people."""
    timeline = Timeline(record)
    phases = phases_of(record, timeline)
    return '\n'.join([
        f'Each victim does {record["work"]!r}: requests per second, their '
        'mean latency, and the median of', 'the 99th percentiles of single '
        'seconds, in ms; what the agent saw of all three; what the hogs '
        'say of their own work.', '', *work(record, timeline, phases), '',
        *recovered(record, timeline, phases), '',
        *p99_ratios(record, timeline), '',
        'What the agent saw of each guest: cores, and MB/s of its disk '
        '(libvirt tells that some', 'seconds later)', '',
        *used(record, timeline, phases), '', *told(record, timeline), '',
        *restored(record)])


def phases_of(record: Mapping[str, Any], timeline: Timeline) -> list[str]:
    found = {timeline.phase(tick['at_s']) for tick in record['used']} - {''}
    return sorted(found, key=lambda phase: (
        phase == AFTER, LIMITED in phase, WORKS in phase, 'and' in phase,
        phase))


def work(record: Mapping[str, Any], timeline: Timeline,
         phases: Sequence[str]) -> list[str]:
    victims = record['victims']
    titles = ['phase', 's', *(f'{name if not part else ""} {what}'.strip()
                              for name in victims for part, what in
                              enumerate(('req/s', 'mean', 'p99'))),
              'run delay', 'io wait ms',
              *(f'{name} {_measure(record, name)[0]}'
                for name in timeline.worked), 'cores of both']
    rows = []
    for phase in phases:
        row = [phase]
        for place, name in enumerate(victims):
            reports = list(in_phase(record, timeline, name, phase))
            done = sum(one['done'] for one in reports)
            took_s = sum(one['took_s'] for one in reports)
            if not place:
                row.append(number(took_s, 0))
            row += [number(done / took_s if took_s else None),
                    number(_ms(mean_s(reports))),
                    number(_ms(_median(one['p99_s'] for one in reports
                                       if 'p99_s' in one)))]
        row += [number(mean_of(record, timeline, phase, victims,
                               'run_delay'), 2),
                number(_ms(mean_of(record, timeline, phase, victims,
                                   'io_wait_s')), 2)]
        for name in timeline.worked:
            reports = list(in_phase(record, timeline, name, phase))
            took_s = sum(one['took_s'] for one in reports)
            _, what, unit = _measure(record, name)
            row.append(number(sum(one[what] for one in reports) / took_s
                              / unit if took_s else None, 0))
        row.append(' '.join(number(mean_of(
            record, timeline, phase, [name], 'cores'), 2)
            for name in timeline.worked))
        rows.append(tuple(row))
    return columns(tuple(titles), rows)


def _measure(record: Mapping[str, Any], name: str) -> tuple[str, str, float]:
    """What tells the work of a hog: title, field of a report, unit."""
    return (('MB/s', 'bytes', MB) if record['knobs'][name].startswith('io')
            else ('rounds/s', 'done', 1.0))


def in_phase(record: Mapping[str, Any], timeline: Timeline, name: str,
             phase: str) -> Iterator[Mapping[str, Any]]:
    """What a victim said of the seconds of one phase."""
    for one in record['reports'][name]:
        if timeline.phase_of(one['until_s'] - one['took_s'],
                             one['until_s']) == phase:
            yield one


def mean_s(reports: Sequence[Mapping[str, Any]]) -> float | None:
    """Of all requests; one that was dropped had waited for a second."""
    done = sum(one['done'] + one['dropped'] for one in reports)
    return sum(one.get('mean_s', 0.0) * one['done'] + one['dropped']
               for one in reports) / done if done else None


def mean_of(record: Mapping[str, Any], timeline: Timeline, phase: str,
            names: Sequence[str], what: str) -> float | None:
    found = [value for tick in record['used']
             if timeline.phase(tick['at_s']) == phase
             for name in names if name in tick['guests']
             and (value := tick['guests'][name][what]) is not None]
    return statistics.fmean(found) if found else None


def recovered(record: Mapping[str, Any], timeline: Timeline,
              phases: Sequence[str]) -> list[str]:
    """Which part of the added latency a limit takes away."""
    found = []
    for phase in phases:
        if not phase.endswith(WORKS):
            continue
        guest = phase.removesuffix(f' {WORKS}')
        row = [guest]
        for name in record['victims']:
            alone, disturbed, limited = (
                mean_s(list(in_phase(record, timeline, name, one)))
                for one in (BEFORE, phase, f'{guest} {LIMITED}'))
            if alone is None or disturbed is None or limited is None:
                row.append('-')
            elif disturbed <= alone:
                row.append('no harm')
            else:
                row.append(f'{disturbed / alone:.1f} -> '
                           f'{limited / alone:.1f}')
        found.append(tuple(row))
    return columns(('mean latency / before, while ... works -> is limited',
                    *record['victims']), found)


def p99_ratios(record: Mapping[str, Any], timeline: Timeline) -> list[str]:
    """Return the table of the victims' P99 while a guest disturbs, limited or
    not, beside that before."""
    rows = []
    for name in record['victims']:
        before, work = [], []
        for report in record['reports'][name]:
            from_s = report['until_s'] - report['took_s']
            if from_s < timeline.first_s:
                before.append(report)
            elif any(timeline.works(hog, from_s) for hog in timeline.worked):
                work.append(report)
        quiet_s, work_s = (_median(report['p99_s'] for report in reports
                                   if 'p99_s' in report)
                           for reports in (before, work))
        rows.append((name, number(_ms(quiet_s)), number(_ms(work_s)), number(
            work_s / quiet_s if quiet_s and work_s else None, 2)))
    return columns(('median p99 in ms', 'before', 'while a hog works',
                    'ratio'), rows)


def used(record: Mapping[str, Any], timeline: Timeline,
         phases: Sequence[str]) -> list[str]:
    names = list(record['limits_before'])
    return columns(('guest', *phases), [
        (name, *(_use(record, timeline, phase, name) for phase in phases))
        for name in names])


def _use(record: Mapping[str, Any], timeline: Timeline, phase: str,
         name: str) -> str:
    cores, rate = (mean_of(record, timeline, phase, [name], what)
                   for what in ('cores', 'io_bytes_per_s'))
    return (f'{number(cores, 2)}, '
            f'{number(None if rate is None else rate / MB, 1)}')


def news(look: Mapping[str, Any]) -> list[str]:
    """What there is to tell of a look, in lines that do not change."""
    found = [f'incident: {one["victim"]} suffers, {one["signal"]} '
             f'({one["cause"]}), by '
             f'{", ".join(one.get("antagonists") or ["none"])}: '
             f'{one["outcome"]}' for one in look['incidents']]
    return found + [f'cap: {cap["workload"]} {cap["knob"]}: {cap["reason"]}'
                    for cap in look['caps']]


def told(record: Mapping[str, Any], timeline: Timeline) -> list[str]:
    """Which guest was named and limited, when, and why."""
    start_s = record['start_s']
    found = []
    named: dict[tuple[str, ...], tuple[float, Mapping[str, Any]]] = {}
    caps: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for look in record['looks']:
        for one in look['incidents']:
            for name in one.get('antagonists') or ['none']:
                key = name, one['victim'], one['signal'], one['cause']
                named[key] = named.get(key, (look['at_s'],))[0], one
        for cap in look['caps']:
            caps.setdefault((cap['workload'], cap['knob']), []).append(
                (look['at_s'], cap['value'], cap['reason']))
    for (name, victim, signal, cause), (at_s, one) in named.items():
        after = ''
        if name in timeline.worked:
            first_s = timeline.worked[name][0][0]
            after = (f', {at_s - first_s:.0f} s after it worked first, '
                     f'{timeline.worked_s(name, at_s):.0f} s of them at '
                     'work')
        found.append(f'named: {name} for {victim}, {signal} ({cause}) above '
                     f'{one["threshold"]:.3g}, at {at_s - start_s:.0f} s'
                     f'{after}; {one["outcome"]}')
    for (name, knob), seen in caps.items():
        values = [value for _, value, _ in seen]
        found.append(
            f'cap: {name} {knob} from {seen[0][0] - start_s:.0f} s on, '
            f'first {values[0]:.4g}, least {min(values):.4g}, most '
            f'{max(values):.4g}: {seen[0][2]}')
    innocent = sorted({name for name, *_ in [*named, *caps]
                       if name not in timeline.worked})
    found.append('no other was named or limited' if not innocent else
                 f'INNOCENT: {", ".join(innocent)}')
    return found


def restored(record: Mapping[str, Any]) -> list[str]:
    """Whether all domains are as they were, and what the log complains of."""
    found = []
    for name, before in record['limits_before'].items():
        after = record['limits_after'][name]
        if after != before:
            found.append(f'CHANGED: {name}: {before} -> {after}')
    last = record['looks'][-1]
    held = ', '.join(f'{cap["workload"]} {cap["knob"]}'
                     for cap in last['caps'])
    found.append(f'STILL LIMITED: {held}' if held else
                 'no limit is in force; the XML of all domains, live and '
                 'inactive, has the limits that it had before and no record '
                 'of ours' if not found else '')
    odd = [line for line in record['log'].splitlines()
           if any(word in line for word in (' WARNING ', ' ERROR ',
                                            'Traceback'))]
    shares = [look['cpu_share'] for look in record['looks']]
    return [*found, f'the agent took {100 * statistics.median(shares):.2f} '
            f'% of a CPU; its log has {len(odd)} warnings and errors',
            *odd[:5]]


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else 1000 * value_s


def _median(values: Iterator[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
