# SPDX-License-Identifier: Apache-2.0


"""Is the antagonist of a real OpenStack named by the shipped detector?

One hypervisor with three servers of a foreground application, which answer
lookups under open load, and a background server of two virtual CPUs; flavors
alone tell them apart. The agent has the detector ``attribution`` in enforce
mode, and its regulators observe (they would limit the background server before
it could disturb others). After a while the background server begins to
compute.

Prints when the API lists it, when it has a limit, and what lookups took
before, until the limit and after it. It may have been named before, when it
booted. Exit code: 1 when it was not limited in time, or another was named. As
root; it takes three minutes::

    .venv/bin/python benchmarks/openstack/naming.py [--quiet 90] [--most 300]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent import futures
import contextlib
import statistics
import sys
import threading
import time
from typing import NamedTuple

from scavenger_openstack.tests.functional.openstack import cloud as cloud_
from scavenger_openstack.tests.functional.openstack import guests
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import stack
from scavenger_openstack.tests.functional.openstack import watching

SHOP = {'scavenger:application': 'shop'}
BATCH = {'scavenger:priority': 'background',
         'scavenger:floor_memory_mb': '64'}
SHOPS = 3
VCPUS = 2
AFTER_S = 30.0
LOOK_S = 0.5
"""Between two questions to the API."""
MS_PER_S = 1000


class Lookups:
    """What the application says of itself, as it goes on; a context."""

    def __init__(self, consoles: list[guests.Console]) -> None:
        self._consoles = consoles
        self._pool = futures.ThreadPoolExecutor(len(consoles))
        self._ended = threading.Event()
        self.p99: list[tuple[float, float]] = []
        """When, and the 99th percentile of one second of one server."""

    def __enter__(self) -> Lookups:
        for console in self._consoles:
            self._pool.submit(self._read, console)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown()

    def _read(self, console: guests.Console) -> None:
        while not self._ended.is_set():
            self.p99 += [(time.monotonic(), line['p99_s'])
                         for line in console.reports(LOOK_S)
                         if 'p99_s' in line]

    def between(self, since_s: float, until_s: float) -> str:
        found = sorted(p99 for at_s, p99 in self.p99
                       if since_s <= at_s < until_s)
        if not found:
            return 'nothing was said'
        return (f'P99 of a second {statistics.median(found) * MS_PER_S:.0f} '
                f'ms in the median, {found[-1] * MS_PER_S:.0f} ms at most')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quiet', type=float, default=90.0,
                        help='seconds before it disturbs (90)')
    parser.add_argument('--most', type=float, default=300.0,
                        help='seconds in which it has to be named (300)')
    args = parser.parse_args()
    try:
        environment = stack.prepared(print)
    except packages.Unavailable as exc:
        print(exc, file=sys.stderr)
        return 1
    # Without BackgroundFilter: no boot waits for headroom.
    with contextlib.ExitStack() as inside:
        kept = inside.enter_context(stack.Stack(
            environment, hypervisors=1, extra={'filter_scheduler': ''},
            say=print))
        inside.enter_context(watching.changed(
            product.REGULATES, product.DETECTS, 'started: ', *kept.agents()))
        shops = [server(kept.cloud, f'shop-{number}', SHOP)
                 for number in range(SHOPS)]
        hog = server(kept.cloud, 'batch', BATCH, VCPUS)
        consoles = [inside.enter_context(guests.Console(
            kept.hypervisors[0], domain(kept.cloud, one)))
            for one in (*shops, hog)]
        for console in consoles:
            console.tell('rest')
        return named(kept.cloud, hog, consoles, args.quiet, args.most)


def server(cloud: cloud_.Cloud, name: str, specs: dict[str, str],
           vcpus: int = 1) -> str:
    """Boot one, alone: a guest that hardly ran at first has a wrong clock."""
    found = cloud.boot(name, cloud.flavor(name, specs, vcpus))
    cloud.active(found)
    return found


def domain(cloud: cloud_.Cloud, found: str) -> str:
    name: str = cloud.server(found)['OS-EXT-SRV-ATTR:instance_name']
    return name


def named(cloud: cloud_.Cloud, hog: str, consoles: list[guests.Console],
          quiet_s: float, most_s: float) -> int:
    """Have it disturb, and wait until it is named; the exit code."""
    *shops, batch = consoles
    guests.serve(shops)
    with Lookups(shops) as lookups:
        began = time.monotonic()
        time.sleep(quiet_s)
        before = antagonists(cloud)
        if any(one.limited for one in before.values()):
            print(f'limited before anything happened: {before}')
            return 1
        disturbs = time.monotonic()
        print(f'alone: {lookups.between(began, disturbs)}', flush=True)
        batch.tell(f'cpu {VCPUS}')
        found = wait(cloud, disturbs + most_s, lambda now: now != before)
        print(f'listed after {time.monotonic() - disturbs:.1f} s', flush=True)
        found = wait(cloud, disturbs + most_s, lambda now: (
            hog in now and now[hog].limited))
        limited = time.monotonic()
        print(f'disturbed: {lookups.between(disturbs, limited)}\n'
              f'limited after {limited - disturbs:.1f} s', flush=True)
        time.sleep(AFTER_S)
        print(f'limited: {lookups.between(limited, limited + AFTER_S)}')
    for name, one in found.items():
        print(f'{"the server" if name == hog else "another, " + name}: '
              f'{one.incidents} incidents, {one.confirmed} limits that '
              f'helped; limited: {one.limited}')
    return 0 if found.keys() == {hog} else 1


def wait(cloud: cloud_.Cloud, until_s: float,
         reached: Callable[[dict[str, Named]], bool]) -> dict[str, Named]:
    """The antagonists, once they are as they should be.

    :raises TimeoutError: they were not, in time.
    """
    while not reached(found := antagonists(cloud)):
        if time.monotonic() > until_s:
            raise TimeoutError(f'not in time; antagonists: {found}')
        time.sleep(LOOK_S)
    return found


class Named(NamedTuple):
    """What the API says of an antagonist."""

    incidents: int
    confirmed: int
    limited: bool


def antagonists(cloud: cloud_.Cloud) -> dict[str, Named]:
    """Those that it lists, by instance."""
    return {one['instance']: Named(*(one[name] for name in Named._fields))
            for one in cloud.interference('GET', '/v1/antagonists'
                                          )['antagonists']}


if __name__ == '__main__':
    sys.exit(main())
