# SPDX-License-Identifier: Apache-2.0


"""What it costs to sample cgroups, against open() and read() per file.

Makes cgroups of its own (root) and prints CPU time per workload and tick:
discovery, reading, parsing and making the samples, all in.  'idle' reads
again what did not change; for 'busy' a process has run in every cgroup since
the round before, so that all counters moved (and the caches are cold).
'pread' reads the same files over kept descriptors, 'open+read' opens each,
and both do nothing else with them.  Nothing is asserted; numbers compare
only within one run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import uuid

from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.kernel import cgroup_mounts


def make(mounts: dict[str, cgroup_mounts.Mount], paths: list[str]) -> None:
    for mount in set(mounts.values()):
        for path in paths:
            os.mkdir(mount.path + path)
            for file in ('cpuset.mems', 'cpuset.cpus'):
                if mount == mounts.get('cpuset') and mount.version == 1:
                    above = os.path.dirname(mount.path + path)
                    with open(f'{above}/{file}') as source:
                        text = source.read()
                    with open(f'{mount.path}{path}/{file}', 'w') as target:
                        target.write(text)


def remove(mounts: dict[str, cgroup_mounts.Mount], paths: list[str]) -> None:
    for mount in set(mounts.values()):
        for path in reversed(paths):
            for _ in range(100):
                try:
                    os.rmdir(mount.path + path)
                except FileNotFoundError:
                    pass
                except OSError:
                    time.sleep(0.01)  # its last process is still ending
                    continue
                break


def use_some(mounts: dict[str, cgroup_mounts.Mount],
             paths: list[str]) -> None:
    """Let a process use CPU and memory in each cgroup, then end."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        kept = []
        for path in paths:
            for mount in set(mounts.values()):
                with open(f'{mount.path}{path}/cgroup.procs', 'w') as file:
                    file.write('0')
            kept.append(bytearray(os.urandom(8192)))
    finally:
        os._exit(0)


def plain(files: list[str]) -> None:
    for name in files:
        with open(name, 'rb') as file:
            file.read()


def pread(kept: list[int]) -> None:
    for fd in kept:
        os.pread(fd, 4096, 0)


def cpu_us(what: object) -> float:
    assert callable(what)
    start = time.process_time_ns()
    what()
    return (time.process_time_ns() - start) / 1000


def measure(mounts: dict[str, cgroup_mounts.Mount], count: int, rounds: int,
            busy: bool) -> tuple[int, list[float]]:
    """Files per workload; us per workload: sample(), pread, open+read."""
    top = f'/scv-bench-{uuid.uuid4().hex[:8]}'
    jobs = [f'{top}/job{number}' for number in range(count)]
    kept: list[int] = []
    try:
        make(mounts, [top, *jobs])
        cgroups = Cgroups([top])
        for _ in range(4):
            cgroups.sample()  # past the first ticks of new workloads
        files = sorted({os.readlink(f'/proc/self/fd/{fd}')
                        for fd in os.listdir('/proc/self/fd')
                        if os.path.exists(f'/proc/self/fd/{fd}')})
        files = [name for name in files if f'{top}/job' in name]
        kept = [os.open(name, os.O_RDONLY) for name in files]
        ways = (cgroups.sample, lambda: pread(kept), lambda: plain(files))
        times: list[list[float]] = [[] for _ in ways]
        for _ in range(rounds):
            for way, found in zip(ways, times, strict=True):
                if busy:
                    use_some(mounts, jobs)
                found.append(cpu_us(way) / count)
        cgroups.close()
        return len(files) // count, [statistics.median(t) for t in times]
    finally:
        for fd in kept:
            os.close(fd)
        remove(mounts, [top, *jobs])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--counts', default='20,100,500',
                        help='numbers of workloads, default %(default)s')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--without-v2', action='store_true',
                        help='leave the v2 tree (PSI) beside v1 alone')
    args = parser.parse_args()
    if os.geteuid() != 0:
        print('needs root: it makes cgroups', file=sys.stderr)
        return 2
    mounts = cgroup_mounts.find_mounts()
    if args.without_v2 and mounts['cpu'].version == 1:
        mounts.pop('unified', None)
    print('us of CPU time per workload and tick, all in; medians of '
          f'{args.rounds} rounds')
    print(f'{"workloads":>9} {"":4} {"files":>5} {"sample()":>9} {"pread":>7} '
          f'{"open+read":>10} {"open+read/sample":>17} {"sample at 1 Hz":>17}')
    for count in map(int, args.counts.split(',')):
        for busy in (False, True):
            files, (our, floor, their) = measure(mounts, count, args.rounds,
                                                 busy)
            print(f'{count:9} {"busy" if busy else "idle"} {files:5} '
                  f'{our:9.1f} {floor:7.1f} {their:10.1f} '
                  f'{their / our:17.1f} {our * count / 1e4:8.3f} % of a CPU')
    return 0


if __name__ == '__main__':
    sys.exit(main())
