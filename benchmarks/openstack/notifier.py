# SPDX-License-Identifier: Apache-2.0

"""What our notification driver costs the boots of a real nova-compute.

One hypervisor has it, the other has none; they boot in turns, and half-way
they change places. Once while its broker answers, hangs and is down, and
while our code raises. The broker is its own: without Nova's nothing boots.

Times of a boot are from the request to the answer that it runs, asked every
20 ms. Those of the driver are how long it kept Nova's threads, in all
notifications of a boot, without the time that they waited for a CPU. As
root; six boots of each take some ten minutes::

    .venv/bin/python benchmarks/openstack/notifier.py [--boots 6]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import sys
import time
from typing import NamedTuple

from scavenger_openstack.tests.functional.openstack import cloud as cloud_
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import stack
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests.functional.servers import rabbitmq

SPECS = {'scavenger:priority': 'background',
         'scavenger:floor_memory_mb': '64'}
ASK_S = 0.02
BOOT_S = 120.0
MS_PER_S = 1000
STATES = ('all is well', 'the broker hangs', 'the broker is down',
          'our code raises')


class Boot(NamedTuple):
    """Seconds to the answer that it runs; of each notification, how long it
    was kept by our driver."""

    took_s: float
    blocked_s: tuple[float, ...]


Boots = dict[tuple[str, bool], list[Boot]]
"""By state, and whether there is our driver."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--boots', type=int, default=6,
                        help='of each kind, in each state and place')
    args = parser.parse_args()
    try:
        environment = stack.prepared(print)
    except packages.Unavailable as exc:
        print(exc, file=sys.stderr)
        return 1
    boots: Boots = collections.defaultdict(list)
    # Without BackgroundFilter: no boot waits for headroom.
    with stack.Stack(environment, extra={'filter_scheduler': ''}, say=print
                     ) as kept:
        flavor = kept.cloud.flavor('batch', SPECS)
        hosts = [one.hostname for one in kept.hypervisors]
        for host in hosts:      # the image is fetched at the first
            boot(kept.cloud, flavor, host, None)
        for ours, other in (hosts, hosts[::-1]):
            compare(kept, flavor, ours, other, args.boots, boots)
    report(boots)
    return 0


def compare(kept: stack.Stack, flavor: cloud_.Flavor, ours: str, other: str,
            count: int, boots: Boots) -> None:
    """Boot on both hosts in turns, in each state."""
    broker = rabbitmq.RabbitMq()
    with (contextlib.closing(broker),
          watching.Watched(kept, other, driver=watching.NONE),
          watching.Watched(kept, ours, options=f'transport_url = {broker.url}'
                           ) as watched):
        for host in (ours, other):      # the first after a start is slower
            boot(kept.cloud, flavor, host, None)
        faults = (contextlib.nullcontext(), watching.frozen(broker),
                  watching.down(broker), watched.failing())
        for state, fault in zip(STATES, faults, strict=True):
            with fault:
                for number in range(2 * count):
                    # With and without, without and with.
                    with_it = number % 4 in (0, 3)
                    boots[state, with_it].append(boot(
                        kept.cloud, flavor, ours if with_it else other,
                        watched if with_it else None))
            print(f'{state}, with it on {ours}: done', file=sys.stderr)


def boot(cloud: cloud_.Cloud, flavor: cloud_.Flavor, host: str,
         watched: watching.Watched | None) -> Boot:
    """Boot a server on a host, and delete it.

    :raises TimeoutError: it does not run.
    """
    began = time.monotonic()
    server = cloud.boot('batch', flavor, host=host)
    while True:
        status = cloud.server(server)['status']
        took_s = time.monotonic() - began
        if status == 'ACTIVE':
            break
        if status == 'ERROR' or took_s > BOOT_S:
            raise TimeoutError(f'{server} on {host} is {status} after '
                               f'{took_s:.0f} s')
        time.sleep(ASK_S)
    calls = [] if watched is None else cloud.wait(
        'the end of its boot', lambda: watched.boot(server))
    cloud.delete(server)
    return Boot(took_s, tuple(one.blocked_s for one in calls))


def report(boots: Boots) -> None:
    print(f'{"":20} {"a boot: with":>14} {"without":>10} {"ratio":>7}   '
          f'{"the driver":>12} {"at most":>9} {"longest call":>13} '
          f'{"calls":>6}')
    for state in STATES:
        ours, none = boots[state, True], boots[state, False]
        took = median([one.took_s for one in ours])
        without = median([one.took_s for one in none])
        sums = [sum(one.blocked_s) for one in ours]
        print(f'{state:20} {took:12.2f} s {without:8.2f} s '
              f'{took / without:7.2f}   {median(sums) * MS_PER_S:9.2f} ms '
              f'{max(sums) * MS_PER_S:6.2f} ms '
              f'{max(max(one.blocked_s) for one in ours) * MS_PER_S:10.2f} ms '
              f'{median([len(one.blocked_s) for one in ours]):6.0f}')
    print(f'medians of {len(boots[STATES[0], True])} boots each; the driver: '
          'all notifications of a boot')


def median(numbers: list[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


if __name__ == '__main__':
    sys.exit(main())
