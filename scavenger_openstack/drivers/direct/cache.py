# SPDX-License-Identifier: Apache-2.0

"""Which workloads a last-level cache and a memory bus serve while others run.

Bytes over the bus where resctrl counts them, else misses in the cache, which
hardware counters count in any case.  Neither tells what that does to a victim:
both are shares of use.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping

from scavenger_openstack.algorithms import sharing
from scavenger_openstack.decision.rates import grown
from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack.drivers.resctrl import monitoring
from scavenger_openstack.drivers.resctrl import tree
from scavenger_openstack import log_once
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource


MOST_THREADS = 1000
"""Of a workload that are moved to its group; each takes a write."""

Groups = monitoring.Groups | windows.Noted[None]
"""The latter on a CPU that cannot monitor."""


class CacheEvidence(windows.Windows[Groups]):
    """Evidence for last-level caches and memory buses."""

    resource, names = Resource.CACHE, 'last-level caches'
    purpose = monitoring.PURPOSE

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        super().__init__(mounts, domains, root_dir, logged)
        self._root_dir = root_dir
        self._top = tree.mount_point(root_dir)

    def _count(self, victims: Collection[str]) -> Groups:
        if not tree.has_resctrl(self._root_dir):
            return windows.Noted(None)
        samples = self._sample.workloads if self._sample else ()
        busiest = sorted(samples, key=lambda sample: -(sample.cpu_s or 0.0))
        names = [*victims, *(sample[0].id for sample in busiest)]
        return monitoring.Groups(self._top, {
            name: self.threads(name, MOST_THREADS)
            for name in list(dict.fromkeys(names))[:monitoring.MOST_GROUPS]})

    def _counted(self, window: windows.Window[Groups], counter: Groups,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        if window.first is None or self._sample is None:
            return ()
        if isinstance(counter, windows.Noted):
            return tuple(self._shares(window.first, self._sample,
                                      window.victims))
        return tuple(of_buses(window.first, self._sample, window.victims,
                              *counter.bytes_of()))

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        return shares.of_caches(first, last, asked)


def of_buses(first: HostSample, last: HostSample, asked: Collection[str],
             bytes_of: Mapping[str, float], others: float | None
             ) -> Iterable[DirectEvidence]:
    """Of the time that each of these workloads ran, the part of each that
    shares a cache or a memory bus with it is its part of their bytes.

    None for one of which no bytes are known.

    :param bytes_of: by workload
    :param others: of all that has no group, of which no more is known;
        ``None``: nothing is known of it at all, so of nothing else
    """
    if others is None:
        return
    before = {sample[0].id: sample for sample in first.workloads}
    workloads = {sample[0].id: sample[0] for sample in last.workloads}
    for sample in last.workloads:
        name = sample[0].id
        ran_s = (grown(before[name].cpu_s, sample.cpu_s)
                 if name in before else None)
        if name not in asked or name not in bytes_of or not ran_s:
            continue
        near = {other: count for other, count in bytes_of.items()
                if other in workloads and sharing.share(
                    'cpi', sample[0], workloads[other], last.topology)}
        total = sum(near.values()) + others
        if total > 0:
            yield DirectEvidence(
                name, Resource.CACHE, last.time_s - first.time_s, ran_s,
                {other: ran_s * count / total
                 for other, count in near.items()}, shared=True)
