# SPDX-License-Identifier: Apache-2.0


"""Cgroups, v1 and v2, as workloads with counters and limits.

A workload is a cgroup directly below a configured parent, with all that is
in it.  Its identity is the inode of its directory: when that changes under
the same path it is another workload.  What is not configured is not looked
at: it is foreground by being part of the host's totals.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import logging

from scavenger_openstack.algorithms.classify import is_of_kubelet
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import counters as cgroup_counters
from scavenger_openstack.drivers.cgroup.cpuset_tree import FastCpuSet
from scavenger_openstack.drivers.cgroup import directories
from scavenger_openstack.drivers.cgroup import discovery
from scavenger_openstack.drivers.cgroup import disks
from scavenger_openstack.drivers.cgroup import kill
from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.cgroup import memory
from scavenger_openstack.drivers.cgroup import own_limits
from scavenger_openstack.drivers.cgroup import pods
from scavenger_openstack.drivers.cgroup import statistics
from scavenger_openstack.drivers.cgroup import used_disks
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack import log_once
from scavenger_openstack import types

LOG = logging.getLogger(__name__)


class _Entry:
    """A workload and the descriptors that are kept for it."""

    __slots__ = ('counters', 'inode', 'parent', 'used_disks', 'workload')

    def __init__(self, parent: discovery.Parent, inode: int,
                 workload: types.Workload,
                 counters: cgroup_counters.Counters) -> None:
        self.parent = parent
        self.inode = inode
        self.workload = workload
        self.counters = counters
        self.used_disks = used_disks.UsedDisks()


class Cgroups:
    """Implements :class:`scavenger_openstack.drivers.base.Knobs`.

    A workload's own limits (``vcpus``, ``memory_allotment_bytes``,
    ``allowed_cpus``) are read when it is found and in its first ticks, and
    in turn while it has no limit of ours; mounts and disks are looked at
    again every :data:`~.base.RESCAN_TICKS`.

    :param background_parents: cgroups, as paths below the mount, whose
        children are background workloads
    :param foreground_parents: the same for foreground workloads
    :param killable_parents: background parents that opted in to kills
    :param floors: below these no cap goes, by knob
    :param memory_root: a cgroup that plays the host's memory
    :param io_devices: disks that the I/O limits and counters are about
        (``vda`` or ``8:0``); default all whole disks
    :param root_dir: where /proc and /sys are looked for
    :param pressure: sample PSI where it exists; half the cost of sampling
    :param background_groups: cgroups above background parents that hold
        nothing else
    :param logged: what was logged of this host
    :raises ConfigError: the parents cannot work.
    :raises DriverError: the cgroup mounts cannot be read.
    """

    def __init__(self, background_parents: Sequence[str],
                 foreground_parents: Sequence[str] = (),
                 killable_parents: Sequence[str] = (),
                 floors: Mapping[types.Knob, float] = DEFAULT_FLOORS,
                 memory_root: str | None = None,
                 io_devices: Sequence[str] = (),
                 root_dir: str = '/', *, pressure: bool = True,
                 background_groups: Sequence[str] = (),
                 logged: log_once.LogOnce | None = None) -> None:
        self._logged = logged or log_once.LogOnce()
        self._mounts = cgroup_mounts.Mounts(root_dir, self._logged)
        if not self._mounts:
            raise errors.ConfigError(
                'no cgroup file system is mounted; mount one at '
                '/sys/fs/cgroup')
        self._parents = discovery.Parents(
            self._mounts, background_parents, foreground_parents,
            killable_parents, background_groups, self._logged)
        self._floors = dict(floors)
        self._memory_root = (
            None if memory_root is None else memory.MemoryRoot(
                self._mounts, discovery.normal(memory_root)))
        self._root_dir = root_dir
        self._disks = disks.Disks(tuple(io_devices), root_dir, self._logged)
        self._rules = knobs.rules(lambda: self._disks.now)
        self._opened = directories.Directories(self._mounts, root_dir)
        self._pressure = pressure
        self._sources = self._find_sources()
        self._allotments = own_limits.Allotments(self._mounts,
                                                 self._rules)
        self._entries: dict[str, _Entry] = {}
        self._leased: set[types.KnobKey] = set()
        self._turn = own_limits.Turn()
        self._ticks = 0
        self._changed: set[str] = set()
        self._rewrite: set[types.KnobKey] = set()
        cgroup_files.allow_many_files()
        self.executor = base.new_executor()

    @property
    def mounts(self) -> cgroup_mounts.Mounts:
        """Return where controllers are mounted now."""
        return self._mounts

    # --- what there is

    def sample(self, *, with_refaults: bool = True
               ) -> tuple[types.WorkloadSample, ...]:
        """Return what each workload has used so far.

        Workloads that vanish, also in the middle, are left out (one made
        again under the same name is met at the next call); parents that
        cannot be read are warned about once.

        :param with_refaults: as :meth:`.counters.Counters.read`
        :raises DriverError: out of descriptors: nothing is known.
        """
        self._ticks += 1
        other_disks = (not self._ticks % base.RESCAN_TICKS
                       and self._look_again())
        scan = self._parents.scan()
        entries = self._entries
        fresh = [child for child in scan
                 if child.id not in entries
                 or entries[child.id].inode != child.inode]
        if fresh or len(scan) != len(entries):
            self._forget_but({child.id: child.inode for child in scan})
            self._meet(fresh)
        turn = self._turn.next(lambda: self._without_limits(entries))
        for name in self._turn.settling:
            if name in entries:
                entries[name].counters.wake()
        for name in self._without_limits(turn):     # also since the list
            self._read_limits(name)
        samples = []
        for child in scan:
            entry = entries.get(child.id)
            if entry is None:
                continue
            if entry.workload.group != child.group:
                entry.workload = dataclasses.replace(entry.workload,
                                                     group=child.group)
            sample = entry.counters.sample(entry.workload,
                                           with_refaults=with_refaults)
            if sample is None:
                LOG.debug('%s vanished', child.id)
                child.parent.seen = None    # another may have its name
                self._forget(child.id)
                continue
            if other_disks:     # what one did so far is no use of now
                sample = sample._replace(io_bytes=None, io_ops=None)
            samples.append(sample)
        if not self._ticks % base.RESCAN_TICKS:
            self._find_disks()
        return tuple(samples)

    def _find_disks(self) -> None:
        """Look which disks workloads use, where there are several."""
        disks_now = self._disks.now
        for entry in self._entries.values():
            used = entry.used_disks.look(
                entry.counters.disk_operations(), disks_now) if len(
                    disks_now) > 1 else ()
            if used != entry.workload.disks:
                entry.workload = dataclasses.replace(entry.workload,
                                                     disks=used)

    def _read_limits(self, workload: str) -> None:
        """Read a workload's own limits again.

        Only for one that has no cap of ours, which would count as its own.
        """
        entry, limits = self._entries[workload], self._allotments.of(workload)
        if any(getattr(entry.workload, field) != value
               for field, value in limits.items()):
            entry.workload = dataclasses.replace(entry.workload, **limits)

    def cpus_changed(self) -> None:
        """Read at once where workloads may run: CPUs came or went."""
        self._turn.settle(self._entries)

    def _without_limits(self, names: Iterable[str]) -> list[str]:
        """Return the workloads without a limit of ours; foreground never
        has one."""
        limited = {workload for workload, _ in list(self._leased)}
        workloads = [self._entries[name].workload for name in names
                     if name in self._entries]
        return [workload.id for workload in workloads
                if workload.priority is types.Priority.FOREGROUND
                or limited.isdisjoint((workload.id, workload.group))]

    def _look_again(self) -> bool:
        """Look for other disks and mounts; whether there are other disks."""
        other_disks = self._disks.refresh()
        if other_disks:
            self._opened.forget_disks()
            keys = {key for key in list(self._leased) if key[1] in knobs.IO}
            self._rewrite |= keys
            self._changed.update(workload for workload, _ in keys)
            for entry in self._entries.values():
                entry.counters.parse_again()
        changed = self._mounts.refresh()
        if not changed:
            return other_disks
        self._parents.follow(self._mounts)
        self._opened.forget_controllers(changed)
        self._sources = self._find_sources()
        for entry in self._entries.values():
            entry.counters.follow(self._sources[entry.workload.priority])
        return other_disks

    def _find_sources(self) -> dict[types.Priority, list[statistics.Source]]:
        """Return the files to read of a workload of each priority."""
        counts = memory.counts_refaults(self._mounts)
        return {priority: statistics.sources(
            self._mounts, self._disks.counted, pressure=self._pressure,
            refaults=counts and priority is types.Priority.BACKGROUND)
            for priority in types.Priority}

    def _meet(self, fresh: Sequence[discovery.Child]) -> None:
        """Begin to measure new workloads.

        Cgroup file systems keep no birth time (a directory's ctime is that
        of a look-up), but hand out inode numbers in rising order.  So
        ``created_s`` is the inode number: no time, but in the order of age
        within one hierarchy, and the same after a restart.
        """
        all_watched = True
        for child in fresh:
            try:
                counters = cgroup_counters.Counters(
                    self._sources[child.parent.priority], child.id,
                    self._logged)
            except OSError as exc:
                if self._logged.due('watched'):
                    LOG.warning('%s', cgroup_files.explain(
                        exc, f'{child.id} cannot be watched'))
                all_watched = False
                continue
            parent = child.parent
            workload = types.Workload(
                id=child.id, priority=parent.priority, source='parent',
                group=child.group, killable=parent.killable,
                floor=self._floors, created_s=float(child.inode),
                **self._allotments.of(child.id))
            self._entries[child.id] = _Entry(parent, child.inode, workload,
                                             counters)
            self._turn.settle([child.id])
            LOG.debug('%s found: %s', child.id, workload)
        if all_watched:
            self._logged.over('watched')

    def _forget_but(self, inodes: Mapping[str, int]) -> None:
        for name, entry in list(self._entries.items()):
            if inodes.get(name) != entry.inode:
                LOG.debug('%s vanished', name)
                self._forget(name)
            if name not in inodes:
                self._leased -= {key for key in list(self._leased)
                                 if key[0] == name}

    def _forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.counters.close()
            # One of its name that comes is another.
            self._changed |= {name, entry.workload.group or name}
        self._let_go(name)

    def _let_go(self, name: str) -> None:
        self._opened.forget(name)
        self._allotments.forget(name)

    def memory(self) -> proc.Memory | None:
        """Return the memory of what plays the host.

        ``None`` without a ``memory_root``, or when it cannot be read or has
        no limit (one warning).
        """
        return self._memory_root.read() if self._memory_root else None

    @property
    def memory_limit_ends(self) -> bool:
        """Return whether the kernel ends a process that grows against a
        memory limit: version 2 slows it first."""
        return ('memory' in self._mounts
                and self._mounts['memory'].version == 1)

    # --- limits

    def read(self, workload: str, knob: types.Knob,
             state: base.KnobState | None = None) -> types.Value | None:
        try:
            if self._is_tree(knob):
                return types.format_cpus(
                    self._opened.set_in_force(workload)) or None
            return self._limit(workload, knob).read(state)
        except errors.WorkloadGone:
            self._let_go(workload)
            raise

    def lacks(self, workload: str, knob: types.Knob) -> str:
        """Return why a knob of a workload that exists cannot be used here, or
        what it limits is not counted, and what to do; empty if neither is
        so."""
        try:
            self.read(workload, knob)
        except errors.WorkloadGone:
            # In the hierarchy where it was found it is there.
            return (f'{self._mounts[self._controller(knob)].path}{workload} '
                    'does not '
                    f'exist, so {knob} cannot be set: make it, and put the '
                    'processes of the workload into it')
        except errors.DriverError as exc:
            return str(exc)
        entry = self._entries.get(workload)
        if entry is None:
            return ''
        file = entry.counters.unknown(knob)
        return file and (
            f'{file} is missing or unreadable: what {workload} uses is '
            f'unknown, {knob} is not set; tried again in the next tick')

    def restore_actions(self, workload: str, knob: types.Knob,
                        state: base.KnobState | None = None
                        ) -> list[base.RestoreAction]:
        """See :meth:`scavenger_openstack.drivers.base.Knobs`.

        From then on, and until the lease is removed, the limits of the
        workload are not taken for its own.
        """
        try:
            actions = (self._opened.cpu_set(workload).actions(
                state.original.actions if state else None)
                if self._is_tree(knob) else
                self._limit(workload, knob).actions())
        except errors.WorkloadGone:
            self._let_go(workload)
            raise
        self._leased.add((workload, knob))
        return actions

    def write(self, workload: str, knob: types.Knob, value: types.Value,
              state: base.KnobState | None = None) -> types.Value | None:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.write`.

        Only background is ever written to.

        :raises WorkloadGone: also when the cgroup was made again since its
            lease was.
        :raises Refused: the memory in use cannot be reclaimed.  v2: growth
            is slowed all the same (memory.high), while memory.max is not
            set: it would call the OOM killer.
        :raises DriverError: it failed, and what was there before is again.
        """
        self._parents.check_writable(workload)
        original = state.original.actions if state else ()
        try:
            self._opened.directory(
                workload, self._controller(knob)).check_leased(
                    original, self._disks.now if knob in knobs.IO else ())
            if knob is types.Knob.CPU_SET:
                self._allotments.about_to_narrow(workload)
                value = types.format_cpus(_cpus(value))
            if self._is_tree(knob):
                self._opened.cpu_set(workload).write(_cpus(value))
            else:
                self._limit(workload, knob).write(value, state)
        except errors.WorkloadGone:
            self._let_go(workload)
            raise
        if workload in self._entries:
            self._entries[workload].counters.wake()
        in_force = self.read(workload, knob)
        if knob is types.Knob.MEMORY_BYTES and in_force is not None and (
                knobs.number(knob, in_force) > knobs.number(knob, value)):
            self._rewrite.add((workload, knob))     # met in part so far
        return in_force

    def queue(self, workload: str, knob: types.Knob) -> str:
        return base.usual_queue(knob)

    def refresh(self, held: Mapping[types.KnobKey, base.KnobState]
                ) -> base.Changes:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.refresh`: cgroups
        that were deleted, and perhaps made again, have changed; pods that
        came are to be made idle, too, disks to be limited, and memory limits
        to be met that were met in part."""
        changed, self._changed = self._changed, set()
        rewrite = set(self._rewrite)
        self._rewrite -= rewrite    # writes in other threads add to it
        return base.Changes(changed, {*rewrite, *(
            (name, types.Knob.CPU_IDLE)
            for name in self._opened.changed_pods())} & held.keys())

    def notify(self, event: base.Event) -> bool:
        if isinstance(event, base.Removed):
            self._leased.discard((event.workload, event.knob))
            if event.knob is types.Knob.CPU_IDLE:
                self._opened.forget_pods(event.workload)
        return False

    def fast_cpu_set(self, group: str) -> FastCpuSet:
        """The quick way to move a group's CPU set; the caller has its lease.

        :raises DriverError: as :meth:`write`.
        """
        self._parents.check_writable(group)
        self._allotments.about_to_narrow(group)
        cpu_set = self._opened.cpu_set(group)
        cpu_set.begin()
        return cpu_set

    def kill(self, workload: str) -> int:
        """End all processes of a workload; return how many.

        :raises Unsupported: its parent did not opt in to kills.
        :raises DriverError: new ones appear as fast, or it is not permitted.
        """
        self._parents.check_killable(workload)
        try:
            return kill.kill(self._mounts, workload)
        except OSError as exc:
            raise cgroup_files.explain(
                exc, f'cannot end {workload}') from exc

    def close(self) -> None:
        """Close what is kept open."""
        for name in list(self._entries):
            self._forget(name)
        self._opened.clear()

    def _is_tree(self, knob: types.Knob) -> bool:
        return (knob is types.Knob.CPU_SET and 'cpuset' in self._mounts
                and self._mounts['cpuset'].version == 1)

    def _controller(self, knob: types.Knob) -> str:
        return ('cpuset' if self._is_tree(knob)
                else self._rule(knob).controller)

    def _limit(self, workload: str, knob: types.Knob
               ) -> knobs.Limit | pods.Pods:
        rule = self._rule(knob)
        if knob is types.Knob.CPU_IDLE and is_of_kubelet(workload):
            return self._opened.pods(workload, rule)
        return knobs.Limit(rule, self._opened.directory(workload,
                                                        rule.controller))

    def _rule(self, knob: types.Knob) -> knobs.Rule:
        for version in (1, 2):
            rule = self._rules.get((knob, version))
            if rule is not None:
                mount = self._mounts.get(rule.controller)
                if mount is not None and mount.version == version:
                    return rule
        raise errors.Unsupported(
            f'{knob}: this host has no cgroup controller for it',
            cause=f'no controller for {knob}')


def _cpus(value: types.Value) -> frozenset[int]:
    try:
        return types.parse_cpus(str(value))
    except ValueError as exc:
        raise errors.DriverError(f'cpu_set: {exc}') from exc
