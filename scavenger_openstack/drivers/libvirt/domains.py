# SPDX-License-Identifier: Apache-2.0


"""VMs below libvirt, as workloads with counters and limits.

The tick reads what is known and never calls libvirt: a thread keeps what
libvirt knows of each domain current (:mod:`.domain_cache`), another asks
for what disks did (:mod:`.block_stats`), and the writes of limits wait in
a queue of its own for each domain (:meth:`Domains.queue`).  Before the first
cap on a knob our record is set in the domain: a domain that comes with a
record and no lease of ours has its limit removed.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import logging
import time

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.rtnetlink import LinkBytes
from scavenger_openstack.drivers.libvirt import adopt
from scavenger_openstack.drivers.libvirt import balloon
from scavenger_openstack.drivers.libvirt import block_stats
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import domain_cache
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import file_knobs
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt import health
from scavenger_openstack.drivers.libvirt import knobs as domain_knobs
from scavenger_openstack.drivers.libvirt import limiting
from scavenger_openstack.drivers.libvirt.tracked import Allowed
from scavenger_openstack.drivers.libvirt.tracked import TrackedDomain
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack.drivers.qemu import counters as domain_counters
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.drivers.qemu import process
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack import log_once
from scavenger_openstack.types import Floor
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Value
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)


class Domains:
    """Implements :class:`scavenger_openstack.drivers.base.Knobs`.

    The id of a workload is the UUID of its domain.

    :param uri: of the libvirtd
    :param run_dir: where libvirt keeps the PID of each domain
    :param floors: below these no cap goes where the flavor sets none
    :param stats_ticks: ticks from one question about disks to the next
    :param timeout_s: how long libvirt may take for an answer
    :param root_dir: where /proc and /sys are looked for
    :param logged: what was logged of this host
    :param mounts: where cgroup controllers are mounted; may change
    :param executor: makes all calls of the host that may hang
    :raises ConfigError: libvirt-python is missing, or the URI cannot work.
    :raises DriverError: the cgroup mounts cannot be read.
    """

    def __init__(self, uri: str, *,
                 run_dir: str = process.RUN_DIR,
                 floors: Mapping[Knob, float] = DEFAULT_FLOORS,
                 stats_ticks: int = 5, timeout_s: float = 2.0,
                 root_dir: str = '/', pressure: bool = False,
                 logged: log_once.LogOnce | None = None,
                 mounts: Mapping[str, cgroup_mounts.Mount] | None = None,
                 executor: calls.Executor | None = None) -> None:
        self._logged = logged or log_once.LogOnce()
        self._mounts = mounts or cgroup_mounts.find_mounts(root_dir,
                                                           self._logged)
        self._libvirt = client.Libvirt(uri, self._mounts.get('cpu'))
        self.executor = executor or base.new_executor(timeout_s)
        self._health = health.Health(self._libvirt, self.executor, timeout_s,
                                     self._is_idle)
        self.libvirt_facts = self._health.facts
        self._root_dir = root_dir
        self._pressure = pressure
        self._tracked: dict[str, TrackedDomain] = {}
        self._allowed = Allowed(floors, root_dir)
        self._followed: Mapping[str, Snapshot] | None = None
        self._changed: set[str] = set()
        self.changes = 0    # so often other domains were there, or altered
        self._runs: dict[KnobKey, tuple[object, ...]] = {}
        self._balloons = balloon.Balloons()
        cgroup_files.allow_many_files()
        self._blocks = block_stats.Statistics(
            self._libvirt, self._health, self.executor, ticks=stats_ticks,
            timeout_s=timeout_s)
        self._cache = domain_cache.DomainCache(
            self._libvirt, self._health, self.executor, run_dir=run_dir,
            root_dir=root_dir, parse=lambda text: xml.parse(text, floors))
        self._remover = adopt.Remover(self._health, self._cache,
                                      self.executor, self._ours)
        self.instances = self._cache.instances
        self.ends = self._cache.ends
        self._cache.start(timeout_s)

    # --- what there is

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
        for tracked in list(self._tracked.values()):
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
        for uuid in self._tracked.keys() - snapshots.keys():
            self._ended(self._tracked[uuid])
            self._remover.forget(uuid)
        self._followed = snapshots
        for uuid, snapshot in snapshots.items():
            tracked = self._tracked.get(uuid)
            if (tracked is None or tracked.snapshot is not snapshot) and \
                    self._track(uuid, tracked, snapshot) is None:
                self._followed = None

    def _track(self, uuid: str, tracked: TrackedDomain | None,
               snapshot: Snapshot) -> TrackedDomain | None:
        """Take over what is new of a domain."""
        domain = snapshot.domain
        self._changed.add(uuid)
        self._balloons.update(snapshot)
        workload = self._workload(snapshot)
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
        tracked = self._tracked[uuid] = TrackedDomain(
            snapshot, workload, counters,
            file_knobs.Files(counters.machine, self._root_dir))
        self.ends.begins(uuid)
        self.changes += 1
        return tracked

    def _ended(self, tracked: TrackedDomain) -> None:
        """Forget a run of a domain that is over, and its limits with it."""
        uuid = tracked.snapshot.domain.uuid
        self.ends.over(uuid)
        self._health.gone(uuid)
        self._forget(uuid)

    def _forget(self, uuid: str) -> None:
        tracked = self._tracked.pop(uuid, None)
        self._allowed.forget(uuid)
        self._balloons.forget(uuid)
        if tracked is not None:
            self.changes += 1
            tracked.counters.close()
            self._blocks.forget(uuid)

    @property
    def machines(self) -> dict[str, domain_cgroup.DomainCgroup]:
        """The cgroups of each domain that has some, by its UUID."""
        return {uuid: machine for uuid, tracked in self._tracked.items()
                if (machine := tracked.counters.machine) is not None}

    def place(self, uuid: str) -> perf_event.Place | None:
        """Return where hardware counters see a domain; ``None``: nowhere."""
        tracked = self._tracked.get(uuid)
        machine = tracked.counters.machine if tracked else None
        return (machine.place(tracked.snapshot.domain.virt_type)
                if tracked and machine else None)

    @property
    def interfaces(self) -> dict[str, tuple[str, ...]]:
        """The network devices of each background domain on this host."""
        return {uuid: tracked.workload.interfaces
                for uuid, tracked in self._tracked.items()
                if tracked.workload.priority is Priority.BACKGROUND}

    def other_interfaces(self, uuid: str) -> int:
        """Return how many network interfaces of a domain have no device
        here."""
        tracked = self._tracked.get(uuid)
        return tracked.snapshot.domain.other_interfaces if tracked else 0

    # --- limits

    def allow(self, instances: Mapping[str, Floor]) -> None:
        """See :meth:`scavenger_openstack.drivers.base.Driver.allow`."""
        for uuid in self._allowed.want(instances) & self._tracked.keys():
            tracked = self._tracked[uuid]
            tracked.workload = self._workload(tracked.snapshot)
            self.changes += 1

    def queue(self, workload: str, knob: Knob) -> str:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.queue`."""
        return workload if knob in domain_knobs.RULES else ''

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.read`."""
        if knob in file_knobs.KNOBS:
            return self._files(workload, knob).read()
        snapshot = self._snapshot(workload)
        rule = domain_knobs.rule(knob)
        written = state is not None and state.ours is not None
        if not self._is_ours(snapshot, knob):
            if written:
                raise self._other(snapshot, knob)
            if knob in snapshot.records:
                raise adopt.foreign(snapshot.domain.name, knob)
        if knob is Knob.MEMORY_BYTES and not written:
            return rule.value(balloon.full(snapshot))
        return rule.value(self._settled(snapshot, knob, state))

    def restore_actions(self, workload: str, knob: Knob,
                        state: base.KnobState | None = None
                        ) -> list[base.RestoreAction]:
        """See :meth:`scavenger_openstack.drivers.base.Knobs`.

        A knob that we have not written is looked at again.
        """
        if knob in file_knobs.KNOBS:
            return self._files(workload, knob).actions()
        snapshot = self._snapshot(workload)
        rule = domain_knobs.rule(knob)
        ours = self._is_ours(snapshot, knob)
        written = ours and state is not None and state.ours is not None
        if not written:
            with self._health.domain(workload) as handle:
                snapshot = self._refresh(workload, handle)
                if knob is Knob.MEMORY_BYTES:
                    snapshot = balloon.whole(snapshot,
                                             handle.inactive())
            if not ours and knob in snapshot.records:
                raise adopt.foreign(snapshot.domain.name, knob)
        values = rule.values(self._settled(snapshot, knob,
                                           state if ours else None))
        if not written:
            self._runs[workload, knob] = domain_knobs.identity(snapshot, knob)
        return [{'do': 'domain', 'uri': self._libvirt.uri, 'uuid': workload,
                 'pid': snapshot.pid, 'started': snapshot.started,
                 'knob': str(knob), 'values': self._for_libvirt(values)}]

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value | None:
        """See :meth:`.base.Knobs.write`; only background is written to.

        :raises WorkloadGone: also when the domain was started again since
            :meth:`restore_actions` described this knob.
        """
        snapshot = self._background(workload)
        if knob in file_knobs.KNOBS:
            return self._files(workload, knob).write(value, state)
        rule = domain_knobs.rule(knob)
        with self._health.domain(workload) as handle:
            snapshot = self._refresh(workload, handle)
            if state is None or not self._is_ours(snapshot, knob):
                raise self._other(snapshot, knob)
            now = rule.values(self._settled(snapshot, knob, state))
            if state.ours is not None and self._for_libvirt(
                    now) != state.ours.actions[0]['values']:
                raise errors.Overtaken(f'domain {snapshot.domain.name}: '
                                       f'another program has set {knob}')
            original = limiting.original(snapshot, knob, state)
            self._remover.astray(workload, knob)
            if snapshot.records.get(knob) != original:
                limiting.record(handle, knob, original)
            wanted = rule.plan(snapshot, original, value)
            # A balloon on its way is told again: it may be called back.
            if wanted != rule.values(snapshot):
                cannot = limiting.limit(
                    handle, snapshot, knob, wanted, domain_knobs.groups(
                        snapshot, knob, original))
                if cannot:
                    self._cache.cannot_limit(workload, cannot)
                    original = limiting.without(knob, original, cannot)
                    limiting.record(handle, knob, original)
            if not self._is_ours(self._refresh(workload, handle), knob):
                # Our cap got into the new run; by this record it is removed.
                limiting.record(handle, knob, original)
                self._refresh(workload, handle)
                raise self._other(snapshot, knob)
            self._remover.arrived(workload, knob)
        if (tracked := self._tracked.get(workload)) is not None:
            tracked.counters.wake()
        if knob is Knob.MEMORY_BYTES:       # where its balloon goes to
            return int(wanted['balloon_kib']) * domain_knobs.BYTES_PER_KIB
        return self.read(workload, knob, state)

    def fast_cpu_set(self, uuid: str) -> base.CpuSet:
        """See :meth:`.base.CpuSets.fast_cpu_set`."""
        self._background(uuid)
        cpu_set = self._files(uuid, Knob.CPU_SET)
        assert isinstance(cpu_set, cpuset.CpuSet)
        cpu_set.begin()
        return cpu_set

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.refresh`."""
        changed, self._changed = self._changed, set()
        return base.Changes(changed, self._reconcile(held),
                            self._unmet(held))

    def notify(self, event: base.Event) -> bool:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.notify`."""
        match event:
            case base.Removed(workload, knob, state):
                self._removed(workload, knob, state)
            case base.TimedOut(keys, done):
                self._health.timed_out(keys, done)
                return True
            case base.Failed(workload, knob, text, reset) if self.queue(
                    workload, knob):
                # What removes a limit that is not ours logs it.
                self._health.failed(
                    (workload, knob),
                    '' if adopt.NOT_OURS in text else text, reset)
                return True
        return False

    def _removed(self, workload: str, knob: Knob,
                 state: base.KnobState | None) -> None:
        run = self._runs.get((workload, knob))
        if run is None:
            return
        if (knob is Knob.MEMORY_BYTES and state is not None
                and workload in self._tracked):
            self._balloons.rises(workload, run, state)
        try:
            with self._libvirt.domain(workload) as handle:
                self._cache.refresh(workload, handle.read)
        except errors.DriverError:
            self._cache.changed(workload, False)
        # Not before: a record that is still known would seem foreign.
        self._runs.pop((workload, knob), None)

    def _reconcile(self, held: Mapping[KnobKey, base.KnobState]
                   ) -> set[KnobKey]:
        """Begin to remove limits that domains came with.  To be written again
        are those of ours whose record does not say what their leases do, and
        CPU sets under which a vCPU has come or gone."""
        snapshots = self._cache.snapshots
        for uuid, snapshot in snapshots.items():
            knobs = [knob for knob in snapshot.records
                     if (uuid, knob) not in held
                     and not self._is_ours(snapshot, knob)]
            if knobs:
                self._remover.remove(uuid, knobs)
        return {key for key, state in held.items()
                if state.ours is not None
                and (current := snapshots.get(key[0])) is not None
                and self._is_ours(current, key[1])
                and not limiting.is_recorded(current, key[1], state)} | {
            (uuid, Knob.CPU_SET) for uuid, tracked in self._tracked.items()
            if (uuid, Knob.CPU_SET) in held and tracked.files.plugged()}

    def _unmet(self, held: Mapping[KnobKey, base.KnobState]
               ) -> dict[str, int]:
        snapshots, before = self._cache.snapshots, self._balloons.kept
        unmet = self._balloons.unmet(
            [(snapshots[uuid], int(state.ours.value or 0),
              tracked.memory_bytes)
             for (uuid, knob), state in held.items()
             if knob is Knob.MEMORY_BYTES and state.ours is not None
             and (tracked := self._tracked.get(uuid)) is not None
             and uuid in snapshots and self._is_ours(snapshots[uuid], knob)],
            time.monotonic())
        for uuid in before.keys() ^ self._balloons.kept.keys():
            if (changed := self._tracked.get(uuid)) is not None:
                changed.workload = self._workload(changed.snapshot)
                self.changes += 1
        return unmet

    def _workload(self, snapshot: Snapshot) -> Workload:
        """The domain in the words of the controllers."""
        workload = self._allowed.workload(snapshot)
        kept = self._balloons.kept.get(workload.id)
        return (workload if kept is None
                else dataclasses.replace(workload, memory_kept=kept))

    def close(self) -> None:
        """Close what is kept open."""
        self._health.close()
        self._remover.close()
        self._blocks.close()
        self._cache.close()
        self._libvirt.close()
        for uuid in list(self._tracked):
            self._forget(uuid)

    # --- inside

    def _snapshot(self, uuid: str) -> Snapshot:
        snapshot = self._cache.snapshots.get(uuid)
        if snapshot is None:
            raise errors.WorkloadGone(f'domain {uuid} does not run here')
        return snapshot

    def _background(self, uuid: str) -> Snapshot:
        """Return what is known of a domain that may be limited.

        :raises Unsupported: it is foreground.
        """
        snapshot = self._snapshot(uuid)
        if self._allowed.workload(snapshot).priority is Priority.FOREGROUND:
            raise errors.Unsupported(
                f'domain {snapshot.domain.name} is foreground: it is never '
                'limited')
        return snapshot

    def _refresh(self, uuid: str, handle: domain_handle.Handle) -> Snapshot:
        snapshot = self._cache.refresh(uuid, handle.read)
        if snapshot is None:
            raise errors.WorkloadGone(f'domain {uuid} does not run here')
        return snapshot

    def _is_ours(self, snapshot: Snapshot, knob: Knob) -> bool:
        """Return whether a knob of this run of a domain is ours."""
        return self._runs.get((snapshot.domain.uuid, knob)
                              ) == domain_knobs.identity(snapshot, knob)

    def _other(self, snapshot: Snapshot, knob: Knob) -> errors.WorkloadGone:
        """Return what to raise of a limit of another run, or of other
        devices."""
        run = self._runs.get((snapshot.domain.uuid, knob), ())
        return errors.WorkloadGone(
            'the VM has other vCPUs or disks now'
            if run[:2] == snapshot.identity
            else self.ends.again(snapshot.domain.uuid))

    def _is_idle(self, uuid: str) -> bool:
        """Return whether a domain is idle for the scheduler; any thread may
        ask."""
        tracked = self._tracked.get(uuid)
        return tracked is not None and tracked.files.is_idle()

    def _ours(self, uuid: str, knob: Knob) -> bool:
        snapshot = self._cache.snapshots.get(uuid)
        return snapshot is not None and self._is_ours(snapshot, knob)

    def _settled(self, snapshot: Snapshot, knob: Knob,
                 state: base.KnobState | None) -> Snapshot:
        return (self._balloons.settled(snapshot, state)
                if knob is Knob.MEMORY_BYTES else snapshot)

    def _for_libvirt(self, values: Mapping[str, str]) -> dict[str, str]:
        return domain_knobs.for_libvirt(values, self._libvirt.no_quota_us)

    def _files(self, uuid: str, knob: Knob) -> file_knobs.File:
        if (tracked := self._tracked.get(uuid)) is None:
            raise errors.WorkloadGone(f'domain {uuid} does not run here')
        return tracked.files.of(knob, tracked.snapshot.domain)
