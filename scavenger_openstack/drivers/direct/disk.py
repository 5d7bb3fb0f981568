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

from scavenger_openstack.algorithms import sharing
from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import thread_windows
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.direct import writeback
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack.drivers.kernel.disk_waits import DiskWaits
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack import log_once
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource


class DiskEvidence(thread_windows.ThreadWindows[DiskWaits]):
    """Direct evidence for disks."""

    resource, names, purpose = Resource.DISK, 'disks', disk_waits.PURPOSE
    file = cgroup_members.PROCESSES

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        super().__init__(mounts, domains, root_dir, logged)
        self._dirty = writeback.DirtyPages(mounts, domains, root_dir)
        self._looks: list[writeback.Look] = []

    def _watch(self, tasks: Mapping[str, Collection[int]]) -> DiskWaits:
        counter = DiskWaits(tasks)
        self._looks = []
        self._note_dirty()
        return counter

    def _note_dirty(self) -> None:
        """Note what has dirty pages now."""
        samples = self._sample.workloads if self._sample else ()
        if dirty := self._dirty.read([sample[0].id for sample in samples]):
            self._looks.append(dirty)

    def _go_on(self, window: windows.Window[DiskWaits], counter: DiskWaits
               ) -> None:
        super()._go_on(window, counter)
        self._note_dirty()

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
        self._note_dirty()
        return self.or_shares(window, tuple(
            self._by_writer(disk_waits.evidence(victim, waits, *holders))
            for victim in window.victims if victim in self._listed))

    def _by_writer(self, answer: DirectEvidence) -> DirectEvidence:
        """Add to an answer what made dirty what the host wrote."""
        sample = self._sample
        workloads = {} if sample is None else {
            rated[0].id: rated[0] for rated in sample.workloads}
        victim = workloads.get(answer.workload)
        return writeback.attributed(answer, {
            workload: part for workload, part in writeback.shares(
                self._looks).items()
            if sample is not None and victim is not None
            and sharing.share('io_wait', victim, workloads[workload],
                              sample.topology)})
