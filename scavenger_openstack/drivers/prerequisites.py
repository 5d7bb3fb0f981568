# SPDX-License-Identifier: Apache-2.0

"""What cannot be measured or limited on this host, and the cure.

Each sentence begins with its resource: what is not measured, what that turns
off, why, and the command that cures it, or :data:`.base.NO_CURE`.  A resource
that no background workload could take has no sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack import amounts
from scavenger_openstack.drivers.base import RESTART
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import WorkloadSample

KNOBS: Mapping[Resource, tuple[Knob, ...]] = {
    Resource.CPU: (Knob.CPU_CORES, Knob.CPU_SET),
    Resource.MEMORY: (Knob.MEMORY_BYTES,),
    Resource.DISK: (Knob.IO_OPS_PER_S,)}
"""Knobs of a cgroup; each stands for one controller."""

NO_REFAULTS = (
    'memory: how much of its page cache the foreground reads again is not '
    'counted, so background work may displace page cache: boot a Linux whose '
    '/proc/vmstat has workingset_refault, and with cgroup v1 memory.stat as '
    'well (6.1 or later)')

_UNMEASURED = {
    Resource.CPU: 'which workload runs while another waits',
    Resource.DISK: 'which workload a disk serves while another waits',
    Resource.NETWORK: 'which workload sends while a link is full',
    Resource.MEMORY: 'which workload takes memory that another waits for',
    Resource.CACHE: 'which workload fills a memory bus'}

_WAITS = {
    Resource.CPU: 'CPUs',
    Resource.DISK: 'disks'}
"""What delay accounting measures the waits for."""


class Prerequisites(NamedTuple):
    """What the sentences are made of, as of one tick.

    :ivar protect: the resources to check
    :ivar always: what is missing whatever the workloads are
    :ivar lacks: returns why a knob of a cgroup cannot be set; '' if it can
    :ivar delays_off: why waits of cgroups are not measured; '' if they are
    :ivar direct_off: by resource, why the kernel does not report which
        workload held it while another waited; '' if it does, or was not asked
        yet
    :ivar counters_off: why no hardware counters are read; '' if they are
    :ivar llc_off: why the background's part of last-level caches cannot be
        limited; '' if it can
    :ivar links: whether a link is known that all share
    :ivar refaults: whether the kernel counts the page cache that was read
        again
    :ivar interfaces: cgroups whose network device is known
    :ivar libvirt: whether libvirt is asked for VMs, of which it measures the
        waits, also of those that come later
    """

    protect: Collection[Resource]
    always: Sequence[str] = ()
    lacks: Callable[[str, Knob], str] = lambda workload, knob: ''
    delays_off: str = ''
    direct_off: Mapping[Resource, str] = {}
    counters_off: str = ''
    llc_off: str = ''
    links: bool = True
    refaults: bool = True
    interfaces: Collection[str] = ()
    libvirt: bool = False

    def missing(self, cgroups: Sequence[WorkloadSample],
                domains: Sequence[WorkloadSample]) -> tuple[str, ...]:
        """Return what is missing.

        :param cgroups: the workloads that are cgroups
        :param domains: those that are virtual machines
        """
        background = [sample.workload.id
                      for sample in _of(Priority.BACKGROUND, cgroups)]
        missing = list(self.always)
        if background:
            missing += self._files(background)
        if background or _of(Priority.BACKGROUND, domains):
            missing += self._direct()
            missing += self._counters()
            missing += self._waits(cgroups)
            missing += self._network(background)
            missing += self._virtual_memory(domains)
            if not self.refaults and Resource.MEMORY in self.protect:
                missing.append(NO_REFAULTS)
        return tuple(missing)

    def _files(self, background: Sequence[str]) -> list[str]:
        """Check the files of one background cgroup of each parent, which
        stands for all of them."""
        examples: dict[str, str] = {}
        for workload in background:
            examples.setdefault(workload.rpartition('/')[0], workload)
        return [f'{resource}: {why}'
                for resource in self.protect
                for knob in KNOBS.get(resource, ())
                for workload in examples.values()
                if (why := self.lacks(workload, knob))]

    def _direct(self) -> list[str]:
        return [f'{resource}: {_UNMEASURED[resource]} is not measured, so '
                'antagonists are named by their shares of the use, which '
                f'tell less: {why}'
                for resource, why in self.direct_off.items()
                if why and (Resource.CPU if resource is Resource.CACHE
                            else resource) in self.protect]

    def _counters(self) -> list[str]:
        if Resource.CPU not in self.protect:
            return []
        if self.counters_off:
            return [
                'cache: cycles per instruction are not measured, so no '
                'incident begins for a cache or memory bus that is full, and '
                f'cpi2 and perfcloud detect less: {self.counters_off}']
        # Without these counters it is not limited either.
        return [f'cache: background work may fill all of it, so its CPU quota '
                f'alone answers that: {self.llc_off}'] if self.llc_off else []

    def _waits(self, cgroups: Sequence[WorkloadSample]) -> list[str]:
        resources = [resource for resource in _WAITS
                     if resource in self.protect]
        foreground = any(cgroup[0].priority is Priority.FOREGROUND
                         for cgroup in cgroups)
        if foreground and self.delays_off:
            return [f'{resource}: how long foreground cgroups wait for '
                    f'{_WAITS[resource]} is not measured, so no incident '
                    f'begins for such a wait: {self.delays_off}'
                    for resource in resources]
        if not foreground and not self.libvirt:
            return [f'{resource}: no workload is foreground, so no wait for '
                    f'{_WAITS[resource]} is measured and no incident begins: '
                    'name the parents of some in [cgroups] '
                    f'foreground_parents, {RESTART}'
                    for resource in resources]
        return []

    def _virtual_memory(self, domains: Sequence[WorkloadSample]
                        ) -> list[str]:
        """Check the memory of background VMs which is to be limited: those
        of which the floor is below their RAM."""
        if Resource.MEMORY not in self.protect:
            return []
        return [
            f'memory: {workload.memory_kept}; what it uses counts, whatever '
            'its limit is: give its guest the driver virtio_balloon, or take '
            'scavenger:floor_memory_mb out of its flavor'
            for workload, *_ in _of(Priority.BACKGROUND, domains)
            if workload.memory_kept and workload.floor.get(
                Knob.MEMORY_BYTES, 0.0) < (
                    workload.memory_allotment_bytes or math.inf)]

    def _network(self, background: Sequence[str]) -> list[str]:
        if Resource.NETWORK not in self.protect:
            return []
        if not self.links:
            return ['network: the device that foreground and background '
                    'share cannot be found on this host, so no link is '
                    'protected: name it in [network] links, ' + RESTART]
        unknown = [cgroup for cgroup in background
                   if cgroup not in self.interfaces]
        return [] if not unknown else [
            'network: what '
            f'{amounts.counted(len(unknown), "background cgroup")} may send '
            f'and receive is not limited, {unknown[0]} for one: name the '
            f'device of each in [network] interfaces, {RESTART}']


def _of(priority: Priority, samples: Sequence[WorkloadSample]
        ) -> list[WorkloadSample]:
    """Return the samples of workloads of this priority."""
    return [sample for sample in samples
            if sample.workload.priority is priority]
