# SPDX-License-Identifier: Apache-2.0

"""Boots and deletes in a real OpenStack while its inventory moves.

Background servers that Placement schedules come and go, some at a time, on
two hypervisors. Meanwhile limits are switched off and on again, so that the
hosts offer nothing, and then something. It counts boots that were refused
although there was enough all the while, boots that passed although there was
nothing, allocations of servers that are gone, and providers that came or
went. At the end ``scavenger-manage placement remove`` has to take away all
that is ours.

Exit code: 1 when any of that was found. As root; 200 boots take some ten
minutes::

    .venv/bin/python benchmarks/openstack/boots.py [--boots 200]
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable
from concurrent import futures
import itertools
import sys
import threading
import time
from typing import NamedTuple

from scavenger_openstack.conductor import placement
from scavenger_openstack.tests.functional.openstack import cloud as cloud_
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import stack

NEED_MIB = 96
SPECS = {'scavenger:priority': 'background',
         'scavenger:floor_memory_mb': '64',
         'resources:VCPU': '0', 'resources:MEMORY_MB': '1',
         f'resources:{placement.MEMORY_MIB}': str(NEED_MIB)}

LOOK_S = 0.3
ON_S, OFF_S = 20.0, 20.0
BOOT_S = 120.0
REMOVED_S = 120.0
NO_HOST = 'No valid host'
MOST_SHOWN = 5


class Boot(NamedTuple):
    """One server; ``refused`` is '' for one that ran."""

    server: str
    began_s: float
    ended_s: float
    refused: str


class Look(NamedTuple):
    """What one host offers at most, and has free at most, in MiB."""

    at_s: float
    offered_mib: float
    free_mib: float


class Inventory(threading.Thread):
    """Moves what hosts offer, and writes down what that comes to."""

    def __init__(self, cloud: cloud_.Cloud) -> None:
        super().__init__(daemon=True)
        self._cloud = cloud
        self._ended = threading.Event()
        self.looks: list[Look] = []
        self.switched = 0
        self.failed = ''

    def run(self) -> None:
        try:
            enabled, next_s = True, time.monotonic() + ON_S
            while not self._ended.wait(LOOK_S):
                if time.monotonic() > next_s:
                    enabled = not enabled
                    self.protect(enabled)
                    next_s = time.monotonic() + (ON_S if enabled else OFF_S)
                self.look()
            self.protect(True)
        except Exception as exc:
            self.failed = f'{type(exc).__name__}: {exc}'

    def end(self) -> None:
        self._ended.set()
        self.join()

    def protect(self, enabled: bool) -> None:
        self._cloud.interference('PUT', '/v1/protection', {
            'scope': 'cloud', 'target': '', 'enabled': enabled,
            'reason': 'inventory is to move'})
        self.switched += 1

    def look(self) -> float:
        """What one server more could have, in MiB."""
        before_s = time.monotonic()
        found = [self._offered(uuid) for name, uuid in providers(
            self._cloud).items() if name.endswith(placement.SUFFIX)]
        offered, free = (max(some, default=0.0)
                         for some in zip(*found or [(0.0, 0.0)], strict=True))
        # Asking takes a while: it was so at some time between.
        self.looks += [Look(at_s, offered, free)
                       for at_s in (before_s, time.monotonic())]
        return free

    def _offered(self, provider: str) -> tuple[float, float]:
        path = f'/resource_providers/{provider}'
        has = self._cloud.placement('GET', f'{path}/inventories')[
            'inventories'].get(placement.MEMORY_MIB)
        if has is None:
            return 0.0, 0.0
        used = self._cloud.placement('GET', f'{path}/usages')['usages'].get(
            placement.MEMORY_MIB, 0)
        offered = has['total'] - has['reserved']
        return offered, offered - used

    def during(self, boot: Boot) -> list[Look]:
        """What there was while a server booted, with the looks just before
        and just after."""
        looks = self.looks
        inside = [number for number, look in enumerate(looks)
                  if boot.began_s <= look.at_s <= boot.ended_s]
        if not inside or not inside[0] or inside[-1] + 1 == len(looks):
            return []       # not known at both ends
        return looks[inside[0] - 1:inside[-1] + 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--boots', type=int, default=200)
    parser.add_argument('--at-a-time', type=int, default=4)
    args = parser.parse_args()
    try:
        environment = stack.prepared(print)
    except packages.Unavailable as exc:
        print(exc, file=sys.stderr)
        return 1
    # BackgroundFilter follows the hosts sooner than Placement does.
    with stack.Stack(environment, extra={'filter_scheduler': ''}, say=print
                     ) as kept:
        wrong = campaign(kept, args.boots, args.at_a_time)
        wrong += removed(kept)
    for line in wrong:
        print(f'WRONG: {line}')
    print('nothing was wrong' if not wrong else f'{len(wrong)} were wrong')
    return 1 if wrong else 0


def campaign(kept: stack.Stack, count: int, at_a_time: int) -> list[str]:
    """Boot and delete; what was wrong."""
    cloud = kept.cloud
    flavor = cloud.flavor('batch', SPECS)
    cloud.image()
    inventory = Inventory(cloud.as_user('admin', 'admin'))
    enough_mib = NEED_MIB * at_a_time
    cloud.wait('hosts offer enough', lambda: inventory.look() >= enough_mib)
    before = providers(cloud)
    inventory.start()
    clients = threading.local()

    def boot(number: int) -> Boot:
        if not hasattr(clients, 'cloud'):
            clients.cloud = cloud.as_user('admin', 'admin')
        return boot_one(clients.cloud, flavor, number)

    boots = []
    with futures.ThreadPoolExecutor(at_a_time) as pool:
        for one in pool.map(boot, range(count)):
            boots.append(one)
            print(f'\r{len(boots)} of {count}', end='', flush=True,
                  file=sys.stderr)
    print(file=sys.stderr)
    time.sleep(3 * LOOK_S)      # what was free after the last
    inventory.end()
    wrong = [inventory.failed] if inventory.failed else []
    wrong += judged(boots, inventory, enough_mib)
    wrong += allocations(cloud, boots)
    after = providers(cloud)
    if before != after:
        wrong.append(f'providers were {before} and are {after}')
    return wrong


def boot_one(cloud: cloud_.Cloud, flavor: cloud_.Flavor, number: int
             ) -> Boot:
    began_s = time.monotonic()
    refused = ''
    server = cloud.boot(f'batch-{number}', flavor)
    try:
        cloud.active(server, BOOT_S)
    except (cloud_.Refused, TimeoutError) as exc:
        refused = getattr(exc, 'text', str(exc))
    ended_s = time.monotonic()
    cloud.delete(server)
    return Boot(server, began_s, ended_s, refused)


def judged(boots: Iterable[Boot], inventory: Inventory, enough_mib: float
           ) -> list[str]:
    """What should have gone otherwise; prints how often what happened."""
    wrong = []
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    took = []
    for boot in boots:
        looks = inventory.during(boot)
        free = [look.free_mib for look in looks]
        if not looks:
            offered = 'not known'
        elif min(free) >= enough_mib:
            offered = 'enough'
        elif max(look.offered_mib for look in looks) < NEED_MIB:
            offered = 'too little'
        else:
            offered = 'it changed'
        counts[offered, 'refused' if boot.refused else 'passed'] += 1
        if boot.refused and (offered == 'enough'
                             or NO_HOST not in boot.refused):
            wrong.append(f'{boot.server} was refused, offered was {offered}, '
                         f'{free[:MOST_SHOWN]} MiB: {boot.refused}')
        elif not boot.refused:
            took.append(boot.ended_s - boot.began_s)
            if offered == 'too little':
                wrong.append(f'{boot.server} passed, offered were '
                             f'{free[:MOST_SHOWN]} MiB')
    print(f'{"offered meanwhile":20} {"passed":>8} {"refused":>8}')
    for offered in ('enough', 'too little', 'it changed', 'not known'):
        print(f'{offered:20} {counts[offered, "passed"]:8} '
              f'{counts[offered, "refused"]:8}')
    took.sort()
    free = [look.free_mib for look in inventory.looks]
    moved = sum(one != other for one, other in itertools.pairwise(free))
    print(f'free on the host that offers most: {min(free):.0f} to '
          f'{max(free):.0f} MiB, other than before {moved} times; limits '
          f'were switched {inventory.switched} times')
    if took:
        print(f'boots that passed took {took[len(took) // 2]:.1f} s (median), '
              f'{took[-1]:.1f} s (longest)')
    if not counts['enough', 'passed'] or not counts['too little', 'refused']:
        wrong.append('nothing was shown: no boot fell into a time with '
                     'enough, or none into one with too little')
    return wrong


def allocations(cloud: cloud_.Cloud, boots: Iterable[Boot]) -> list[str]:
    """Those that are left, though no server is."""
    wrong = []
    for boot in boots:
        left = cloud.placement('GET', f'/allocations/{boot.server}')[
            'allocations']
        if left:
            wrong.append(f'{boot.server} is gone and has {left}')
    for name, uuid in providers(cloud).items():
        left = cloud.placement(
            'GET', f'/resource_providers/{uuid}/allocations')['allocations']
        if left:
            wrong.append(f'{name} has allocations of {sorted(left)}')
    return wrong


def removed(kept: stack.Stack) -> list[str]:
    """Take away what conductors have told Placement; what stays."""
    kept.services['scavenger-conductor'].stop()
    until_s = time.monotonic() + REMOVED_S
    while True:
        # Refused as long as the claim of the conductor holds.
        code, said = product.manage(kept.site, 'placement', 'remove')
        if not code or time.monotonic() > until_s:
            break
        time.sleep(1.0)
    print(f'scavenger-manage placement remove: {said.strip()}')
    wrong = [f'it ended with {code}'] if code else []
    names = set(providers(kept.cloud))
    hosts = {one.hostname for one in kept.hypervisors}
    if names != hosts:
        wrong.append(f'providers are {sorted(names)}, hosts {sorted(hosts)}')
    classes = [one['name'] for one in kept.cloud.placement(
        'GET', '/resource_classes')['resource_classes']
        if one['name'].startswith('CUSTOM_BACKGROUND')]
    if classes:
        wrong.append(f'resource classes stay: {classes}')
    return wrong


def providers(cloud: cloud_.Cloud) -> dict[str, str]:
    """All of them: name and UUID."""
    return {one['name']: one['uuid'] for one in cloud.placement(
        'GET', '/resource_providers')['resource_providers']}


if __name__ == '__main__':
    sys.exit(main())
