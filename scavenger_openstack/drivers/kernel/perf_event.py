# SPDX-License-Identifier: Apache-2.0


"""Groups of the kernel's performance counters, one cgroup on one CPU each.

A small wrapper of perf_event_open(2) for counting, never for sampling.  A
group is on the PMU as a whole or not at all, so that ratios of its counts
belong to the same time.

Sources: linux/perf_event.h, and kernel/events/core.c for what a read of a
group returns and what is left of one on a CPU that went offline.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import ctypes
import errno
import fcntl
import os
import platform
import struct
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack import log_once

HARDWARE, SOFTWARE, TRACEPOINT = 0, 1, 2
"""Types of events (PERF_TYPE_*)."""

SYSCALLS = {'x86_64': 298, 'aarch64': 241}

ATTR = struct.Struct('=IIQQQQQIIQ')    # PERF_ATTR_SIZE_VER0
_FORMAT = 0x1 | 0x2 | 0x8   # both times, group
_DISABLED, _EXCLUDE_HOST = 1 << 0, 1 << 19
_PID_CGROUP, _CLOEXEC = 0x4, 0x8
IOC_ENABLE, IOC_DISABLE, IOC_FLAG_GROUP = 0x2400, 0x2401, 1

_WORD = 8
_HEAD = 3
"""Words of a group before its counts: how many, time enabled, time run."""

libc = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    """What is counted: a field of a workload's sample, and the kernel's
    type and number of the event."""

    field: str
    type: int
    config: int


DUMMY = Event('', SOFTWARE, 9)
"""Counts nothing."""


class Place(NamedTuple):
    """A cgroup to count: its directory, and whether only what the guests of
    a hypervisor execute themselves."""

    path: str
    guest_only: bool = False


def supported() -> bool:
    """Return whether the number of the system call is known for this
    machine."""
    return platform.machine() in SYSCALLS


def demands_more(root_dir: str = '/') -> str:
    """Return what to do where the kernel demands more than CAP_PERFMON, '' if
    not.

    Those of Debian and Ubuntu are patched so.
    """
    text = proc.read_text(f'{root_dir.rstrip("/")}/proc/sys/kernel/'
                          'perf_event_paranoid')
    level = int(text) if text.isdecimal() else 0    # -1 permits all
    return '' if level <= 2 else (
        f'kernel.perf_event_paranoid is {level}, and above 2 kernels of '
        'Debian and Ubuntu demand CAP_SYS_ADMIN: set it to 2, where '
        'CAP_PERFMON is enough, or give the agent CAP_SYS_ADMIN')


def open_event(event: Event, *, cpu: int, cgroup: int = -1, leader: int = -1,
               guest_only: bool = False) -> int:
    """Open one event on one CPU; a leader is disabled at first.

    :param cgroup: descriptor of the cgroup's directory, -1: all that runs
    :param leader: descriptor of the group to join, -1: a new group
    :param guest_only: count only while a guest's own code runs
    :raises OSError: the kernel refused, or this machine is not supported.
    """
    if not supported():
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = ((_DISABLED if leader < 0 else 0)
             | (_EXCLUDE_HOST if guest_only else 0))
    attr = ctypes.create_string_buffer(ATTR.pack(
        event.type, ATTR.size, event.config, 0, 0, _FORMAT, flags, 0, 0, 0),
        ATTR.size)
    fd: int = libc.syscall(
        ctypes.c_long(SYSCALLS[platform.machine()]), attr,
        ctypes.c_long(cgroup), ctypes.c_long(cpu), ctypes.c_long(leader),
        ctypes.c_long((_PID_CGROUP if cgroup >= 0 else 0) | _CLOEXEC))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def open_group(events: Sequence[Event], *, cpu: int, cgroup: int = -1,
               guest_only: bool = False) -> list[int]:
    """Open events as one group; the first leads.  All or nothing.

    :raises OSError: as :func:`open_event`.
    """
    fds: list[int] = []
    try:
        for event in events:
            fds.append(open_event(event, cpu=cpu, cgroup=cgroup,
                                  leader=fds[0] if fds else -1,
                                  guest_only=guest_only))
    except OSError:
        close(fds)
        raise
    return fds


def close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def find_mount(root_dir: str = '',
               logged: log_once.LogOnce | None = None) -> str | None:
    """Return where the cgroups are that perf counts by: the hierarchy of
    version 1 that has perf_event, else the tree of version 2.

    :param logged: what was logged of this host
    :raises DriverError: the list of mounts cannot be read.
    """
    mount = cgroup_mounts.find_mounts(root_dir, logged).get('perf_event')
    return mount.path if mount else None


class CgroupCounters:
    """What one cgroup does on each of some CPUs, as one group per CPU.

    It holds the cgroup's directory, so that all groups count the same one
    also when another was made under its path.

    Where these are the first counters of cgroups on a CPU, the times of a
    group stand still until that CPU next changes from one cgroup to another
    (seen with Linux 6.18, where a task alone on its CPU ran on for seconds;
    the counts are right, and the times catch up).

    :raises OSError: there is no such directory.
    """

    __slots__ = ('_buffer', '_directory', '_events', '_groups', '_guest_only',
                 '_reads', '_size', '_stride', '_words', 'path')

    def __init__(self, place: Place, events: Sequence[Event]) -> None:
        self.path = place.path
        self._groups: dict[int, list[int]] = {}
        self._directory = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY
                                  | os.O_CLOEXEC)
        self._events = tuple(events)
        self._guest_only = place.guest_only
        self._stride = _HEAD + len(self._events)
        self._size = self._stride * _WORD
        self._arrange()

    def cover(self, cpus: Iterable[int], *, enabled: bool) -> None:
        """Have a group on each of ``cpus`` and on no other.

        :raises OSError: one cannot be opened; those that could be count.
        """
        wanted = set(cpus)
        try:
            for cpu in set(self._groups) - wanted:
                close(self._groups.pop(cpu))
            for cpu in sorted(wanted - set(self._groups)):
                fds = open_group(self._events, cpu=cpu,
                                 cgroup=self._directory,
                                 guest_only=self._guest_only)
                self._groups[cpu] = fds
                if enabled:
                    fcntl.ioctl(fds[0], IOC_ENABLE, IOC_FLAG_GROUP)
        finally:
            self._arrange()

    def _arrange(self) -> None:
        """Make one buffer for all groups, so that a column is a slice."""
        self._buffer = bytearray(self._size * len(self._groups))
        self._words = memoryview(self._buffer).cast('Q')
        view = memoryview(self._buffer)
        self._reads = [
            (fds[0], [view[at * self._size:(at + 1) * self._size]])
            for at, fds in enumerate(self._groups.values())]

    def enable(self, on: bool) -> None:
        """Let all groups count, or none.  What they counted stays."""
        what = IOC_ENABLE if on else IOC_DISABLE
        for fds in self._groups.values():
            fcntl.ioctl(fds[0], what, IOC_FLAG_GROUP)

    def read(self) -> list[int] | None:
        """Sums over the CPUs: ns enabled, ns run, then each event's count.

        The times are those in which the cgroup itself ran.  ``None`` when a
        group is no longer whole: its CPU was offline.
        """
        readv, size = os.readv, self._size
        try:
            for fd, views in self._reads:
                if readv(fd, views) != size:
                    return None
        except OSError:
            return None
        words, stride = self._words, self._stride
        return [sum(words[place::stride]) for place in range(1, stride)]

    @property
    def descriptors(self) -> int:
        """Return how many it holds."""
        return 1 + len(self._groups) * len(self._events)

    def close(self) -> None:
        """Give the descriptors back."""
        for fds in self._groups.values():
            close(fds)
        self._groups = {}
        self._arrange()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1
