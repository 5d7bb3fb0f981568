# SPDX-License-Identifier: Apache-2.0

"""The VMs that are tracked, and which of them may be background.

Only operators make a VM background: by its flavor, or, where the flavor says
nothing, by the control plane of a host that allows that.  Source: DESIGN 6.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math

from scavenger_openstack.drivers.kernel import disk_places
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import file_knobs
from scavenger_openstack.drivers.qemu import counters as domain_counters
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.types import Floor
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

TICKS_PER_S = 100       # USER_HZ, of Linux on all machines that run libvirt


class TrackedDomain:
    """A domain, the descriptors that are kept for it, and the memory that it
    used at the last look."""

    __slots__ = ('counters', 'files', 'memory_bytes', 'snapshot', 'workload')

    def __init__(self, snapshot: Snapshot, workload: Workload,
                 counters: domain_counters.DomainCounters,
                 files: file_knobs.Files) -> None:
        self.snapshot = snapshot
        self.workload = workload
        self.counters = counters
        self.files = files
        self.memory_bytes: int | None = None


class Allowed:
    """The VMs that an operator of the control plane made background.

    One that was stays so for as long as it runs: whether it is background
    now is decided with each sample, and a limit that it has until then must
    not hang.

    :param floors: what the file of this host says
    :param root_dir: where /sys is looked for
    """

    def __init__(self, floors: Floor = DEFAULT_FLOORS, root_dir: str = '/'
                 ) -> None:
        self._floors = floors
        self._root_dir = root_dir
        self._wanted: Mapping[str, Floor] = {}
        self._made: dict[str, Floor] = {}

    def want(self, wanted: Mapping[str, Floor]) -> set[str]:
        """These are to be, and no others; returns those that are not yet.

        :param wanted: with the floor that the flavor of each sets
        """
        self._wanted = wanted
        return {uuid for uuid, floor in wanted.items()
                if self._made.get(uuid) != floor}

    def forget(self, uuid: str) -> None:
        """Forget a domain that does not run any more."""
        self._made.pop(uuid, None)

    def of(self, workload: Workload, *, specs_known: bool) -> Workload:
        """The workload, background if that is allowed and no flavor says
        something else."""
        floor = self._wanted.get(workload.id, self._made.get(workload.id))
        if workload.source != 'default' or floor is None:
            return workload
        self._made[workload.id] = floor
        return dataclasses.replace(
            workload, priority=Priority.BACKGROUND, source='override',
            floor=self._floor(workload, floor, specs_known))

    def workload(self, snapshot: Snapshot) -> Workload:
        """The domain in the words of the controllers."""
        domain = snapshot.domain
        workload = dataclasses.replace(
            domain.workload(created_s=snapshot.started / TICKS_PER_S),
            disks=tuple(dict.fromkeys(
                place for disk in domain.disks
                for place in disk_places.of(disk.path, self._root_dir))))
        if domain.whole_cores and workload.dedicated_cpus:
            workload = dataclasses.replace(
                workload, dedicated_cpus=frozenset().union(
                    *(proc.siblings(cpu, self._root_dir)
                      for cpu in workload.dedicated_cpus)))
        return self.of(workload, specs_known=domain.specs_known)

    def _floor(self, workload: Workload, wanted: Floor, specs_known: bool
               ) -> Floor:
        """The floor with that of the flavor, which only raises it.

        Where the flavor is not known here, its RAM is the floor of the
        memory for want of another: then that may be lower, but not below
        what the file of this host says.
        """
        least = dict(workload.floor)
        if not specs_known and Knob.MEMORY_BYTES in wanted:
            least[Knob.MEMORY_BYTES] = self._floors[Knob.MEMORY_BYTES]
        most = {Knob.CPU_CORES: workload.vcpus,
                Knob.MEMORY_BYTES: workload.memory_allotment_bytes}
        return {**least, **{
            knob: max(least.get(knob, 0.0),
                      min(value, most.get(knob) or math.inf))
            for knob, value in wanted.items()}}
