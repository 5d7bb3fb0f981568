# SPDX-License-Identifier: Apache-2.0


"""Which workloads share a resource, so that one can disturb the other."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping

from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates


def share(signal: str, victim: Workload, suspect: Workload,
          topology: Mapping[int, Cpu]) -> bool:
    """Whether both use something that contention of ``signal`` is about.

    A CPU or its sibling for ``run_delay``; a last-level cache or a memory
    bus for ``cpi``; a disk for ``io_wait``.  What is not known of a
    workload may be anywhere.
    """
    if signal == 'io_wait':
        own, other = set(victim.disks or ('',)), set(suspect.disks or ('',))
        return '' in own | other or bool(own & other)
    if victim.allowed_cpus is None or suspect.allowed_cpus is None:
        return True
    if signal == 'run_delay':
        return bool(_cores(victim, topology) & _cores(suspect, topology))
    return bool(_caches(victim, topology) & _caches(suspect, topology)
                or _buses(victim, topology) & _buses(suspect, topology))


def by_disk(workloads: Iterable[WorkloadRates]
            ) -> dict[str, list[WorkloadRates]]:
    """Return which workloads may use each disk, and so share it.

    What is not known of a workload may be anywhere; '' are all disks, where
    none is known.
    """
    present = list(workloads)
    disks = sorted({disk for rated in present for disk in rated[0].disks
                    if disk})
    if not disks:
        return {'': present}
    return {disk: [rated for rated in present
                   if disk in rated[0].disks or '' in rated[0].disks
                   or not rated[0].disks] for disk in disks}


def sides(workloads: Iterable[WorkloadRates]
          ) -> tuple[list[WorkloadRates], list[WorkloadRates]]:
    """Return the foreground, and the background."""
    foreground: list[WorkloadRates] = []
    background: list[WorkloadRates] = []
    for rated in workloads:
        (background if rated[0].priority is Priority.BACKGROUND
         else foreground).append(rated)
    return foreground, background


def link_of(workload: Workload, links: Mapping[str, str]) -> str | None:
    """The link of a workload's traffic: the first that is known.

    :param links: by interface
    """
    for interface in workload.interfaces:
        if interface in links:
            return links[interface]
    return None


def _cores(workload: Workload, topology: Mapping[int, Cpu]
           ) -> set[tuple[str, int]]:
    """Return a workload's cores; a CPU whose core is unknown is one by
    itself."""
    return {('core', topology[cpu].core) if cpu in topology else ('cpu', cpu)
            for cpu in workload.allowed_cpus or ()}


def _caches(workload: Workload, topology: Mapping[int, Cpu]) -> set[int]:
    return {topology[cpu].llc if cpu in topology else -1
            for cpu in workload.allowed_cpus or ()}


def _buses(workload: Workload, topology: Mapping[int, Cpu]) -> set[int]:
    return {topology[cpu].numa if cpu in topology else -1
            for cpu in workload.allowed_cpus or ()}
