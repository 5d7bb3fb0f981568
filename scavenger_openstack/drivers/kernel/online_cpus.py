# SPDX-License-Identifier: Apache-2.0

"""Which CPUs the host can have, and which are online: that changes while the
agent runs."""

from __future__ import annotations

import logging
import os

from scavenger_openstack import log_once
from scavenger_openstack.types import parse_cpus

LOG = logging.getLogger(__name__)

_SIZE = 16384


def path(root_dir: str = '/') -> str:
    """The file in which the kernel lists them."""
    return f'{root_dir.rstrip("/")}/sys/devices/system/cpu/online'


def read(root_dir: str = '/') -> frozenset[int]:
    """The CPUs that are online at this moment; none if that is unknown."""
    return _read(path(root_dir))


def possible(root_dir: str = '/') -> frozenset[int]:
    """Return all CPUs that this host can ever have."""
    return _read(f'{root_dir.rstrip("/")}/sys/devices/system/cpu/possible'
                 ) or counted()


def isolated(root_dir: str = '/') -> frozenset[int]:
    """Return the CPUs that the host keeps free of all that is not put
    there (``isolcpus``)."""
    return _read(f'{root_dir.rstrip("/")}/sys/devices/system/cpu/isolated')


def counted() -> frozenset[int]:
    """The CPUs that Python knows of, numbered from 0: where the kernel lists
    none."""
    return frozenset(range(os.cpu_count() or 1))


def _read(path: str) -> frozenset[int]:
    try:
        with open(path, encoding='ascii') as file:
            return parse_cpus(file.read())
    except (OSError, ValueError):
        return frozenset()


class OnlineCpus:
    """The CPUs that were online at the last look.

    The file is kept open: a look is one system call.

    :param logged: what was logged of this host
    :ivar now: the first CPU until it is known better
    """

    def __init__(self, root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        self._path = path(root_dir)
        self._fd: int | None = None
        self._data = b''
        self._logged = logged or log_once.LogOnce()
        self.now: frozenset[int] = frozenset((0,))

    def refresh(self) -> bool:
        """Return whether the CPUs online have changed since the last call."""
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self._fd, _SIZE, 0)
            if data == self._data:
                return False
            cpus = parse_cpus(data.decode('ascii'))
        except (OSError, ValueError) as exc:
            if self._logged.due(self._path):
                LOG.warning('cannot tell which CPUs are online: %s; counting '
                            'on %s', exc, sorted(self.now))
            self.close()        # opened again at the next look
            return False
        self._logged.over(self._path)
        self._data = data
        if not cpus or cpus == self.now:
            return False
        self.now = cpus
        return True

    def close(self) -> None:
        """Close what is kept open."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
