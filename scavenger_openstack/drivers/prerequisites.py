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

from scavenger_openstack import amounts
from scavenger_openstack.drivers.base import RESCAN_TICKS
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

FLOOR_SPEC = 'scavenger:floor_memory_mb'

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


class Prerequisites:
    """Checks them every :data:`~.base.RESCAN_TICKS`; ``missing`` has the last
    result.

    :param protect: the resources to check
    :param always: what is missing whatever the workloads are; may change
    :param lacks: why a knob of a cgroup cannot be set; empty if it can
    :param delays_off: why waits of cgroups are not measured; empty if they
        are
    :param direct_off: by resource, why the kernel does not report which
        workload held it while another waited; empty if it does, or was not
        asked yet
    :param counters_off: why no hardware counters are read; empty if they are
    :ivar links: whether a link is known that all share; may change
    :param interfaces: cgroups whose network device is known
    :param libvirt: whether libvirt is asked for VMs, of which it measures the
        waits, also of those that come later
    """

    def __init__(self, protect: Collection[Resource], always: Sequence[str],
                 lacks: Callable[[str, Knob], str],
                 delays_off: Callable[[], str],
                 direct_off: Callable[[], Mapping[Resource, str]],
                 counters_off: Callable[[], str], *,
                 links: bool, interfaces: Collection[str], libvirt: bool
                 ) -> None:
        self._protect = protect
        self._always = always
        self._lacks = lacks
        self._delays_off = delays_off
        self._direct_off = direct_off
        self._counters_off = counters_off
        self.links = links
        self._interfaces = interfaces
        self._libvirt = libvirt
        self._ticks = 0
        self.missing: tuple[str, ...] = tuple(always)

    def check(self, cgroups: Sequence[WorkloadSample],
              domains: Sequence[WorkloadSample]) -> None:
        """Find what is missing, in one of :data:`~.base.RESCAN_TICKS` ticks.

        :param cgroups: the workloads that are cgroups
        :param domains: those that are virtual machines
        """
        self._ticks += 1
        if self._ticks % RESCAN_TICKS != 1:
            return
        background = [sample.workload.id
                      for sample in _of(Priority.BACKGROUND, cgroups)]
        missing = list(self._always)
        if background:
            missing += self._files(background)
        if background or _of(Priority.BACKGROUND, domains):
            missing += self._direct()
            missing += self._counters()
            missing += self._waits(cgroups)
            missing += self._network(background)
            missing += self._virtual_memory(domains)
        self.missing = tuple(missing)

    def _files(self, background: Sequence[str]) -> list[str]:
        """Check the files of one background cgroup of each parent, which
        stands for all of them."""
        examples: dict[str, str] = {}
        for workload in background:
            examples.setdefault(workload.rpartition('/')[0], workload)
        return [f'{resource}: {why}'
                for resource in self._protect
                for knob in KNOBS.get(resource, ())
                for workload in examples.values()
                if (why := self._lacks(workload, knob))]

    def _direct(self) -> list[str]:
        return [f'{resource}: {_UNMEASURED[resource]} is not measured, so '
                'antagonists are named by their shares of the use, which '
                f'tell less: {why}'
                for resource, why in self._direct_off().items()
                if why and (Resource.CPU if resource is Resource.CACHE
                            else resource) in self._protect]

    def _counters(self) -> list[str]:
        why = self._counters_off()
        return [] if not why or Resource.CPU not in self._protect else [
            'cache: cycles per instruction are not measured, so no incident '
            'begins for a cache or memory bus that is full, and cpi2 and '
            f'perfcloud detect less: {why}']

    def _waits(self, cgroups: Sequence[WorkloadSample]) -> list[str]:
        resources = [resource for resource in _WAITS
                     if resource in self._protect]
        foreground = any(cgroup[0].priority is Priority.FOREGROUND
                         for cgroup in cgroups)
        if foreground and (why := self._delays_off()):
            return [f'{resource}: how long foreground cgroups wait for '
                    f'{_WAITS[resource]} is not measured, so no incident '
                    f'begins for such a wait: {why}'
                    for resource in resources]
        if not foreground and not self._libvirt:
            return [f'{resource}: no workload is foreground, so no wait for '
                    f'{_WAITS[resource]} is measured and no incident begins: '
                    'name the parents of some in [cgroups] '
                    f'foreground_parents, {RESTART}'
                    for resource in resources]
        return []

    def _virtual_memory(self, domains: Sequence[WorkloadSample]
                        ) -> list[str]:
        """Check the memory of background VMs: it follows a limit only if the
        flavor lets it, and the guest."""
        if Resource.MEMORY not in self._protect:
            return []
        workloads = [sample.workload
                     for sample in _of(Priority.BACKGROUND, domains)]
        fixed = [workload for workload in workloads
                 if workload.memory_allotment_bytes is not None
                 and workload.floor.get(Knob.MEMORY_BYTES, 0.0)
                 >= workload.memory_allotment_bytes]
        missing = [] if not fixed else [
            'memory: '
            f'{amounts.counted(len(fixed), "background VM")} may use all of '
            f'the RAM of the flavor, {fixed[0].id} for one: set '
            f'{FLOOR_SPEC} of the flavor, and resize the VM']
        return missing + [
            f'memory: {workload.memory_kept}; what it uses counts, whatever '
            'its limit is: give its guest the driver virtio_balloon, or take '
            f'{FLOOR_SPEC} out of its flavor'
            for workload in workloads
            if workload.memory_kept and workload not in fixed]

    def _network(self, background: Sequence[str]) -> list[str]:
        if Resource.NETWORK not in self._protect:
            return []
        if not self.links:
            return ['network: the device that foreground and background send '
                    'over cannot be found on this host, so no link is '
                    'protected: name it in [network] links, ' + RESTART]
        unknown = [cgroup for cgroup in background
                   if cgroup not in self._interfaces]
        return [] if not unknown else [
            'network: what '
            f'{amounts.counted(len(unknown), "background cgroup")} may send '
            'is not '
            f'limited, {unknown[0]} for one: name the device of each in '
            f'[network] interfaces, {RESTART}']


def _of(priority: Priority, samples: Sequence[WorkloadSample]
        ) -> list[WorkloadSample]:
    """Return the samples of workloads of this priority."""
    return [sample for sample in samples
            if sample.workload.priority is priority]
