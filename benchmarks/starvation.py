# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Who stands still beside a background that is limited in CPU.

A background group runs stress-ng (six CPU hogs, three times the weight), a
foreground group memcached and its client, which asks 2,500 times a second
over 16 connections.  Three probes outside of both sleep and wake: two in the
root cgroup, at 100 and at 1 Hz, one in a third group, at 10 Hz.  For each way
to limit the background,
with both groups below one parent (*nested*) or directly below the root
(*top*): how late the worst probe was, in the worst round and in the median
one; the P99 of memcached's answers; the CPUs that the background got.
The ways are played in turn, round after round.

    sudo python benchmarks/starvation.py [--rounds 5] [--seconds 12]
        [--ways unmanaged,idle,weight,quota,both,follow] [--places nested,top]

*weight* is the smallest there is, *quota* half of the CPUs, *both* cpu.idle
with a quota of 90 % of the CPUs, *follow* cpu.idle with a quota of 97 % of
what everything else leaves over, looked at twice a second.

Needs stress-ng and memcached.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from scavenger_openstack.tests.functional import base

RATE, CONNECTIONS = 2500, 16
PORT = 11299
HOGS = 6
WAYS = ('unmanaged', 'idle', 'weight', 'quota', 'both', 'follow')
HZ = (100, 1, 10)
FOLLOW_EVERY_S, FOLLOW_SHARE, FLOOR_CORES = 0.5, 0.97, 0.1
PERIOD_US = 100_000
PROBE = """
import sys, time
hz, until_s = float(sys.argv[1]), float(sys.argv[2])
worst_s = 0.0
while time.monotonic() < until_s:
    due_s = time.monotonic() + 1 / hz
    time.sleep(1 / hz)
    worst_s = max(worst_s, time.monotonic() - due_s)
print(worst_s)
"""
CLIENT = """
import socket, sys, threading, time
port, rate, count, until_s = [float(text) for text in sys.argv[1:]]
took_s = []
def ask(i):
    with socket.create_connection(('127.0.0.1', int(port))) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due_s = time.monotonic() + i / rate
        while due_s < until_s:
            due_s += count / rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            server.sendall(b'get key\\r\\n')
            server.recv(64)
            took_s.append(time.monotonic() - due_s)
threads = [threading.Thread(target=ask, args=(i,)) for i in range(int(count))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(took_s)[int(0.99 * len(took_s))])
"""


class Round(NamedTuple):
    """What one round came to, times in s."""

    late_s: list[float]
    p99_s: float
    background_cpus: float


def place(where: str, stack: contextlib.ExitStack
          ) -> tuple[base.CgroupTree, str, base.CgroupTree, str]:
    """Tree and path of the foreground and of the background group."""
    first = stack.enter_context(base.CgroupTree())
    if where == 'nested':
        for group in ('/foreground', '/background'):
            first.make(group)
        return first, '/foreground', first, '/background'
    return first, '', stack.enter_context(base.CgroupTree()), ''


def limit(tree: base.CgroupTree, group: str, way: str) -> None:
    """Set what the way is about on the background."""
    v1 = tree.version == 1
    tree.put('weight', group, '3072' if v1 else '300')
    if way == 'idle':
        tree.put('idle', group, '1')
    elif way == 'weight':
        tree.put('weight', group, '2' if v1 else '1')
    elif way == 'quota':
        tree.put('quota', group, f'{50000 * (os.cpu_count() or 1)}')
    elif way == 'both':
        tree.put('idle', group, '1')
        tree.put('quota', group, f'{90000 * (os.cpu_count() or 1)}')
    elif way == 'follow':
        tree.put('idle', group, '1')
    elif way != 'unmanaged':
        raise SystemExit(f'{way}: no such way')


