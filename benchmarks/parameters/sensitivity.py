# SPDX-License-Identifier: Apache-2.0


"""What the rules, c and w do: violations and what is left to background work.

Memory and a link on real traces, links of simulated hosts, the CPU quota on
made-up noise, or all of it on a recording of an operator's own host.  The
rules are those of the agent's own controller.  Writes sensitivity.md and
pictures.  Takes some twenty-five minutes of one CPU, of which five are for
--only rules; reading the traces needs pyarrow.

    python benchmarks/parameters/sensitivity.py [--data DIR] [--output DIR]
    python benchmarks/parameters/sensitivity.py --recording FILE

The results in this directory are from

    python benchmarks/parameters/sensitivity.py \\
        --output benchmarks/parameters --pictures doc/source/_static
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import math
import os
import pathlib
import sys
from typing import Any

import charts
from charts import number
from charts import percent
import quota_report
import reserve_report
from reserve_report import Study
import rules
import sweep
from sweep import Setting
import traces
from traces import Group
import traffic

from sensitivity_texts import FIGURE_14
from sensitivity_texts import FIGURE_6
from sensitivity_texts import INTRODUCTION
from sensitivity_texts import OWN
from sensitivity_texts import PAPER
from sensitivity_texts import PAPER_VIOLATIONS
from sensitivity_texts import SIDE_BY_SIDE
from sensitivity_texts import TRACE_DAYS
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack import errors
from scavenger_openstack.types import Rates

TOP = pathlib.Path(__file__).parents[2]
CS = '0,0.5,1,1.5,2,2.5,3,4'
WINDOWS_S = '15,30,60,120,300,600,1800,3600'
RESOURCES = ('memory', 'network')
PARTS = ('rules', *RESOURCES, 'ipc')
PAPER_CS = (0.5, 1.0, 1.5, 2.0)
PAPER_NETWORK_WINDOW_S = 30.0
RUN_S = 300.0
LINK_MBIT_PER_S = 1000.0
LONGER = 4
"""How many times as long the links are that the rules are compared on."""


def listed(text: str, least: float, most: float) -> list[float]:
    """Numbers between commas, each once, in order."""
    try:
        found = sorted({float(part) for part in text.split(',')})
    except ValueError:
        found = []
    if not found or not all(least <= one <= most for one in found):
        raise argparse.ArgumentTypeError(
            f'{text!r}: numbers from {least:g} to {most:g}, with commas '
            f'between, are expected')
    return found


def factors(text: str) -> list[float]:
    return listed(text, 0.0, 100.0)


def windows(text: str) -> list[float]:
    return listed(text, 2.0, 86_400.0)


def rate(text: str) -> float:
    return single(text, float, 0.0, 86_400.0)


def length(text: str) -> int:
    return single(text, int, 60, 604_800)


def count(text: str) -> int:
    return single(text, int, 1, 1000)


def single(text: str, kind: type[Any], least: float, most: float) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f'{text!r}: {"a" if kind is float else "a whole"} number from '
            f'{least:g} to {most:g} is expected')
    return value


def parts(text: str) -> list[str]:
    chosen = text.split(',')
    if not set(chosen) <= set(PARTS):
        raise argparse.ArgumentTypeError(
            f'{text!r}: some of {",".join(PARTS)} are expected')
    return chosen


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog='The whole study takes '
        'about twenty-five minutes of one CPU.')
    made.add_argument('--data', type=pathlib.Path, metavar='DIR',
                      default=TOP.parent / 'shared' / 'data',
                      help='where the traces are (%(default)s)')
    made.add_argument('--recording', type=pathlib.Path, metavar='FILE',
                      help='study this recording of scavenger-agent run '
                           '--record instead')
    made.add_argument('--output', type=pathlib.Path, metavar='DIR',
                      default=TOP / 'build' / 'sensitivity',
                      help='where sensitivity.md goes (%(default)s)')
    made.add_argument('--pictures', type=pathlib.Path, metavar='DIR',
                      help='where the pictures go (as --output)')
    made.add_argument('--only', type=parts, default=','.join(PARTS),
                      help='parts of the study (%(default)s)')
    made.add_argument('--c', type=factors, default=CS, help='(%(default)s)')
    made.add_argument('--windows', type=windows, default=WINDOWS_S,
                      help='w in seconds (%(default)s)')
    made.add_argument('--memory-violations', type=rate, default=24.0,
                      help='acceptable ones a day; each may pause or kill '
                           'background work (%(default)s)')
    made.add_argument('--network-violations', type=rate, default=864.0,
                      help='acceptable ones a day; each is a second in '
                           'which the link is shared (%(default)s, 1 %% of '
                           'the time)')
    made.add_argument('--seconds', type=length, default=3600,
                      help='length of simulated series (%(default)s)')
    made.add_argument('--hosts', type=count, default=16,
                      help='number of simulated hosts (%(default)s)')
    made.add_argument('--ipc-seconds', type=length, default=1800,
                      help='length of each run with noise (%(default)s)')
    return made


def sources(args: argparse.Namespace) -> Iterator[Group | traces.Absent]:
    """What to study without a recording, made when it is its turn."""
    for make in (traces.mean_trace, traces.machines, traces.pods,
                 traces.pod_hosts):
        if not {'rules', 'memory'}.isdisjoint(args.only):
            try:
                yield make(args.data)
            except traces.Absent as exc:
                yield exc
    if not {'rules', 'network'}.isdisjoint(args.only):
        try:
            yield traces.mean_link(args.data)
        except traces.Absent as exc:
            yield exc
    if 'network' in args.only:
        size = {'seconds': args.seconds, 'hosts': args.hosts}
        yield traffic.simulated(tenants=3, **size)
        yield traffic.simulated(tenants=20, **size)
        yield traffic.heavy_tailed(sources=20, **size)


def longer(args: argparse.Namespace) -> Iterator[Group]:
    """Made-up links for as long as it takes to see what an hour does."""
    if 'rules' in args.only:
        size = {'seconds': LONGER * args.seconds,
                'hosts': max(1, args.hosts // LONGER)}
        yield traffic.simulated(tenants=3, **size)
        yield traffic.simulated(tenants=20, **size)
        yield traffic.heavy_tailed(sources=20, **size)
        yield traffic.heavy_tailed(sources=1, **size)


def alone(args: argparse.Namespace) -> Iterator[Study]:
    """A link with one bursty sender, at the values of figure 14."""
    if 'network' in args.only:
        group = traffic.heavy_tailed(
            sources=1, seconds=args.seconds, hosts=args.hosts)
        size = scavenger.samples(PAPER_NETWORK_WINDOW_S, group.interval_s)
        yield group, sweep.sweep(
            group, [Setting(c, size, 0.0) for c in PAPER_CS])


def reserve(args: argparse.Namespace,
            groups: Iterable[Group | traces.Absent], params: Params,
            ) -> tuple[list[str], list[reserve_report.Advice]]:
    """Sections on memory and network, and what to choose."""
    pictures = args.pictures or args.output
    text: list[str] = []
    studies: list[Study] = []
    compared: list[tuple[Group, dict[str, rules.Total]]] = []
    for group in groups:
        if isinstance(group, traces.Absent):
            print(f'skipped: {group}', flush=True)
            text.append(f'Skipped: {group}.\n')
            continue
        print(f'{group.title} ...', flush=True)
        if 'rules' in args.only and (
                args.recording or group.basis == traces.OTHERS):
            compared.append((group.without_ticks(),
                             rules.compare(group, params)))
        if group.resource not in args.only:
            continue
        study = sweep.sweep(group, reserve_report.settings(
            group, args.c, args.windows, params))
        svg = pictures / f'sensitivity-{group.key}.svg'
        svg.write_text(reserve_report.picture(group, study, args.c, params),
                       encoding='utf-8', errors='backslashreplace')
        text += reserve_report.section(
            group, study, args.c, os.path.relpath(svg, args.output), params)
        if group.key == 'mean':
            text += reserve_report.spacing(group, params)
        # Its samples are not needed any more, and many.
        studies.append((group.without_ticks(), study))
    if not args.recording:
        for group in longer(args):
            print(f'{group.title}, {LONGER} times as long ...', flush=True)
            compared.append((group.without_ticks(),
                             rules.compare(group, params)))
    if compared:
        text = [SIDE_BY_SIDE, *(line for group, totals in compared
                                for line in rules.section(group, totals)),
                *text]
    chosen = []
    for resource in RESOURCES:
        rows = [(group, totals) for group, totals in compared
                if group.resource == resource]
        if rows:
            chosen.append(rules.advice(resource, rows,
                                       args.memory_violations, params))
        ours = [(group, study) for group, study in studies
                if group.resource == resource]
        if ours:
            lines, row = reserve_report.recommendation(
                resource, ours, args.c, args.windows,
                getattr(args, f'{resource}_violations'), params)
            text += lines
            chosen.append(row)
    if studies and not args.recording:
        text += beside_the_paper(studies, list(alone(args)), params)
    return text, chosen


def beside_the_paper(studies: Sequence[Study], alone: Sequence[Study],
                     params: Params) -> Iterator[str]:
    """What figures 6 and 14 of the paper show, and these series.

    ``alone``: a link with one sender, as in figure 14; for it only.
    """
    yield PAPER
    rows = []
    for group, study in studies:
        cells = [group.key]
        for along in ('c', 'size'):
            got = sweep.shape(study, along, 0.0)
            cells += [f'{got.violations} of {got.steps}',
                      f'{got.afforded} of {got.steps}']
        rows.append(cells)
    yield charts.table(('without a least headroom', *(
        f'larger {name}: {what}' for name in 'cw'
        for what in ('no more violations', 'no more background'))), rows)
    yield _in_all(studies)
    rows = []
    for group, study in studies:
        if group.resource == 'memory':
            c, window_s = reserve_report.in_use(params, group.resource)
            size = scavenger.samples(window_s, group.interval_s)
            found = [study.get(Setting(c, size, least))
                     for least in (0.0, params.min_headroom)]
            within = [(got.of_oracle, one) for one, got in study.items()
                      if got.worst * TRACE_DAYS < PAPER_VIOLATIONS]
            best = max(within)[1] if within else None
            rows.append([group.key, *(
                '' if one is None else
                f'{number(one.worst * TRACE_DAYS)} / '
                f'{percent(one.afforded.value)}' for one in found),
                'none' if best is None else
                f'c = {best.c:g}, w = '
                f'{charts.seconds(best.size * group.interval_s)}, '
                f'{100 * best.min_headroom:g} %: '
                f'{percent(study[best].afforded.value)}'])
    if rows:
        c, window_s = reserve_report.in_use(params, 'memory')
        values = f'c = {c:g}, w = {charts.seconds(window_s)}'
        yield FIGURE_6
        yield charts.table(
            ('', f'{values}, no least headroom',
             f'{values}, {100 * params.min_headroom:g} %',
             f'most background with fewer than {PAPER_VIOLATIONS}'), rows)
    rows = []
    for group, study in [*studies, *alone]:
        if group.resource == 'network':
            size = scavenger.samples(PAPER_NETWORK_WINDOW_S, group.interval_s)
            rows.append([group.key, *(
                '' if one is None else
                f'{number(one.per_day.value * RUN_S / traces.DAY_S)} / '
                f'{LINK_MBIT_PER_S * one.afforded.value:.0f} / '
                f'{100 * one.of_oracle:.0f}' for one in (
                    study.get(Setting(c, size, 0.0)) for c in PAPER_CS))])
    if rows:
        yield FIGURE_14
        yield charts.table(('', *(f'c = {c:g}' for c in PAPER_CS)), [
            ('the paper', '? / 421 / 58', '', '', '2 / 115 / 16'), *rows])


def _in_all(studies: Sequence[Study]) -> str:
    found = {along: [sweep.shape(study, along, 0.0) for _, study in studies]
             for along in ('c', 'size')}
    return ' '.join(
        f'In all, of {sum(one.steps for one in got)} steps of '
        f'{"c" if along == "c" else "w"} '
        f'{sum(one.violations for one in got)} have no more violations and '
        f'{sum(one.afforded for one in got)} no more background.'
        for along, got in found.items()) + (
        ' That is the shape of the figures where nearly all have. The '
        'numbers are others:\n')


def report(args: argparse.Namespace, ticks: list[Rates], interval_s: float,
           params: Params) -> str:
    """The whole report.

    :raises OSError: a picture cannot be written.
    """
    pictures = args.pictures or args.output
    text, chosen = reserve(
        args, traces.of_recording(ticks, interval_s) if args.recording
        else sources(args), params)
    if 'ipc' in args.only:
        print('IPC ...', flush=True)
        if args.recording:
            text += quota_report.of_recording(ticks, interval_s, params)
        else:
            lines, row = quota_report.of_noise(
                args.ipc_seconds, pictures, os.path.relpath(
                    pictures / 'sensitivity-ipc.svg', args.output))
            text += lines
            chosen.append(row)
    text.append('## Recommended defaults\n')
    text += [reserve_report.RULE, charts.table(
        ('resource', 'in use now', 'recommended', 'rests on', 'reason'),
        chosen, words=True)] if chosen else ['Nothing was studied.\n']
    return '\n'.join([INTRODUCTION, *text, OWN])


def main() -> int:
    args = parser().parse_args()
    result = args.output / 'sensitivity.md'
    ticks: list[Rates] = []
    interval_s, params = 1.0, Params()
    try:
        if args.recording:
            ticks, interval_s, params = traces.recorded(args.recording)
        for where in (args.output, args.pictures or args.output):
            where.mkdir(parents=True, exist_ok=True)
        # What cannot be written is told now, not after the study.
        with result.open('a'):
            pass
        result.write_text(report(args, ticks, interval_s, params),
                          encoding='utf-8', errors='backslashreplace')
    except (OSError, errors.DriverError) as exc:
        print(f'sensitivity: {exc}', file=sys.stderr)
        return 1
    print(f'wrote {result}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
