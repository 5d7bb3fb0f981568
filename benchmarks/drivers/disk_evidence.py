# SPDX-License-Identifier: Apache-2.0


"""Who is in a disk's way: by whose requests it serves, or by shares of use.

Makes cgroups with readers and writers on a file below ``--directory`` (root;
real I/O on its disk, for some 20 s) and prints, for each situation, what the
victim's operations take alone and beside the others (as it sees it; by
``io_wait`` of the kernel's delay accounting, which is switched on for the
while; and in flight), and for each of those the share that both forms give:

* *direct*: of the time that the victim waited, the part that the disk served
  it (``drivers/kernel/disk_waits``);
* *counters*: its share of all use by bytes and 16 KiB per operation, as its
  cgroup counts them;
* *written*: its share of the bytes that processes made to be written.

Then what counting costs per request (the programs by the kernel's own count,
which leaves out the tracepoints themselves) and per window.  Nothing is
asserted.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator
import contextlib
import ctypes
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

from scavenger_openstack.drivers.delay import accounting
from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.types import THE_HOST

SWITCH = pathlib.Path(accounting.SWITCH)
FILE_BYTES = 256 << 20
OPERATION_BYTES = 16 << 10
"""What an operation counts for beside its bytes."""

JOIN = '''
import ctypes, mmap, os, random, sys, threading, time
with open(sys.argv[1] + '/cgroup.procs', 'w') as file:
    file.write('0')
path = sys.argv[2]
'''
READ = JOIN + '''
size, pause_s, half = int(sys.argv[3]), float(sys.argv[5]), sys.argv[6]
took = [0, 0.0]
def work():
    fd, space = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, size)
    blocks = os.fstat(fd).st_size // size
    while True:
        if half != '' and int(time.time() * 4) % 2 != int(half):
            time.sleep(0.005)
            continue
        began = time.monotonic()
        os.preadv(fd, [space], random.randrange(blocks) * size)
        took[0] += 1
        took[1] += time.monotonic() - began
        time.sleep(pause_s)
for _ in range(int(sys.argv[4])):
    threading.Thread(target=work, daemon=True).start()
while sys.stdin.readline():
    print(*took, flush=True)
os._exit(0)
'''
WRITE = JOIN + '''
fd, data = os.open(path + '.written', os.O_RDWR | os.O_CREAT), bytes(1 << 20)
libc = ctypes.CDLL(None)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)),
                 daemon=True).start()
while True:
    for number in range(64):
        os.pwrite(fd, data, number << 20)
    libc.syncfs(fd)     # by the threads of the kernel, as after 30 s
'''
LIGHT = ('4096', '1', '0.05', '')
VICTIM = ('4096', '1', '0.01', '')
SITUATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    'nobody else': {'victim': VICTIM},
    'a hog was there first': {
        'hog': ('65536', '32', '0', ''), 'light': LIGHT, 'victim': VICTIM},
    'the hog reads while the victim rests': {
        'hog': ('65536', '32', '0', '0'), 'light': LIGHT,
        'victim': (*VICTIM[:3], '1')},
    'a buffered writer': {
        'writer': (), 'light': LIGHT, 'victim': VICTIM}}


@contextlib.contextmanager
def running(mount: cgroup_mounts.Mount, path: str,
            workloads: dict[str, tuple[str, ...]]
            ) -> Iterator[dict[str, tuple[str, subprocess.Popen[str]]]]:
    """The cgroup and the process of each."""
    top = f'{mount.path}/scv-bench-{uuid.uuid4().hex[:8]}'
    made: dict[str, tuple[str, subprocess.Popen[str]]] = {}
    os.mkdir(top)
    try:
        for name, arguments in workloads.items():
            group = f'{top}/{name}'
            os.mkdir(group)
            made[name] = group, subprocess.Popen(
                [sys.executable, '-c', READ if arguments else WRITE, group,
                 path, *arguments], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        yield made
    finally:
        for group, process in made.values():
            process.kill()
            process.communicate()
            for _ in range(500):
                with contextlib.suppress(OSError):
                    os.rmdir(group)
                    break
                time.sleep(0.01)
        os.rmdir(top)


def use(mount: cgroup_mounts.Mount, group: str) -> float:
    """Bytes, and so many more for each operation."""
    if mount.version == 1:
        size, number = (sum(
            int(line.split()[2]) for line in pathlib.Path(
                group, f'blkio.throttle.{file}').read_text().splitlines()
            if line.split()[1] == 'Total')
            for file in ('io_service_bytes', 'io_serviced'))
    else:
        fields = [field.partition('=') for field in pathlib.Path(
            group, 'io.stat').read_text().split() if '=' in field]
        size = sum(int(value) for key, _, value in fields
                   if key in ('rbytes', 'wbytes'))
        number = sum(int(value) for key, _, value in fields
                     if key in ('rios', 'wios'))
    return float(size + OPERATION_BYTES * number)


def written(process: int) -> int:
    text = pathlib.Path(f'/proc/{process}/io').read_text()
    return int(text.split('\nwrite_bytes:')[1].split()[0])


def operations(process: subprocess.Popen[str]
               ) -> tuple[int, float, int, float]:
    """Number and seconds of reads; of waits for a disk, by the kernel."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write('\n')
    process.stdin.flush()
    number, seconds = process.stdout.readline().split()
    kernel = taskstats.Taskstats()
    try:
        answer, = kernel.ask([(taskstats.PROCESS, process.pid)])
    finally:
        kernel.close()
    return (int(number), float(seconds), answer.waits if answer else 0,
            answer.wait_ns / 1e9 if answer else 0.0)


