# SPDX-License-Identifier: Apache-2.0

"""Random changes of real CPUs, with guests and cgroups, on both versions.

The fast loop runs freely and reads real CPUs; of those that are idle it is
told a random number, so that it writes often.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import ctypes
import gc
import os
import pathlib
import random
import socket
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.tests import random_changes
from scavenger_openstack.tests.random_changes import BATCH
from scavenger_openstack.tests.random_changes import WEB
from scavenger_openstack.tests.random_changes import Write

SEED = 1
CHANGES = 50
CPUS = pathlib.Path('/sys/devices/system/cpu')
SMT = CPUS / 'smt/control'
SETS = pathlib.Path('/run/cpuset')

SETTLE_S = 0.05
"""Longer than the fast loop does not look which CPUs are online."""

DEADLINE_S = 20.0
MNT_DETACH = 2


def cpus_of(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.strip().split(',')):
        ends = [int(end) for end in part.split('-')]
        found |= set(range(ends[0], ends[-1] + 1))
    return found


class Host(fixtures.Fixture):
    """This machine; paths begin below a cgroup of the test."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = version
        self.possible = self.online | {
            cpu for cpu in cpus_of((CPUS / 'present').read_text())
            if self._switch(cpu).exists()}
        self.fixed = {cpu for cpu in self.possible
                      if not self._switch(cpu).exists()}
        self.siblings = {cpu for cpu in self.possible if cpu != min(cpus_of(
            (CPUS / f'cpu{cpu}/topology/thread_siblings_list').read_text()))}
        self.has_smt = bool(self.siblings)
        self.siblings = self.siblings or {
            cpu for cpu in self.possible - self.fixed if cpu % 2}
        self.written: list[Write] = []

    def _setUp(self) -> None:
        self.addCleanup(self._switch_on, self.possible)
        self.tree = self.useFixture(tree.Tree(
            ('cpu', 'cpuset') if self.version == 2 else ('cpu',)))
        self.sets = pathlib.Path(f'{self._root}{self.tree.name}')
        if self.version == 1:
            self.sets.mkdir()
            self.addCleanup(self._remove)
        plain, at = os.write, os.pwrite
        self.useFixture(fixtures.MonkeyPatch(
            'os.pwrite', lambda fd, data, offset: self._note(
                fd, data, lambda: at(fd, data, offset))))
        self.useFixture(fixtures.MonkeyPatch(
            'os.write', lambda fd, data: self._note(
                fd, data, lambda: plain(fd, data))))

    @property
    def _root(self) -> pathlib.Path:
        return tree.ROOT if self.version == 2 else SETS

    def _remove(self) -> None:
        for where, _, _ in os.walk(self.sets, topdown=False):
            os.rmdir(where)

    def _note(self, fd: int, data: bytes, write: Any) -> Any:
        path = pathlib.Path(os.readlink(f'/proc/self/fd/{fd}'))
        top = next((top for top in (self.sets, self.tree.path(''))
                    if top in path.parents), None)
        if top is None:
            return write()
        is_set = path.name == 'cpuset.cpus'
        before = cpus_of(path.read_text()) if is_set else set()
        count = write()
        self.written.append(Write(
            f'/{path.relative_to(top)}', before,
            cpus_of(data.decode()) if is_set else set()))
        return count

    def _switch(self, cpu: int) -> pathlib.Path:
        return CPUS / f'cpu{cpu}/online'

    @property
    def online(self) -> set[int]:
        return cpus_of((CPUS / 'online').read_text())

    def take_offline(self, *cpus: int) -> None:
        for cpu in cpus:
            self._switch(cpu).write_text('0')
        self._settle()

    def bring_online(self, *cpus: int) -> None:
        self._switch_on(set(cpus))
        self._settle()

    def _switch_on(self, cpus: set[int]) -> None:
        for cpu in cpus - self.online:
            try:
                self._switch(cpu).write_text('1')
            except PermissionError:
                SMT.write_text('on')    # brings all of them online

    def smt(self, on: bool) -> None:
        if self.has_smt and SMT.read_text().strip() in ('on', 'off'):
            SMT.write_text('on' if on else 'off')
            self._settle()
        elif on:
            self.bring_online(*self.siblings)
        else:
            self.take_offline(*self.siblings & self.online)

    def _settle(self) -> None:
        """Wait until the kernel says everywhere which CPUs are online."""
        root = self._root / self._effective
        until = time.monotonic() + DEADLINE_S
        while cpus_of(root.read_text()) != self.online or (
                self.version == 1 and any(
                    not self.set_of(path) <= self.online
                    for path in self._every())):
            if time.monotonic() > until:
                raise AssertionError('the kernel has not followed')
            time.sleep(0.001)
        if self.version == 1:   # what came back is in the highest set only
            (self.sets / 'cpuset.cpus').write_text(
                ','.join(map(str, self.online)))

    @property
    def _effective(self) -> str:
        return ('cpuset.effective_cpus' if self.version == 1
                else 'cpuset.cpus.effective')

    def _every(self) -> Iterator[str]:
        for where, _, _ in os.walk(self.sets):
            yield f'/{os.path.relpath(where, self.sets)}'

    def cgroup(self, path: str, cpus: set[int] | None = None) -> None:
        self.tree.make(path)
        if self.version == 1:
            (self.sets / path[1:]).mkdir()
        if cpus:
            # What is above may have become smaller just now.
            with contextlib.suppress(PermissionError):
                (self.sets / path[1:] / 'cpuset.cpus').write_text(
                    ','.join(map(str, sorted(cpus))))

    def delete(self, path: str) -> None:
        for top in {self.sets, self.tree.path('')}:
            os.rmdir(top / path[1:])

    def set_of(self, path: str) -> set[int]:
        return cpus_of((self.sets / path[1:] / 'cpuset.cpus').read_text())

    def effective(self, path: str) -> set[int]:
        return cpus_of((self.sets / path[1:] / self._effective).read_text())

    def others(self) -> dict[str, str]:
        """The limits of all that is not background."""
        found = {path: text for path, text in self.tree.texts().items()
                 if not path.startswith(f'{BATCH}/')}
        for path in self._every():
            if not f'{path}/'.startswith(f'{BATCH}/'):
                found[f'set of {path}'] = str(self.set_of(path))
        return found


