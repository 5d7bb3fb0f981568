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

from scavenger_openstack.drivers.direct import cpu_pairs
from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.kernel.cpu_waits import CpuWaits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource


class CpuEvidence(windows.Windows[CpuWaits]):
    """Direct evidence for CPUs."""

    resource, names, purpose = Resource.CPU, 'CPUs', cpu_waits.PURPOSE

    def _count(self, tasks: Mapping[str, Collection[int]]) -> CpuWaits:
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
            windows.MOST_LOOKED_UP, waits.lasting,
            key=lambda thread: waits.lasting[thread][1])
            if self._owners.runnable(thread)}
        return cpu_pairs.evidence(
            [victim for victim in window.listings if victim in window.listed],
            waits._replace(lasting=lasting), window_s, owners=holders.owners,
            names=holders.names)
