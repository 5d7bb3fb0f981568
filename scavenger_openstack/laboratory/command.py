# SPDX-License-Identifier: Apache-2.0


"""``scavenger-simulate``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import signal
import sys
import time
from types import FrameType
from typing import Any

from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import compare
from scavenger_openstack.laboratory.compare import Task
from scavenger_openstack.laboratory import output
from scavenger_openstack.laboratory import process_pool
from scavenger_openstack.laboratory import summary
from scavenger_openstack.laboratory import table
from scavenger_openstack.text import columns
from scavenger_openstack.text import json_page
from scavenger_openstack.types import printable

SCHEMA = 1
SEEDS = 20
MOST = 1_000_000
MOST_JOBS = 1024
FLEET_CONTROLLERS = ('none', 'ours')


def parser() -> command_line.Parser:
    program = command_line.program(
        'scavenger-simulate',
        'Plays scenarios on simulated hosts under several policies, seed by '
        'seed, and compares what the foreground feels and what the '
        'background gets done. It touches nothing on this host.')
    program.add_argument('scenarios', metavar='SCENARIO', nargs='*',
                         help='a scenario file, the name of a shipped one, or '
                              '"all" for every one of those')
    program.add_argument('--list', action='store_true',
                         help='show the shipped scenarios and end')
    program.add_argument('--seeds', type=_positive, metavar='N',
                         help=f'how many seeds to play (default {SEEDS}); '
                              'more make the intervals narrower')
    program.add_argument('--first-seed', type=int, metavar='K', default=0,
                         help='the first of them (default 0)')
    program.add_argument('--controllers', type=_controllers, metavar='NAMES',
                         help='what to compare, with commas between: '
                              + ', '.join(compare.CONTROLLERS)
                              + ' (default: all; for a fleet '
                              + ','.join(FLEET_CONTROLLERS) + ')')
    program.add_argument('--fleet', type=_positive, metavar='HOSTS',
                         help='play one seed on each of so many hosts, the '
                              'scenarios in turn, and add them up')
    program.add_argument('--hours', type=_hours, metavar='H',
                         help='with --fleet: simulated time on each host '
                              '(default 1)')
    program.add_argument('--output', metavar='FILE',
                         help='write everything, seed by seed, as JSON to '
                              'this file; "-" is standard output')
    program.add_argument('--format', choices=('table', 'json'),
                         default='table',
                         help='what is printed: tables (default) or the JSON')
    program.add_argument('--jobs', type=_positive, metavar='J',
                         help='processes (default: one per CPU); the results '
                              'do not depend on it')
    return program


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the options say; the exit code.

    :raises ScavengerError: what stopped it, in one line
    :raises OSError: likewise
    """
    options = command_line.parse(
        parser(), list(sys.argv[1:] if argv is None else argv))
    if options.list:
        return output.show(_listing())
    if not options.scenarios:
        raise errors.ConfigError('no scenario named; --list shows those '
                                 'that are shipped, "all" plays them')
    if options.fleet and options.seeds:
        raise errors.ConfigError('--fleet plays one seed on each host; '
                                 'leave --seeds out')
    if options.hours and not options.fleet:
        raise errors.ConfigError('--hours goes with --fleet')
    if (options.jobs or 1) > MOST_JOBS:
        raise errors.ConfigError(f'--jobs: {MOST_JOBS} at the most')
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    with output.Target(options.output) as target:
        document = _fleet(options) if options.fleet else _compare(options)
        text = json_page(document)
        target.write(text + '\n')
    if options.format == 'json' or options.output == '-':
        return output.show(text)
    return output.show('\n'.join(map(printable, _tables(document))))


def play(tasks: Sequence[Task], jobs: int | None) -> list[dict[str, Any]]:
    """Records of all tasks, in their order."""
    progress = process_pool.Progress(len(tasks))
    records: list[dict[str, Any]] = []
    try:
        for number, record in process_pool.work(
                _numbered, tasks, jobs=jobs or process_pool.cpus()):
            records.append({'number': number, **record})
            progress.step(f'{record["scenario"]} seed {record["seed"]}')
    finally:
        progress.end()
    records.sort(key=lambda record: record['number'])
    for numbered in records:
        del numbered['number']
    return records


