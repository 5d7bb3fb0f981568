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
import time

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_mounts
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
from scavenger_openstack.drivers.libvirt.tracked import TrackedDomains
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack.drivers.qemu import process
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack import log_once
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value


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
        logged = logged or log_once.LogOnce()
        mounts = mounts or cgroup_mounts.find_mounts(root_dir, logged)
        self._libvirt = client.Libvirt(uri, mounts.get('cpu'))
        self.executor = executor or base.new_executor(timeout_s)
        self._health = health.Health(self._libvirt, self.executor, timeout_s,
                                     self._is_idle)
        self.libvirt_facts = self._health.facts
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
        self.tracked = TrackedDomains(
            self._cache, self._blocks, self._health, self._balloons,
            self._remover.forget, floors=floors, mounts=mounts,
            root_dir=root_dir, pressure=pressure, logged=logged)
        self.sample, self.allow = self.tracked.sample, self.tracked.allow
        self.instances = self._cache.instances
        self.ends = self._cache.ends
        self._cache.start(timeout_s)

    def queue(self, workload: str, knob: Knob) -> str:
        return workload if knob in domain_knobs.RULES else ''

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
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
        if (tracked := self.tracked.get(workload)) is not None:
            tracked.counters.wake()
        if knob is Knob.MEMORY_BYTES:       # where its balloon goes to
            return int(wanted['balloon_kib']) * domain_knobs.BYTES_PER_KIB
        return self.read(workload, knob, state)

    def fast_cpu_set(self, uuid: str) -> base.CpuSet:
        self._background(uuid)
        cpu_set = self._files(uuid, Knob.CPU_SET)
        assert isinstance(cpu_set, cpuset.CpuSet)
        cpu_set.begin()
        return cpu_set

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        changed, self.tracked.changed = self.tracked.changed, set()
        return base.Changes(changed, self._reconcile(held),
                            self._unmet(held))

    def notify(self, event: base.Event) -> bool:
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
                and workload in self.tracked):
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
            (uuid, Knob.CPU_SET) for uuid, tracked in self.tracked.items()
            if (uuid, Knob.CPU_SET) in held and tracked.files.plugged()}

    def _unmet(self, held: Mapping[KnobKey, base.KnobState]
               ) -> dict[str, int]:
        snapshots, before = self._cache.snapshots, self._balloons.kept
        unmet = self._balloons.unmet(
            [(snapshots[uuid], int(state.ours.value or 0),
              tracked.memory_bytes)
             for (uuid, knob), state in held.items()
             if knob is Knob.MEMORY_BYTES and state.ours is not None
             and (tracked := self.tracked.get(uuid)) is not None
             and uuid in snapshots and self._is_ours(snapshots[uuid], knob)],
            time.monotonic())
        for uuid in before.keys() ^ self._balloons.kept.keys():
            if (altered := self.tracked.get(uuid)) is not None:
                self.tracked.alter(altered)
        return unmet

    def close(self) -> None:
        """Close what is kept open."""
        self._health.close()
        self._remover.close()
        self._blocks.close()
        self._cache.close()
        self._libvirt.close()
        self.tracked.close()

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
        if not self.tracked.is_background(snapshot):
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
        tracked = self.tracked.get(uuid)
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
        if (tracked := self.tracked.get(uuid)) is None:
            raise errors.WorkloadGone(f'domain {uuid} does not run here')
        return tracked.files.of(knob, tracked.snapshot.domain)
