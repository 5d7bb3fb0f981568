# SPDX-License-Identifier: Apache-2.0

"""A cgroup that plays the memory of the host: ``memory_root``."""

from __future__ import annotations

from collections.abc import Mapping
import logging

from scavenger_openstack.drivers.cgroup import counters
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_files import explain
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack import errors
from scavenger_openstack import log_once

LOG = logging.getLogger(__name__)


class MemoryRoot:
    """One cgroup with a memory limit, kept open while it can be read.

    :param path: the cgroup below the mount
    """

    def __init__(self, mounts: Mapping[str, Mount], path: str) -> None:
        self._mounts = mounts
        self._path = path
        self._directory: CgroupDirectory | None = None
        self._logged = log_once.LogOnce()

    def read(self) -> tuple[int, int] | None:
        """Total and available bytes; ``None`` when it cannot be read or has
        no limit (one warning)."""
        try:
            if self._directory is None:
                self._directory = self._open()
            found = counters.host_memory(self._directory)
        except errors.DriverError as exc:
            self._directory = None
            if self._logged.due('memory_root'):
                LOG.warning('memory_root %s: %s; the memory of the machine '
                            'is used instead', self._path, exc)
            return None
        self._logged.over('memory_root')
        return found

    def _open(self) -> CgroupDirectory:
        mount = self._mounts.get('memory')
        if mount is None:
            raise errors.Unsupported('no memory controller is mounted')
        path = mount.path + self._path
        try:
            return CgroupDirectory(path, version=mount.version)
        except OSError as exc:
            raise explain(exc, path) from exc
