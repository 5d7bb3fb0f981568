# SPDX-License-Identifier: Apache-2.0

"""What a disk's own priorities protect, where its scheduler honours them.

A loop device on a file below ``--directory`` (root), or the disk ``--device``,
which is only read, with each scheduler of the kernel in turn; last with none
and the kernel's cost model (io.cost) where it has one.  A reader of 4 KiB,
``--reads`` times a second, beside fio with 64 KiB at depth 32, in two cgroups;
the hog's has

* *nothing*
* *weight*: the least weight (``io.weight`` and ``io.bfq.weight`` 1, on cgroup
  v1 ``blkio.bfq.weight`` 1)
* *idle*: ``io.prio.class`` ``idle`` (v2, and where the kernel has it)
* *ionice*: the same class by process, for kernels without that file
* *limit*: as many operations as ``--limit``, the knob that is there

Printed for each: the reader's median and P99 in ms, alone first, and the hog's
operations per second.  Where a kernel has no such file, that is printed.
Nothing is asserted.  A cost model that was written to ``io.cost.model`` and
``io.cost.qos`` beforehand stays as it is, and is off afterwards.

    python benchmarks/drivers/disk_priority.py [--rounds 3] [--seconds 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from scavenger_openstack.tests.functional import base

FILE_BYTES = 256 << 20

READER = '''
import mmap, os, random, sys, time
for path in sys.argv[4:]:
    with open(path + '/cgroup.procs', 'w') as file:
        file.write('0')
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
size, page = os.lseek(fd, 0, os.SEEK_END), mmap.mmap(-1, 4096)
took_s, due_s = [], time.monotonic()
end_s = due_s + float(sys.argv[2])
while time.monotonic() < end_s:
    due_s += 1 / float(sys.argv[3])
    time.sleep(max(0.0, due_s - time.monotonic()))
    os.preadv(fd, [page], random.randrange(size // 4096) * 4096)
    took_s.append(time.monotonic() - due_s)
took_s.sort()
print(1e3 * took_s[len(took_s) // 2], 1e3 * took_s[int(0.99 * len(took_s))])
'''

FILES = {
    'nothing': {},
    'weight': {'io.weight': 'default 1', 'io.bfq.weight': '1',
               'blkio.bfq.weight': '1'},
    'idle': {'io.prio.class': 'idle'},
    'ionice': {},
    'limit': {'io.max': '{device} riops={limit}',
              'blkio.throttle.read_iops_device': '{device} {limit}'}}
"""What is written to the hog's cgroup, as far as there are such files."""


@contextlib.contextmanager
def loop_device(directory: pathlib.Path) -> Iterator[str]:
    """Make a loop device with random bytes; its name."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        subprocess.run(['dd', 'if=/dev/urandom', f'of={file.name}', 'bs=1M',
                        f'count={FILE_BYTES >> 20}', 'status=none',
                        'conv=fsync'], check=True)
        path = subprocess.run(
            ['losetup', '--find', '--show', '--direct-io=on', file.name],
            check=True, capture_output=True, text=True).stdout.strip()
        try:
            yield pathlib.Path(path).name
        finally:
            subprocess.run(['losetup', '--detach', path], check=False)


def give(tree: base.CgroupTree, what: str, device: str, limit: int
         ) -> list[str]:
    """Set what the hog's cgroup has; return the files that took it."""
    number = pathlib.Path(f'/sys/block/{device}/dev').read_text().strip()
    taken = []
    for name, text in FILES[what].items():
        file = tree.path('blkio', '/hog') / name
        if file.exists():
            try:
                file.write_text(text.format(device=number, limit=limit))
            except OSError as exc:
                print(f'{name}: {exc.strerror}', file=sys.stderr)
            else:
                taken.append(name)
    return taken


@contextlib.contextmanager
def cost_model(device: str) -> Iterator[bool]:
    """Turn the kernel's cost model of a disk on; yield whether it has one."""
    top = base.unified()
    file = top / 'io.cost.qos' if top else None
    if file is None or not file.exists():
        yield False
        return
    number = pathlib.Path(f'/sys/block/{device}/dev').read_text().strip()
    file.write_text(f'{number} enable=1')
    try:
        yield True
    finally:
        file.write_text(f'{number} enable=0')


