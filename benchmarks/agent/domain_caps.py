# SPDX-License-Identifier: Apache-2.0


"""What limits on a real guest come to, and how long each call takes.

Starts a libvirtd of its own with one guest under TCG (root) and limits it as
the agent does.  Prints for a CPU cap, a disk cap and an egress cap what the
guest does without, with, and after it, in parts of the cap; how long the
balloon takes to a size and back; what a paused guest uses; and for each knob
the wall time of the first cap (the lease, our record in the domain, the
limit, and a look at what came of it), of a change and of the removal, and
which calls to libvirt that time is made of.  Nothing is asserted; with other
work on the machine the figures tell little.

    python benchmarks/agent/domain_caps.py [--repeat 12] [--rounds 5]
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import json
import pathlib
import statistics
import sys
import time
from typing import Any

import libvirt_calls
from running_agent import guarded
from running_agent import say

from scavenger_openstack import errors
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_network
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.text import columns
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

CPU, DISK, EGRESS = 0.2, 5_000_000, 1_000_000
BALLOON_BYTES = 64 * 2**20
BALLOON_TIMEOUT_S = 30.0
SETTLE_S = 1.0

TIMED: dict[Knob, tuple[Value, Value]] = {
    Knob.CPU_CORES: (CPU, 0.1), Knob.CPU_SET: ('1', '0'),
    Knob.CPU_IDLE: (1, 1), Knob.IO_BYTES_PER_S: (DISK, DISK // 2),
    Knob.IO_OPS_PER_S: (200, 100),
    Knob.MEMORY_BYTES: (80 * 2**20, 72 * 2**20),
    Knob.EGRESS_BYTES_PER_S: (EGRESS, EGRESS // 2), Knob.PAUSED: (1, 1)}
"""A first cap on each knob, and another one in its place."""


class Bench:
    """One guest, its console, and as much of an agent as limits it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.host = stack.enter_context(hypervisor.Hypervisor())
        self.bridge = stack.enter_context(domain_network.Bridge(self.host))
        self.guest = virtual_host.background(
            'one', disks=(domain_guest.Disk.make(self.host.disks / 'a'),),
            interfaces=(self.bridge.interface(),))
        self.console = self.host.define_and_start(self.guest)
        self.console.keep_time()
        self.console.tell(f'address {self.bridge.address()}')
        self.calls = libvirt_calls.count()
        self.host.tree.make('/batch')
        self.agent = virtual_host.HostAgent(
            self.host, self.host.directory, '[network]',
            f'links = {self.bridge.name}=125000000')
        stack.callback(self.agent.close)
        self.before = self.limits()

    def limits(self) -> list[str]:
        return virtual_host.limits(self.host, 'one')

    def put(self, knob: Knob | None = None, value: Value = 0) -> float:
        """Have this cap in force, or none; what the call took, in seconds.

        :raises DriverError: it is not in force.
        """
        self.agent.driver.sample()
        began_s = time.monotonic()
        outcome = self.agent.put(*(
            [(self.guest.uuid, knob, value)] if knob else []))
        took_s = time.monotonic() - began_s
        if outcome.problems:
            raise errors.DriverError('; '.join(outcome.problems))
        return took_s

    def cores(self, seconds: float) -> float:
        """What the guest takes of the CPUs in the next seconds."""
        first, began_s = self._cpu_s(), time.monotonic()
        time.sleep(seconds)
        return (self._cpu_s() - first) / (time.monotonic() - began_s)

    def _cpu_s(self) -> float:
        sample, = self.agent.driver.sample().workloads
        assert sample.cpu_s is not None
        return sample.cpu_s

    def disk_bytes_per_s(self, seconds: float) -> float:
        return self.console.measure(round(seconds)).bytes_per_s


def held(bench: Bench, work: str, knob: Knob, cap: float,
         measure: Callable[[float], float], args: argparse.Namespace
         ) -> dict[str, Any]:
    """What a guest does without, with and after a cap, some times over."""
    found: dict[str, list[float]] = {'before': [], 'capped': [], 'after': []}
    bench.console.tell(work)
    for number in range(args.rounds):
        say(f'{knob}: round {number + 1} of {args.rounds}')
        for phase in found:
            bench.put(*((knob, cap) if phase == 'capped' else ()))
            time.sleep(SETTLE_S)
            found[phase].append(measure(
                args.seconds if phase == 'capped' else args.seconds / 3)
                / cap)
    bench.console.tell('rest')
    return {'what': f'{knob} {cap:g}', **found}


