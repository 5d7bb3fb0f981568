# SPDX-License-Identifier: Apache-2.0

"""What it costs to sample domains, against open() and read() per file.

Makes processes with vCPU threads, named as QEMU does, in cgroups named as
libvirt does (root), and prints CPU time per domain and tick of the sampling
process, the making of the samples included.  'idle': no vCPU has run since
the tick before; 'busy': all have; 'capped': and have a quota, so that their
throttled time is read, too; 'session': busy, without a cgroup.  'look' is a
tick in which the vCPUs are listed again.  'open+read' opens, reads and closes
the files that are kept open, and does nothing else with them.  Nothing is
asserted; numbers compare only within one run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid

from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.qemu.counters import DomainCounters
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

PARTS = ('cpu', 'cpuacct', 'cpuset', 'unified')


def dummy(vcpus: int, busy: bool) -> None:
    """Be one domain until killed."""
    prctl = ctypes.CDLL(None).prctl

    def vcpu(number: int) -> None:
        prctl(15, b'CPU %d/TCG' % number)
        while True:
            time.sleep(0.02 if busy else 3600)

    for number in range(vcpus):
        threading.Thread(target=vcpu, args=(number,), daemon=True).start()
    signal.pause()


def dummies(count: int, vcpus: int, busy: bool) -> None:
    """Fork them, which share memory and command line, and say who they are."""
    pids = []
    for _ in range(count):
        pid = os.fork()
        if not pid:
            dummy(vcpus, busy)
        pids.append(pid)
    print(*pids, flush=True)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def places(mounts: dict[str, cgroup_mounts.Mount], top: str,
           ) -> list[tuple[str, str]]:
    """Controller and directory of the top of each hierarchy that is used."""
    found = {mount.path: name for name, mount in mounts.items()}
    return [(name, path + top) for path, name in found.items()]


def make(path: str) -> None:
    """Make a cgroup; version 1's cpuset wants to be filled."""
    os.mkdir(path)
    for file in ('cpuset.mems', 'cpuset.cpus'):
        if os.path.exists(f'{path}/tasks') and os.path.exists(
                f'{path}/{file}'):
            with open(f'{os.path.dirname(path)}/{file}') as source:
                text = source.read()
            with open(f'{path}/{file}', 'w') as target:
                target.write(text)


def put(path: str, text: str) -> None:
    with open(path, 'w') as file:
        file.write(text)


def place(pid: int, machine: str, controller: str, version: int,
          quota: bool) -> None:
    """Put a process into a machine's cgroup, and its vCPUs into theirs."""
    make(machine)
    put(f'{machine}/cgroup.procs', str(pid))
    if controller not in PARTS:
        return
    threads = {}
    for tid in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{tid}/comm') as file:
            name = file.read()
        threads[tid] = ('emulator' if not name.startswith('CPU ') else
                        f'vcpu{name[4:].partition("/")[0]}')
    file = 'tasks' if version == 1 else 'cgroup.threads'
    for part in sorted(set(threads.values())):
        make(f'{machine}/{part}')
        if version == 2:
            put(f'{machine}/{part}/cgroup.type', 'threaded')
        elif quota and controller == 'cpu' and part != 'emulator':
            put(f'{machine}/{part}/cpu.cfs_quota_us', '90000')
    for tid, part in threads.items():
        put(f'{machine}/{part}/{file}', tid)


def remove(top: str) -> None:
    for path, _, _ in os.walk(top, topdown=False):
        for _ in range(200):
            try:
                os.rmdir(path)
            except OSError:
                time.sleep(0.01)    # its last process is still ending
                continue
            break


def cpu_us(what: Callable[[], object]) -> float:
    start = time.process_time_ns()
    what()
    return (time.process_time_ns() - start) / 1000


def kept_files() -> list[str]:
    """The regular files of domains that are open now."""
    found = []
    for fd in os.listdir('/proc/self/fd'):
        try:
            name = os.readlink(f'/proc/self/fd/{fd}')
        except OSError:
            continue
        if ('qemu-' in name or name.startswith('/proc/')) and \
                os.path.isfile(name):
            found.append(name)
    return found


def plain(files: list[str]) -> None:
    for name in files:
        with open(name, 'rb') as file:
            file.read()


def measure(args: argparse.Namespace, kind: str) -> tuple[float, ...]:
    """Files per domain; us per domain: sample, look, open+read."""
    mounts = cgroup_mounts.find_mounts()
    top = f'/scv-bench-{uuid.uuid4().hex[:8]}'
    tops = places(mounts, top)
    name = str(uuid.uuid4())
    workload = Workload('vm', Priority.BACKGROUND)
    counters: list[DomainCounters] = []
    process = subprocess.Popen(
        [sys.executable, __file__, '--dummies', str(args.domains), '--vcpus',
         str(args.vcpus), *(['--busy'] if kind != 'idle' else []),
         '-uuid', name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    try:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        time.sleep(1)       # all threads have their names
        for controller, path in tops if kind != 'session' else []:
            make(path)
            for number, pid in enumerate(pids):
                place(pid, f'{path}/qemu-{number}-vm.libvirt-qemu',
                      controller, mounts[controller].version,
                      kind == 'capped')
        counters = [DomainCounters(pid, name, mounts,
                                   pressure=args.pressure)
                    for pid in pids]
        if any(sample is None or sample.run_delay_s is None
               for sample in [one.sample(workload) for one in counters]):
            raise SystemExit('the domains are not seen as they are')
        files = kept_files()

        def sample() -> None:
            for one in counters:
                one.sample(workload)

        def look() -> None:
            for one in counters:
                one.relist()
                one.sample(workload)

        ways = sample, look, lambda: plain(files)
        times: list[list[float]] = [[] for _ in ways]
        for _ in range(args.rounds):
            for way, found in zip(ways, times, strict=True):
                time.sleep(0.1)
                found.append(cpu_us(way) / args.domains)
        return (len(files) / args.domains,
                *(statistics.median(one) for one in times))
    finally:
        for one in counters:
            one.close()
        process.stdin.close()
        process.wait()
        process.stdout.close()
        for _, path in tops:
            remove(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--domains', type=int, default=100)
    parser.add_argument('--vcpus', type=int, default=2)
    parser.add_argument('--rounds', type=int, default=17)
    parser.add_argument('--pressure', action='store_true',
                        help='read PSI, too, which is off by default')
    parser.add_argument('--dummies', type=int, help=argparse.SUPPRESS)
    parser.add_argument('--busy', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('-uuid', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.dummies:
        dummies(args.dummies, args.vcpus, args.busy)
        return 0
    if os.geteuid() != 0:
        print('needs root: it makes cgroups', file=sys.stderr)
        return 2
    cgroup_files.allow_many_files()
    print(f'us of CPU time per domain and tick; {args.domains} domains of '
          f'{args.vcpus} vCPUs; medians of {args.rounds} rounds')
    print(f'{"":8} {"files":>5} {"sample()":>9} {"look":>7} '
          f'{"open+read":>10} {"open+read/sample":>17} '
          f'{"sample at 1 Hz":>17}')
    for kind in ('idle', 'busy', 'capped', 'session'):
        files, our, look, their = measure(args, kind)
        print(f'{kind:8} {files:5.1f} {our:9.1f} {look:7.1f} {their:10.1f} '
              f'{their / our:17.1f} '
              f'{our * args.domains / 1e4:8.3f} % of a CPU')
    return 0


if __name__ == '__main__':
    sys.exit(main())