def measure(tree: base.CgroupTree, device: str, what: str,
            options: argparse.Namespace) -> tuple[float, float, float]:
    """The reader's median and P99 in ms; operations per second of the hog."""
    fio, seconds = None, options.seconds
    if what != 'alone':
        fio = subprocess.Popen(
            ['sh', '-c', f'echo $$ > "{tree.path("blkio", "/hog")}"'
             '/cgroup.procs; exec "$@"', 'sh', 'fio', '--name=hog',
             '--rw=randread', '--bs=64k', '--iodepth=32', '--direct=1',
             '--ioengine=libaio', '--time_based', '--output-format=json',
             f'--runtime={seconds + 2:.0f}', f'--filename=/dev/{device}',
             *(['--prioclass=3'] if what == 'ionice' else [])],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        time.sleep(1.0)
    printed = subprocess.run(
        [sys.executable, '-c', READER, f'/dev/{device}', f'{seconds}',
         f'{options.reads}', str(tree.path('blkio', '/reader'))],
        check=True, capture_output=True, text=True).stdout
    median_ms, p99_ms = map(float, printed.split())
    done = 0.0
    if fio is not None:
        text = fio.communicate()[0]
        done = json.loads(text[text.index('{'):])['jobs'][0]['read']['iops']
    return median_ms, p99_ms, done


def show(scheduler: str, what: str, taken: str,
         measured: list[tuple[float, float, float]]) -> None:
    median_ms, p99_ms, done = (statistics.median(column)
                               for column in zip(*measured, strict=True))
    print(f'{scheduler:<12} {what:<8} {median_ms:8.2f} {p99_ms:8.2f} '
          f'{done:9.0f}  {taken}', flush=True)


def play(device: str, scheduler: str, options: argparse.Namespace) -> None:
    for what in ('alone', *FILES):
        with base.CgroupTree() as tree:
            for below in '/reader', '/hog':
                tree.make(below)
            taken = [] if what == 'alone' else give(tree, what, device,
                                                    options.limit)
            if not taken and FILES.get(what):
                print(f'{scheduler:<12} {what:<8} this kernel has no '
                      f'{" or ".join(FILES[what])} here')
                continue
            show(scheduler, what, ' '.join(taken), [
                measure(tree, device, what, options)
                for _ in range(options.rounds)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=10.0)
    parser.add_argument('--reads', type=float, default=12, metavar='OPS',
                        help='of the reader each second (default: '
                             '%(default)s); fewer than a busy disk does one '
                             'after the other')
    parser.add_argument('--limit', type=int, default=200, metavar='OPS',
                        help='operations per second (default: %(default)s)')
    parser.add_argument('--directory', type=pathlib.Path, default='/var/tmp')
    parser.add_argument('--device', metavar='NAME',
                        help='a disk that nothing else uses, such as sdb')
    options = parser.parse_args()
    if not shutil.which('fio'):
        print('disk_priority: fio is not installed', file=sys.stderr)
        return 2
    print(f'{"scheduler":<12} {"hog has":<8} {"ms":>8} {"P99 ms":>8} '
          f'{"hog ops/s":>9}  files')
    with (contextlib.nullcontext(options.device) if options.device
          else loop_device(options.directory)) as device:
        queue = pathlib.Path(f'/sys/block/{device}/queue/scheduler')
        before = queue.read_text()
        try:
            for scheduler in re.findall(r'[\w-]+', before):
                queue.write_text(scheduler)
                play(device, scheduler, options)
            queue.write_text('none')
            with cost_model(device) as is_on:
                if is_on:
                    play(device, 'none, cost', options)
        finally:
            queue.write_text(re.sub(r'.*\[(.*)\].*', r'\1', before))
    return 0


if __name__ == '__main__':
    sys.exit(main())
