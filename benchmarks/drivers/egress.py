# SPDX-License-Identifier: Apache-2.0


#!/usr/bin/env python3
"""How close TCP goodput comes to the rate that the network driver sets.

In network namespaces made for this and removed again.  A *device* has the
token bucket at its root: one end of a wire.  A *tap* is a real one in a
bridge, with a network stack and a process in the place of QEMU behind it.
Needs root.  Prints goodput divided by rate (headers alone take 4.4 points of
a 1500 byte packet), and what each call takes.

``--removals N``: instead, what it takes to remove the limits of N taps with
packets that wait, the next of which has to wait half a second for its turn:
one by one, and together as the agent and scavenger-restore do it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import contextlib
import json
import pathlib
import statistics
import tempfile
import time
from typing import Any

from scavenger_openstack.agent.lease import leases
from scavenger_openstack.drivers.network import devices
from scavenger_openstack.drivers.network import limits
from scavenger_openstack.drivers.network import tap
from scavenger_openstack.restore import actions
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests.functional import taps
from scavenger_openstack.types import Knob

RATE = Knob.EGRESS_BYTES_PER_S
RATES = (125e3, 500e3, 2.5e6, 12.5e6, 25e6, 125e6)
"""Bytes per second: the floor (1 Mbit/s) up to 1 Gbit/s."""
CHANGES, REMOVALS = 100, 20
FRAMES = 18     # so many go at once or wait


def place(kind: str, stack: contextlib.ExitStack
          ) -> tuple[devices.Interface, Callable[[float], float]]:
    """What carries the traffic, and what measures its goodput."""
    if kind == 'tap':
        vm = stack.enter_context(taps.VirtualMachine())
        return tap.Tap(vm.device), vm.goodput
    wire = stack.enter_context(namespaces.Wire())
    return wire.device, wire.goodput


def measure(kind: str, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Goodput at each rate."""
    found = []
    with contextlib.ExitStack() as stack:
        interface, goodput = place(kind, stack)
        driver = limits.Network({}, {'bench': interface})
        stack.callback(driver.close)
        for rate in RATES:
            driver.write('bench', RATE, rate)
            got = [goodput(seconds) for _ in range(rounds)]
            found.append({
                'kind': kind, 'rate_bytes_per_s': rate,
                'goodput_bytes_per_s': statistics.median(got),
                'ratio': statistics.median(got) / rate,
                'ratio_lowest': min(got) / rate,
                'ratio_highest': max(got) / rate})
    return found


def measure_calls(kind: str) -> dict[str, Any]:
    """Seconds of each call, in a quiet place."""
    took: dict[str, list[float]] = {'set': [], 'change': [], 'read': [],
                                    'remove': []}

    def timed(name: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        call()
        took[name].append(time.perf_counter() - start)

    with contextlib.ExitStack() as stack:
        driver = limits.Network({}, {'bench': place(kind, stack)[0]})
        stack.callback(driver.close)
        for _ in range(REMOVALS):
            step, = driver.restore_actions('bench', RATE)
            timed('set', lambda: driver.write('bench', RATE, 1e6))
            timed('remove', lambda step=step: actions.run(step, []))
        for number in range(CHANGES):
            timed('change', lambda number=number: driver.write(
                'bench', RATE, 1e6 + number))
            timed('read', lambda: driver.read('bench', RATE))
    return {'kind': kind, **{
        f'{name}_s': {'count': len(all_), 'p50': statistics.median(all_),
                      'highest': max(all_)}
        for name, all_ in took.items()}}


def measure_removals(count: int) -> dict[str, float]:
    """Seconds to remove the limits of so many taps."""
    found = {}
    with contextlib.ExitStack() as stack:
        wires = stack.enter_context(namespaces.Wires(count))
        driver = limits.Network({}, {str(line): tap.Tap(wires.device(line))
                                     for line in range(count)})
        stack.callback(driver.close)
        held = leases.Leases(pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory()), 'state'))
        held.open()
        stack.callback(held.close)
        for way in ('one by one', 'together'):
            for line in range(count):
                held.hold(str(line), RATE,
                          driver.restore_actions(str(line), RATE), None)
                driver.write(str(line), RATE, 2 * wires.MTU)
            wires.send(FRAMES)
            began_s = time.perf_counter()
            if way == 'together':
                held.remove_all()
            else:
                for key in list(held.held()):
                    held.remove(*key)
            found[way] = time.perf_counter() - began_s
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--kind', choices=('device', 'tap'), action='append',
                        help='default: both')
    parser.add_argument('--calls', action='store_true',
                        help='only the times of calls')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--removals', type=int, metavar='N')
    args = parser.parse_args()
    if args.removals:
        for way, took_s in measure_removals(args.removals).items():
            print(f'{args.removals} removed {way}: {took_s:.1f} s')
        return
    kinds = args.kind or ['device', 'tap']
    calls = [measure_calls(kind) for kind in kinds]
    found = [row for kind in ([] if args.calls else kinds)
             for row in measure(kind, args.seconds, args.rounds)]
    if args.json:
        print(json.dumps({'calls': calls, 'goodput': found}, indent=1))
        return
    print('One call (a write reads back), ms: p50 (highest)')
    for row in calls:
        print(f'{row["kind"]:>7}', *(
            f'  {name} {value["p50"] * 1e3:.3f} ({value["highest"] * 1e3:.3f})'
            f' of {value["count"]}'
            for name, value in ((key.removesuffix('_s'), row[key])
                                for key in row if key != 'kind')))
    if not found:
        return
    print(f'TCP goodput over a TBF, median of {args.rounds} x '
          f'{args.seconds:g} s (lowest, highest)')
    print(f'{"":7} {"rate B/s":>12} {"goodput B/s":>12} '
          f'{"goodput/rate":>20}')
    for row in found:
        print(f'{row["kind"]:>7} {row["rate_bytes_per_s"]:12.0f} '
              f'{row["goodput_bytes_per_s"]:12.0f} '
              f'{row["ratio"]:6.3f} ({row["ratio_lowest"]:.3f}, '
              f'{row["ratio_highest"]:.3f})')


if __name__ == '__main__':
    main()
