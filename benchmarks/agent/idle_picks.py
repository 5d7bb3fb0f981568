# SPDX-License-Identifier: Apache-2.0

"""How often the kernel runs an idle group while the foreground waits.

A foreground group works like the threads of a QEMU: 500 times a second one
process wakes two others, sleeps until both have answered, and has them do it
once more.  A background group has a hog per CPU.  Without an agent: *alone*
is without the hogs, *unmanaged* with them, *idle* with ``cpu.idle`` on the
background.

The kernel's own trace of switches tells for each way how often a second the
background was chosen for a CPU for which a process of the foreground waited,
and how often that was when another one of the foreground had just slept or
made room; how long these processes then waited; and how long the foreground
took.

    sudo python benchmarks/agent/idle_picks.py [--rounds 3] [--seconds 8]
        [--place nested]

*nested* is both groups below one parent, *top* directly below the root, *vm*
as *nested* with each process and each hog in a group of its own two levels
deeper, as libvirt has the threads of a machine.  *guests* are two guests under
TCG, of which the foreground answers 500 look-ups a second; *alone* counts the
threads of a QEMU whose guest rests.

Needs tracefs and, but for *guests*, of Python fixtures and testtools only, so
that it runs on a stock guest::

    tools/guest.sh 'apt-get -y install python3-fixtures python3-testtools' \\
        'PYTHONPATH=. python3 benchmarks/agent/idle_picks.py'
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from typing import NamedTuple
from typing import TYPE_CHECKING
import uuid

from scavenger_openstack.tests.functional import base
from scavenger_openstack.text import columns

if TYPE_CHECKING:
    import starvation_places

WAYS = ('alone', 'unmanaged', 'idle')
TRACEFS = pathlib.Path('/sys/kernel/tracing')
EVENTS = ('sched_switch', 'sched_wakeup', 'sched_migrate_task')
BUFFER_KB = 32768
SETTLE_S = 2.0
CPUS = os.cpu_count() or 1
LEAF = {'nested': '', 'top': '', 'vm': '/libvirt/first'}
HOG = 'while :; do :; done'
FOREGROUND = """
import os, sys, time
until_s, every_s, turns = float(sys.argv[1]), 1 / 500, 2
ends = []
for _ in range(2):
    asked, ask = os.pipe()
    answered, answer = os.pipe()
    if not os.fork():
        os.close(ask)
        while os.read(asked, 1):
            for _ in range(5000): pass
            os.write(answer, b'x')
        os._exit(0)
    os.close(asked), os.close(answer)
    ends.append((ask, answered))
took_s = []
due_s = time.monotonic()
while due_s < until_s:
    due_s += every_s
    time.sleep(max(0.0, due_s - time.monotonic()))
    begun_s = time.monotonic()
    for _ in range(turns):
        for ask, _ in ends: os.write(ask, b'x')
        for _, answered in ends: os.read(answered, 1)
    took_s.append(time.monotonic() - begun_s)
    if time.monotonic() > due_s + 0.1: due_s = time.monotonic()