def _numbered(task: Task) -> tuple[int, dict[str, Any]]:
    return task.number, compare.record(task)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """End as with Ctrl-C, so that the workers end too."""
    raise KeyboardInterrupt


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= MOST:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number from 1 to {MOST}')
    return value


def _hours(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number of hours up to 1000')
    return value


def _controllers(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(',') if name.strip()]
    unknown = [name for name in names if name not in compare.CONTROLLERS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f'no controller {", ".join(unknown) or "named"}; there are '
            + ', '.join(compare.CONTROLLERS))
    return tuple(name for name in compare.CONTROLLERS if name in names)


def _listing() -> str:
    return '\n'.join(columns(
        (), [(scenario.name, scenario.about) for scenario in catalogue.find(
            [catalogue.ALL])], left=(0, 1)))


def _compare(options: argparse.Namespace) -> dict[str, Any]:
    scenarios = catalogue.find(options.scenarios)
    seeds = range(options.first_seed,
                  options.first_seed + (options.seeds or SEEDS))
    controllers = options.controllers or compare.CONTROLLERS
    records = play([Task(i * len(seeds) + k, scenario, seed, controllers)
                    for i, scenario in enumerate(scenarios)
                    for k, seed in enumerate(seeds)], options.jobs)
    summaries = {}
    for i, scenario in enumerate(scenarios):
        own = records[i * len(seeds):(i + 1) * len(seeds)]
        summaries[scenario.name] = {'about': scenario.about, **_summed(own)}
    return {'schema': SCHEMA, 'statistics': summary.STATISTICS,
            'rule': summary.RULE, 'first_seed': seeds.start,
            'seeds': len(seeds), 'scenarios': summaries}


def _fleet(options: argparse.Namespace) -> dict[str, Any]:
    scenarios = catalogue.find(options.scenarios)
    hosts, hours = options.fleet, options.hours or 1.0
    controllers = options.controllers or FLEET_CONTROLLERS
    began_s = time.monotonic()
    records = play([Task(i, scenarios[i % len(scenarios)],
                         options.first_seed + i, controllers, hours)
                    for i in range(hosts)], options.jobs)
    wall_s = time.monotonic() - began_s
    names = [scenario.name for scenario in scenarios[:hosts]]
    return {'schema': SCHEMA, 'statistics': summary.STATISTICS,
            'rule': summary.RULE, 'first_seed': options.first_seed,
            'hosts': hosts, 'hours': hours,
            'jobs': options.jobs or process_pool.cpus(), 'wall_s': wall_s,
            'scenarios': {'fleet': {
                'about': f'{hosts} hosts for {hours:g} h each: '
                         + ', '.join(names), **_summed(records)}}}


def _summed(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = summary.rows(records)
    return {'fast': all(record['fast'] for record in records),
            'controllers': {name: row and row.as_dict()
                            for name, row in rows.items()},
            'records': list(records)}


def _tables(document: Mapping[str, Any]) -> Iterator[str]:
    for name, result in document['scenarios'].items():
        count = len(result['records'])
        yield f'{name}: {result["about"]}'
        yield ''
        yield from table.plain({
            key: summary.Row.of(row) if row else None
            for key, row in result['controllers'].items()})
        yield ''
        if 'hosts' not in document:
            yield f'{count} seed{"s" if count > 1 else ""}.' + (
                '' if result['fast'] else f' {table.SMALL}')
            yield ''
    yield table.LEGEND
    yield summary.RULE
    if 'hosts' in document:
        host_hours = document['hosts'] * document['hours']
        yield ''
        yield (f'{host_hours:g} host-hours of each policy, and alone, in '
               f'{document["wall_s"]:.1f} s with {document["jobs"]} '
               'processes. Every host turned once per interval.')
