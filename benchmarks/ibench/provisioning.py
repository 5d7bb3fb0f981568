# SPDX-License-Identifier: Apache-2.0

"""memcached's profile on a small and on a larger server.

The same load, first behind a narrow link and then behind a wide one, as the
paper goes from a 1 to a 10 Gbit/s network card.  Printed are both profiles,
the CPU that the service uses, and its latency.  The paper's second change,
a third memory channel, cannot be made here, and its CPI cannot be counted:
CPU time per answer stands for it.

Source: iBench, section V-B and figure 7.

    python benchmarks/ibench/provisioning.py [--service memcached]
        [--small 75] [--large 125] [--sois 2,5,7,11,12] [--seconds 1]
        [--repeats 2] [--slack 1] [--json]

Needs root, two CPUs, gcc, iproute2 and the service.  The defaults take about
5 minutes.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import applications
import profiled
import program
import stage as stage_

from scavenger_openstack import command_line
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack import text

SOIS = 'memory_bandwidth,network_bandwidth,llc_bandwidth,integer,' \
       'floating_point'
WORK_S = 5.0

Document = dict[str, Any]


def measure(options: argparse.Namespace, interrupt: interrupt_.Interrupt
            ) -> Document:
    """Return all that this command measures."""
    application, = options.service
    servers = []
    with stage_.opened(interrupt, alone=False) as stage, \
            stage_.serving(stage, application) as service:
        for name, rate in (('small', options.small), ('large',
                                                      options.large)):
            stage_.set_rate(stage.link, rate * 1e6)
            alone = stage_.read_alone(
                stage, service, seconds=WORK_S * options.seconds,
                target_s=application.target_s)
            answers = max(1, alone.answers['all_answered'])
            servers.append({
                'server': name, 'link_bytes_per_s': rate * 1e6,
                'cpu_cores': alone.cpu_s / alone.seconds,
                'cpu_s_per_answer': alone.cpu_s / answers,
                'p50_s': alone.answers['p50_s'],
                'p99_s': alone.answers['p99_s'], 'goodput': alone.goodput,
                'profile': profiled.profile_service(
                    stage, service, options.sois, seconds=options.seconds,
                    repeats=options.repeats, slack=options.slack)})
    return {'command': 'provisioning', 'service': application.name,
            'rate_per_s': application.rate_per_s,
            'sois': [soi.name for soi in options.sois], 'servers': servers}


def lines(document: Document) -> list[str]:
    """Return the tables."""
    servers = document['servers']
    printed = text.columns(
        ('server', 'link MB/s', 'CPUs used', 'CPU us per answer', 'P50 ms',
         'P99 ms', 'goodput'),
        [[server['server'], f'{server["link_bytes_per_s"] / 1e6:g}',
          f'{server["cpu_cores"]:.2f}',
          f'{1e6 * server["cpu_s_per_answer"]:.1f}',
          f'{1e3 * server["p50_s"]:.3f}', f'{1e3 * server["p99_s"]:.3f}',
          f'{server["goodput"]:.3f}'] for server in servers], left=(0,))
    return [*printed, '', *text.columns(
        ('part', 'SoI', *(server['server'] for server in servers)),
        [[part, name, *(
            f'{server["profile"][part][name]["value"]:.2f}'
            if name in server['profile'][part] else '-'
            for server in servers)]
         for part in ('tolerated', 'caused') for name in document['sois']],
        left=(0, 1))]


def main() -> int:
    parser = program.parser(__doc__, seconds=1.0)
    parser.add_argument('--service', metavar='NAME', default='memcached',
                        type=options_.catalogued(
                            applications.find_applications))
    for name, rate in (('small', 75.0), ('large', 125.0)):
        parser.add_argument(
            f'--{name}', metavar='MB', default=rate,
            type=command_line.number(1, 1e5),
            help=f'the link of the {name} server in MB/s (default {rate:g})')
    parser.add_argument('--sois', metavar='SOI,...', default=SOIS,
                        type=options_.catalogued(catalogue.find_sois))
    parser.add_argument('--repeats', metavar='N', type=int, default=2,
                        help='of each profile (default 2)')
    parser.add_argument('--slack', metavar='F', type=float, default=1.0,
                        help='the QoS is F times the target of the service, '
                             'for a busy host (default 1)')
    return program.main(parser, measure, lines)


if __name__ == '__main__':
    sys.exit(main())
