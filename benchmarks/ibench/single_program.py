# SPDX-License-Identifier: Apache-2.0

"""A program that lives on the last-level cache, beside the LLC SoI.

In mcf's place, which is not free: pointers followed over half of the LLC (the
kernel of the LLC SoI as a program, on a CPU of its own), and ``sort`` of
lines in memory.  Printed are their performance at each intensity of the SoI
on another CPU, and for the first an estimate of its miss ratio: where the
time of an access is between that of a footprint which is sure to hit and
that of one eight times the LLC.  Counters of misses are not read here.

Source: iBench, section IV-B, figures 3a and 3b.

    python benchmarks/ibench/single_program.py [--levels 0,50,100]
        [--seconds 1] [--rounds 3] [--json] [--html FILE]

Needs root, two CPUs, gcc and iproute2.  The defaults take about 2 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import statistics
import subprocess
import sys
import time
from typing import Any

import closest
import curves
import program
import stage as stage_

from scavenger_openstack import amounts
from scavenger_openstack.ibench.arguments import Level
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack.ibench import progress as progress_
from scavenger_openstack.ibench import run
from scavenger_openstack.plot import page as page_
from scavenger_openstack import text

LEVELS = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
FOOTPRINT, HIT, MISS = 0.5, 0.125, 8.0
"""Of the LLC."""
LINES = 1_500_000

Document = dict[str, Any]


def sort_s(stage: stage_.Stage, file: pathlib.Path) -> float:
    """Return how long ``sort`` takes."""
    begin_s = time.monotonic()
    process = run.start_process(
        ['env', 'LC_ALL=C', 'sort', '--parallel=1', '-S', '256M', '-o',
         '/dev/null', str(file)], stage.host.cgroup, (stage.service_cpu,))
    try:
        while process.poll() is None:
            stage.host.interrupt.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        return time.monotonic() - begin_s
    finally:
        run.end_process(process)


def write_lines(file: pathlib.Path) -> None:
    drawn = random.Random(1)
    file.write_text('\n'.join(f'{drawn.getrandbits(64):016x}'
                              for _ in range(LINES)) + '\n')


def measure(options: argparse.Namespace, interrupt: interrupt_.Interrupt
            ) -> Document:
    """Return all that this command measures."""
    bar = progress_.Progress(len(options.levels) * options.rounds)
    soi = catalogue.find_soi('llc_capacity')
    try:
        with stage_.opened(interrupt) as stage:
            file = stage.directory / 'lines'
            write_lines(file)
            cache = geometry.read_geometry(stage.service_cpu, {}).cache(
                'llc')
            start = stage.plan(soi)
            calibrated = run.calibrate(stage.host, start)
            probes, chunks = {}, {}
            for name, share in (('program', FOOTPRINT), ('hit', HIT),
                                ('miss', MISS)):
                probes[name] = closest.plan(
                    stage, soi, stage.service_cpu, 2,
                    size_bytes=int(share * cache.size_bytes))
                chunks[name] = run.calibrate(stage.host, probes[name])

            def rate(name: str) -> float:
                result, = run.play(stage.host, [(
                    probes[name], run.level_words(
                        [Level(100.0, options.seconds)],
                        chunk_s=chunks[name]['chunk_s']))])
                level = result.levels[-1]
                return float(level['operations'] / level['seconds'])

            edges = {name: max(rate(name) for _ in range(options.rounds))
                     for name in ('hit', 'miss')}
            rates: dict[float, list[float]] = {
                level: [] for level in options.levels}
            sorts: dict[float, list[float]] = {
                level: [] for level in options.levels}
            for round_ in range(options.rounds):
                for level in random.Random(round_).sample(
                        options.levels, len(options.levels)):
                    bar.show_step(f'beside {level:g} %')
                    with closest.kernel_beside(stage.host, start, calibrated,
                                               level):
                        rates[level].append(rate('program'))
                        sorts[level].append(sort_s(stage, file))
    finally:
        bar.end()
    return {'command': 'single_program', 'rounds': options.rounds,
            'footprint_bytes': FOOTPRINT * cache.size_bytes,
            'hit_per_s': edges['hit'], 'miss_per_s': edges['miss'],
            'points': [{
                'percent': level,
                'accesses_per_s': statistics.median(rates[level]),
                'miss_ratio': miss_ratio(statistics.median(rates[level]),
                                         edges['hit'], edges['miss']),
                'sort_s': statistics.median(sorts[level])}
                for level in options.levels]}


def miss_ratio(rate: float, hit: float, miss: float) -> float:
    """Return where the time of an access is, from 0 at that of a hit to 1
    at that of a miss."""
    return min(1.0, max(0.0, (1 / rate - 1 / hit) / (1 / miss - 1 / hit)))


def lines(document: Document) -> list[str]:
    """Return the table."""
    first = document['points'][0]
    return [
        'pointers over '
        f'{amounts.of_bytes(document["footprint_bytes"])}, and sort',
        *text.columns(
            ('LLC SoI', 'M accesses/s', 'performance', 'misses, estimated',
             'sort s', 'performance'),
            [[f'{at["percent"]:g} %', f'{at["accesses_per_s"] / 1e6:.1f}',
              f'{at["accesses_per_s"] / first["accesses_per_s"]:.3f}',
              f'{at["miss_ratio"]:.2f}', f'{at["sort_s"]:.3f}',
              f'{first["sort_s"] / at["sort_s"]:.3f}']
             for at in document['points']])]


def page(document: Document) -> str:
    """Return the page."""
    first, points = document['points'][0], document['points']
    return curves.page('A program beside the LLC SoI', [
        curves.key(('pointers', 'sort')), page_.grid([
            curves.panel('performance', 'of that at the first level', {
                'pointers': [
                    (at['percent'],
                     at['accesses_per_s'] / first['accesses_per_s'])
                    for at in points],
                'sort': [(at['percent'], first['sort_s'] / at['sort_s'])
                         for at in points]}),
            curves.panel('miss ratio', 'estimated by time', {
                'pointers': [(at['percent'], at['miss_ratio'])
                             for at in points]}, top=1.0)])])


def main() -> int:
    parser = program.parser(__doc__, seconds=1.0)
    parser.add_argument('--levels', metavar='P,P,...', type=options_.levels,
                        default=LEVELS, help='default 0,20,...,100')
    parser.add_argument('--rounds', metavar='N', type=int, default=3,
                        help='medians over so many (default 3)')
    parser.add_argument('--html', metavar='FILE', type=pathlib.Path,
                        help='write a page with plots')
    return program.main(parser, measure, lines, page)


if __name__ == '__main__':
    sys.exit(main())
