# SPDX-License-Identifier: Apache-2.0

"""Who is named on hosts that no detector was made on: kinds of antagonists.

Each kind for each of CPU, disk, cache and link, made from the shipped
scenarios, with ten background suspects beside:

first-there  at work before the detector, and without a pause
step         comes in the middle and stays
periodic     works for half of each period
alternating  two that take turns
foreground   as first-there, but foreground: to be named, not to be limited
proxy        as first-there, by the host's writeback: of disks alone

    python benchmarks/simulated/held_out.py [--seeds 5] [--first 7000]
        [--kinds first-there,step] [--resources cpu,disk] [--json]

Printed are recall (named pairs of a victim and an antagonist, of those where
the victim is a fifth slower), precision, and seconds from the onset to the
first right name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import concurrent.futures
import json
import os
import statistics
from typing import Any

import detection
import detectors
import yaml

from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.simulator.scenario import Scenario

SHIPPED = {'cpu': 'cpu-antagonist', 'disk': 'disk-antagonist',
           'cache': 'cache-antagonist', 'link': 'network-antagonist'}
SUSPECTS = 10

BY_EXPERIMENT = ('cache',)
"""Of which direct evidence does not always tell: the detector limits, for its
experiments."""

OF_DISKS = ('proxy',)
"""Kinds that are nothing for other resources."""

FROM_THE_START = ('first-there', 'foreground', 'proxy')
"""Onset is when the detector starts."""

Tenant = dict[str, Any]


def _bursts(offset: float) -> list[dict[str, Any]]:
    return [{'shape': 'bursts', 'period_s': '$turn', 'offset_s': offset,
             'share': 0.5, 'level': 1, 'low': 0.02}]


def first_there(tenant: Tenant) -> list[Tenant]:
    tenant.pop('phases', None)
    return [tenant]


def step(tenant: Tenant) -> list[Tenant]:
    return [{**first_there(tenant)[0],
             'arrives_s': {'uniform': [250, 350]}}]


def periodic(tenant: Tenant) -> list[Tenant]:
    return [{**tenant, 'phases': _bursts(0.0)}]


def alternating(tenant: Tenant) -> list[Tenant]:
    return [{**tenant, 'id': f'{tenant["id"]}-{turn}',
             'phases': [{**_bursts(0.0)[0], 'low': (1, 0.02)[turn],
                         'level': (0.02, 1)[turn]}]} for turn in (0, 1)]


def foreground(tenant: Tenant) -> list[Tenant]:
    return [{**first_there(tenant)[0], 'priority': 'foreground'}]


def proxy(tenant: Tenant) -> list[Tenant]:
    return [{**first_there(tenant)[0], 'buffered': True}]


KINDS: Mapping[str, Callable[[Tenant], list[Tenant]]] = {
    'first-there': first_there, 'step': step, 'periodic': periodic,
    'alternating': alternating, 'foreground': foreground, 'proxy': proxy}


def scenario(kind: str, resource: str) -> Scenario:
    document = yaml.safe_load(
        (catalogue.SHIPPED / f'{SHIPPED[resource]}{catalogue.SUFFIX}'
         ).read_text())
    tenants: list[Tenant] = []
    for tenant in document['tenants']:
        if tenant.get('role') == detection.ANTAGONIST:
            tenants += KINDS[kind](tenant)
        elif tenant.get('priority') == 'background':
            tenants.append({**tenant, 'count': SUSPECTS - 1})
        else:
            tenants.append(tenant)
    document['tenants'] = tenants
    document.setdefault('draws', {})['turn'] = {'uniform': [60, 180]}
    return Scenario(yaml.safe_dump(document), f'{resource}-{kind}.yaml')


def record(kind: str, resource: str, seed: int) -> dict[str, Any]:
    return detection.record(detection.Task(
        scenario(kind, resource), seed, enforce=resource in BY_EXPERIMENT))


def row(kind: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    delays = detectors.delays_s(records, detection.OURS)
    if kind in FROM_THE_START:
        delays = [min(pair[2] for pair in record['named'][detection.OURS]
                      if pair[0] == victim and pair[-1])
                  for record in records for victim in record['onset_s']
                  if any(pair[0] == victim and pair[-1] for pair
                         in record['named'][detection.OURS])]
    return {'recall': detectors.recall(records, detection.OURS)[:2],
            'precision': detectors.precision(records, detection.OURS)[:2],
            'median_s': statistics.median(delays) if delays else None}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--first', type=int, default=7000)
    parser.add_argument('--kinds', default=','.join(KINDS))
    parser.add_argument('--resources', default=','.join(SHIPPED))
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    rows = {}
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for resource in options.resources.split(','):
            for kind in options.kinds.split(','):
                if kind in OF_DISKS and resource != 'disk':
                    continue
                rows[f'{resource} {kind}'] = found = row(kind, list(pool.map(
                    record, [kind] * len(seeds), [resource] * len(seeds),
                    seeds)))
                if not options.json:
                    print(f'{resource:6}{kind:12}', *(
                        f'{name} {part}/{whole}' for name, (part, whole) in (
                            (name, found[name])
                            for name in ('recall', 'precision'))),
                          f'named after {found["median_s"]} s', flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
