# SPDX-License-Identifier: Apache-2.0


"""How a file server fares beside a batch job that fills the page cache.

nginx serves files that fit into memory, a client asks for one after the other
at random and at a fixed rate, and a batch job reads a large file again and
again.  A cgroup with a limit plays the memory of the host.  Ways: *quiet* is
without the job, *hog* with it and without an agent, *ours* with it and
scavenger-standalone with its usual options, all of it enforcing.  The ways
are played in turn, round after round.  For each: the median and the P99 of
the answers, counted from when each was due, of the median round and from the
best to the worst; the median of the P99 against that of *quiet*; what the
file server read again from disk that it had in the page cache; what the job
has read.

    sudo python benchmarks/agent/page_cache.py [--rounds 3] [--seconds 20]
        [--settle 90] [--ways quiet,hog,ours]

Needs nginx, and 1.5 GiB below --directory, on a disk.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import running_agent
from starvation_places import start
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.text import columns

MIB = 2 ** 20
WAYS = ('quiet', 'hog', 'ours')
PARTS = (*conf_agent.CONTROLLERS, 'perfiso')
PORT = 11298
RATE, CONNECTIONS = 200, 16
HOST_MIB, FILES_MIB, HOG_MIB = 1024, 576, 640
FILE_KIB = 256
FILES = FILES_MIB * 1024 // FILE_KIB
SETTLED_S = 5.0
"""For how long the file server is asked before a round without an agent."""

NGINX = """
daemon off;
user root;
worker_processes 2;
pid {top}/nginx.pid;
error_log {top}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {top}/body;
  proxy_temp_path {top}/proxy;
  fastcgi_temp_path {top}/fastcgi;
  uwsgi_temp_path {top}/uwsgi;
  scgi_temp_path {top}/scgi;
  server {{ listen 127.0.0.1:{port}; root {top}/files; }}
}}
"""

CLIENT = """
import http.client, random, sys, threading, time
port, rate, count, files, until_s, warm = map(float, sys.argv[1:])
took_s = []
def ask(i):
    server = http.client.HTTPConnection('127.0.0.1', int(port))
    dice = random.Random(i + time.time_ns())
    due_s = time.monotonic() + i / rate
    names = iter(range(i, int(files), int(count)))
    while warm or due_s < until_s:
        name = next(names, None) if warm else dice.randrange(int(files))
        if name is None:
            break
        due_s += count / rate
        if not warm:
            time.sleep(max(0.0, due_s - time.monotonic()))
        server.request('GET', f'/{name}')
        answer = server.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        took_s.append(time.monotonic() - due_s)
