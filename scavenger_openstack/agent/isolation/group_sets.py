# SPDX-License-Identifier: Apache-2.0

"""The CPU sets that the fast loop moves: one for each group, or VM.

The tick leases them, and says which CPUs each may have; the fast loop writes
them, and nothing else does.  A group that cannot take part is left out, and
named: the buffer is kept by the others.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import threading
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.agent.base import Leaser
from scavenger_openstack.agent.base import Leases
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import originals
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob

LOG = log.getLogger(__name__)

HANGS_S = 0.5
"""So long the tick waits for a write of the fast loop."""

NO_CPU_LEFT = ('no CPU is left for the background: its own CPU sets and those '
               'of pinned foreground workloads do not overlap')


class Confined(NamedTuple):
    """A group's CPU set, and the CPUs that it may have.

    ``own`` are its own, ``None`` where it may have all that the fast loop
    chooses; ``least`` is what it has while none of these is chosen.
    """

    cpu_set: base.CpuSet
    own: frozenset[int] | None
    least: frozenset[int]

    def cpus(self, chosen: frozenset[int]) -> frozenset[int]:
        """Return what the group has of the chosen CPUs."""
        return (chosen if self.own is None
                else chosen & self.own or self.least)


class Confinement(NamedTuple):
    """The CPU sets of all groups that are leased.

    ``shared`` are the CPUs to choose from.  ``left_out``: why a group that
    is confined to its own set does not take part.
    """

    confined: Mapping[str, Confined] = {}
    shared: frozenset[int] = frozenset()
    left_out: Mapping[str, str] = {}


class GroupSets:
    """The CPU sets of all groups that take part.

    :ivar left_out: why each other group does not
    """

    def __init__(self, driver: base.CpuSets, leases: Leases) -> None:
        self._driver = driver
        self._leases = leases
        self._lock = threading.Lock()       # of what the fast loop writes
        self._leased: dict[str, base.CpuSet] = {}
        self._confined: Mapping[str, Confined] = {}
        self._refused: Mapping[str, errors.DriverError] = {}
        self._originals: dict[str, tuple[object, frozenset[int]]] = {}
        self._confinement = Confinement()
        self._bounds: tuple[object, ...] = ()   # that it was made within
        self._logged = log_once.LogOnce()
        self.left_out: dict[str, str] = {}

    def __contains__(self, group: str) -> bool:
        """Return whether the fast loop writes the CPU set of a group."""
        return group in self._confined

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose CPU sets the fast loop writes."""
        return tuple(self._confined)

    def lease(self, groups: Collection[str],
              pins: Mapping[str, frozenset[int]],
              allowed: frozenset[int], leaser: Leaser) -> bool:
        """Lease the CPU set of each group, and of those born below it.

        :param pins: the CPUs that others have pinned a VM to
        :param allowed: the CPUs that any may have
        :return: whether there is something to set, though the CPUs stay
        :raises NotRestorable: no watcher could restore them.
        """
        leased: dict[str, base.CpuSet] = {}
        left_out: dict[str, str] = {}
        due = False
        for group in groups:
            pinned = pins.get(group)
            if pinned and not pinned & allowed:
                left_out[group] = (
                    f'it is pinned to CPUs {format_cpus(pinned)}, and the '
                    f'background may have {format_cpus(allowed)}')
                continue
            before = self._leased.get(group)
            try:
                try:
                    leased[group], is_due = self._lease(group, before, leaser)
                except errors.WorkloadGone:
                    if before is None:
                        raise
                    # It was made again, or the VM started again.
                    leased[group], is_due = self._lease(group, None, leaser)
            except errors.WorkloadGone:
                continue
            except errors.NotRestorable:
                raise
            except (errors.DriverError, errors.LeaseError) as exc:
                left_out[group] = str(exc)
                continue
            due |= is_due
        if leased != self._leased:
            self._bounds = ()
        self._leased, self.left_out = leased, left_out
        return due

    def _lease(self, group: str, before: base.CpuSet | None, leaser: Leaser
               ) -> tuple[base.CpuSet, bool]:
        key = (group, Knob.CPU_SET)
        # First, since to lease a set is to read it.
        theirs = before.unleased() if before else {}
        state = self._leases.held().get(key)
        if theirs is not None or state is None or key in self._leases.lost():
            leaser.hold(*key, theirs)
        elif before and self._is_original(group, state.original.actions):
            return before, False
        cpu_set = before or self._driver.fast_cpu_set(group)
        state = self._leases.held().get(key)
        actions = state.original.actions if state else ()
        if not self._is_original(group, actions):
            self._bounds = ()
        return cpu_set, cpu_set.refresh(actions)

    def confine(self, allowed: frozenset[int],
                pins: Mapping[str, frozenset[int]],
                topology: Mapping[int, Cpu]) -> tuple[frozenset[int], bool]:
        """Say which CPUs each leased group may have.

        That is within its own set, and of a VM within its pins.

        :return: the CPUs to choose from, and whether some group is new or may
            have others than before
        :raises DriverError: there is none; or a write hangs.
        """
        if self._bounds != (allowed, pins, topology):
            self._confinement = self._confine(allowed, pins, topology)
            self._bounds = allowed, pins, topology
        confined, shared, left_out = self._confinement
        self.left_out.update(left_out)
        if not shared:
            raise errors.DriverError(NO_CPU_LEFT if self._leased else next(
                iter(self.left_out.values()), 'no background is left'))
        self.left_out.update((group, str(exc)) for group, exc
                             in self._refused.items() if group in confined)
        is_new = confined != self._confined
        if is_new:
            self._replace(confined)
        for group in self._logged.all_due(self.left_out):
            LOG.warning('blind isolation: %s is left out: %s', group,
                        self.left_out[group])
        return shared, is_new

    def _confine(self, allowed: frozenset[int],
                 pins: Mapping[str, frozenset[int]],
                 topology: Mapping[int, Cpu]) -> Confinement:
        online = frozenset(topology)
        confined: dict[str, Confined] = {}
        left_out: dict[str, str] = {}
        shared: frozenset[int] = frozenset()
        self._read_originals()
        for group, cpu_set in self._leased.items():
            # A set with no CPU online limits nothing: the kernel, too, lets
            # the group run on those of its parent.
            own = self._originals[group][1] & online or online
            own = own & pins.get(group, own) or own
            usable = own & allowed
            shared |= usable
            if usable == allowed:
                confined[group] = Confined(cpu_set, None, allowed)
                continue
            if not usable:
                left_out[group] = (
                    f'it has CPUs {format_cpus(own)} of its own, and the '
                    f'background may have {format_cpus(allowed)}')
            confined[group] = Confined(cpu_set, own, perfiso.choose_cpus(
                1, usable, topology) or own)
        return Confinement(confined, shared, left_out)

    def write(self, chosen: frozenset[int]) -> None:
        """Put the chosen CPUs in force; called by the fast loop's thread.

        One that is refused keeps no other from being written.  A group
        without a lease, as one of which it is being replaced, is left to the
        next tick.

        :raises LeaseError: no time is left.
        :raises DriverError: no set was written.
        """
        refused: dict[str, errors.DriverError] = {}
        written = 0
        with self._lock:
            for group, confined in self._confined.items():
                cpus = confined.cpus(chosen)
                try:
                    if not confined.cpu_set.has(cpus):
                        with self._leases.writing(group, Knob.CPU_SET):
                            confined.cpu_set.set(cpus)
                    written += 1
                except errors.WorkloadGone:
                    continue    # the next tick forgets it
                except errors.LeaseError:
                    self._leases.check()
                except errors.DriverError as exc:
                    refused[group] = exc
        self._refused = refused
        if refused and not written:
            raise next(iter(refused.values()))

    def clear(self) -> None:
        """Write none of them any more."""
        self._leased, self.left_out, self._bounds = {}, {}, ()
        self._confined, self._refused = {}, {}

    def facts(self, chosen: frozenset[int] | None) -> dict[str, Any]:
        """Return the state for the status, as plain JSON.

        :param chosen: the CPUs that were written last, ``None`` before
        """
        texts: dict[frozenset[int], str] = {}
        groups: dict[str, str] = {}
        for group, confined in self._confined.items():
            if chosen is not None and group not in self.left_out:
                cpus = confined.cpus(chosen)
                groups[group] = texts.get(cpus) or texts.setdefault(
                    cpus, format_cpus(cpus))
        return {'groups': groups, 'left_out': dict(self.left_out)}

    def _is_original(self, group: str, actions: object) -> bool:
        """Return whether these actions of a lease are those that were read."""
        original = self._originals.get(group)
        return original is not None and original[0] is actions

    def _read_originals(self) -> None:
        """Parse the original sets of those whose lease is another now."""
        held = self._leases.held()
        before, self._originals = self._originals, {}
        for group in self._leased:
            state = held.get((group, Knob.CPU_SET))
            actions = state.original.actions if state else ()
            earlier = before.get(group)
            self._originals[group] = (
                earlier if earlier is not None and earlier[0] is actions
                else (actions, originals.cpus_of(actions)))

    def _replace(self, confined: Mapping[str, Confined]) -> None:
        """Replace what the fast loop writes; afterwards it does not write a
        group that is not in it.

        :raises DriverError: a write of its hangs.
        """
        if not self._lock.acquire(timeout=HANGS_S):
            raise errors.DriverError('a write of a CPU set hangs')
        try:
            self._confined = confined
        finally:
            self._lock.release()
