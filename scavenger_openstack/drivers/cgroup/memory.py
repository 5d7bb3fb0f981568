# SPDX-License-Identifier: Apache-2.0

"""What a cgroup has of memory; one may play that of the host."""

from __future__ import annotations

from collections.abc import Mapping
import logging
import math

from scavenger_openstack.drivers.cgroup import statistics
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_files import NO_MEMORY_LIMIT
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel.proc import Memory
from scavenger_openstack import errors
from scavenger_openstack import log_once

LOG = logging.getLogger(__name__)

FOLD_S = 2.0
"""Time until a cgroup has counted what it read again: so often the kernel adds
that up."""


def host_memory(root: CgroupDirectory) -> Memory:
    """Return the memory of a cgroup that plays a host.

    What is available is what is free and what could be dropped, as in the
    kernel's MemAvailable.

    :raises DriverError: it cannot be read, or has no limit.
    """
    limit_file, use_file = (
        ('memory.limit_in_bytes', 'memory.usage_in_bytes')
        if root.version == 1 else ('memory.max', 'memory.current'))
    limit = root.read_int(limit_file)
    if limit < 0 or limit >= NO_MEMORY_LIMIT:
        raise errors.DriverError(f'{root.path}/{limit_file} sets no limit')
    free = limit - root.read_int(use_file)
    values = _statistics(root)
    refaults = values[statistics.REFAULT_BYTES]
    return Memory(
        limit, max(0, min(limit, free + _droppable(values))),
        max(0, min(limit, free)), None if refaults is None else int(refaults))


def droppable_bytes(directory: CgroupDirectory) -> int:
    """Return what the kernel could drop of a cgroup's memory.

    :raises DriverError: it cannot be read.
    """
    return _droppable(_statistics(directory))


def _droppable(values: statistics.Values) -> int:
    return int(values[statistics.DROPPABLE_BYTES] or 0)


def _statistics(directory: CgroupDirectory) -> statistics.Values:
    values = statistics.nothing()
    parse = (statistics.page_cache_v1 if directory.version == 1
             else statistics.page_cache_v2)
    try:
        parse(b'\n' + directory.read('memory.stat').encode() + b'\n', values)
    except ValueError as exc:
        raise errors.DriverError(
            f'{directory.path}/memory.stat holds something unknown') from exc
    return values


def counts_refaults(mounts: Mapping[str, Mount]) -> bool:
    """Return whether the kernel counts for each cgroup the page cache that was
    read again; of version 1 since Linux 6.1.

    Without that, what the background reads again would seem to be of the
    foreground.
    """
    mount = mounts.get('memory')
    if mount is None or mount.version == 2:
        return True
    text = proc.read_text(f'{mount.path}/memory.stat')
    return not text or 'total_workingset_refault' in text


class RecentRefaults:
    """Whether page cache is read again on a host.

    While none is, no workload reads any again.

    :param interval_s: from one call of :meth:`update` to the next
    """

    def __init__(self, interval_s: float) -> None:
        self._fold_ticks = 1 + math.ceil(FOLD_S / interval_s)
        self._bytes: int | None = None
        self._ticks = 0

    def update(self, refaults: int | None) -> bool:
        """Return whether some was read again so recently that a workload may
        not have counted it yet.

        :param refaults: bytes so far; ``None`` if not known: some may be
        """
        if refaults is None or refaults != self._bytes:
            self._ticks = self._fold_ticks
        self._bytes = refaults
        self._ticks -= 1
        return self._ticks >= 0


class MemoryRoot:
    """One cgroup with a memory limit, kept open while it can be read.

    :param path: the cgroup below the mount
    """

    def __init__(self, mounts: Mapping[str, Mount], path: str) -> None:
        self._mounts = mounts
        self._path = path
        self._directory: CgroupDirectory | None = None
        self._logged = log_once.LogOnce()

    def read(self) -> Memory | None:
        """Return its memory; ``None`` when it cannot be read or has no limit
        (one warning)."""
        try:
            if self._directory is None:
                self._directory = self._open()
            amounts = host_memory(self._directory)
        except errors.DriverError as exc:
            self._directory = None
            if self._logged.due('memory_root'):
                LOG.warning('memory_root %s: %s; the memory of the machine '
                            'is used instead', self._path, exc)
            return None
        self._logged.over('memory_root')
        return amounts

    def _open(self) -> CgroupDirectory:
        mount = self._mounts.get('memory')
        if mount is None:
            raise errors.Unsupported('no memory controller is mounted')
        return CgroupDirectory(mount.path + self._path,
                               version=mount.version)