class Reader(sched_switch.SchedSwitch):
    """Says that a random number of the idle CPUs is idle."""

    def __init__(self) -> None:
        super().__init__()
        self._dice = random.Random(SEED)

    def idle_count(self, cpus: frozenset[int]) -> int:
        return self._dice.randint(0, super().idle_count(cpus))


class RealCpus(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if socket.gethostname() != 'guest':
            self.skipTest('takes CPUs offline, so only in a guest: see '
                          'tools/guest.sh')
        if os.cpu_count() != 8 or not (CPUS / 'cpu7/online').exists():
            self.skipTest('needs 8 CPUs that can be taken offline: --smp '
                          '8,sockets=2,cores=2,threads=2')
        self.useFixture(fixtures.FakeLogger())

    def play(self, version: int) -> None:
        reader = sched_switch.SchedSwitch()
        self.addCleanup(reader.close)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.kernel.sched_switch.SchedSwitch',
            Reader))
        host = self.useFixture(Host(version))
        changes = random_changes.Changes(host, random.Random(SEED))
        top = host.tree.name
        driver = Cgroups([top + BATCH], [top + WEB])
        self.addCleanup(driver.close)
        source = proc.Proc()
        self.addCleanup(source.close)
        agent = random_changes.Agent(driver, source, changes, perfiso.Params(
            buffer_cores=1, grow_interval_ms=1), top)
        self.addCleanup(agent.stop)
        observer = random_changes.Observer(host)
        given = changes.given()
        agent.tick()
        began = time.monotonic()
        done: list[str] = []
        for _ in range(CHANGES):
            done.append(changes.change())
            others = host.others()
            time.sleep(SETTLE_S)    # before the agent has seen the change
            observer.judge(given)
            before, given = given, changes.given()
            agent.tick()
            self.wait_polls(agent, 2)   # one may have begun before the tick
            observer.judge(before, given)
            self.wait_polls(agent, 20)
            observer.judge(given)
            if agent.isolates:
                observer.judge_rest(given)
            self.assertEqual([], observer.faults, str(done[-5:]))
            self.assertEqual(others, host.others(), str(done[-5:]))
            reader.refresh()
            self.assertLessEqual(
                reader.idle_count(frozenset(host.possible)),
                len(host.online))
        print(f'version {version}: {dict(changes.made)} in '
              f'{time.monotonic() - began:.0f} s, SMT '
              f'{"can" if host.has_smt else "cannot"} be switched off; '
              f'{observer.judged} writes, none of them a fault; '
              f'off: {dict(agent.off)}')
        self.assertEqual([], agent.adopted)
        self.assertGreater(observer.judged, CHANGES)

    def wait_polls(self, agent: random_changes.Agent, number: int) -> None:
        if not agent.isolates:
            return
        end = agent.facts()['polls'] + number
        until = time.monotonic() + DEADLINE_S
        while agent.facts()['polls'] < end:
            if time.monotonic() > until:
                raise AssertionError(f'no polls: {agent.facts()}')
            time.sleep(0.001)

    def test_cpu_sets_of_version_2(self) -> None:
        self.play(2)

    def test_cpu_sets_of_version_2_and_then_1(self) -> None:
        """Version 2 does not get the controller back from version 1."""
        try:
            (tree.ROOT / 'cgroup.subtree_control').write_text('-cpuset')
        except OSError as exc:
            self.skipTest(f'version 2 uses the cpuset controller: {exc}')
        libc = ctypes.CDLL(None, use_errno=True)
        SETS.mkdir(exist_ok=True)
        until = time.monotonic() + DEADLINE_S
        gc.collect()    # what keeps removed cgroups open
        while libc.mount(b'cgroup', str(SETS).encode(), b'cgroup', 0,
                         b'cpuset'):
            if time.monotonic() > until:
                self.skipTest('version 2 keeps the cpuset controller: '
                              + os.strerror(ctypes.get_errno()))
            time.sleep(0.1)
        self.addCleanup(libc.umount2, str(SETS).encode(), MNT_DETACH)
        (SETS / 'cgroup.clone_children').write_text('1')
        self.play(1)
