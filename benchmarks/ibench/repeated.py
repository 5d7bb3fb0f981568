# SPDX-License-Identifier: Apache-2.0

"""How much a profile that is made again differs, and one service's from
another's.

Each of memcached, nginx, redis and PostgreSQL is profiled several times by
``scavenger-ibench profile``, in turn.  Printed is the mean of each entry with
the furthest that one is from it, which should be at most .1, and how far the
services are apart: the mean over SoIs of the difference of their means.

    python benchmarks/ibench/repeated.py [--services redis,nginx]
        [--sois 5,11] [--times 5] [--seconds 1] [--repeats 2]
        [--slack 1] [--json] [--html FILE]

Needs root, two CPUs, gcc, iproute2, and the services that are asked for.
A profile of five SoIs takes about 1 to 2 minutes, the defaults about 30; make
figures on a quiet machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import pathlib
import statistics
import sys
from typing import Any

import applications
import curves
import profiled
import program
import services
import stage as stage_

from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack.ibench import progress as progress_
from scavenger_openstack.plot import page as page_
from scavenger_openstack import text

PARTS = ('tolerated', 'caused')
BAR = 0.1

Document = dict[str, Any]


def spread(profiles: Sequence[Document]) -> list[Document]:
    """Return each entry that all profiles have: mean and furthest from it."""
    entries = []
    for part in PARTS:
        names = [soi.name for soi in catalogue.SOIS if all(
            soi.name in profile[part] for profile in profiles)]
        for name in names:
            values = [profile[part][name]['value'] for profile in profiles]
            mean = statistics.fmean(values)
            furthest = max(abs(value - mean) for value in values)
            entries.append({'part': part, 'soi': name, 'values': values,
                            'mean': mean, 'furthest': furthest,
                            'reached': furthest <= BAR})
    return entries


def apart(first: Sequence[Document], second: Sequence[Document]) -> float:
    """Return the mean difference of the entries that both have."""
    def means(entries: Sequence[Document]
              ) -> Mapping[tuple[str, str], float]:
        return {(entry['part'], entry['soi']): entry['mean']
                for entry in entries}
    one_side, other_side = means(first), means(second)
    return statistics.fmean(abs(one_side[key] - other_side[key])
                            for key in one_side.keys() & other_side.keys())


def lines(document: Document) -> list[str]:
    """Return the tables."""
    rows = [[service['service'], entry['part'], entry['soi'],
             ' '.join(f'{value:.2f}' for value in entry['values']),
             f'{entry["mean"]:.2f}', f'{entry["furthest"]:.2f}',
             'yes' if entry['reached'] else 'no']
            for service in document['services']
            for entry in service['entries']]
    printed = text.columns(('service', 'part', 'SoI', 'values', 'mean',
                            'furthest', f'within {BAR:g}'), rows,
                           left=(0, 1, 2, 3, 6))
    within = [entry['reached'] for service in document['services']
              for entry in service['entries']]
    printed.append(f'{sum(within)} of {len(within)} entries within {BAR:g}')
    printed += [f'{pair["first"]} and {pair["second"]} are '
                f'{pair["apart"]:.2f} apart' for pair in document['pairs']]
    return printed + [f'{service["service"]}: no {name}: {reason}'
                      for service in document['services']
                      for name, reason in service['missing'].items()]


def page(document: Document) -> str:
    """Return the heat maps of the means."""
    from scavenger_openstack.algorithms.profiles import Estimate
    from scavenger_openstack.plot import heat
    cards = []
    for service in document['services']:
        estimates = {(entry['part'], entry['soi']): Estimate(
            entry['mean'], min(entry['values']), max(entry['values']))
            for entry in service['entries']}
        cards.append(heat.svg(service['service'], [
            (heat.LABELS[soi.name], estimates.get(('tolerated', soi.name)),
             estimates.get(('caused', soi.name)))
            for soi in catalogue.SOIS
            if any(name == soi.name for _, name in estimates)]))
    return curves.page('Profiles of services', [
        f'<p>Means of {document["times"]} profiles, and their lowest and '
        'highest.</p>', page_.grid(cards)])


def measure(options: argparse.Namespace, interrupt: interrupt_.Interrupt
            ) -> Document:
    """Return all that this command measures."""
    bar = progress_.Progress(len(options.services) * options.times)
    profiles: dict[str, list[Document]] = {
        application.name: [] for application in options.services}
    try:
        with stage_.opened(interrupt, alone=False) as stage:
            for turn in range(options.times):
                for application in options.services:
                    bar.show_step(f'{application.name}, profile {turn + 1}')
                    with stage_.serving(stage, application) as service:
                        profiles[application.name].append(
                            profiled.profile_service(
                                stage, service, options.sois,
                                seconds=options.seconds,
                                repeats=options.repeats,
                                slack=options.slack))
    finally:
        bar.end()
    entries = {name: spread(made) for name, made in profiles.items()}
    return {'command': 'repeated', 'times': options.times,
            'seconds': options.seconds, 'repeats': options.repeats,
            'services': [{'service': name, 'entries': entries[name],
                          'missing': made[0]['missing'], 'profiles': made}
                         for name, made in profiles.items()],
            'pairs': [{'first': first, 'second': second,
                       'apart': apart(entries[first], entries[second])}
                      for first, second in itertools.combinations(entries,
                                                                  2)]}


def main() -> int:
    parser = program.parser(__doc__, seconds=1.0)
    parser.add_argument('--services', metavar='NAME,...',
                        type=options_.catalogued(
                            applications.find_applications),
                        default='memcached,nginx,redis,postgresql')
    parser.add_argument('--sois', metavar='SOI,...', default=services.SOIS,
                        type=options_.catalogued(catalogue.find_sois))
    parser.add_argument('--times', metavar='N', type=int, default=5,
                        help='profiles of each (default 5)')
    parser.add_argument('--repeats', metavar='N', type=int, default=2,
                        help='of each profile (default 2)')
    parser.add_argument('--slack', metavar='F', type=float, default=1.0,
                        help='the QoS is F times the target of the service, '
                             'for a busy host (default 1)')
    parser.add_argument('--html', metavar='FILE', type=pathlib.Path,
                        help='write a page with heat maps')
    return program.main(parser, measure, lines, page)


if __name__ == '__main__':
    sys.exit(main())
