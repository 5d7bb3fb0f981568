# SPDX-License-Identifier: Apache-2.0

"""Which threads a workload has, and which workload a thread is of."""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import errno
import os
import re

from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.types import printable

CONTROLLERS = ('cpu', 'cpuacct', 'unified')
"""Where threads are looked for, the first that is mounted."""

MOST_BELOW = 500
"""Cgroups below one workload that are looked at for what has ended."""

MOST = 32768
"""Threads of one workload, and cgroups in it, that are listed."""

TICK_S = 1 / os.sysconf('SC_CLK_TCK')
"""The kernel rounds down to these when a thread began."""

_GONE = frozenset((errno.ENOENT, errno.ESRCH))
_DEAD = frozenset('ZX')
_FLAGS, _KERNEL_THREAD = 6, 0x00200000
_START = 22 - 3
_READ_SIZE = 4096
_OF_CPU = re.compile(r'/(?:R|u?\d+)(?::\d+[A-Z]?)?(?=[-+]|$)')


def common_name(name: str) -> str:
    """What threads of the kernel are that do the same on different CPUs.

    ``kworker/u8:3-events_unbound`` is ``kworker-events_unbound``, and
    ``ksoftirqd/1`` is ``ksoftirqd``.
    """
    return _OF_CPU.sub('', name, count=1)


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

    def listed(self, path: str, file: str | None = None) -> frozenset[int]:
        """All threads in a cgroup and below it; none when it is gone.

        :param path: of a directory
        :param file: that lists others, such as processes
        :raises TooMany: more than :data:`MOST`.
        :raises OSError: it may not be read.
        """
        controller = self.controller()
        if controller is None:
            return frozenset()
        file = file or cgroup_members.threads_file(
            self._mounts[controller].version)
        try:
            return frozenset(cgroup_members.members(
                cgroup_members.nodes_of(path, MOST), file, MOST))
        except OSError as exc:
            if exc.errno not in cgroup_members.ABSENT:
                raise
            return frozenset()

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

    def inodes(self, workloads: Mapping[str, str]) -> dict[int, str]:
        """The cgroups of workloads and below by their inodes, by which the
        kernel knows those of version 2; none with version 1.

        What has more than :data:`MOST_BELOW` is left out: a tenant can make
        many.

        :param workloads: as for :meth:`owner`
        :raises OSError: one may not be read.
        """
        mount = self._mounts.get(self.controller() or '')
        inodes: dict[int, str] = {}
        for path, workload in workloads.items():
            if mount is None or mount.version == 1:
                break
            nodes: list[tuple[str, int]] = []
            with contextlib.suppress(FileNotFoundError,
                                     cgroup_members.TooMany):
                nodes = cgroup_members.nodes_of(mount.path + path, MOST_BELOW)
            for below, _ in nodes:
                with contextlib.suppress(FileNotFoundError):
                    inodes[os.stat(below).st_ino] = workload
        return inodes

    def lives(self, tid: int) -> bool:
        """Whether a thread has this id, and has not ended.

        :raises OSError: it cannot be read.
        """
        return self._state(tid) not in _DEAD | {''}

    def runnable(self, tid: int) -> bool:
        """Whether a thread runs or waits for a CPU.

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
        if name and len(fields) > _FLAGS and not int(
                fields[_FLAGS]) & _KERNEL_THREAD:
            return f'program {name}'
        return name

    def began_s(self, tid: int) -> float | None:
        """When a thread began, of CLOCK_BOOTTIME, up to :data:`TICK_S` later;
        ``None`` when it has ended.

        :raises OSError: it cannot be read.
        """
        fields = self._stat(tid)
        if not fields or fields[0] in _DEAD:
            return None
        return int(fields[_START]) * TICK_S

    def _state(self, tid: int) -> str:
        return (self._stat(tid) or [''])[0]

    def _stat(self, tid: int) -> list[str]:
        """Its state and what comes after that, from the third field on."""
        # Its name comes in parentheses and may hold anything.
        return self._read(tid, 'stat').rpartition(') ')[2].split()

    def _read(self, tid: int, file: str) -> str:
        """Some file of a thread, '' when there is no such thread."""
        try:
            with open(f'{self._proc}/{tid}/{file}', 'rb', buffering=0
                      ) as opened:
                data = b''
                while part := opened.read(_READ_SIZE):
                    data += part
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            return ''
        return data.decode('utf-8', 'surrogateescape')
