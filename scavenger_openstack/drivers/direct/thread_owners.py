# SPDX-License-Identifier: Apache-2.0

"""Which threads a workload has, and which workload a thread is of."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import errno
import itertools
import os
import re
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.types import printable

CONTROLLERS = ('cpu', 'cpuacct', 'unified')
"""Where threads are looked for, the first that is mounted."""

MOST_BELOW = 2000
"""Cgroups below workloads that are read for what has ended, of all together:
a tenant can make many."""

MOST = 32768
"""Threads of one cgroup that are listed."""

TICK_S = 1 / os.sysconf('SC_CLK_TCK')
"""The kernel rounds down to these when a thread began."""

_GONE = frozenset((errno.ENOENT, errno.ESRCH))
_DEAD = frozenset('ZX')
_FLAGS, _KERNEL_THREAD = 6, 0x00200000
_START = 22 - 3
_OF_CPU = re.compile(r'/(?:R|u?\d+)(?::\d+[A-Z]?)?(?=[-+]|$)')


def common_name(name: str) -> str:
    """Return what threads of the kernel are that do the same on different
    CPUs.

    ``kworker/u8:3-events_unbound`` is ``kworker-events_unbound``, and
    ``ksoftirqd/1`` is ``ksoftirqd``.
    """
    return _OF_CPU.sub('', name, count=1)


class Process(NamedTuple):
    """``owner`` is a workload or :data:`.THE_HOST`, of which ``name`` tells
    more.  ``began_s`` is of CLOCK_BOOTTIME, up to :data:`TICK_S` early."""

    owner: str
    name: str
    began_s: float


class ThreadOwners:
    """The threads of this moment; nothing is kept.

    :param mounts: where cgroup controllers are mounted; may change
    :param root_dir: where /proc is looked for
    """

    def __init__(self, mounts: Mapping[str, Mount], root_dir: str = '/'
                 ) -> None:
        self._mounts = mounts
        self._proc = f'{root_dir.rstrip("/")}/proc'

    def controller(self) -> str | None:
        """The one whose cgroups tell; ``None``: none is mounted."""
        return next((name for name in CONTROLLERS if name in self._mounts),
                    None)

    def listed(self, path: str, file: str | None = None
               ) -> Iterator[list[int]]:
        """All threads in a cgroup, and in each below it, one after the other;
        none when it is gone.  Of those below :data:`MOST_BELOW` are read at
        most.

        :param path: of a directory
        :param file: that lists others, such as processes
        :raises OSError: it may not be read.
        """
        controller = self.controller()
        if controller is None:
            return
        file = file or cgroup_members.threads_file(
            self._mounts[controller].version)
        waiting: list[Iterator[str]] = [iter((path,))]
        left = 1 + MOST_BELOW
        while waiting and left > 0:
            below = next(waiting[-1], None)
            if below is None:
                waiting.pop()
                continue
            left -= 1
            try:
                yield cgroup_members.some(f'{below}/{file}', MOST)
                if os.stat(below).st_nlink != 2:
                    waiting.append(_directories(below))
            except OSError as exc:
                if exc.errno not in cgroup_members.ABSENT:
                    raise

    def owner(self, tid: int, workloads: Mapping[str, str]) -> str | None:
        """The workload that a thread is in, or below; :data:`.THE_HOST` when
        it is in none, ``None`` when there is no such thread.

        :param workloads: by the paths of their cgroups below the mount
        :raises OSError: it cannot be read.
        """
        controller = self.controller()
        text = self._read(tid, 'cgroup')
        if controller is None or not text:
            return None
        path = cgroup_members.paths(text).get(cgroup_members.hierarchy(
            controller, self._mounts[controller].version), '')
        return next((workloads[above] for above in cgroup_members.upward(path)
                     if above in workloads), THE_HOST)

    def inodes(self, workloads: Mapping[str, str], wanted: Collection[int]
               ) -> dict[int, str]:
        """Whose these cgroups are, by their inodes, by which the kernel knows
        those of version 2; none with version 1.

        Below workloads :data:`MOST_BELOW` are read at most.

        :param workloads: as for :meth:`owner`
        :raises OSError: one may not be read.
        """
        mount = self._mounts.get(self.controller() or '')
        inodes: dict[int, str] = {}
        if mount is None or mount.version == 1:
            return inodes
        missing, left = set(wanted), MOST_BELOW
        for path, workload in workloads.items():
            with contextlib.suppress(FileNotFoundError):
                inode = os.stat(mount.path + path).st_ino
                inodes[inode] = workload
                missing.discard(inode)
        # The nearest workload above is the one that has it.
        waiting = [(mount.path + path, workload)
                   for path, workload in workloads.items()]
        while waiting and missing and left > 0:
            path, workload = waiting.pop()
            # A container may make as many as it likes, and end them at once.
            for below in itertools.islice(_directories(path), left):
                left -= 1
                with contextlib.suppress(FileNotFoundError):
                    inode = os.stat(below).st_ino
                    if inode not in inodes:
                        inodes[inode] = workload
                        missing.discard(inode)
                        waiting.append((below, workload))
        return inodes

    def process(self, pid: int, workloads: Mapping[str, str]
                ) -> Process | None:
        """A process that has not ended, ``None`` for another.

        Where its first thread has ended, another of its threads tells.

        :param workloads: as for :meth:`owner`
        :raises OSError: it cannot be read.
        """
        owner, fields = self.owner(pid, workloads), self._stat(pid)
        if len(fields) <= _START:
            return None
        if fields[0] in _DEAD:
            thread = next(filter(self.lives, self._threads(pid)), None)
            owner = (None if thread is None
                     else self.owner(thread, workloads))
        if owner is None:
            return None
        return Process(owner, self.name(pid) if owner == THE_HOST else '',
                       int(fields[_START]) * TICK_S)

    def lives(self, tid: int) -> bool:
        """Return whether a thread has this id, and has not ended.

        :raises OSError: it cannot be read.
        """
        return self._state(tid) not in _DEAD | {''}

    def runnable(self, tid: int) -> bool:
        """Return whether a thread runs or waits for a CPU.

        :raises OSError: it cannot be read.
        """
        return self._state(tid) == 'R'

    def name(self, tid: int) -> str:
        """The :func:`common_name` of a thread, in printable characters; ''
        when it is gone.

        Of one that is not the kernel's it says so: a program is called what
        it likes.

        :raises OSError: it cannot be read.
        """
        name = printable(common_name(self._read(tid, 'comm').rstrip('\n')))
        fields = self._stat(tid)
        if not name or len(fields) <= _FLAGS:
            return ''
        return (name if int(fields[_FLAGS]) & _KERNEL_THREAD
                else f'program {name}')

    def _threads(self, pid: int) -> list[int]:
        try:
            return list(map(int, os.listdir(f'{self._proc}/{pid}/task')))
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            return []

    def _state(self, tid: int) -> str:
        return (self._stat(tid) or [''])[0]

    def _stat(self, tid: int) -> list[str]:
        """Return the state of a thread and the fields that follow."""
        # Its name comes in parentheses and may hold anything.
        return self._read(tid, 'stat').rpartition(') ')[2].split()

    def _read(self, tid: int, file: str) -> str:
        """Some file of a thread, '' when there is no such thread."""
        try:
            data = rows.read(f'{self._proc}/{tid}/{file}')
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            return ''
        return data.decode('utf-8', 'surrogateescape')


def _directories(path: str) -> Iterator[str]:
    """The directories in one, none when it is gone."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.path
    except FileNotFoundError:
        return
