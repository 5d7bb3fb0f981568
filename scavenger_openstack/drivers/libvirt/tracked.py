# SPDX-License-Identifier: Apache-2.0

"""The VMs that are measured, and which of them may be background.

Only operators make a VM background: by its flavor, or, where the flavor says
nothing, by the control plane of a host that allows that.  Source: DESIGN 6.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import logging
import math

from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import disk_places
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel.rtnetlink import LinkBytes
from scavenger_openstack.drivers.libvirt.balloon import Balloons
from scavenger_openstack.drivers.libvirt import block_stats
from scavenger_openstack.drivers.libvirt import domain_cache
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import file_knobs
from scavenger_openstack.drivers.libvirt.health import Health
from scavenger_openstack.drivers.qemu import counters as domain_counters
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack import log_once
from scavenger_openstack.types import Floor
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

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

class TrackedDomains(dict[str, TrackedDomain]):
    """The domains that are measured, by their UUIDs.

    :param cache: what libvirt knows of them
    :param blocks: what their disks did
    :param balloons: where those of all go to
    :param gone: called with the UUID of each that does not run any more
    :ivar changed: those that became others, until that is taken
    :ivar changes: so often other domains were there, or altered
    """

    def __init__(self, cache: domain_cache.DomainCache,
                 blocks: block_stats.Statistics,
                 health: Health, balloons: Balloons,
                 gone: Callable[[str], object], *,
                 floors: Floor, mounts: Mapping[str, Mount], root_dir: str,
                 pressure: bool, logged: log_once.LogOnce) -> None:
        super().__init__()
        self._cache = cache
        self._blocks = blocks
        self._health = health
        self._balloons = balloons
        self._gone = gone
        self._allowed = Allowed(floors, root_dir)
        self._mounts = mounts
        self._root_dir = root_dir
        self._pressure = pressure
        self._logged = logged
        self._followed: Mapping[str, Snapshot] | None = None
        self.changed: set[str] = set()
        self.changes = 0

    def sample(self, link_bytes: LinkBytes = domain_counters.NO_DEVICES,
               *, with_refaults: bool = True
               ) -> tuple[WorkloadSample, ...]:
        """Return what each domain that runs has used so far; never waits.

        :param link_bytes: by the network devices of this host
        :param with_refaults: see :meth:`.cgroup.counters.Counters.read`
        """
        self._cache.begin()
        snapshots = self._cache.snapshots
        self._blocks.tick(snapshots)
        if snapshots is not self._followed:
            self._follow(snapshots)
        samples = []
        for tracked in list(self.values()):
            workload, counters = tracked.workload, tracked.counters
            blocks = self._blocks.of(workload.id) if workload.disks else None
            sample = counters.sample(
                workload, blocks or domain_counters.NO_BLOCKS, link_bytes,
                with_refaults=with_refaults)
            if sample is None:
                # libvirt will say so; until then it is not there.
                self._ended(tracked)
                self._cache.changed(workload.id)
                self._followed = None
                continue
            if counters.plugged():
                self._cache.changed(workload.id, False)
            tracked.memory_bytes = sample.memory_bytes
            samples.append(sample)
        return tuple(samples)

    def _follow(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Take over what is new; what fails is tried again next time."""
        for uuid in self.keys() - snapshots.keys():
            self._ended(self[uuid])
            self._gone(uuid)
        self._followed = snapshots
        for uuid, snapshot in snapshots.items():
            tracked = self.get(uuid)
            if (tracked is None or tracked.snapshot is not snapshot) and \
                    self._track(uuid, tracked, snapshot) is None:
                self._followed = None

    def _track(self, uuid: str, tracked: TrackedDomain | None,
               snapshot: Snapshot) -> TrackedDomain | None:
        """Take over what is new of a domain."""
        domain = snapshot.domain
        self.changed.add(uuid)
        self._balloons.update(snapshot)
        workload = self.workload(snapshot)
        if tracked is not None and \
                tracked.snapshot.identity == snapshot.identity:
            if workload != tracked.workload:
                tracked.workload = workload
                self.changes += 1
            tracked.counters.set_interfaces(domain.interfaces)
            if domain.vcpus != tracked.snapshot.domain.vcpus:
                tracked.counters.relist()
            tracked.snapshot = snapshot
            return tracked
        if tracked is not None:
            self._ended(tracked)
        try:
            counters = domain_counters.DomainCounters(
                snapshot.pid, uuid, self._mounts, domain.interfaces,
                self._root_dir, pressure=self._pressure, logged=self._logged)
        except errors.WorkloadGone:
            self._cache.changed(uuid)
            self._forget(uuid)
            return None
        except OSError as exc:
            if self._logged.due(uuid, cause=('domain', exc.strerror)):
                LOG.warning('domain %s cannot be watched: %s%s', domain.name,
                            exc, log_once.SAME_CAUSE)
            self._forget(uuid)
            return None
        self._logged.over(uuid)
        tracked = self[uuid] = TrackedDomain(
            snapshot, workload, counters,
            file_knobs.Files(counters.machine, self._root_dir))
        self._cache.ends.begins(uuid)
        self.changes += 1
        return tracked

    def _ended(self, tracked: TrackedDomain) -> None:
        """Forget a run of a domain that is over, and its limits with it."""
        uuid = tracked.snapshot.domain.uuid
        self._cache.ends.over(uuid)
        self._health.gone(uuid)
        self._forget(uuid)

    def _forget(self, uuid: str) -> None:
        tracked = self.pop(uuid, None)
        self._allowed.forget(uuid)
        self._balloons.forget(uuid)
        if tracked is not None:
            self.changes += 1
            tracked.counters.close()
            self._blocks.forget(uuid)

    @property
    def machines(self) -> dict[str, domain_cgroup.DomainCgroup]:
        """The cgroups of each domain that has some, by its UUID."""
        return {uuid: machine for uuid, tracked in self.items()
                if (machine := tracked.counters.machine) is not None}

    def place(self, uuid: str) -> perf_event.Place | None:
        """Return where hardware counters see a domain; ``None``: nowhere."""
        tracked = self.get(uuid)
        machine = tracked.counters.machine if tracked else None
        return (machine.place(tracked.snapshot.domain.virt_type)
                if tracked and machine else None)

    @property
    def interfaces(self) -> dict[str, tuple[str, ...]]:
        """The network devices of each background domain on this host."""
        return {uuid: tracked.workload.interfaces
                for uuid, tracked in self.items()
                if tracked.workload.priority is Priority.BACKGROUND}

    def other_interfaces(self, uuid: str) -> int:
        """Return how many network interfaces of a domain have no device
        here."""
        tracked = self.get(uuid)
        return tracked.snapshot.domain.other_interfaces if tracked else 0

    def allow(self, instances: Mapping[str, Floor]) -> None:
        for uuid in self._allowed.want(instances) & self.keys():
            self.alter(self[uuid])

    def alter(self, tracked: TrackedDomain) -> None:
        """Have a domain measured in other words from now on."""
        tracked.workload = self.workload(tracked.snapshot)
        self.changes += 1

    def is_background(self, snapshot: Snapshot) -> bool:
        """Return whether a domain may be limited."""
        domain = snapshot.domain
        return self._allowed.of(
            domain.workload(created_s=0.0), specs_known=domain.specs_known
        ).priority is Priority.BACKGROUND

    def workload(self, snapshot: Snapshot) -> Workload:
        """The domain in the words of the controllers."""
        workload = self._allowed.workload(snapshot)
        kept = self._balloons.kept.get(workload.id)
        return (workload if kept is None
                else dataclasses.replace(workload, memory_kept=kept))

    def close(self) -> None:
        """Close what is kept open."""
        for uuid in list(self):
            self._forget(uuid)
