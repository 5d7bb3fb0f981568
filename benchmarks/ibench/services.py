# SPDX-License-Identifier: Apache-2.0

"""What SoIs do to services: latency, goodput and throughput by intensity.

memcached, nginx, redis and PostgreSQL are used in open loop by a client that
runs before all else: requests are due at a fixed rate, and latency counts
from then.  Beside each runs an SoI at 0, 20, ... 100 %: LLC capacity and
memory bandwidth on another CPU, the network SoI on the same link of 1 Gbit/s,
storage bandwidth on the same disk, the integer SoI on the service's own CPU.
Goodput is the share of requests answered within the service's target.

The SoI of the resource that a service lives on should hurt it most, and what
the service uses of each *other* resource for an answer should stay: CPU time
(which rises where its cache or memory is disturbed: there is no counter of
misses here), bytes of storage and memory.

Source: iBench, section IV-B and figure 3.

    python benchmarks/ibench/services.py [--services redis,nginx]
        [--sois 5,6] [--levels 0,50,100] [--seconds 2] [--rounds 1]
        [--json] [--html FILE]

Needs root, two CPUs, gcc, iproute2, and the services that are asked for.
The defaults take about 8 minutes; make figures on a quiet machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import pathlib
import random
import statistics
import sys
from typing import Any

import applications
import curves
import program
import stage as stage_

from scavenger_openstack import amounts
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack.ibench import progress as progress_
from scavenger_openstack.ibench import run
from scavenger_openstack.plot import page as page_
from scavenger_openstack import text

SOIS = 'llc_capacity,memory_bandwidth,network_bandwidth,' \
       'storage_bandwidth,integer'
LEVELS = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
CALIBRATIONS = 3
SAME_GOODPUT = 0.02
"""Where goodput differs less the higher P99 hurts more."""

Document = dict[str, Any]


def point(readings: Sequence[stage_.Reading], percent: float) -> Document:
    """Return the medians over rounds, per second or per answer."""
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    reached = [reading.reached_percent for reading in readings
               if reading.reached_percent is not None]
    answers = [max(1, reading.answers['all_answered'])
               for reading in readings]
    return {
        'percent': percent, 'reached_percent': middle(reached),
        'p50_s': middle([reading.answers['p50_s'] for reading in readings]),
        'p99_s': middle([reading.answers['p99_s'] for reading in readings]),
        'goodput': middle([reading.goodput for reading in readings]),
        'throughput_per_s': middle([reading.throughput_per_s
                                    for reading in readings]),
        'link_bytes_per_s': middle([
            reading.throughput_per_s * reading.answers['answer_bytes']
            for reading in readings]),
        'cpu_s_per_answer': middle([
            reading.cpu_s / count for reading, count
            in zip(readings, answers, strict=True)]),
        'waited_s_per_answer': middle([
            reading.waited_s / count for reading, count
            in zip(readings, answers, strict=True)]),
        'storage_bytes_per_answer': middle([
            reading.storage_bytes / count for reading, count
            in zip(readings, answers, strict=True)]),
        'resident_bytes': middle([reading.resident_bytes
                                  for reading in readings]),
        'client_late': sum(reading.answers['late'] for reading in readings)}


def measure_soi(stage: stage_.Stage, service: stage_.Service,
                soi: catalogue.Soi, options: argparse.Namespace,
                bar: progress_.Progress) -> Document:
    """Return the curve of a service beside an SoI."""
    application = service.application
    start = stage.plan(soi)
    calibrated = run.calibrate(stage.host_of(soi), start,
                               times=CALIBRATIONS)
    readings: dict[float, list[stage_.Reading]] = {
        level: [] for level in options.levels}
    for round_ in range(options.rounds):
        # In another order each time: what drifts is not the intensity.
        for level in random.Random(round_).sample(options.levels,
                                                  len(options.levels)):
            bar.show_step(f'{application.name} beside {soi.name} {level:g} %')
            readings[level].append(stage_.read_beside(
                stage, service, start, calibrated, level,
                seconds=options.seconds, target_s=application.target_s))
    return {'soi': soi.name, 'number': soi.number, 'whole': start.whole,
            'points': [point(readings[level], level)
                       for level in options.levels]}


def rank(curve: Document) -> tuple[float, float]:
    """Return how much an SoI hurts from its lowest to its highest intensity:
    first the one that takes most goodput, among those like it the one by
    which P99 grows most."""
    first, last = curve['points'][0], curve['points'][-1]
    return (round((first['goodput'] - last['goodput']) / SAME_GOODPUT),
            last['p99_s'] / first['p99_s'])


def measure_service(stage: stage_.Stage, application: applications.Application,
                    options: argparse.Namespace, bar: progress_.Progress
                    ) -> Document:
    """Return all curves of a service."""
    with stage_.serving(stage, application) as service:
        sois = [measure_soi(stage, service, soi, options, bar)
                for soi in options.sois]
    worst = max(sois, key=rank)['soi']
    return {'service': application.name, 'work': application.work,
            'rate_per_s': application.rate_per_s,
            'target_s': application.target_s,
            'lives_on': application.lives_on, 'hurts_most': worst,
            'as_expected': worst == application.lives_on, 'sois': sois}


def lines(document: Document) -> list[str]:
    """Return the tables."""
    printed: list[str] = []
    for service in document['services']:
        printed += ['', f'{service["service"]}, {service["work"]}, '
                    f'{service["rate_per_s"]:,.0f} requests/s, target '
                    f'{1e3 * service["target_s"]:g} ms']
        rows = [[curve['soi'], f'{at["percent"]:g} %',
                 f'{at["reached_percent"]:.0f} %',
                 f'{1e3 * at["p50_s"]:.3f}', f'{1e3 * at["p99_s"]:.3f}',
                 f'{at["goodput"]:.3f}', f'{at["throughput_per_s"]:,.0f}',
                 f'{at["link_bytes_per_s"] / 1e6:.1f}',
                 f'{1e6 * at["cpu_s_per_answer"]:.1f}',
                 f'{1e6 * at["waited_s_per_answer"]:.1f}',
                 f'{at["storage_bytes_per_answer"] / 1024:.1f}',
                 amounts.of_bytes(at['resident_bytes'])]
                for curve in service['sois'] for at in curve['points']]
        printed += text.columns(
            ('SoI', 'intensity', 'reached', 'P50 ms', 'P99 ms', 'goodput',
             'answers/s', 'link MB/s', 'CPU us', 'waits us', 'disk KiB',
             'memory'), rows, left=(0,))
        printed.append(
            f'{service["hurts_most"]} hurts most; expected: '
            f'{service["lives_on"]}')
    return printed[1:]


def page(document: Document) -> str:
    """Return the page: a row of panels for each service."""
    parts = ['<p>Services in open loop beside one source of interference at '
             'a time. CPU time and storage are those of one answer.</p>']
    for service in document['services']:
        parts.append(
            f'<h2>{service["service"]}: {service["work"]}, '
            f'{service["rate_per_s"]:,.0f} requests/s, target '
            f'{1e3 * service["target_s"]:g} ms</h2>')
        parts.append(page_.grid([curves.panel(
            title, unit, {
                curve['soi']: [(at['percent'], factor * at[key])
                               for at in curve['points']]
                for curve in service['sois']}, log=key == 'p99_s',
            top=1.0 if key == 'goodput' else None)
            for title, unit, key, factor in (
                ('P99', 'ms, logarithmic', 'p99_s', 1e3),
                ('goodput', 'share within the target', 'goodput', 1),
                ('throughput', 'answers/s', 'throughput_per_s', 1),
                ('its share of the link', 'MB/s', 'link_bytes_per_s', 1e-6),
                ('CPU time', 'us per answer', 'cpu_s_per_answer', 1e6),
                ('storage', 'KiB per answer', 'storage_bytes_per_answer',
                 1 / 1024))]))
    return curves.page('Services beside sources of interference', [
        curves.key(document['sois']), *parts])


def main() -> int:
    parser = program.parser(__doc__, seconds=2.0)
    parser.add_argument('--services', metavar='NAME,...',
                        type=options_.catalogued(
                            applications.find_applications),
                        default='memcached,nginx,redis,postgresql')
    parser.add_argument('--sois', metavar='SOI,...', default=SOIS,
                        type=options_.catalogued(catalogue.find_sois))
    parser.add_argument('--levels', metavar='P,P,...', type=options_.levels,
                        default=LEVELS, help='default 0,20,...,100')
    parser.add_argument('--rounds', metavar='N', type=int, default=1,
                        help='medians over so many (default 1)')
    parser.add_argument('--html', metavar='FILE', type=pathlib.Path,
                        help='write a page with plots')
    return program.main(parser, measure, lines, page)


def measure(options: argparse.Namespace, interrupt: interrupt_.Interrupt
            ) -> Document:
    """Return all that this command measures."""
    bar = progress_.Progress(len(options.services) * len(options.sois)
                             * len(options.levels) * options.rounds)
    try:
        with stage_.opened(interrupt) as stage:
            return {'command': 'services', 'seconds': options.seconds,
                    'rounds': options.rounds,
                    'link_bytes_per_s': stage_.LINK_BYTES_PER_S,
                    'sois': [soi.name for soi in options.sois],
                    'services': [measure_service(stage, application, options,
                                                 bar)
                                 for application in options.services]}
    finally:
        bar.end()


if __name__ == '__main__':
    sys.exit(main())
