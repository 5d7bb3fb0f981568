# SPDX-License-Identifier: Apache-2.0

"""Which cgroup, and which disks, the leases of knobs are about."""

from __future__ import annotations

from scavenger_openstack.drivers.cgroup.disks import Disks
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey

_IO = (Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S)


class Leased:
    """What restore actions have described, by knob.

    :param disks: those that I/O limits are about now
    """

    def __init__(self, disks: Disks) -> None:
        self._disks = disks
        self._about: dict[KnobKey, tuple[int, tuple[str, ...]]] = {}

    def begin(self, key: KnobKey, directory: CgroupDirectory) -> None:
        """From now on a knob is that of this cgroup, and of these disks."""
        self._about[key] = directory.inode, self._disks_of(key[1])

    def end(self, key: KnobKey) -> None:
        """There is no limit any more."""
        self._about.pop(key, None)

    def forget(self, workload: str) -> None:
        """The workload is gone."""
        for key in [k for k in list(self._about) if k[0] == workload]:
            self.end(key)

    def workloads(self) -> set[str]:
        """The workloads and groups with a lease."""
        return {workload for workload, _ in list(self._about)}

    def about_disks(self) -> set[KnobKey]:
        """The knobs with a lease about disks."""
        return {key for key in list(self._about) if key[1] in _IO}

    def check(self, key: KnobKey, directory: CgroupDirectory) -> None:
        """
        :raises WorkloadGone: a lease is not about this cgroup.
        :raises DriverError: nor about the disks of now.
        """
        inode, disks = self._about.get(
            key, (directory.inode, self._disks_of(key[1])))
        if inode != directory.inode:
            raise errors.WorkloadGone(
                f'{directory.path} was deleted and made again: it has none '
                'of its limits')
        if disks != self._disks_of(key[1]):
            raise errors.DriverError(
                'the host has other disks now; the next tick sets the limit '
                'on them')

    def _disks_of(self, knob: Knob) -> tuple[str, ...]:
        return self._disks.now if knob in _IO else ()
