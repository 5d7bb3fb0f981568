# SPDX-License-Identifier: Apache-2.0

"""Which workloads had the CPUs while others waited for one.

The kernel counts for each pair of a thread that waited and one that ran
meanwhile (:mod:`~scavenger_openstack.drivers.kernel.cpu_waits`), of all
threads of the host.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import itertools

from scavenger_openstack.drivers.direct import cpu_pairs
from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.kernel.cpu_waits import CpuWaits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST


class CpuEvidence(windows.Windows[CpuWaits]):
    """Direct evidence for CPUs."""

    resource, names, purpose = Resource.CPU, 'CPUs', cpu_waits.PURPOSE

    def _count(self, tasks: Mapping[str, frozenset[int]]) -> CpuWaits:
        waits = CpuWaits()
        try:
            waits.watch(frozenset[int]().union(*tasks.values()))
        except BaseException:
            waits.close()
            raise
        return waits

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        return shares.of_cpus(first, last, asked)

    def _counted(self, window: windows.Window[CpuWaits], counter: CpuWaits,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        """Whose the threads are that waited and ran.

        Others may have the ids of threads that ended.  So what ended is read
        last; of that the kernel tells the cgroup, if it is of version 2.
        """
        waits, owners = counter.waits(), self._owners
        threads = {victim: self._tasks(victim) for victim in window.tasks}
        there = frozenset[int]().union(*threads.values())
        mine = there.union(*window.tasks.values())
        workloads = self._workloads()
        runners = windows.largest({
            tid: seconds for tid, seconds in cpu_pairs.runners(
                waits, mine).items() if tid not in there})
        ran = {tid: owner for tid in runners
               if (owner := owners.owner(tid, workloads)) is not None}
        names = {tid: owners.name(tid) for tid, owner in ran.items()
                 if owner == THE_HOST}
        lasting = {tid: waits.lasting[tid] for tid in windows.largest(
            {tid: seconds for tid, seconds in waits.lasting.items()
             if tid in mine}) if owners.runnable(tid)}
        ended = counter.ended()
        victims = {tid: victim for victim, now in threads.items()
                   for tid in now - ended.keys()}
        counted = {tid for pair in waits.behind for tid in pair}
        gone = {tid: victim for victim, before in window.tasks.items()
                for tid in before & ended.keys() & counted}
        victims |= {tid: gone[tid] for tid in itertools.islice(
            gone, windows.MOST_LOOKED_UP) if not owners.lives(tid)}
        inodes = owners.inodes(workloads) if ended.keys() & runners else {}
        ran = {tid: owner for tid, owner in ran.items() if tid not in ended
               } | {tid: inodes[ended[tid]] for tid in runners
                    if ended.get(tid) in inodes and not owners.lives(tid)}
        return cpu_pairs.evidence(
            [victim for victim, before in window.tasks.items()
             if before or threads[victim]],
            waits._replace(lasting=lasting), window_s, victims=victims,
            owners=ran | victims, names=names)
