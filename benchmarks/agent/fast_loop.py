# SPDX-License-Identifier: Apache-2.0

#!/usr/bin/env python3
"""How soon the fast loop takes CPUs back, and what it costs.

Blind isolation with a buffer of one CPU, on CPUs 0 and 1, with the real
reader, controller, loop and cpuset.  A hog of two processes lives in the
cpuset and keeps to CPU 1, so CPU 0 is the buffer.  Each round: the hog is
stopped until the set has grown to both CPUs, goes on, and at a random
instant a foreground process on CPU 0 wakes up.  Taken is the time from its
first instruction to the end of the write that takes CPU 0 from the hog, both
on CLOCK_MONOTONIC.  Rounds in which other work on this host made the set
shrink before that are counted, and made again.  CPU is that of the loop's
thread as a share of one CPU: while the hog runs and nothing changes, and
during the rounds (two writes every few milliseconds).

``--busy`` adds a Python thread in the loop's process that computes 3 ms out
of 6 on CPU 1, beside the hog: what the slow loop does to the fast one by the
interpreter lock, many times over.  Needs root, two CPUs and cgroup v1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import contextlib
import json
import mmap
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from scavenger_openstack.agent.isolation import fast_loop
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers.cgroup import cpuset_tree
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import Cpu

BOTH = frozenset((0, 1))
INTERVALS_MS = (0.1, 0.5, 1.0, 1.5, 2.0, 5.0)
PATIENCE_S, STEADY_S, MOST_S = 0.5, 3.0, 60.0
TARGET_P50_S, TARGET_SHARE = 0.001, 0.02

FOREGROUND = """
import mmap, os, sys, time
os.sched_setaffinity(0, {0})
with open(sys.argv[1], 'r+b') as file:
    words = memoryview(mmap.mmap(file.fileno(), 4096)).cast('Q')
while (line := sys.stdin.readline()):
    woke = time.monotonic_ns()
    words[0] = woke if words[2] else 0
    end = woke + 100_000_000
    while words[0] and words[1] < woke and time.monotonic_ns() < end:
        pass
    print(flush=True)
"""

HOG = """
import os
os.sched_setaffinity(0, {1})
while True:
    pass
