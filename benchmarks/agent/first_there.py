# SPDX-License-Identifier: Apache-2.0

"""How soon what was there before the agent is named, beside real services.

A service with a client that asks at a steady rate (open loop), two light jobs,
and an antagonist that is at work before an agent starts, with its options as
shipped and no past:

cpu   six busy processes, beside memcached, nginx or redis
disk  fio at depth 32, beside a reader of 4 KiB at 100 a second
proxy a buffered writer, beside the same reader: the host's threads write
link  four senders as fast as they can, beside a server that answers with 10 KB
      200 times a second, over one link of 100 Mbit/s: network namespaces, a
      bridge and a token bucket

Printed are the P99 of the service alone, beside the antagonist, and under the
agent; seconds from the agent's first tick to the name; what else was named;
and what the antagonist still does, of what it did before.

    python benchmarks/agent/first_there.py [--services memcached,nginx]
        [--rounds 1] [--observe]

Needs memcached, nginx, redis-server and fio, as far as they are asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import running_agent
from starvation_places import start

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import delays
from scavenger_openstack.tests.functional import loop_device
from scavenger_openstack.tests.functional import namespaces

SECONDS = 11.0
"""A measurement."""
SETTLE_S = 100.0
"""After it is named: limits are tried and adapted, by the next windows."""
MOST_S = 60.0
PORT = 11311
FILE_BYTES = 1 << 28

TELL = """
import os, time
def tell(took_s, file):
    took_s.sort()
    with open(file + '.new', 'w') as new:
        new.write(str(took_s[int(0.99 * len(took_s))]))
    os.rename(file + '.new', file)
    took_s.clear()