def name_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{process}/comm').read_text().strip()
    return str(process)


def compare(mount: cgroup_mounts.Mount, path: str, window_s: float) -> None:
    for title, workloads in SITUATIONS.items():
        with running(mount, path, workloads) as made:
            of = collections.defaultdict(lambda: THE_HOST, {
                process.pid: name for name, (_, process) in made.items()})
            victim = made['victim'][1]
            waits = disk_waits.DiskWaits({'victim': [victim.pid]})
            try:
                used = {name: use(mount, group)
                        for name, (group, _) in made.items()}
                made_written = {name: written(process.pid)
                                for name, (_, process) in made.items()}
                before = operations(victim)
                time.sleep(window_s)
                after = operations(victim)
                used = {name: use(mount, group) - used[name]
                        for name, (group, _) in made.items()}
                made_written = {
                    name: written(process.pid) - made_written[name]
                    for name, (_, process) in made.items()}
                counts = waits.waits()
                direct = disk_waits.evidence(
                    'victim', counts,
                    {(key.process, key.cgroup): of[key.process]
                     for key in counts.served},
                    {key.process: name_of(key.process)
                     for key in counts.served})
            finally:
                waits.close()
        reads, reads_s, waited, waited_s = (
            new - old for new, old in zip(after, before, strict=True))
        mine = [value for key, value in counts.served.items()
                if key.process == victim.pid]
        in_flight_s = sum(value.in_flight_s for value in mine) / max(
            1, sum(value.requests for value in mine))
        best_s = min((value.shortest_s for value in mine), default=0.0)
        print(f'\n{title}: {reads} operations of the victim, '
              f'{reads_s / max(1, reads) * 1e3:.2f} ms each; io_wait '
              f'{waited_s / max(1, waited) * 1e3:.2f}, in flight '
              f'{in_flight_s * 1e3:.2f}, at best {best_s * 1e3:.2f}; it '
              f'waited {direct.waited_s:.3f} of {direct.window_s:.1f} s')
        everything = sum(used.values()) or 1.0
        all_written = sum(made_written.values()) or 1
        for name in (*workloads, THE_HOST):
            counted = (f'{used[name] / everything:6.1%}  written '
                       f'{made_written[name] / all_written:6.1%}'
                       if name in used else '')
            threads = ', '.join(
                f'{thread} {seconds:.3f} s' for thread, seconds
                in direct.threads.items() if name == THE_HOST)
            held = direct.holders.get(name, 0) / (direct.waited_s or 1)
            print(f'  {name or "the host":10} direct {held:6.1%}  counters '
                  f'{counted}  {threads}')


@contextlib.contextmanager
def kernel_counts() -> Iterator[None]:
    """The kernel counts the time of BPF programs (BPF_ENABLE_STATS)."""
    calls = bpf.system_calls()
    assert calls is not None
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(ctypes.c_long(calls.bpf), 32,
                      ctypes.create_string_buffer(128), 128)
    try:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def programs_ns() -> int:
    """In all programs of this process, so far."""
    total = 0
    for path in pathlib.Path('/proc/self/fdinfo').iterdir():
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                if line.startswith('run_time_ns:'):
                    total += int(line.split()[1])
    return total


def cost(path: str, rounds: int) -> None:
    """us per request, and ms per window."""
    fd, space = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
    each, windows, requests = [], [], 0
    with kernel_counts():
        for _ in range(rounds):
            began = time.process_time()
            waits = disk_waits.DiskWaits({'victim': [os.getpid()]})
            opened = time.process_time() - began
            for _ in range(2000):
                os.preadv(fd, [space], random.randrange(
                    FILE_BYTES >> 12) << 12)
            spent = programs_ns()
            began = time.process_time()
            counts = waits.waits()
            requests = sum(value.requests for value in counts.served.values())
            each.append(spent / requests / 1e3)
            waits.close()
            windows.append((opened + time.process_time() - began) * 1e3)
    os.close(fd)
    print(f'\nper request: {min(each):.2f} us in programs at best, '
          f'{statistics.median(each):.2f} in the median of {rounds} (some '
          f'{requests} requests each)\nper window: {min(windows):.1f} ms of '
          f'CPU at best, {statistics.median(windows):.1f} in the median')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--directory', default='.',
                        help='on the disk to use, default: this one')
    parser.add_argument('--window', type=float, default=2.0,
                        help='seconds of each, default %(default)s')
    parser.add_argument('--rounds', type=int, default=10)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print('needs root: it makes cgroups', file=sys.stderr)
        return 2
    mounts = cgroup_mounts.find_mounts()
    mount = mounts.get('blkio') or mounts['unified']
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        path = f'{directory}/data'
        with open(path, 'wb') as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
        was = SWITCH.read_text()
        SWITCH.write_text('1')
        try:
            compare(mount, path, args.window)
        finally:
            SWITCH.write_text(was)
        cost(path, args.rounds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
