# SPDX-License-Identifier: Apache-2.0

"""The result of the first act as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.demo.filling import verdict
from scavenger_openstack.demo import table
from scavenger_openstack.demo.table import number
from scavenger_openstack.demo.table import percent

TITLES = ('phase', 'P50 ms', 'P99 ms', 'P99.9 ms', 'P99 / alone',
          'batch CPU', 'batch memory', 'batch network', 'CPU use',
          'memory violations', 'file s', 'limits set')
NAMES = {'kernel_only': 'cpu.idle alone', 'static_half': 'static half',
         'quota_only': 'quota only'}
"""What people read."""


def rounds(settings: Mapping[str, Any]) -> str:
    """Such as ``2 rounds of 12 s``, or with those that it took besides
    ``2 rounds of 12 s, and 1 more of alone, unmanaged, scavenger,``."""
    count, more = settings['rounds'], settings['more_rounds']
    return (f'{count} round{"s" if count != 1 else ""} of '
            f'{settings["seconds"]:g} s'
            + (f', and {more} more of {", ".join(verdict.NEEDED)},'
               if more else ''))


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row per phase, below :data:`TITLES`."""
    found = []
    for name, phase in result['phases'].items():
        work = phase['background_to_unmanaged']
        found.append((
            NAMES.get(name, name) + (' *' if phase['disturbed'] else ''),
            number(phase['p50_ms']), number(phase['p99_ms']),
            number(phase['p999_ms']), number(phase['p99_to_alone'], 2),
            *(percent(work[kind]) for kind in ('cpu', 'memory', 'network')),
            percent(phase['cpu_use']),
            f'{number(phase["memory_violations"], 0)} '
            f'({number(phase["memory_unanswered"], 0)} unanswered)',
            number(phase['foreground_transfer_s'], 2),
            number(phase['caps_set'], 0)))
    return found


def turns(result: Mapping[str, Any]) -> str:
    """What was compared in turns; '' without any."""
    found = result['turns']
    if not found:
        return ''
    delays = [found[name]['run_delay'] for name in ('alone', 'scavenger')]
    return (f'{found["pairs"]} pairs of short turns ({found["set_aside"]} '
            'more were disturbed and are set aside): P99 '
            f'{number(found["alone"]["p99_ms"])} ms alone, '
            f'{number(found["scavenger"]["p99_ms"])} ms beside the regulated '
            'batch work; P99.9 '
            f'{number(found["alone"]["p999_ms"])} and '
            f'{number(found["scavenger"]["p999_ms"])} ms; waiting for a CPU '
            f'{number(delays[0], 2)} and {number(delays[1], 2)} s per s of '
            'work.')


def outside(result: Mapping[str, Any]) -> str:
    """How late a process outside of the demo's groups woke up."""
    late = [f'{1000 * max(seconds):.1f} ms ({NAMES.get(name, name)})'
            for name, phase in result['phases'].items()
            if (seconds := [one['outside_late_s'] for one in phase['rounds']
                            if one.get('outside_late_s') is not None])]
    return ('A process outside, waking 100 times a second, was late by at '
            f'most {", ".join(late)}.' if late else '')


def text(result: Mapping[str, Any]) -> str:
    """The table, the criteria and the verdict."""
    settings = result['settings']
    hindsight = result.get('memory_by_hindsight_gib')
    notes = [f'Not quiet: {result["disturbed"]}.' if result['disturbed']
             else '', outside(result), turns(result)]
    if hindsight is not None and 'scavenger' in result['phases']:
        held = result['phases']['scavenger']['background_work']['memory']
        notes.append(f'Batch memory under scavenger: {number(held, 2)} GiB; '
                     'the best fixed split, had the peak been known before: '
                     f'{number(hindsight, 2)} GiB.')
    return table.text(result, [
        f'Medians over {rounds(settings)} on {settings["cpus"]} CPUs; batch '
        'work as a share of unmanaged.',
        f'Windows are shortened for the demo: memory '
        f'{settings["memory_window_s"]} s, network '
        f'{settings["network_window_s"]} s.'], TITLES, rows(result), notes, [
            f'after {name}: {what}'
            for name, phase in result['phases'].items()
            for one in phase['rounds']
            for what in one.get('knobs_left') or ()])
