# SPDX-License-Identifier: Apache-2.0

"""What the agent costs QEMU on a full host, and a guest that boots there.

Starts a libvirtd of its own with two guests under TCG (root): a foreground
one and a background one, each with a busy vCPU per CPU of this machine.  The
ways to hold the background back are played in turn, round after round.  Of
each: how long ``blockStats`` of the background guest took (median and worst,
in ms), how often libvirt said that it is paused, how much of the CPUs each
guest got, and the ratios to *off* of the same run.

Then the foreground rests, and beside the background hog another guest comes,
with the agent off and on.  It boots (background and foreground in turn); it
was busy under limits and is rescued, which is a boot with another disk under
its old UUID; or it migrates to a host without an agent and back.  Of each: how
long that took (median and worst, in s), how often it was paused, and the
ratio.

    python benchmarks/agent/qemu_answers.py [--rounds 3] [--seconds 10]
        [--settle 60] [--boots 3] [--ways off,agent]

*off*: no agent, and nothing is limited.  *agent*: the real agent protects the
CPU; ``--settle`` is how long it has to come to its limits.  *buffer*: and
keeps a CPU idle, so that all of the background's QEMU has the others, of two
the second.  The other ways
are set by hand on the cgroups of the background guest.  *idle*: cpu.idle.
*weight*: the smallest weight.  *light*: a tenth of the weight.  *quota*: 0.1
cores for all vCPUs, the emulator is free.  Two of them: ``light+quota``.

Nothing is asserted; numbers compare only within one run.  It takes some
rounds x (2 x seconds + settle) + boots x 100 s and two minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import os
import pathlib
import statistics
import sys
import threading
import time
from typing import Any
from typing import NamedTuple

import libvirt
from running_agent import Agent
from running_agent import guarded
from running_agent import libvirt_section
from running_agent import say
from running_agent import wait_until

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.text import columns

OFF, AGENT, BUFFER = 'off', 'agent', 'buffer'
NEW = 'new'
FRONT, BACK = 'front', 'back'
BOOTS = ('background', 'foreground')
MOVES = ('rescued', 'migrated')
FLOOR_CORES = 0.1
EVERY_S = 0.1
SETTLE_S = 1.0
PERIOD_US = 100_000
BEGUN_S = 10.0
"""So long the agent knows the host before a guest boots."""
BUSY_S = 8.0
"""So long a guest is busy before it is rescued or migrates."""

CONFIG = """\
[agent]
protect = cpu
{libvirt}"""
KEEPS_A_BUFFER = """\
[perfiso]
mode = enforce
buffer_cores = 1
"""


class Played(NamedTuple):
    """One way in one round: ``answers_s``, how often the guest was paused,
    and the CPUs of the foreground and of the background."""

    answers_s: list[float]
    paused: int
    front: float
    back: float


class Came(NamedTuple):
    """How one guest came."""

    took_s: float
    paused: int


class Bench:
    """Two busy guests."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.vcpus = os.cpu_count() or 1
        self.host, self.other = (stack.enter_context(
            hypervisor.Hypervisor(own_network=True)) for _ in range(2))
        guests = [
            domain_guest.DomainGuest(name=FRONT, vcpus=self.vcpus),
            virtual_host.background(
                BACK, vcpus=self.vcpus, disks=(
                    domain_guest.Disk.make(self.host.disks / 'a'),))]
        self.consoles = {}
        for guest in guests:
            console = self.consoles[guest.name] = (
                self.host.define_and_start(guest))
            console.keep_time()
            console.tell(f'cpu {self.vcpus}')
        self.connection: Any = self.host.connect()
        self.domain = self.connection.lookupByName(BACK)
        self._agents = 0

    def machine(self, name: str) -> pathlib.Path:
        """The machine's cgroup, of the CPU controller."""
        found = [path for path in
                 self.host.tree.path('cpu', '/machine').iterdir()
                 if path.is_dir() and name in path.name]
        assert len(found) == 1, found
        return found[0]

    def limit(self, way: str) -> None:
        """Set a way by hand, in the place of the one before."""
        top = self.machine(BACK)
        vcpus = sorted(top.rglob('vcpu*'))
        assert len(vcpus) == self.vcpus, vcpus
        (top / 'cpu.idle').write_text('1' if 'idle' in way else '0')
        if 'idle' not in way:
            (top / 'cpu.shares').write_text(
                '2' if 'weight' in way else '102' if 'light' in way
                else '1024')
        quota = (round(PERIOD_US * FLOOR_CORES / self.vcpus)
                 if 'quota' in way else -1)
        for path in vcpus:
            (path / 'cpu.cfs_period_us').write_text(str(PERIOD_US))
            (path / 'cpu.cfs_quota_us').write_text(str(quota))

    @contextlib.contextmanager
    def way(self, way: str, settle_s: float) -> Iterator[None]:
        """Hold the background back in this way meanwhile."""
        if way not in (AGENT, BUFFER):
            self.limit(way)
            time.sleep(SETTLE_S)
            try:
                yield
            finally:
                self.limit(OFF)
            return
        self._agents += 1
        directory = self.host.directory / f'agent{self._agents}'
        directory.mkdir()
        with Agent(directory, CONFIG.format(
                libvirt=libvirt_section(self.host)) + (
                    KEEPS_A_BUFFER if way == BUFFER else '')) as agent:
            wait_until(time.monotonic() + settle_s, 'the agent settles',
                       agent)
            yield
            agent.look()    # it lives

    def cpu_s(self, name: str) -> float:
        path = self.host.tree.path('cpuacct', '/machine')
        return int((path / self.machine(name).name
                    / 'cpuacct.usage').read_text()) / 1e9

    def paused(self, domain: Any) -> bool:
        """Whether the domain was paused by a call.

        libvirt says so for a moment, too, of a guest that starts or migrates.
        """
        return bool(domain.state() == [libvirt.VIR_DOMAIN_PAUSED,
                                       libvirt.VIR_DOMAIN_PAUSED_USER])

    def play(self, seconds: float) -> Played:
        front, back = self.cpu_s(FRONT), self.cpu_s(BACK)
        began_s = time.monotonic()
        took_s, paused = [], 0
        while (asked_s := time.monotonic()) < began_s + seconds:
            self.domain.blockStats('vda')
            took_s.append(time.monotonic() - asked_s)
            paused += self.paused(self.domain)
            time.sleep(max(0.0, asked_s + EVERY_S - time.monotonic()))
        spent_s = time.monotonic() - began_s
        return Played(took_s, paused, (self.cpu_s(FRONT) - front) / spent_s,
                      (self.cpu_s(BACK) - back) / spent_s)

    def boot(self, kind: str) -> Came:
        """Until another guest of that kind obeys."""
        make = (virtual_host.background if kind == 'background'
                else domain_guest.DomainGuest)
        self.host.define(make(name=NEW))
        with self.gone_afterwards():
            return self.watched(self.start)

    def move(self, kind: str) -> Came:
        """Until another guest, that was busy, obeys again, or is back."""
        first, second = (domain_guest.Disk.make(self.host.disks / name)
                         for name in ('own', 'rescue'))
        guest = virtual_host.background(NEW, vcpus=self.vcpus,
                                        disks=(first,))
        with self.gone_afterwards():
            console = self.host.define_and_start(guest)
            console.tell(f'cpu {self.vcpus}')
            time.sleep(BUSY_S)
            if kind == 'migrated':
                return self.watched(self.migrate)
            console.close()
            self.host.virsh(f'destroy {NEW}')
            self.host.define(dataclasses.replace(
                guest, disks=(second, first)))
            return self.watched(self.start)

    def start(self) -> None:
        self.host.virsh(f'start {NEW}')
        self.host.console(NEW).close()

    def migrate(self) -> None:
        self.host.migrate(NEW, self.other)
        self.other.migrate(NEW, self.host)

    @contextlib.contextmanager
    def gone_afterwards(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.host.virsh(f'destroy {NEW}; undefine {NEW}')

    def watched(self, come: Callable[[], None]) -> Came:
        """How long that takes, and how often it is paused here meanwhile."""
        ready, seen = threading.Event(), []

        def watch() -> None:
            while not ready.wait(EVERY_S):
                with contextlib.suppress(libvirt.libvirtError):  # elsewhere
                    seen.append(self.paused(
                        self.connection.lookupByName(NEW)))
        watcher = threading.Thread(target=watch)
        began_s = time.monotonic()
        watcher.start()
        try:
            come()
            return Came(time.monotonic() - began_s, sum(seen))
        finally:
            ready.set()
            watcher.join()


def ratio(one: float, other: float | None) -> str:
    return '' if not other else f'{one / other:.2f}'


def answers(found: dict[str, list[Played]]) -> list[str]:
    """The table of the ways."""
    body, off = [], None
    for way, rounds in found.items():
        took_s = [one for played in rounds for one in played.answers_s]
        now = statistics.median(took_s), max(took_s)
        off = now if way == OFF else off
        body.append((
            way, str(len(took_s)), f'{1e3 * now[0]:.1f}',
            ratio(now[0], off and off[0]), f'{1e3 * now[1]:.0f}',
            ratio(now[1], off and off[1]),
            str(sum(one.paused for one in rounds)),
            f'{statistics.mean(one.front for one in rounds):.2f}',
            f'{statistics.mean(one.back for one in rounds):.2f}'))
    return columns(('way', 'answers', 'median ms', 'ratio', 'worst ms',
                    'ratio', 'paused', 'foreground CPUs', 'background CPUs'),
                   body)


def comings(found: dict[tuple[str, str], list[Came]]) -> list[str]:
    """The table of the guests that came."""
    body = []
    for (kind, way), rounds in found.items():
        took_s = [one.took_s for one in rounds]
        off_s = statistics.median(
            one.took_s for one in found[kind, OFF])
        body.append((
            kind, way, str(len(rounds)), f'{statistics.median(took_s):.1f}',
            ratio(statistics.median(took_s), off_s), f'{max(took_s):.1f}',
            str(sum(one.paused for one in rounds))))
    return columns(('guest', 'way', 'times', 'median s', 'ratio', 'worst s',
                    'paused'), body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--settle', type=float, default=60)
    parser.add_argument('--boots', type=int, default=3)
    parser.add_argument('--ways', default=f'{OFF},{AGENT}')
    args = parser.parse_args()
    return guarded(lambda: measure(args))


def measure(args: argparse.Namespace) -> int:
    found: dict[str, list[Played]] = {}
    came: dict[tuple[str, str], list[Came]] = {}
    libvirt.registerErrorHandler(lambda _, error: None, None)
    with contextlib.ExitStack() as stack:
        bench = Bench(stack)
        for number in range(args.rounds):
            for way in args.ways.split(','):
                say(f'round {number + 1}: {way}')
                with bench.way(way, args.settle):
                    found.setdefault(way, []).append(
                        bench.play(args.seconds))
        bench.consoles[FRONT].tell('rest')
        for number in range(args.boots):
            for way in (OFF, AGENT):
                with bench.way(way, BEGUN_S):
                    for kind in (*BOOTS, *MOVES):
                        say(f'{number + 1}: {kind}, {way}')
                        come = bench.boot if kind in BOOTS else bench.move
                        came.setdefault((kind, way), []).append(come(kind))
    print('\n'.join(answers(found)))
    if came:
        print()
        print('\n'.join(comings(came)))
    return 0


if __name__ == '__main__':
    sys.exit(main())
