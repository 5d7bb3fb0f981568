# SPDX-License-Identifier: Apache-2.0

"""Which workloads had the CPUs while others waited for one.

The kernel counts for each victim and each process of the host that ran
meanwhile (:mod:`~scavenger_openstack.drivers.kernel.cpu_waits`).
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import heapq

from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import thread_windows
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.kernel.cpu_waits import CpuWaits
from scavenger_openstack.drivers.kernel.cpu_waits import IDLE
from scavenger_openstack.drivers.kernel.cpu_waits import Waits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

SHOWN_THREADS = 5
"""Names of threads of the host in an answer, those that ran for longest."""


class CpuEvidence(thread_windows.ThreadWindows[CpuWaits]):
    """Direct evidence for CPUs."""

    resource, names, purpose = Resource.CPU, 'CPUs', cpu_waits.PURPOSE

    def _watch(self, tasks: Mapping[str, Collection[int]]) -> CpuWaits:
        return CpuWaits(tasks)

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        return shares.of_cpus(first, last, asked)

    def _counted(self, window: windows.Window[CpuWaits], counter: CpuWaits,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        waits = counter.waits()
        held_s: dict[tuple[int, int], float] = collections.defaultdict(float)
        for (_, runner), seconds in waits.behind.items():
            held_s[runner] += seconds
        holders = self._holders(window, counter, held_s)
        lasting = {thread: waits.lasting[thread] for thread in heapq.nlargest(
            thread_windows.MOST_LOOKED_UP, waits.lasting,
            key=lambda thread: waits.lasting[thread][1])
            if self._owners.runnable(thread)}
        return self.or_shares(window, evidence(
            [victim for victim in window.victims if victim in self._listed],
            waits._replace(lasting=lasting), window_s, owners=holders.owners,
            names=holders.names))


def evidence(asked: Collection[str], waits: Waits, window_s: float, *,
             owners: Mapping[tuple[int, int], str], names: Mapping[int, str]
             ) -> tuple[DirectEvidence, ...]:
    """Return what is known of each workload that is asked about.

    :param owners: whose the processes are that ran, by process and cgroup,
        where it is known
    :param names: of those of the host
    """
    waited = {victim: waits.unknown.get(victim, 0.0) for victim in asked}
    idle = dict.fromkeys(asked, 0.0)
    held, shown = ({victim: collections.defaultdict[str, float](float)
                    for victim in asked} for _ in range(2))
    for (victim, runner), seconds in waits.behind.items():
        if victim not in waited:
            continue
        waited[victim] += seconds
        if runner == IDLE:
            idle[victim] += seconds
        owner = owners.get(runner)
        if owner is not None:
            held[victim][owner] += seconds
            name = names.get(runner.process)
            if owner == THE_HOST and name:
                shown[victim][name] += seconds
    for victim, seconds in waits.lasting.values():
        if victim in waited:
            waited[victim] += seconds
    return tuple(DirectEvidence(
        victim, Resource.CPU, window_s, waited[victim], dict(held[victim]),
        {name: shown[victim][name] for name in heapq.nlargest(
            SHOWN_THREADS, shown[victim], key=shown[victim].__getitem__)},
        idle[victim]) for victim in asked)
