# SPDX-License-Identifier: Apache-2.0

"""The QEMU process of a domain, over kept descriptors in /proc.

The descriptors are of the same process for ever: when that is gone each
access fails, also when another process got its number.
"""

from __future__ import annotations

import errno
import os

from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack import errors

RUN_DIR = '/run/libvirt/qemu'
"""The directory where libvirt keeps the PID of each domain, as NAME.pid: a
name cannot have a slash, and nothing in it is escaped."""

GONE = cgroup_files.ABSENT | {errno.ESRCH}
"""Errors for a process that is gone, and for missing files of one that lives:
:meth:`Process.alive` distinguishes them."""

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
BYTES_PER_KIB = 1024

_READ_SIZE, _MOST_SIZE = 4096, 1 << 22
_MOST_PID = 1 << 22     # PID_MAX_LIMIT in linux/threads.h
_HZ = os.sysconf('SC_CLK_TCK')


def pid_of(name: str, run_dir: str = RUN_DIR) -> int:
    """Return the PID of a domain, from libvirt's file.

    :raises WorkloadGone: it does not run.
    """
    path = f'{run_dir}/{name}.pid'
    try:
        if '/' in name:
            raise ValueError
        with open(path, 'rb') as file:
            pid = int(file.read(32))
        if 0 < pid <= _MOST_PID:
            return pid
        raise ValueError
    except (OSError, ValueError) as exc:
        why = getattr(exc, 'strerror', None) or 'not a number'
        of_host = isinstance(exc, PermissionError) or not os.path.isdir(
            run_dir)
        raise errors.WorkloadGone(
            f'no PID of domain {name!r:.99} in {run_dir}: {why}; it does '
            'not run, or libvirt keeps its state elsewhere',
            cause=f'{run_dir}: {why}' if of_host else '') from None


class Process:
    """A process that is the QEMU of one domain.

    :param uuid: of the domain, which QEMU has on its command line
    :raises WorkloadGone: this process is not (any more) the domain's QEMU.
    :raises OSError: there are no descriptors left.
    """

    def __init__(self, pid: int, uuid: str, root_dir: str = '/') -> None:
        self.pid = pid
        self._fds: dict[str, int] = {}
        path = f'{root_dir.rstrip("/")}/proc/{pid}'
        try:
            self.fd = os.open(path, READ_ONLY | os.O_DIRECTORY)
        except OSError as exc:
            if exc.errno not in GONE:
                raise
            raise errors.WorkloadGone(f'process {pid} of domain {uuid} is '
                                      'gone') from None
        try:
            if f'-uuid\0{uuid}\0'.encode() not in self.read('cmdline'):
                raise errors.WorkloadGone(
                    f'process {pid} is not the QEMU of domain {uuid}')
        except OSError as exc:
            self.close()
            if exc.errno not in GONE:
                raise
            raise errors.WorkloadGone(f'process {pid} of domain {uuid} is '
                                      'gone') from None
        except errors.WorkloadGone:
            self.close()
            raise

    def open(self, path: str, flags: int = 0) -> int:
        """Return a descriptor of a file below the process's directory.

        :raises OSError: it is not there (any more).
        """
        return os.open(path, READ_ONLY | flags, dir_fd=self.fd)

    def read(self, file: str) -> bytes:
        """Return all of a file that is read once.

        :raises OSError: it is not there (any more).
        """
        with open(self.open(file), 'rb') as opened:
            return opened.read(_MOST_SIZE)

    def alive(self) -> bool:
        """Return whether the process has not ended, waited for or not."""
        try:
            data = self._reread('stat')
        except OSError as exc:
            if exc.errno in GONE:
                return False
            raise
        return data[data.rindex(b')') + 2:][:1] not in (b'Z', b'X')

    def usage(self) -> tuple[float, int]:
        """Return CPU seconds, of all threads ever, and bytes of memory.

        Memory is counted as in a cgroup, without the page cache.  ``status``
        has it at no cost, unlike ``smaps_rollup``, which walks through all
        pages of the guest and locks its memory map meanwhile.

        :raises OSError: it is gone.
        :raises ValueError: the kernel's text is not understood.
        """
        data = self._reread('stat')
        fields = data[data.rindex(b')'):].split(b' ', 14)
        data = self._reread('status')
        return (int(fields[12]) + int(fields[13])) / _HZ, (
            BYTES_PER_KIB * rows.total(data, b'RssAnon:', b'RssShmem:'))

    def _reread(self, file: str) -> bytes:
        fd = self._fds.get(file)
        if fd is None:
            fd = self._fds[file] = self.open(file)
        return os.pread(fd, _READ_SIZE, 0)

    def close(self) -> None:
        """Close the descriptors."""
        fds = (self.fd, *self._fds.values())
        self.fd, self._fds = -1, {}
        for fd in fds:
            if fd >= 0:
                os.close(fd)
