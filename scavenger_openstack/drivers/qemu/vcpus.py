# SPDX-License-Identifier: Apache-2.0

"""The vCPU threads of a QEMU process: how long they ran and waited.

libvirt puts each into a cgroup of its own; without that (session mode) the
names that QEMU gives its threads tell them apart.
"""

from __future__ import annotations

import contextlib
import os
import re

from scavenger_openstack.drivers.cgroup.counters import NS_PER_S
from scavenger_openstack.drivers.cgroup.counters import US_PER_S
from scavenger_openstack.drivers.kernel.cgroup_files import ABSENT
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack.drivers.qemu.domain_cgroup import DomainCgroup
from scavenger_openstack.drivers.qemu.process import Process
from scavenger_openstack.drivers.qemu.process import READ_ONLY

_FULL_READ_TICKS = 8
_WAKE_TICKS = 3
_GROUP = re.compile('vcpu([0-9]{1,5})')
_NAME = re.compile(rb'CPU ([0-9]{1,5})/|ALL CPUs/')
_CONTROLLERS = ('cpu', 'cpuset', 'cpuacct', 'unified')


class _Vcpu:
    """One thread; ``stat`` is the ``cpu.stat`` of its own cgroup."""

    __slots__ = ('data', 'delay_ns', 'off', 'run_ns', 'sched', 'stat',
                 'throttled_s', 'tid')

    def __init__(self, tid: int, sched: int) -> None:
        self.tid = tid
        self.sched = sched
        self.stat: int | None = None
        self.data = b''
        self.run_ns = self.delay_ns = -1        # not read so far
        self.throttled_s: float | None = None
        self.off = False

    def throttled(self) -> float:
        """By how much its throttled time grew, in seconds."""
        before = self.throttled_s
        self.off = False
        try:
            assert self.stat is not None
            data = os.pread(self.stat, 1024, 0)
            if b'throttled_time ' in data:      # version 1
                now = rows.number(data, b'throttled_time ') / NS_PER_S
            else:
                now = rows.number(data, b'throttled_usec ') / US_PER_S
        except (OSError, ValueError) as exc:
            self.throttled_s = None
            if getattr(exc, 'errno', None) in ABSENT and self.stat is not None:
                os.close(self.stat)     # its controller was turned off
                self.stat = None
            return 0.0
        self.throttled_s = now
        self.off = b'nr_periods 0\n' in data
        return 0.0 if before is None else max(0.0, now - before)

    def close(self) -> None:
        os.close(self.sched)
        if self.stat is not None:
            os.close(self.stat)


