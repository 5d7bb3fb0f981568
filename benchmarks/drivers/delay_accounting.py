# SPDX-License-Identifier: Apache-2.0


"""What the signal io_wait costs per workload and process, per tick.

Makes cgroups of its own with processes that sleep (root), switches delay
accounting on for the while, and measures the CPU time of the driver's
``DelayAccounting.add``: listing who is there, asking the kernel, adding up and
making the samples, all in.  'counts': the cgroup counts its own I/O (version
2); 'threads': it does not, and each thread is asked for its bytes.  'ask' is
the bare question about the same processes, 'off' the whole of add() with
delay accounting off.  Nothing is asserted; numbers compare only within one
run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import os
import pathlib
import statistics
import subprocess
import sys
import time
import uuid

from scavenger_openstack.drivers.delay import accounting
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

SWITCH = pathlib.Path(accounting.SWITCH)
BUDGET = 0.005
"""Of one CPU, for all that the agent does at 100 workloads and 1 Hz."""

SLEEPERS = '''
import os, sys, time
for path in sys.argv[2:]:
    for _ in range(int(sys.argv[1])):
        if not os.fork():
            os.close(1)
            open(path + '/cgroup.procs', 'w').write('0')
            time.sleep(3600)
            os._exit(0)
print('all')
time.sleep(3600)
'''


def cpu_us(what: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        start = time.process_time_ns()
        what()
        found.append((time.process_time_ns() - start) / 1000)
    return statistics.median(found)


def end(paths: list[str]) -> None:
    """End all in these cgroups, and remove them."""
    for path in paths:
        with open(f'{path}/cgroup.procs') as file:
            for pid in file.read().split():
                os.kill(int(pid), 9)
    for path in paths:
        for _ in range(500):
            try:
                os.rmdir(path)
                break
            except OSError:
                time.sleep(0.01)    # its last process is still ending


def measure(mount: cgroup_mounts.Mount, count: int, each: int, rounds: int
            ) -> tuple[float, float, float, float]:
    """us in all: counts, threads, ask, off."""
    top = f'{mount.path}/scv-bench-{uuid.uuid4().hex[:8]}'
    paths = [f'{top}/job{number}' for number in range(count)]
    made: list[str] = []
    parent = None
    try:
        for path in (top, *paths):
            os.mkdir(path)
            made.insert(0, path)
        SWITCH.write_text('1')
        parent = subprocess.Popen(
            [sys.executable, '-c', SLEEPERS, str(each), *paths],
            stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(0.5)
        samples = tuple(WorkloadSample(Workload(
            id=path.removeprefix(mount.path), priority=Priority.BACKGROUND))
            for path in paths)
        found = []
        for one in (tuple(s._replace(io_bytes=1, io_ops=1) for s in samples),
                    samples):
            driver = accounting.DelayAccounting(
                accounting.Settings(tasks=10**6, cpu_s=10),
                {'blkio': mount})

            def tick(one: tuple[WorkloadSample, ...] = one,
                     driver: accounting.DelayAccounting = driver
                     ) -> object:
                return driver.add(one, time.clock_gettime(
                    time.CLOCK_BOOTTIME))

            tick()
            tick()
            if driver.facts()['measured_workloads'] != count:
                raise SystemExit('not all are measured')
            found.append(cpu_us(tick, rounds))
            SWITCH.write_text('0')
            off = cpu_us(tick, rounds)
            SWITCH.write_text('1')
            driver.close()
        pids = [int(pid) for path in paths for pid in pathlib.Path(
            f'{path}/cgroup.procs').read_text().split()]
        kernel = taskstats.Taskstats()
        bare = cpu_us(lambda: kernel.ask(
            [(taskstats.PROCESS, pid) for pid in pids]), rounds)
        kernel.close()
        return found[0], found[1], bare, off
    finally:
        end(made)
        if parent is not None:
            parent.kill()
            parent.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--counts', default='20,100',
                        help='numbers of workloads, default %(default)s')
    parser.add_argument('--processes', default='1,5',
                        help='processes in each, default %(default)s')
    parser.add_argument('--rounds', type=int, default=50)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print('needs root: it makes cgroups', file=sys.stderr)
        return 2
    if not SWITCH.exists():
        print(f'needs {SWITCH}', file=sys.stderr)
        return 2
    mounts = cgroup_mounts.find_mounts()
    mount = mounts.get('blkio') or mounts['unified']
    was = SWITCH.read_text()
    print('us of CPU time per tick, all in; medians of '
          f'{args.rounds} rounds; cgroup version {mount.version}')
    print(f'{"workloads":>9} {"processes":>9} {"counts":>8} {"/process":>8} '
          f'{"threads":>8} {"/process":>8} {"ask":>8} {"counts/ask":>10} '
          f'{"off":>6} {"at 1 Hz: counts":>16} {"threads":>8} '
          f'{"of the budget":>14}')
    try:
        for count in map(int, args.counts.split(',')):
            for each in map(int, args.processes.split(',')):
                counts, threads, bare, off = measure(mount, count, each,
                                                     args.rounds)
                every = count * each
                print(f'{count:9} {every:9} {counts:8.0f} '
                      f'{counts / every:8.1f} {threads:8.0f} '
                      f'{threads / every:8.1f} {bare:8.0f} '
                      f'{counts / bare:10.1f} {off:6.1f} '
                      f'{counts / 1e4:14.3f} % {threads / 1e4:6.3f} % '
                      f'{counts / 1e6 / BUDGET * 100:6.0f} %, '
                      f'{threads / 1e6 / BUDGET * 100:3.0f} %')
    finally:
        SWITCH.write_text(was)
    return 0


if __name__ == '__main__':
    sys.exit(main())
