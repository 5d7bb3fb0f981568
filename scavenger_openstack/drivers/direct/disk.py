# SPDX-License-Identifier: Apache-2.0

"""Which workloads the disks served while others waited for them.

The kernel counts by process
(:mod:`~scavenger_openstack.drivers.kernel.disk_waits`), of all processes of
the host.
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping

from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack.drivers.kernel.disk_waits import DiskWaits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource


class DiskEvidence(windows.Windows[DiskWaits]):
    """Direct evidence for disks."""

    resource, names, purpose = Resource.DISK, 'disks', disk_waits.PURPOSE
    file = cgroup_members.PROCESSES

    def _count(self, tasks: Mapping[str, Collection[int]]) -> DiskWaits:
        return DiskWaits(tasks)

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        return shares.of_disks(first, last, asked)

    def _counted(self, window: windows.Window[DiskWaits],
                 counter: DiskWaits, window_s: float
                 ) -> tuple[DirectEvidence, ...]:
        waits = counter.waits()
        beside: dict[tuple[int, int], float] = collections.defaultdict(float)
        for submitter, served in waits.served.items():
            if served.beside_s:
                beside[submitter.process, submitter.cgroup] += sum(
                    served.beside_s.values())
        holders = self._holders(window, counter, beside)
        return tuple(disk_waits.evidence(victim, waits, *holders)
                     for victim in window.listings if victim in window.listed)