class Vcpus:
    """What all vCPUs of a domain add up to.

    The totals count from when each was first seen, and never go back when
    one is taken out.
    """

    def __init__(self, process: Process, machine: DomainCgroup | None) -> None:
        self.run_ns = self.delay_ns = 0
        self.throttled_s = 0.0
        self._process = process
        self._parts, self._quota = 'task', False
        if machine is not None:
            name = next((name for name in _CONTROLLERS
                         if name in machine.parts), '')
            self._parts = machine.parts.get(name, self._parts)
            self._quota = name == 'cpu'
        self._known: dict[int, _Vcpu] = {}
        self._links = -1
        self._tick = process.pid        # not all domains in one tick
        self._awake_until = 0
        self._fd = process.open(self._parts, os.O_DIRECTORY)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def threads(self) -> dict[int, int]:
        """vCPU -> thread, as they were seen last."""
        return {number: one.tid for number, one in self._known.items()}

    @property
    def delay_s(self) -> float | None:
        """How long they waited for a CPU, unknown while one does not say."""
        known = self._known.values()
        return (None if not known or any(one.run_ns < 0 for one in known)
                else self.delay_ns / NS_PER_S)

    def read(self) -> bool:
        """Bring the totals up to now; false: a thread is gone."""
        self._tick += 1
        full = (not self._tick % _FULL_READ_TICKS
                or self._tick <= self._awake_until)
        pread = os.pread
        for one in self._known.values():
            try:
                data = pread(one.sched, 64, 0)
            except OSError:
                return False
            if data == one.data and not full:
                continue    # a throttled one adds up when it runs again
            if data != one.data:
                one.data = data
                try:
                    run_ns, delay_ns = map(int, data.split()[:2])
                except ValueError:
                    one.run_ns = -1
                    continue
                if one.run_ns >= 0:
                    self.run_ns += run_ns - one.run_ns
                    self.delay_ns += delay_ns - one.delay_ns
                one.run_ns, one.delay_ns = run_ns, delay_ns
            if one.stat is not None and (full or not one.off):
                self.throttled_s += one.throttled()
                if one.stat is None:
                    self._links = -1    # look for it again
        return True

    def throttled(self, machine_s: float | None) -> float | None:
        """How long they were kept from running by quotas of their own and,
        ``machine_s``, of the machine's cgroup."""
        known = machine_s is not None
        for one in self._known.values():
            if one.stat is not None:
                if one.throttled_s is None:
                    return None
                known = True
        return (machine_s or 0.0) + self.throttled_s if known else None

    def wake(self) -> None:
        """Read all files the next times: a quota was set, of which the
        kernel has nothing to tell until its first period is over."""
        self._awake_until = self._tick + _WAKE_TICKS

    def changed(self) -> bool:
        """Whether one came or went since they were looked at, as far as
        they have cgroups."""
        return (self._parts != 'task'
                and os.fstat(self._fd).st_nlink != self._links)

    def look(self, *, again: bool) -> bool:
        """See which there are; false: none.

        Who comes or goes changes the link count of what holds them, so that
        it is not listed unless that did, or it is to be listed ``again``.

        :raises OSError: the process is gone, or no descriptors are left.
        """
        links = os.fstat(self._fd).st_nlink
        if links == self._links and not again:
            return bool(self._known)
        groups = {} if self._parts == 'task' else self._groups()
        found = groups or self._named()
        for number, one in list(self._known.items()):
            if one.tid != found.get(number):
                del self._known[number]
                one.close()
        for number, tid in found.items():
            if tid and number not in self._known:
                self._meet(number, tid)
        if groups and self._quota:
            for number, one in self._known.items():
                self._find_stat(number, one)
        # One that is being made has no thread yet: look again.
        self._links = links if len(self._known) == len(found) else -1
        return bool(self._known)

    def _groups(self) -> dict[int, int]:
        """vCPU -> thread, or 0, from their cgroups."""
        groups = {}
        for name in os.listdir(self._fd):
            match = _GROUP.fullmatch(name)
            if match:
                groups[int(match[1])] = self._thread(name)
        return groups

    def _thread(self, group: str) -> int:
        for file in (cgroup_members.THREADS_V1, cgroup_members.THREADS):
            try:
                threads = cgroup_members.read(
                    f'{group}/{file}', self._fd, size=64).split()
            except OSError as exc:
                if exc.errno not in ABSENT:     # unplugged meanwhile
                    raise
                continue
            return int(threads[0]) if threads else 0
        return 0

    def _named(self) -> dict[int, int]:
        """vCPU -> thread, as QEMU named them."""
        named = {}
        fd = self._process.open('task', os.O_DIRECTORY)
        try:
            threads = os.listdir(fd)
        finally:
            os.close(fd)
        for tid in threads:
            try:
                match = _NAME.match(self._process.read(f'task/{tid}/comm'))
            except FileNotFoundError:
                continue        # it ended meanwhile
            if match:
                named[int(match[1] or 0)] = int(tid)
        return named

    def _meet(self, number: int, tid: int) -> None:
        try:
            sched = self._process.open(f'task/{tid}/schedstat')
        except FileNotFoundError:
            return              # it ended meanwhile, or nothing counts it
        self._known[number] = _Vcpu(tid, sched)

    def _find_stat(self, number: int, one: _Vcpu) -> None:
        """A thread is there before its cgroup."""
        if one.stat is None:
            with contextlib.suppress(FileNotFoundError):
                one.stat = os.open(f'vcpu{number}/cpu.stat', READ_ONLY,
                                   dir_fd=self._fd)
                one.data = b''      # to be read the next time

    def close(self) -> None:
        """Give the descriptors back."""
        for one in self._known.values():
            one.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._known, self._fd = {}, -1