"""


class Stage(contextlib.ExitStack):
    """The cpuset, the hog, the foreground and the memory they share."""

    def __enter__(self) -> Stage:
        super().__enter__()
        tree = self.enter_context(base.CgroupTree())
        path = str(tree.path('cpuset'))
        self.set = cpuset_tree.FastCpuSet(
            cgroup_files.CgroupDirectory(path, version=1))
        file = self.enter_context(tempfile.NamedTemporaryFile())
        file.truncate(4096)
        self.words = memoryview(mmap.mmap(file.fileno(), 4096)).cast('Q')
        join = f"open('{path}/cgroup.procs', 'w').write('0')\n"
        self.hogs = [self._start(join + HOG) for _ in range(2)]
        self.foreground = self._start(FOREGROUND, file.name)
        return self

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-c', *arguments], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.callback(process.wait, 10)
        self.callback(process.kill)
        return process

    def write(self, cpus: frozenset[int]) -> None:
        self.set.set(cpus)
        if cpus == BOTH:
            self.words[2] = 1
        elif self.words[2]:
            self.words[1] = time.monotonic_ns()
            self.words[2] = 0

    def hog(self, number: signal.Signals) -> None:
        for process in self.hogs:
            process.send_signal(number)

    def round(self) -> float | None:
        """Seconds to the shrunk set, ``None`` if others disturbed."""
        assert self.foreground.stdin and self.foreground.stdout
        self.hog(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while not self.words[2] and time.monotonic() < deadline:
            time.sleep(0.002)
        self.hog(signal.SIGCONT)
        time.sleep(random.uniform(0.001, 0.011))
        self.foreground.stdin.write('wake up\n')
        self.foreground.stdin.flush()
        self.foreground.stdout.readline()
        woke, shrunk = self.words[0], self.words[1]
        if not woke or shrunk < woke:
            return None
        return (shrunk - woke) / 1e9


def busy(stop: threading.Event) -> None:
    """Compute 3 ms out of 6 (on CPU 1, like the thread that started it)."""
    while not stop.is_set():
        end = time.monotonic() + 0.003
        while time.monotonic() < end:
            pass
        time.sleep(0.003)


def measure(stage: Stage, interval_ms: float, rounds: int,
            with_busy: bool) -> dict[str, Any]:
    """Latency and cost at one poll interval."""
    params = perfiso.Params(buffer_cores=1)
    topology = {cpu: Cpu(cpu, 0, 0) for cpu in BOTH}
    loop = fast_loop.FastLoop(
        sched_switch.SchedSwitch(),
        perfiso.Controller(params, topology=topology), stage.write,
        lambda: None, perfiso.Bounds(BOTH, BOTH, 1),
        interval_ms / 1e3)
    before = set(os.listdir('/proc/self/task'))
    loop.start()
    thread, = set(os.listdir('/proc/self/task')) - before
    # Off the buffer: it would look like foreground.
    os.sched_setaffinity(0, {1})
    stop = threading.Event()
    if with_busy:
        threading.Thread(target=busy, args=(stop,), daemon=True).start()
    try:
        steady, us_per_poll = _cost(loop, thread, lambda: time.sleep(STEADY_S))
        taken: list[float | None] = []

        def play() -> None:
            deadline = time.monotonic() + MOST_S
            while (sum(one is not None for one in taken) < rounds
                   and time.monotonic() < deadline):
                taken.append(stage.round())

        moving, _ = _cost(loop, thread, play)
    finally:
        stop.set()
        os.sched_setaffinity(0, BOTH)
        loop.stop()
    clean = sorted(one for one in taken if one is not None)
    if len(clean) < 2:
        raise SystemExit('too much other work on this host to measure')
    return {'interval_ms': interval_ms, 'busy': with_busy,
            'switch_interval_ms': fast_loop.SWITCH_INTERVAL_S * 1e3,
            'rounds': len(clean), 'disturbed': len(taken) - len(clean),
            'p50_s': statistics.median(clean),
            'p90_s': clean[int(len(clean) * 0.9)],
            'p99_s': clean[int(len(clean) * 0.99)],
            'cpu_share': steady, 'cpu_us_per_poll': us_per_poll,
            'cpu_share_in_rounds': moving}


def _cost(loop: fast_loop.FastLoop, thread: str,
          work: Callable[[], None]) -> tuple[float, float]:
    """Share of one CPU, and us per poll, of a thread while ``work`` runs."""
    path = pathlib.Path('/proc/self/task', thread, 'schedstat')
    polls, begun = loop.facts()['polls'], time.monotonic()
    before_ns = int(path.read_text().split()[0])
    work()
    used_s = (int(path.read_text().split()[0]) - before_ns) / 1e9
    return (used_s / (time.monotonic() - begun),
            used_s / max(1, loop.facts()['polls'] - polls) * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=150)
    parser.add_argument('--intervals-ms', type=float, nargs='+',
                        default=INTERVALS_MS)
    parser.add_argument('--busy', action='store_true')
    parser.add_argument('--switch-interval-ms', type=float, nargs='+',
                        default=[fast_loop.SWITCH_INTERVAL_S * 1e3],
                        help='longest wait for the interpreter lock')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    rows = []
    if not args.json:
        print(f'foreground wakes -> background set shrunk, B=1, '
              f'{args.rounds} rounds, hog of 2'
              + (', busy main thread' if args.busy else ''))
        print(f'{"poll ms":>8} {"switch ms":>9} {"p50 us":>8} {"p90 us":>8} '
              f'{"p99 us":>8} {"CPU %":>6} {"us/poll":>8} {"in rounds":>9} '
              f'{"disturbed":>9}')
    with Stage() as stage:
        for switch_ms in args.switch_interval_ms:
            fast_loop.SWITCH_INTERVAL_S = switch_ms / 1e3
            for interval_ms in args.intervals_ms:
                row = measure(stage, interval_ms, args.rounds, args.busy)
                rows.append(row)
                if not args.json:
                    print(f'{interval_ms:8g} {switch_ms:9g} '
                          f'{row["p50_s"] * 1e6:8.0f} '
                          f'{row["p90_s"] * 1e6:8.0f} '
                          f'{row["p99_s"] * 1e6:8.0f} '
                          f'{row["cpu_share"] * 100:6.2f} '
                          f'{row["cpu_us_per_poll"]:8.1f} '
                          f'{row["cpu_share_in_rounds"] * 100:9.2f} '
                          f'{row["disturbed"]:9d}', flush=True)
    good = [row['interval_ms'] for row in rows
            if row['p50_s'] <= TARGET_P50_S
            and row['cpu_share'] <= TARGET_SHARE]
    if args.json:
        print(json.dumps({'rows': rows, 'meets_target_ms': good}, indent=1))
    else:
        print(f'p50 <= {TARGET_P50_S * 1e3:g} ms at <= '
              f'{TARGET_SHARE * 100:g} % of one CPU: '
              + (', '.join(f'{ms:g} ms' for ms in good) or 'none'))


if __name__ == '__main__':
    main()