threads = [threading.Thread(target=ask, args=(i,)) for i in range(int(count))]
for thread in threads: thread.start()
for thread in threads: thread.join()
took_s.sort()
print(took_s[len(took_s) // 2], took_s[int(len(took_s) * 0.99)])
"""

HOG = """
import sys
with open(sys.argv[1], 'rb', buffering=0) as file:
    while True:
        if not file.read(1 << 20):
            file.seek(0)
"""

AGENT = """
[libvirt]
uri =
[cgroups]
background_parents = {name}/batch
foreground_parents = {name}/services
memory_root = {name}
"""


class Round(NamedTuple):
    """What one round came to; times in s, amounts in MiB per second."""

    p50_s: float
    p99_s: float
    again: float
    hog: float


class Stage:
    """A file server in a cgroup, and room for a batch job beside it."""

    def __init__(self, stack: contextlib.ExitStack, below: pathlib.Path
                 ) -> None:
        self.tree = stack.enter_context(base.CgroupTree())
        self.tree.put('memory', '', str(HOST_MIB * MIB))
        self.tree.make('/batch/job')
        self.tree.make('/services/web')
        self.top = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(dir=below)))
        (self.top / 'files').mkdir()
        for name in range(FILES):
            write(self.top / 'files' / str(name), FILE_KIB * 1024)
        write(self.top / 'hog', HOG_MIB * MIB)
        config = self.top / 'nginx.conf'
        config.write_text(NGINX.format(top=self.top, port=PORT))
        server = start(self.tree, '/services/web', 'nginx', '-p',
                       f'{self.top}/', '-c', str(config))
        stack.callback(end, server)
        deadline_s = time.monotonic() + 10
        while not (self.top / 'nginx.pid').exists():
            if time.monotonic() > deadline_s:
                raise errors.DriverError('nginx does not start')
            time.sleep(0.05)

    def ask(self, until_s: float, *, warm: bool = False
            ) -> tuple[float, float]:
        """Ask for files until then, or once for each; median and P99."""
        text = subprocess.run(
            [sys.executable, '-c', CLIENT, str(PORT), str(RATE),
             str(CONNECTIONS), str(FILES), str(until_s), str(int(warm))],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        p50_s, p99_s = map(float, text.split())
        return p50_s, p99_s

    def again_bytes(self) -> int:
        """What the file server has read again so far."""
        text = self.tree.read('memory', '/services/web', 'memory.stat')
        return os.sysconf('SC_PAGE_SIZE') * sum(
            int(line.split()[1]) for line in text.splitlines()
            if line.startswith('workingset_refault_file '))


def write(path: pathlib.Path, size: int) -> None:
    """Write a file that is on the disk and not in the page cache."""
    with path.open('wb') as file:
        for _ in range(max(1, size // MIB)):
            file.write(os.urandom(min(size, MIB)))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(10)


def has_read(process: subprocess.Popen[bytes] | None) -> int:
    """How many bytes a process has read so far."""
    if process is None:
        return 0
    text = pathlib.Path(f'/proc/{process.pid}/io').read_text()
    return int(text.split()[1])


def play(stage: Stage, way: str, args: argparse.Namespace) -> Round:
    """One round."""
    with contextlib.ExitStack() as stack:
        stage.ask(0.0, warm=True)
        hog = None
        if way != 'quiet':
            hog = start(stage.tree, '/batch/job', sys.executable, '-c', HOG,
                        str(stage.top / 'hog'))
            stack.callback(end, hog)
        settle_s = SETTLED_S
        if way == 'ours':
            directory = pathlib.Path(stack.enter_context(
                tempfile.TemporaryDirectory(dir='/dev/shm')))
            stack.enter_context(running_agent.Agent(
                directory, AGENT.format(name=stage.tree.name) + ''.join(
                    f'[{part}]\nmode = enforce\n' for part in PARTS)))
            settle_s = args.settle
        stage.ask(time.monotonic() + settle_s)
        began_s = time.monotonic()
        again, hogged = stage.again_bytes(), has_read(hog)
        p50_s, p99_s = stage.ask(began_s + args.seconds)
        took_s = time.monotonic() - began_s
        return Round(p50_s, p99_s,
                     (stage.again_bytes() - again) / MIB / took_s,
                     (has_read(hog) - hogged) / MIB / took_s)


def show(rounds: dict[str, list[Round]], args: argparse.Namespace) -> None:
    print(f'Linux {platform.release()}, {os.cpu_count()} CPUs, cgroup '
          f'v{base.version()}; {HOST_MIB} MiB, of which files {FILES_MIB}; '
          f'the job reads {HOG_MIB} MiB; {RATE} requests of {FILE_KIB} KiB a '
          f'second; {args.rounds} rounds of {args.seconds:g} s')
    quiet_ms = (1e3 * statistics.median(x.p99_s for x in rounds['quiet'])
                if 'quiet' in rounds else None)
    body = []
    for way, played in rounds.items():
        p99_ms = sorted(1e3 * x.p99_s for x in played)
        median_ms = statistics.median(p99_ms)
        body.append((
            way,
            f'{1e3 * statistics.median(x.p50_s for x in played):.2f}',
            f'{median_ms:.2f} ({p99_ms[0]:.2f}-{p99_ms[-1]:.2f})',
            '' if quiet_ms is None else f'{median_ms / quiet_ms:.2f}',
            f'{statistics.median(x.again for x in played):.1f}',
            f'{statistics.median(x.hog for x in played):.0f}'))
    print('\n'.join(columns(('way', 'P50 ms', 'P99 ms', 'of quiet',
                             'read again MiB/s', 'job MiB/s'), body)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=20)
    parser.add_argument('--settle', type=float, default=90,
                        help='seconds that an agent has before a round (90)')
    parser.add_argument('--ways', default=','.join(WAYS))
    parser.add_argument('--directory', type=pathlib.Path,
                        default=pathlib.Path('/var/tmp'))
    args = parser.parse_args()
    if wrong := set(args.ways.split(',')) - {*WAYS}:
        parser.error(f'no such way: {", ".join(wrong)}')
    if not shutil.which('nginx'):
        parser.error('nginx is not installed')
    rounds: dict[str, list[Round]] = {}
    with contextlib.ExitStack() as stack:
        stage = Stage(stack, args.directory)
        for number in range(args.rounds):
            for way in args.ways.split(','):
                running_agent.show(f'round {number + 1} {way}')
                rounds.setdefault(way, []).append(play(stage, way, args))
    running_agent.show('')
    show(rounds, args)
    return 0


if __name__ == '__main__':
    sys.exit(main())