"""

CLIENT = TELL + """
import socket, sys, threading
port, rate, count = [float(text) for text in sys.argv[1:4]]
request, least, file = eval(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
took_s = []
def ask(i):
    with socket.create_connection((sys.argv[7], int(port))) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due_s = time.monotonic() + i / rate
        while True:
            due_s += count / rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            server.sendall(request)
            left = least
            while left > 0:
                left -= len(server.recv(65536)) or left
            took_s.append(time.monotonic() - due_s)
threads = [threading.Thread(target=ask, args=(i,), daemon=True)
           for i in range(int(count))]
for thread in threads: thread.start()
while True:
    time.sleep(5.0)
    tell(took_s, file)
"""

READER = TELL + """
import mmap, random, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
size, page = os.fstat(fd).st_size, mmap.mmap(-1, 4096)
took_s, due_s = [], time.monotonic()
while True:
    due_s += 0.01
    time.sleep(max(0.0, due_s - time.monotonic()))
    os.preadv(fd, [page], random.randrange(size // 4096) * 4096)
    took_s.append(time.monotonic() - due_s)
    if len(took_s) == 500:
        tell(took_s, sys.argv[2])
"""

SERVER = """
import socket, sys, threading
def answer(client):
    while client.recv(64):
        client.sendall(bytes(10000))
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=answer, args=(server.accept()[0],),
                     daemon=True).start()
"""

SINK = """
import socket, sys, threading
def drain(sender):
    while sender.recv(1 << 20): pass
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=drain, args=(server.accept()[0],),
                     daemon=True).start()
"""

SENDER = """
import socket, sys, threading
def send():
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sink:
        while True: sink.sendall(bytes(1 << 16))
for _ in range(3): threading.Thread(target=send, daemon=True).start()
send()
"""

LIGHT = """
import time
while True:
    until_s = time.thread_time() + 0.002
    while time.thread_time() < until_s:
        pass
    time.sleep(0.05)
"""

NGINX = """
daemon off; worker_processes 2; pid {top}/nginx.pid; error_log /dev/null;
events {{}}
http {{ access_log off; keepalive_requests 100000000;
  client_body_temp_path {top}/body;
  proxy_temp_path {top}/proxy; fastcgi_temp_path {top}/fastcgi;
  uwsgi_temp_path {top}/uwsgi; scgi_temp_path {top}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}
"""

REQUESTS = {
    'memcached': (b'get key\r\n', 5), 'redis': (b'PING\r\n', 7),
    'link': (b'next', 10000),
    'nginx': (b'GET / HTTP/1.1\r\nHost: a\r\n\r\n', 100)}


LINK_BYTES_PER_S = 12_500_000


class Link:
    """A network namespace for the antagonist, the service, and all that is
    far away, at one bridge; what goes far away passes ``device``."""

    PLACES = {'hog': '10.98.0.1', 'service': '10.98.0.2', 'far': '10.98.0.3'}

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._tag = f'ft-{os.getpid()}'
        router = self.name('router')
        for part in ('router', *self.PLACES):
            namespaces.run('ip', 'netns', 'add', self.name(part))
            stack.callback(namespaces.run, 'ip', 'netns', 'delete',
                           self.name(part))
        inside = ('ip', '-n', router, 'link')
        namespaces.run(*inside, 'add', 'bridge', 'type', 'bridge')
        namespaces.run(*inside, 'set', 'bridge', 'up')
        for part, address in self.PLACES.items():
            namespaces.run(*inside, 'add', part, 'type', 'veth', 'peer',
                           'name', 'eth0', 'netns', self.name(part))
            namespaces.run(*inside, 'set', part, 'master', 'bridge', 'up')
            there = ('ip', '-n', self.name(part))
            namespaces.run(*there, 'address', 'add', f'{address}/24', 'dev',
                           'eth0')
            namespaces.run(*there, 'link', 'set', 'eth0', 'up')
        namespaces.run('tc', '-n', router, 'qdisc', 'add', 'dev', 'far',
                       'root', 'tbf', 'rate', f'{8 * LINK_BYTES_PER_S}bit',
                       'burst', '64kb', 'latency', '50ms')
        self.device = f'{router}:far'

    def name(self, part: str) -> str:
        return f'{self._tag}-{part}'

    def inside(self, part: str) -> tuple[str, ...]:
        """The beginning of a command that is run there."""
        return 'ip', 'netns', 'exec', self.name(part)

    def sent_bytes(self) -> float:
        """By the antagonist."""
        return float(subprocess.run(
            [*self.inside('hog'), 'cat',
             '/sys/class/net/eth0/statistics/tx_bytes'], check=True,
            capture_output=True, text=True).stdout)


class Stage:
    """The cgroups, and what runs in them."""

    def __init__(self, stack: contextlib.ExitStack, service: str,
                 top: pathlib.Path) -> None:
        stack.enter_context(delays.DelayAccounting()).set('1')
        self._tree = stack.enter_context(base.CgroupTree())
        self._service, self._top = service, top
        for below in '/fore/service', '/back/hog', '/back/a', '/back/b':
            self._tree.make(below)
        # As VMs of many vCPUs beside a small one.
        self._tree.put('weight', '/back',
                       '8192' if self._tree.version == 1 else '800')
        self.config = (
            '[agent]\ncontrollers = attribution\n[libvirt]\nuri =\n[cgroups]\n'
            f'background_parents = {self._tree.name}/back\n'
            f'foreground_parents = {self._tree.name}/fore\n'
            '[attribution]\nmode = {mode}\n')
        self._link = Link(stack) if service == 'link' else None
        if self._link is not None:
            self.config += (
                f'[network]\nlinks = {self._link.device}='
                f'{LINK_BYTES_PER_S}\ninterfaces = {self.hog}='
                f'{self._link.name("hog")}:eth0\n')
        for below in '/back/a', '/back/b':
            start(self._tree, below, sys.executable, '-c', LIGHT)
        self._begin()

    @property
    def hog(self) -> str:
        return f'{self._tree.name}/back/hog'

    def _begin(self) -> None:
        top, words, link = self._top, [], self._link
        if link is not None:
            start(self._tree, '', *link.inside('far'), sys.executable, '-c',
                  SINK, link.PLACES['far'], str(PORT))
            words = [*link.inside('service'), sys.executable, '-c', SERVER,
                     link.PLACES['service'], str(PORT)]
        elif self._service == 'memcached':
            words = ['memcached', '-u', 'nobody', '-l', '127.0.0.1', '-t',
                     '2', '-p', str(PORT)]
        elif self._service == 'redis':
            words = ['redis-server', '--port', str(PORT), '--bind',
                     '127.0.0.1', '--save', '', '--dir', str(top)]
        elif self._service == 'nginx':
            conf = top / 'nginx.conf'
            conf.write_text(NGINX.format(top=top, port=PORT))
            words = ['nginx', '-p', str(top), '-c', str(conf)]
        else:       # disk, proxy
            subprocess.run(['fallocate', '-l', str(FILE_BYTES),
                            str(top / 'data')], check=True)
            subprocess.run(['dd', 'if=/dev/urandom', f'of={top / "data"}',
                            'bs=1M', 'conv=notrunc', 'status=none',
                            f'count={FILE_BYTES >> 20}'], check=True)
            words = [sys.executable, '-c', READER, str(top / 'data'),
                     str(top / 'p99')]
        start(self._tree, '/fore/service', *words)
        time.sleep(2.0)
        if self._service not in ('disk', 'proxy'):
            request, least = REQUESTS[self._service]
            start(self._tree, '/fore/service' if link is None else '',
                  *(() if link is None else link.inside('far')),
                  sys.executable, '-c', CLIENT, str(PORT),
                  '1000' if link is None else '200', '8', repr(request),
                  str(least), str(top / 'p99'), '127.0.0.1' if link is None
                  else link.PLACES['service'])

    def work(self) -> None:
        """Let the antagonist begin."""
        words = [sys.executable, '-c', 'import os\nfor _ in range(5):\n'
                 '    if not os.fork(): break\nwhile True: pass']
        if self._link is not None:
            words = [*self._link.inside('hog'), sys.executable, '-c', SENDER,
                     self._link.PLACES['far'], str(PORT)]
        elif self._service == 'proxy':
            words = [sys.executable, '-c', loop_device.WRITES.format(
                path=str(self._top / 'written'))]
        elif self._service == 'disk':
            words = ['fio', '--name=hog', '--rw=randread', '--bs=64k',
                     '--iodepth=32', '--ioengine=libaio', '--direct=1',
                     '--time_based', '--runtime=1000',
                     f'--filename={self._top / "data"}']
        start(self._tree, '/back/hog', *words)

    def limit_reads(self, ops_per_s: int) -> None:
        """Limit the antagonist's reads of the disk of the stage."""
        number = self._top.stat().st_dev
        device = f'{os.major(number)}:{os.minor(number)}'
        if self._tree.version == 1:
            self._tree.write('blkio', '/back/hog',
                             'blkio.throttle.read_iops_device',
                             f'{device} {ops_per_s}')
        else:
            self._tree.write('io', '/back/hog', 'io.max',
                             f'{device} riops={ops_per_s}')

    def done(self) -> float:
        """CPU seconds of the antagonist, or bytes that it has read, made
        dirty, or sent."""
        if self._link is not None:
            return self._link.sent_bytes()
        if self._service not in ('disk', 'proxy'):
            return int(self._tree.read('cpuacct', '/back/hog',
                                       'cpuacct.usage')) / 1e9
        pids = self._tree.read('cpu', '/back/hog', 'cgroup.procs').split()
        return float(sum([
            int(line.split()[1]) for pid in pids
            for line in pathlib.Path(f'/proc/{pid}/io').read_text(
                ).splitlines() if line.startswith((
                    'read_bytes', 'write_bytes'))]))

    def measure(self) -> tuple[float, float]:
        """The P99 of the service in ms, and what the antagonist does in a
        second."""
        before, began_s = self.done(), time.monotonic()
        time.sleep(SECONDS)
        p99_s = float((self._top / 'p99').read_text())
        return 1e3 * p99_s, (self.done() - before) / (
            time.monotonic() - began_s)


def named(agent: running_agent.Agent, hog: str) -> tuple[
        float | None, set[str], list[str]]:
    """Seconds to the name of the antagonist; the other names; by which
    grounds."""
    began_s, others = time.monotonic(), set()
    while time.monotonic() - began_s < MOST_S:
        agent.look()
        for incident in agent.status.last.get('incidents') or ():
            names = set(incident.get('antagonists', ()))
            others |= names - {hog}
            if hog in names:
                return (time.monotonic() - began_s, others, [
                    ground['kind'] for ground in incident.get('grounds', ())
                    if ground['workload'] == hog])
        time.sleep(0.2)
    return None, others, []


def play(service: str, mode: str) -> dict[str, object]:
    with contextlib.ExitStack() as stack:
        top = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(
            prefix='first-there-', dir='.')))
        top.chmod(0o755)
        stage = Stage(stack, service, top.absolute())
        alone, _ = stage.measure()
        stage.work()
        time.sleep(3.0)
        beside, free = stage.measure()
        agent = stack.enter_context(running_agent.Agent(
            top.absolute(), stage.config.format(mode=mode)))
        seconds, others, kinds = named(agent, stage.hog)
        time.sleep(SETTLE_S)
        under, limited = stage.measure()
        agent.look()
        for incident in agent.status.last.get('incidents') or ():
            others |= set(incident.get('antagonists', ())) - {stage.hog}
        return {'service': service, 'p99 alone, ms': round(alone, 2),
                'beside, ms': round(beside, 2),
                'under the agent, ms': round(under, 2),
                'over alone': round(under / alone, 2),
                'named after s': seconds and round(seconds, 1),
                'by': kinds, 'others named': sorted(others),
                'antagonist keeps': round(limited / free, 2) if free else 0}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--services',
                        default='memcached,nginx,redis,disk,proxy,link')
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--observe', action='store_true')
    options = parser.parse_args()
    services = options.services.split(',')
    for service, program in (('memcached', 'memcached'), ('nginx', 'nginx'),
                             ('redis', 'redis-server'), ('disk', 'fio')):
        if service in services and not shutil.which(program):
            print(f'first_there: {program} is not installed', file=sys.stderr)
            return 2
    for _ in range(options.rounds):
        for service in services:
            print(json.dumps(play(service, 'observe' if options.observe
                                  else 'enforce')), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
