# SPDX-License-Identifier: Apache-2.0

"""What protecting the foreground takes on this host and is not there.

For each resource, one sentence that says what to do.  Nothing is said of a
resource while there is no background that could take it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

from scavenger_openstack import amounts
from scavenger_openstack.drivers.base import LOOK_TICKS
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import WorkloadSample

KNOBS: Mapping[Resource, tuple[Knob, ...]] = {
    Resource.CPU: (Knob.CPU_CORES, Knob.CPU_SET),
    Resource.MEMORY: (Knob.MEMORY_BYTES,),
    Resource.DISK: (Knob.IO_OPS_PER_S,)}
"""Knobs of a cgroup; each stands for one controller."""

_UNSEEN = {
    Resource.CPU: 'which workload runs while another waits',
    Resource.DISK: 'which workload a disk serves while another waits',
    Resource.NETWORK: 'which workload sends while a link is full',
    Resource.MEMORY: 'which workload takes memory that another waits for',
    Resource.CACHE: 'which workload fills a memory bus'}


class Prerequisites:
    """Looks for them now and then; ``missing`` has what it found last.

    :param protect: the resources to look at
    :param always: what is missing whatever the workloads are; may change
    :param lacks: why a knob of a cgroup cannot be set; empty if it can
    :param delays_off: why waits of cgroups are not measured; empty if they
        are
    :param direct_off: by resource, why the kernel does not tell which
        workload held it while another waited; empty if it does, or was not
        asked yet
    :ivar links: whether a link is known that all share; may change
    :param interfaces: cgroups whose network device is known
    :param libvirt: whether libvirt is asked for VMs, of which it measures the
        waits, also of those that come later
    """

    def __init__(self, protect: Collection[Resource], always: Sequence[str],
                 lacks: Callable[[str, Knob], str],
                 delays_off: Callable[[], str],
                 direct_off: Callable[[], Mapping[Resource, str]], *,
                 links: bool, interfaces: Collection[str], libvirt: bool
                 ) -> None:
        self._protect = protect
        self._always = always
        self._lacks = lacks
        self._delays_off = delays_off
        self._direct_off = direct_off
        self.links = links
        self._interfaces = interfaces
        self._libvirt = libvirt
        self._ticks = 0
        self.missing: tuple[str, ...] = tuple(always)

    def look(self, cgroups: Sequence[WorkloadSample],
             domains: Sequence[WorkloadSample]) -> None:
        """Look again if it is time.

        :param cgroups: the workloads that are cgroups
        :param domains: those that are virtual machines
        """
        self._ticks += 1
        if self._ticks % LOOK_TICKS != 1:
            return
        background = [cgroup[0].id for cgroup in cgroups
                      if cgroup[0].priority is Priority.BACKGROUND]
        found = list(self._always)
        if background:
            found += self._files(background)
        if background or any(domain[0].priority is Priority.BACKGROUND
                             for domain in domains):
            found += self._direct()
            found += self._disk(cgroups)
            found += self._network(background)
        self.missing = tuple(found)

    def _files(self, background: Sequence[str]) -> list[str]:
        """One background cgroup of each parent stands for all of it."""
        first: dict[str, str] = {}
        for workload in background:
            first.setdefault(workload.rpartition('/')[0], workload)
        return [f'{resource}: {why}'
                for resource in self._protect
                for knob in KNOBS.get(resource, ())
                for workload in first.values()
                if (why := self._lacks(workload, knob))]

    def _direct(self) -> list[str]:
        return [f'{resource}: {_UNSEEN[resource]} is not known, only which '
                f'uses how much: {why}'
                for resource, why in self._direct_off().items()
                if why and (Resource.CPU if resource is Resource.CACHE
                            else resource) in self._protect]

    def _disk(self, cgroups: Sequence[WorkloadSample]) -> list[str]:
        if Resource.DISK not in self._protect:
            return []
        foreground = any(cgroup[0].priority is Priority.FOREGROUND
                         for cgroup in cgroups)
        if foreground and (why := self._delays_off()):
            return ['disk: how long foreground cgroups wait for disks is not '
                    f'known: {why}']
        if not foreground and not self._libvirt:
            return ['disk: no foreground workload is known whose waits could '
                    'be measured: name the parents of some in [cgroups] '
                    'foreground_parents']
        return []

    def _network(self, background: Sequence[str]) -> list[str]:
        if Resource.NETWORK not in self._protect:
            return []
        if not self.links:
            return ['network: the device that foreground and background send '
                    'over cannot be found on this host: name it in [network] '
                    'links']
        unknown = [one for one in background if one not in self._interfaces]
        return [] if not unknown else [
            'network: what '
            f'{amounts.counted(len(unknown), "background cgroup")} may send '
            'is not '
            f'limited, {unknown[0]} for one: name the device of each in '
            '[network] interfaces']