def start(tree: base.CgroupTree, group: str,
          *argv: str) -> subprocess.Popen[bytes]:
    """Start a program inside a group."""
    files = ' '.join(f'"{tree.path(controller, group)}/cgroup.procs"'
                     for controller in tree.mounts)
    return subprocess.Popen(
        ['sh', '-c', f'for f in {files}; do echo $$ > $f; done; exec "$@"',
         'sh', *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)


def cpu_s(tree: base.CgroupTree, group: str) -> float:
    """CPU time that a group has used."""
    if tree.version == 1:
        return int(tree.read('cpuacct', group, 'cpuacct.usage')) / 1e9
    fields = tree.read('cpu', group, 'cpu.stat').split()
    return int(fields[1]) / 1e6


def busy_s() -> float:
    """CPU time of the machine that was not idle."""
    with open('/proc/stat') as file:
        user, nice, system, _, _, irq, softirq = map(
            int, file.readline().split()[1:8])
    return ((user + nice + system + irq + softirq)
            / os.sysconf('SC_CLK_TCK'))


def follow(tree: base.CgroupTree, group: str, ended: threading.Event
           ) -> None:
    """Leave the background a little less than is left over."""
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR,
                          os.sched_param(1))
    cpus = os.cpu_count() or 1
    time_s, busy, own = time.monotonic(), busy_s(), cpu_s(tree, group)
    while not ended.wait(FOLLOW_EVERY_S):
        last_s, last_busy, last_own = time_s, busy, own
        time_s, busy, own = time.monotonic(), busy_s(), cpu_s(tree, group)
        others = max(0.0, busy - last_busy - (own - last_own)) / (
            time_s - last_s)
        cores = max(FLOOR_CORES, FOLLOW_SHARE * (cpus - others))
        tree.put('quota', group, str(round(PERIOD_US * cores)))


def play(where: str, way: str, seconds: float) -> Round:
    """One round."""
    with contextlib.ExitStack() as stack:
        fg, fg_group, bg, bg_group = place(where, stack)
        third = stack.enter_context(base.CgroupTree())
        limit(bg, bg_group, way)
        start(fg, fg_group, 'memcached', '-u', 'nobody', '-l', '127.0.0.1',
              '-t', '2', '-p', str(PORT))
        start(bg, bg_group, 'stress-ng', '--cpu', str(HOGS))
        time.sleep(1)
        before_s, begun_s = cpu_s(bg, bg_group), time.monotonic()
        until_s = begun_s + seconds
        if way == 'follow':
            ended = threading.Event()
            follower = threading.Thread(target=follow,
                                        args=(bg, bg_group, ended))
            follower.start()
            stack.callback(follower.join)
            stack.callback(ended.set)
        probes = []
        for hz in HZ:
            argv = (sys.executable, '-c', PROBE, str(hz), str(until_s))
            probes.append(start(third, '', *argv) if hz == HZ[-1] else
                          subprocess.Popen(argv, stdout=subprocess.PIPE))
        client = start(fg, fg_group, sys.executable, '-c', CLIENT, str(PORT),
                       str(RATE), str(CONNECTIONS), str(until_s))
        late_s = [float(probe.communicate(timeout=60)[0])
                  for probe in probes]
        return Round(late_s, float(client.communicate(timeout=60)[0]),
                     (cpu_s(bg, bg_group) - before_s)
                     / (time.monotonic() - begun_s))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=12)
    parser.add_argument('--ways', default=','.join(WAYS))
    parser.add_argument('--places', default='nested,top')
    args = parser.parse_args()
    for program in ('stress-ng', 'memcached'):
        if not shutil.which(program):
            parser.error(f'{program} is not installed')
    found: dict[tuple[str, str], list[Round]] = {}
    cases = [(where, way) for where in args.places.split(',')
             for way in args.ways.split(',')]
    for number in range(args.rounds):
        for where, way in cases:
            found.setdefault((where, way), []).append(
                play(where, way, args.seconds))
            if sys.stderr.isatty():
                print(f'\rround {number + 1} {where} {way}\033[K', end='',
                      file=sys.stderr)
    kernel = pathlib.Path('/proc/sys/kernel/osrelease').read_text().strip()
    print(f'\rLinux {kernel}, {os.cpu_count()} CPUs, cgroup '
          f'v{base.version()}, {args.rounds} rounds of {args.seconds:g} s')
    print('place   way        latest s: root 100 Hz  root 1 Hz  group 10 Hz'
          '  median round  memcached P99 ms  background CPUs')
    for (where, way), rounds in found.items():
        worst = [max(one.late_s[i] for one in rounds)
                 for i in range(len(HZ))]
        print(f'{where:7} {way:10} {worst[0]:22.3f} {worst[1]:10.3f} '
              f'{worst[2]:12.3f} '
              f'{statistics.median(max(one.late_s) for one in rounds):13.3f}'
              f' {1e3 * statistics.median(o.p99_s for o in rounds):17.1f} '
              f'{statistics.median(o.background_cpus for o in rounds):16.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