def balloon(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds until the guest has returned, and has, its memory."""
    found: dict[str, list[float]] = {'down': [], 'up': []}
    for _ in range(args.rounds):
        for way, words in (('down', (Knob.MEMORY_BYTES, BALLOON_BYTES)),
                           ('up', ())):
            began_s = time.monotonic()
            bench.put(*words)
            kib = (BALLOON_BYTES if words else bench.guest.memory_bytes
                   ) // 1024
            while f'actual {kib}' not in bench.host.virsh('dommemstat',
                                                          'one'):
                if time.monotonic() - began_s > BALLOON_TIMEOUT_S:
                    raise errors.DriverError(
                        f'the balloon is not at {kib} KiB within '
                        f'{BALLOON_TIMEOUT_S:g} s')
                time.sleep(0.02)
            found[way].append(time.monotonic() - began_s)
    return found


def paused(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """Cores that a guest takes while it computes, is paused, goes on."""
    bench.console.tell('cpu 1')
    found: dict[str, Any] = {'before': bench.cores(2)}
    bench.put(Knob.PAUSED, 1)
    found['state'] = bench.host.virsh('domstate', 'one').strip()
    found['paused'] = bench.cores(args.seconds / 2)
    bench.put()
    found['after'] = bench.cores(2)
    bench.console.tell('rest')
    return found


def timed(bench: Bench, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Each call on each knob, and the calls to libvirt that it is made of."""
    found = []
    for knob, (first, other) in TIMED.items():
        say(f'{knob}: {args.repeat} times')
        ways: dict[str, tuple[Any, ...]] = {'set': (knob, first)}
        if first != other:
            ways['change'] = (knob, other)
        ways['remove'] = ()
        took: dict[str, list[float]] = {way: [] for way in ways}
        calls: dict[str, list[list[libvirt_calls.Call]]] = {
            way: [] for way in ways}
        for _ in range(args.repeat):
            for way, words in ways.items():
                time.sleep(0.1)     # what events bring is over
                bench.calls.clear()
                took[way].append(bench.put(*words))
                # Without looks, which follow events.
                calls[way].append([
                    call for call in list(bench.calls)
                    if call.thread == 'MainThread' or call.thread.startswith(
                        'call ') and 'call look ' not in call.thread])
        found.append({'knob': str(knob), 'took': took, 'calls': {
            way: parts(some) for way, some in calls.items()}})
    return found


def parts(repeats: Sequence[Sequence[libvirt_calls.Call]]
          ) -> dict[str, float]:
    """Seconds in each function of libvirt, the median over all repeats."""
    sums: dict[str, list[float]] = {}
    for number, calls in enumerate(repeats):
        one: collections.Counter[str] = collections.Counter()
        for call in calls:
            one[call.name] += call.took_s       # type: ignore[assignment]
        for name, took_s in one.items():
            sums.setdefault(name, [0.0] * len(repeats))[number] = took_s
    return {name: statistics.median(took) for name, took in sums.items()}


def text(record: dict[str, Any]) -> str:
    """All of it, for people."""
    said = ['Parts of the cap (median, lowest to highest of '
            f'{len(record["held"][0]["capped"])} rounds)', '']
    said += columns(('cap', 'without', 'capped', 'after'), [
        (one['what'], *(spread(one[phase], '{:.3f}')
                        for phase in ('before', 'capped', 'after')))
        for one in record['held']])
    said += ['', 'balloon 96 to 64 MiB within '
             f'{spread(record["balloon"]["down"], "{:.2f}")} s, back within '
             f'{spread(record["balloon"]["up"], "{:.2f}")} s']
    one = record['paused']
    said += [f'paused: domstate {one["state"]}, {one["before"]:.2f} cores '
             f'before, {one["paused"]:.4f} paused, {one["after"]:.2f} '
             'after', '', 'ms of each call (median, lowest to highest of '
             f'{len(record["timed"][0]["took"]["set"])})', '']
    said += columns(('knob', 'first cap', 'change', 'removal'), [
        (one['knob'], *(spread([1000 * took_s for took_s in
                                one['took'].get(way, ())], '{:.1f}')
                        for way in ('set', 'change', 'remove')))
        for one in record['timed']])
    said += ['', 'of which in libvirt, ms (medians)', '']
    for one in record['timed']:
        for way, calls in one['calls'].items():
            if calls:
                said.append(f'{one["knob"]} {way}: ' + ', '.join(
                    f'{name.removeprefix("vir")} {1000 * took_s:.1f}'
                    for name, took_s in sorted(
                        calls.items(), key=lambda item: -item[1])[:6]))
    said += ['', 'all limits are as they were before' if record['as_before']
             else f'CHANGED: {record["before"]} -> {record["after"]}']
    return '\n'.join(said)


def spread(values: Sequence[float], form: str) -> str:
    if not values:
        return '-'
    return (f'{form.format(statistics.median(values))} ('
            f'{form.format(min(values))} to {form.format(max(values))})')


def play(args: argparse.Namespace) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        say('the guest starts')
        bench = Bench(stack)
        net = f'net {domain_network.ADDRESS} tcp bytes_per_s={4 * EGRESS}'
        record = {
            'held': [
                held(bench, 'cpu 1', Knob.CPU_CORES, CPU, bench.cores, args),
                held(bench, 'disk seq kib=64', Knob.IO_BYTES_PER_S, DISK,
                     bench.disk_bytes_per_s, args),
                held(bench, net, Knob.EGRESS_BYTES_PER_S, EGRESS,
                     bench.bridge.bytes_per_s, args)],
            'balloon': balloon(bench, args), 'paused': paused(bench, args),
            'timed': timed(bench, args)}
        bench.put()
        after = bench.limits()
        return {**record, 'before': bench.before, 'after': after,
                'as_before': after == bench.before}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=5,
                        help='how often each limit is measured')
    parser.add_argument('--seconds', type=float, default=9,
                        help='of each measurement under a cap')
    parser.add_argument('--repeat', type=int, default=12,
                        help='how often each call is timed')
    parser.add_argument('--json', type=pathlib.Path)
    args = parser.parse_args()

    def work() -> int:
        record = play(args)
        if args.json:
            args.json.write_text(json.dumps(record))
        print(text(record))
        return 0

    return guarded(work)


if __name__ == '__main__':
    sys.exit(main())
