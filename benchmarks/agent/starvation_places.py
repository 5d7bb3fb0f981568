# SPDX-License-Identifier: Apache-2.0

"""Where :mod:`starvation` is played: containers, or VMs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Protocol

import running_agent
from scavenger_openstack.ibench import build
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import format_cpus

RATE, CONNECTIONS = 2500, 16
PORT = 11299
HOGS = 6
JOB = '/job'
"""The hogs are in a child of the background group, where an agent sees a
workload."""
LOOKUPS = 'lookup per_s=500'
"""So many that the line which the guest prints each second, at the time of a
lookup, delays fewer than one in a hundred."""

PERIOD_US = 100_000

CPUS = os.cpu_count() or 1

CLIENT = """
import socket, sys, threading, time
port, rate, count, until_s = [float(text) for text in sys.argv[1:]]
took_s = []
def ask(i):
    with socket.create_connection(('127.0.0.1', int(port))) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due_s = time.monotonic() + i / rate
        while due_s < until_s:
            due_s += count / rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            server.sendall(b'get key\\r\\n')
            server.recv(64)
            took_s.append(time.monotonic() - due_s)
threads = [threading.Thread(target=ask, args=(i,)) for i in range(int(count))]
for thread in threads: thread.start()
for thread in threads: thread.join()
took_s.sort()
print(took_s[len(took_s) // 2], took_s[int(0.99 * len(took_s))])
"""


class Stage(Protocol):
    """A foreground and a background, and what limits the latter.

    ``config`` tells an agent of them.
    """

    config: str

    def work(self) -> None:
        """Let the background compute."""
        ...

    def idle(self, on: bool) -> None:
        ...

    def least_weight(self) -> None:
        ...

    def most_weight(self) -> None:
        """Give the foreground the largest weight."""
        ...

    def apart(self) -> None:
        """Give each side half of the CPUs."""
        ...

    def quota(self, cores: float | None) -> None:
        ...

    def cpu_s(self) -> float:
        """CPU time that the background has used."""
        ...

    def waited(self) -> tuple[float, int]:
        """How long threads of the foreground have waited for a CPU in s, and
        how often they ran."""
        ...

    def ask(self, until_s: float) -> Callable[[], tuple[float, float]]:
        """Begin to use the foreground; what waits for its median and its P99
        in s."""
        ...

    def answer(self) -> None:
        """Have QEMU of the background answer, if there is one."""
        ...


class Containers:
    """memcached, and a source of interference."""

    def __init__(self, stack: contextlib.ExitStack, where: str) -> None:
        self._tree = stack.enter_context(base.CgroupTree())
        self._bg, self._fg_group, self._group = self._tree, '', ''
        if where == 'nested':
            self._fg_group, self._group = '/foreground', '/background'
            self._tree.make(self._fg_group)
        else:
            self._bg = stack.enter_context(base.CgroupTree())
        self._bg.make(self._group + JOB)
        self._weight('3072' if self._tree.version == 1 else '300')
        self.config = (
            '[libvirt]\nuri =\n[cgroups]\n'
            f'background_parents = {self._bg.name}{self._group}\n'
            f'foreground_parents = {self._tree.name}{self._fg_group}\n')
        start(self._tree, self._fg_group, 'memcached', '-u', 'nobody', '-l',
              '127.0.0.1', '-t', '2', '-p', str(PORT))

    def work(self) -> None:
        start(self._bg, self._group + JOB, str(build.build()), 'integer',
              f'threads={HOGS}', 'chunk_s=1', 'every_s=3600', 'levels=100:1e6')

    def _weight(self, text: str) -> None:
        self._bg.put('weight', self._group, text)

    def idle(self, on: bool) -> None:
        self._bg.put('idle', self._group, str(int(on)))

    def least_weight(self) -> None:
        self._weight('2' if self._tree.version == 1 else '1')

    def most_weight(self) -> None:
        self._tree.put('weight', self._fg_group,
                       '262144' if self._tree.version == 1 else '10000')

    def apart(self) -> None:
        front, back = halves()
        self._tree.put('cpus', self._fg_group, format_cpus(front))
        for group in (self._group + JOB, self._group):
            self._bg.put('cpus', group, format_cpus(back))

    def quota(self, cores: float | None) -> None:
        self._bg.put('quota', self._group, '-1' if cores is None
                     else str(round(PERIOD_US * cores)))

    def cpu_s(self) -> float:
        if self._bg.version == 1:
            return int(self._bg.read('cpuacct', self._group,
                                     'cpuacct.usage')) / 1e9
        return int(self._bg.read('cpu', self._group, 'cpu.stat')
                   .split()[1]) / 1e6

    def waited(self) -> tuple[float, int]:
        return waited(self._tree.path('cpu', self._fg_group))

    def ask(self, until_s: float) -> Callable[[], tuple[float, float]]:
        client = start(self._tree, self._fg_group, sys.executable, '-c',
                       CLIENT, str(PORT), str(RATE), str(CONNECTIONS),
                       str(until_s))

        def took_s() -> tuple[float, float]:
            p50_s, p99_s = client.communicate(timeout=60)[0].split()
            return float(p50_s), float(p99_s)
        return took_s

    def answer(self) -> None:
        pass


class Guests:
    """Two guests below libvirt's parent; they stay for all rounds.

    ``foreground`` and ``background`` are where their cgroups for CPUs are.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._host = stack.enter_context(hypervisor.Hypervisor())
        guests = [make(name, vcpus=CPUS, disks=(domain_guest.Disk.make(
            self._host.disks / name),)) for name, make in (
                ('front', front), ('back', virtual_host.background))]
        consoles = []
        for guest in guests:
            consoles.append(self._host.define_and_start(guest))
            consoles[-1].keep_time()
        self._front, self._back = consoles
        self._front.tell(LOOKUPS)
        self._front_domain, self._domain = (
            self._host.connect().lookupByName(name)
            for name in ('front', 'back'))
        below = self._host.tree.path('cpu', '/machine')
        self.background, self.foreground = (
            next(path for path in below.iterdir()
                 if path.name.endswith(f'-{name}.libvirt-qemu'))
            for name in ('back', 'front'))
        self._vcpus = sorted(self.background.rglob('vcpu*'))
        self.config = running_agent.libvirt_section(self._host)

    def work(self) -> None:
        self._back.tell(f'cpu {CPUS}')

    def idle(self, on: bool) -> None:
        (self.background / 'cpu.idle').write_text(str(int(on)))

    def least_weight(self) -> None:
        (self.background / 'cpu.shares').write_text('2')

    def most_weight(self) -> None:
        (self.foreground / 'cpu.shares').write_text('262144')

    def apart(self) -> None:
        self._pin(*halves())

    def _pin(self, *sides: Collection[int]) -> None:
        for domain, side in zip((self._front_domain, self._domain), sides,
                                strict=True):
            for vcpu in range(CPUS):
                domain.pinVcpu(vcpu, tuple(cpu in side
                                           for cpu in range(CPUS)))

    def quota(self, cores: float | None) -> None:
        text = ('-1' if cores is None
                else str(max(1000, round(PERIOD_US * cores / CPUS))))
        for path in self._vcpus:
            (path / 'cpu.cfs_period_us').write_text(str(PERIOD_US))
            (path / 'cpu.cfs_quota_us').write_text(text)

    def cpu_s(self) -> float:
        machines = self._host.tree.path('cpuacct', '/machine')
        return int((machines / self.background.name / 'cpuacct.usage')
                   .read_text()) / 1e9

    def waited(self) -> tuple[float, int]:
        return waited(self.foreground)

    def ask(self, until_s: float) -> Callable[[], tuple[float, float]]:
        def took_s() -> tuple[float, float]:
            seconds = max(1, round(until_s - time.monotonic()))
            found = [one for one in self._front.reports(
                seconds, timeout_s=seconds + 60.0) if 'p99_s' in one]
            return (statistics.median(one['p50_s'] for one in found),
                    statistics.median(one['p99_s'] for one in found))
        return took_s

    def answer(self) -> None:
        self._domain.blockStats('vda')

    def free(self) -> None:
        """Take all limits away, and rest."""
        self.idle(False)
        for group in (self.background, self.foreground):
            (group / 'cpu.shares').write_text('1024')
        self._pin(range(CPUS), range(CPUS))
        self.quota(None)
        self._back.tell('rest')


def halves() -> tuple[range, range]:
    """The CPUs of the foreground, and those of the background."""
    middle = (CPUS + 1) // 2
    return range(middle), range(middle, CPUS)


def waited(group: pathlib.Path) -> tuple[float, int]:
    """Of all threads in a cgroup and below, see :meth:`Stage.waited`."""
    wait_ns = runs = 0
    name = 'tasks' if base.version() == 1 else 'cgroup.threads'
    for file in group.rglob(name):
        for thread in file.read_text().split():
            with contextlib.suppress(OSError):      # it has ended
                _, one_ns, count = pathlib.Path(
                    '/proc', thread, 'schedstat').read_text().split()
                wait_ns += int(one_ns)
                runs += int(count)
    return wait_ns / 1e9, runs


def front(name: str, vcpus: int, disks: tuple[domain_guest.Disk, ...]
          ) -> domain_guest.DomainGuest:
    return domain_guest.DomainGuest(name=name, vcpus=vcpus, disks=disks)


def start(tree: base.CgroupTree, group: str,
          *argv: str) -> subprocess.Popen[bytes]:
    """Start a program inside a group."""
    files = ' '.join(f'"{tree.path(controller, group)}/cgroup.procs"'
                     for controller in tree.mounts)
    return subprocess.Popen(
        ['sh', '-c', f'for f in {files}; do echo $$ > $f; done; exec "$@"',
         'sh', *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)
