# SPDX-License-Identifier: Apache-2.0

"""The vCPU threads of a QEMU process: how long they waited.

libvirt puts each into a cgroup of its own; without that (session mode) they
are found by the names that QEMU gives its threads.
"""

from __future__ import annotations

import contextlib
import os
import re

from scavenger_openstack.drivers.cgroup.statistics import NS_PER_S
from scavenger_openstack.drivers.cgroup.statistics import US_PER_S
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

    __slots__ = ('data', 'delay_ns', 'off', 'sched', 'stat', 'throttled_s',
                 'tid')

    def __init__(self, tid: int, sched: int) -> None:
        self.tid = tid
        self.sched = sched
        self.stat: int | None = None
        self.data = b''
        self.delay_ns = -1        # not read yet
        self.throttled_s: float | None = None
        self.off = False

    def throttled(self) -> float:
        """Return by how many seconds its throttled time grew."""
        before = self.throttled_s
        self.off = False
        try:
            assert self.stat is not None
            data = os.pread(self.stat, 1024, 0)
            if b'throttled_time ' in data:      # version 1
                total_s = rows.number(data, b'throttled_time ') / NS_PER_S
            else:
                total_s = rows.number(data, b'throttled_usec ') / US_PER_S
        except (OSError, ValueError) as exc:
            self.throttled_s = None
            if getattr(exc, 'errno', None) in ABSENT and self.stat is not None:
                os.close(self.stat)     # its controller was turned off
                self.stat = None
            return 0.0
        self.throttled_s = total_s
        self.off = b'nr_periods 0\n' in data
        return 0.0 if before is None else max(0.0, total_s - before)

    def close(self) -> None:
        os.close(self.sched)
        if self.stat is not None:
            os.close(self.stat)


class Vcpus:
    """The totals of all vCPUs of a domain.

    They count from the first reading of each vCPU, and do not fall when one
    is taken out.
    """

    def __init__(self, process: Process, machine: DomainCgroup | None) -> None:
        self.delay_ns = 0
        self.throttled_s = 0.0
        self._process = process
        self._parts, self._quota = 'task', False
        if machine is not None:
            name = next((name for name in _CONTROLLERS
                         if name in machine.parts), '')
            self._parts = machine.parts.get(name, self._parts)
            self._quota = name == 'cpu'
        self._vcpus: dict[int, _Vcpu] = {}
        self._links = -1
        self._tick = process.pid        # not all domains in the same tick
        self._awake_until = 0
        self._fd = process.open(self._parts, os.O_DIRECTORY)

    def __len__(self) -> int:
        return len(self._vcpus)

    @property
    def delay_s(self) -> float | None:
        """Return how long they waited for a CPU, ``None`` while that of one is
        not known."""
        vcpus = self._vcpus.values()
        return (None if not vcpus or any(vcpu.delay_ns < 0 for vcpu in vcpus)
                else self.delay_ns / NS_PER_S)

    def read(self) -> bool:
        """Add up the counters; return false if a thread is gone."""
        self._tick += 1
        full = (not self._tick % _FULL_READ_TICKS
                or self._tick <= self._awake_until)
        pread = os.pread
        for vcpu in self._vcpus.values():
            try:
                data = pread(vcpu.sched, 64, 0)
            except OSError:
                return False
            if data == vcpu.data and not full:
                continue    # a throttled one adds up when it runs again
            if data != vcpu.data:
                vcpu.data = data
                try:
                    _, delay_ns = map(int, data.split()[:2])
                except ValueError:
                    vcpu.delay_ns = -1
                    continue
                if vcpu.delay_ns >= 0:
                    self.delay_ns += delay_ns - vcpu.delay_ns
                vcpu.delay_ns = delay_ns
            if vcpu.stat is not None and (full or not vcpu.off):
                self.throttled_s += vcpu.throttled()
                if vcpu.stat is None:
                    self._links = -1    # search for it again
        return True

    def throttled(self, machine_s: float | None) -> float | None:
        """Return how long they were kept from running by quotas of their own
        and, ``machine_s``, of the machine's cgroup."""
        limited = machine_s is not None
        for vcpu in self._vcpus.values():
            if vcpu.stat is not None:
                if vcpu.throttled_s is None:
                    return None
                limited = True
        return (machine_s or 0.0) + self.throttled_s if limited else None

    def wake(self) -> None:
        """Read all files in the next ticks, since a quota was set: the kernel
        counts nothing of it until its first period is over."""
        self._awake_until = self._tick + _WAKE_TICKS

    def changed(self) -> bool:
        """Return whether a vCPU came or went since the last search; false
        where they have no cgroups."""
        return (self._parts != 'task'
                and os.fstat(self._fd).st_nlink != self._links)

    def refresh(self, *, relist: bool) -> bool:
        """Find the vCPUs; return false if there are none.

        A vCPU that comes or goes changes the link count of the directory, so
        that is listed only after a change, or for ``relist``.

        :raises OSError: the process is gone, or no descriptors are left.
        """
        links = os.fstat(self._fd).st_nlink
        if links == self._links and not relist:
            return bool(self._vcpus)
        groups = {} if self._parts == 'task' else self._threads_by_group()
        threads = groups or self._threads_by_name()
        for number, vcpu in list(self._vcpus.items()):
            if vcpu.tid != threads.get(number):
                del self._vcpus[number]
                vcpu.close()
        for number, tid in threads.items():
            if tid and number not in self._vcpus:
                self._add(number, tid)
        if groups and self._quota:
            for number, vcpu in self._vcpus.items():
                self._open_stat(number, vcpu)
        # One that is being made has no thread yet: search again.
        self._links = links if len(self._vcpus) == len(threads) else -1
        return bool(self._vcpus)

    def _threads_by_group(self) -> dict[int, int]:
        """Return the thread of each vCPU, or 0, from their cgroups."""
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

    def _threads_by_name(self) -> dict[int, int]:
        """Return the thread of each vCPU, from the names of the threads."""
        by_vcpu = {}
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
                by_vcpu[int(match[1] or 0)] = int(tid)
        return by_vcpu

    def _add(self, number: int, tid: int) -> None:
        try:
            sched = self._process.open(f'task/{tid}/schedstat')
        except FileNotFoundError:
            return              # it ended meanwhile, or nothing counts it
        self._vcpus[number] = _Vcpu(tid, sched)

    def _open_stat(self, number: int, vcpu: _Vcpu) -> None:
        """Open the counters of its cgroup, which is made after the thread."""
        if vcpu.stat is None:
            with contextlib.suppress(FileNotFoundError):
                vcpu.stat = os.open(f'vcpu{number}/cpu.stat', READ_ONLY,
                                    dir_fd=self._fd)
                vcpu.data = b''      # to be read the next time

    def close(self) -> None:
        """Close the descriptors."""
        for vcpu in self._vcpus.values():
            vcpu.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._vcpus, self._fd = {}, -1
