# SPDX-License-Identifier: Apache-2.0


"""What hardware counters cost per workload and tick, and to open.

Makes cgroups of its own (root) in the hierarchy that perf counts by and
measures the CPU time of the driver's ``Perf.add``: following who is there,
reading, summing and making the samples, all in.  'idle': nobody runs there.
'busy': in one in four a process spins, as many at a time as there are CPUs,
so that the kernel has to ask another CPU for what it has counted so far.
'readv' is the bare read of the same groups.

On a machine without a PMU the kernel's own software events stand in for the
hardware's: opening, reading and adding up are the same code, but reading a
counter register, and the rest of what the hardware costs, is not in it.
The first line says which it was.  There is one read per workload and CPU, so
the cost grows with the CPUs: the last line works out what a large host would
pay.  Nothing is asserted; numbers compare only within one run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import fcntl
import functools
import os
import resource
import statistics
import subprocess
import sys
import time
import uuid

from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.perf_event import Event
from scavenger_openstack.drivers.perf import grade as perf_grade
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

STAND_INS = tuple(Event(event.field, perf_event.SOFTWARE, number)
                  for event, number in zip(perf_grade.EVENTS, (0, 0, 1, 2),
                                           strict=True))
BUDGET = 0.005
"""Of one CPU, for all that the agent does at 100 workloads and 1 Hz."""

DUTY = 10 / 60
LARGE = 64


def spinners(paths: list[str]) -> list[subprocess.Popen[bytes]]:
    """One endless loop in each of some cgroups."""
    return [subprocess.Popen(
        [sys.executable, '-c', f'open({path + "/cgroup.procs"!r}, "w")'
         '.write("0")\nwhile True: pass']) for path in paths]


def remove(paths: list[str]) -> None:
    for path in reversed(paths):
        for _ in range(200):
            try:
                os.rmdir(path)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)    # its last process is still ending


def bare(groups: list[int]) -> None:
    buffer = [bytearray(64)]
    for fd in groups:
        os.readv(fd, buffer)


def cpu_us(what: Callable[[], object]) -> float:
    start = time.process_time_ns()
    what()
    return (time.process_time_ns() - start) / 1000


def repeated(what: Callable[[], object], rounds: int, busy: bool) -> float:
    """The median of some rounds, in us."""
    found = []
    for _ in range(rounds):
        time.sleep(0.02 if busy else 0)     # let others run in between
        found.append(cpu_us(what))
    return statistics.median(found)


def measure(mount: str, events: tuple[Event, ...], count: int, rounds: int,
            busy: bool) -> tuple[float, float, float]:
    """us per workload: to open it, to add its counters, the bare reads."""
    top = f'{mount}/scv-bench-{uuid.uuid4().hex[:8]}'
    names = [f'{top}/job{number}' for number in range(count)]
    made: list[str] = []
    groups: list[list[int]] = []
    ours: list[subprocess.Popen[bytes]] = []
    try:
        for path in (top, *names):
            os.mkdir(path)
            made.append(path)
        samples = tuple(WorkloadSample(Workload(
            id=path.removeprefix(mount), priority=Priority.BACKGROUND))
            for path in names)
        if busy:
            ours = spinners(names[::4][:os.cpu_count()])
            time.sleep(0.5)
        counters = perf.Perf(perf.Settings(), events=events)
        opening, tick = functools.partial(counters.add, samples), 0.0
        opened = 0.0
        while counters.measured < count:
            tick += 1.0
            if tick > count:
                raise SystemExit('cannot open all: see the log')
            opened += cpu_us(functools.partial(opening, tick)) / count
        added = repeated(functools.partial(opening, 1e3), rounds, busy)
        counters.close()
        cpus = range(os.cpu_count() or 1)
        for path in names:
            directory = os.open(path, os.O_RDONLY)
            for cpu in cpus:
                groups.append(perf_event.open_group(events, cpu=cpu,
                                                    cgroup=directory))
                fcntl.ioctl(groups[-1][0], perf_event.IOC_ENABLE,
                            perf_event.IOC_FLAG_GROUP)
            os.close(directory)
        floor = repeated(functools.partial(
            bare, [fds[0] for fds in groups]), rounds, busy)
        return opened, added / count, floor / count
    finally:
        for fds in groups:
            perf_event.close(fds)
        for process in ours:
            process.kill()
            process.wait()
        remove(made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--counts', default='20,100',
                        help='numbers of workloads, default %(default)s')
    parser.add_argument('--rounds', type=int, default=50)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print('needs root: it makes cgroups', file=sys.stderr)
        return 2
    mount = perf_event.find_mount()
    if mount is None:
        print('needs cgroup2, or perf_event of version 1, to be mounted',
              file=sys.stderr)
        return 2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    grade = perf_grade.grade('/', cpu=0, max_counters=4)
    events = perf_grade.EVENTS if grade.events else STAND_INS
    print('hardware counters' if grade.events else
          'NO PMU HERE: software events stand in for hardware counters',
          f'({len(events)} per group, {os.cpu_count()} CPUs)')
    print('us of CPU time per workload; medians of '
          f'{args.rounds} rounds')
    print(f'{"workloads":>9} {"":4} {"open":>8} {"add()":>7} {"readv":>7} '
          f'{"add/readv":>9} {"always, 1 Hz":>16} {"10 s in 60":>12} '
          f'{"of the budget":>14}')
    for count in map(int, args.counts.split(',')):
        for busy in (False, True):
            opened, ours, floor = measure(mount, events, count, args.rounds,
                                          busy)
            share = ours * count / 1e6
            print(f'{count:9} {"busy" if busy else "idle"} {opened:8.1f} '
                  f'{ours:7.2f} {floor:7.2f} {ours / floor:9.1f} '
                  f'{100 * share:14.3f} % {100 * share * DUTY:10.3f} % '
                  f'{100 * share / BUDGET:12.0f} %')
    large = (ours + (LARGE - (os.cpu_count() or 1)) * floor
             / (os.cpu_count() or 1)) * count / 1e6
    print(f'worked out, not measured: {count} busy workloads on {LARGE} CPUs '
          f'{100 * large:.2f} % always, {100 * large * DUTY:.2f} % with 10 s '
          f'in 60; the budget is {100 * BUDGET} %')
    return 0


if __name__ == '__main__':
    sys.exit(main())
