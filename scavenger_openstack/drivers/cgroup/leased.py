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

    def workloads(self, *, with_disks: bool = False) -> set[str]:
        """The workloads and groups with a lease; with one about disks."""
        return {workload for workload, knob in list(self._about)
                if not with_disks or knob in _IO}

    def check_disks(self, key: KnobKey) -> None:
        """End a lease that is about other disks than there are now.

        :raises WorkloadGone: it was; once.
        """
        if key in self._about and \
                self._about[key][1] != self._disks_of(key[1]):
            self.end(key)
            raise errors.WorkloadGone('the host has other disks now')

    def check(self, key: KnobKey, directory: CgroupDirectory) -> None:
        """:raises WorkloadGone: a lease is not about this cgroup, or not
            about the disks of now."""
        self.check_disks(key)
        if key in self._about and self._about[key][0] != directory.inode:
            raise errors.WorkloadGone(
                f'{directory.path} was deleted and made again: it has none '
                'of its limits')

    def _disks_of(self, knob: Knob) -> tuple[str, ...]:
        return self._disks.now if knob in _IO else ()