took_s.sort()
print(took_s[len(took_s) // 2], took_s[int(0.99 * len(took_s))])
"""
LINE = re.compile(r'\[(\d+)\] \S+ +(\d+\.\d+): (sched_\w+): (.*)$')
SWITCH = re.compile(r'prev_pid=(\d+) .* prev_state=(\S+) ==> '
                    r'.*next_pid=(\d+)')
WAKEUP = re.compile(r' pid=(\d+) .*target_cpu=(\d+)')
MIGRATE = re.compile(r' pid=(\d+) .*dest_cpu=(\d+)')


class Round(NamedTuple):
    """What one round came to, times in s."""

    p50_s: float
    p99_s: float
    picks: int
    after_own: int
    waits_s: list[float]


class Trace:
    """A buffer of the kernel's own, for as long as the context lasts."""

    def __enter__(self) -> Trace:
        self._path = TRACEFS / 'instances' / f'scv-{uuid.uuid4().hex[:8]}'
        self._path.mkdir()
        self._put('buffer_size_kb', str(BUFFER_KB))
        for event in EVENTS:
            self._put(f'events/sched/{event}/enable', '1')
        return self

    def __exit__(self, *args: object) -> None:
        self._path.rmdir()

    def _put(self, name: str, text: str) -> None:
        (self._path / name).write_text(text)

    def begin(self) -> None:
        self._put('trace', '')
        self._put('tracing_on', '1')

    def end(self) -> Iterator[tuple[float, int, str, str]]:
        """Time in s, CPU, event and its text, in order."""
        self._put('tracing_on', '0')
        with open(self._path / 'trace') as lines:
            for line in lines:
                if found := LINE.search(line):
                    yield (float(found[2]), int(found[1]), found[3],
                           f' {found[4]}')


def picks(events: Iterator[tuple[float, int, str, str]], front: set[int],
          back: set[int]) -> tuple[int, int, list[float]]:
    """How often one of ``back`` was chosen while one of ``front`` waited for
    that CPU, how often after one of ``front``, and how long these waited."""
    waiting: dict[int, tuple[float, int]] = {}
    running: dict[int, int] = {}
    behind: set[int] = set()
    count = after = 0
    waits_s = []
    for time_s, cpu, event, text in events:
        if event == 'sched_switch':
            found = SWITCH.search(text)
            if found is None:
                continue
            last, chosen = int(found[1]), int(found[3])
            running[cpu] = chosen
            if last in front and found[2].startswith('R'):
                waiting[last] = time_s, cpu
            since = waiting.pop(chosen, None)
            if chosen in behind and since is not None:
                waits_s.append(time_s - since[0])
            behind.discard(chosen)
            left = [pid for pid, (_, where) in waiting.items()
                    if where == cpu]
            if chosen in back and left:
                count += 1
                after += last in front
                behind.update(left)
        elif found := (WAKEUP if event == 'sched_wakeup'
                       else MIGRATE).search(text):
            pid, where = int(found[1]), int(found[2])
            if pid in waiting:
                waiting[pid] = waiting[pid][0], where
            elif (event == 'sched_wakeup' and pid in front
                  and pid not in running.values()):
                waiting[pid] = time_s, where
    return count, after, waits_s


def start(tree: base.CgroupTree, group: str, *argv: str
          ) -> subprocess.Popen[bytes]:
    """Start a program inside a group."""
    files = ' '.join(f'"{tree.path(controller, group)}/cgroup.procs"'
                     for controller in tree.mounts)
    return subprocess.Popen(
        ['sh', '-c', f'for f in {files}; do echo $$ >$f; done; exec "$@"',
         'sh', *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def threads(group: pathlib.Path) -> set[int]:
    """All in a cgroup and below."""
    name = 'tasks' if base.version() == 1 else 'cgroup.threads'
    return {int(thread) for file in group.rglob(name)
            for thread in file.read_text().split()}


def part(tree: base.CgroupTree, group: str) -> None:
    """Give each process of a group its own, two levels deeper."""
    for pid in threads(tree.path('cpu', group)):
        below = f'{group}/libvirt/{pid}'
        tree.make(below)
        for controller in tree.mounts:
            tree.write(controller, below, 'cgroup.procs', str(pid))


def play(trace: Trace, way: str, place: str, seconds: float) -> Round:
    """One round."""
    with contextlib.ExitStack() as stack:
        tree = stack.enter_context(base.CgroupTree())
        other = tree
        front, back = '', ''
        if place != 'top':
            front, back = '/foreground', '/background'
            for group in (front, back):
                tree.make(group + LEAF[place])
        else:
            other = stack.enter_context(base.CgroupTree())
        if way == 'idle':
            other.put('idle', back, '1')
        if way != 'alone':
            for _ in range(CPUS):
                start(other, back + LEAF[place], 'sh', '-c', HOG)
        until_s = time.monotonic() + SETTLE_S + seconds
        asking = start(tree, front + LEAF[place], sys.executable, '-c',
                       FOREGROUND, str(until_s))
        time.sleep(SETTLE_S / 2)
        if place == 'vm':
            part(tree, front)
            part(other, back)
        time.sleep(SETTLE_S / 2)
        of = (threads(tree.path('cpu', front)),
              threads(other.path('cpu', back)))
        trace.begin()
        p50_s, p99_s = map(float, asking.communicate(
            timeout=10 * seconds + 60)[0].split())
        return Round(p50_s, p99_s, *picks(trace.end(), *of))


def play_guests(guests: starvation_places.Guests, trace: Trace, way: str,
                seconds: float) -> Round:
    """One round of two guests."""
    if way != 'alone':
        guests.work()
    guests.idle(way == 'idle')
    try:
        time.sleep(SETTLE_S)
        trace.begin()
        p50_s, p99_s = guests.ask(time.monotonic() + seconds)()
        events = trace.end()
        return Round(p50_s, p99_s, *picks(events, threads(guests.foreground),
                                          threads(guests.background)))
    finally:
        guests.free()


def rounds(args: argparse.Namespace) -> dict[str, list[Round]]:
    """All rounds, by way."""
    found: dict[str, list[Round]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        trace = stack.enter_context(Trace())
        guests = None
        if args.place == 'guests':
            # Needs what a stock guest lacks.
            from starvation_places import Guests
            guests = Guests(stack)
        for _ in range(args.rounds):
            for way in WAYS:
                found[way].append(
                    play_guests(guests, trace, way, args.seconds) if guests
                    else play(trace, way, args.place, args.seconds))
    return found


def show(found: dict[str, list[Round]], seconds: float) -> None:
    """Print the table."""
    body = []
    for way, every in found.items():
        waits_s = sorted(one for each in every for one in each.waits_s)
        body.append((
            way,
            f'{1e3 * statistics.median(one.p50_s for one in every):.2f}',
            f'{1e3 * statistics.median(one.p99_s for one in every):.2f}',
            ' '.join(f'{one.picks / seconds:.1f}' for one in every),
            ' '.join(f'{one.after_own / seconds:.1f}' for one in every),
            *(f'{1e3 * one:.2f}' for one in (
                (statistics.median(waits_s), waits_s[-1])
                if waits_s else (0.0, 0.0)))))
    print('\n'.join(columns(
        ('way', 'P50 ms', 'P99 ms', 'picks per s', 'after its own',
         'waited ms', 'at worst'), body)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=8)
    parser.add_argument('--place', choices=(*LEAF, 'guests'),
                        default='nested')
    args = parser.parse_args()
    if not (TRACEFS / 'instances').exists():
        # Mounted where only this program sees it.
        os.execvp('unshare', [
            'unshare', '--mount', '--propagation', 'private', 'sh', '-c',
            f'mount -t tracefs none {TRACEFS} && exec "$@"', 'sh',
            sys.executable, *sys.argv])
    kernel = pathlib.Path('/proc/sys/kernel/osrelease').read_text().strip()
    print(f'Linux {kernel}, {CPUS} CPUs, cgroup v{base.version()}, '
          f'{args.place}, {args.rounds} rounds of {args.seconds:g} s')
    def work() -> int:
        show(rounds(args), args.seconds)
        return 0

    if args.place != 'guests':
        return work()
    import running_agent
    return running_agent.guarded(work)


if __name__ == '__main__':
    sys.exit(main())
