# SPDX-License-Identifier: Apache-2.0


"""What a workload may use by its own right, before any cap of ours."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

from scavenger_openstack.drivers.cgroup.available_cpus import read_cpus
from scavenger_openstack.drivers.cgroup.discovery import within
from scavenger_openstack.drivers.cgroup.knobs import Rule
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

T = TypeVar('T')

SETTLING_TICKS = 3
"""So often in a row it is looked again where something has just changed: a
container's creator fills hierarchies and sets limits one by one, and the
kernel may take a moment after a CPU came or went."""


class Turn:
    """Whose own limits are read again in a tick: of one workload after the
    other, and of those that settle.

    :ivar settling: the latter, as of :meth:`next`
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._left: dict[str, int] = {}
        self.settling: list[str] = []

    def settle(self, names: Iterable[str]) -> None:
        """Begin with these."""
        self._left |= dict.fromkeys(names, SETTLING_TICKS)

    def next(self, every: Callable[[], list[str]]) -> list[str]:
        """The workloads of this tick.

        :param every: all whose limits may be read again
        """
        self.settling = list(self._left)
        self._left = {name: left - 1 for name, left in self._left.items()
                      if left > 1}
        self._names = self._names or every()
        names, self._names = self._names[:1], self._names[1:]
        return [*self.settling, *names]


class Allotments:
    """Reads workloads' own limits."""

    def __init__(self, mounts: Mapping[str, Mount],
                 rules: Mapping[tuple[Knob, int], Rule]) -> None:
        self._mounts = mounts
        self._rules = rules
        self._full_sets: dict[str, frozenset[int]] = {}

    def of(self, name: str) -> dict[str, Any]:
        """The limits that a workload has now, as fields of
        :class:`~scavenger_openstack.types.Workload`."""
        allowed = self._allowed(name)
        online = self._effective('') or online_cpus.counted()
        cores = self._limit(name, Knob.CPU_CORES, 'cpu')
        return {
            'vcpus': cores or float(len(allowed or online)),
            'memory_allotment_bytes': self._limit(name, Knob.MEMORY_BYTES,
                                                  'memory'),
            'allowed_cpus': None if allowed == online else allowed}

    def about_to_narrow(self, name: str) -> None:
        """Remember which CPUs a group has before we first take some."""
        if name not in self._full_sets:
            cpus = self._effective(name)
            if cpus:
                self._full_sets[name] = cpus

    def forget(self, name: str) -> None:
        """Forget a group that is no longer there."""
        self._full_sets.pop(name, None)

    def _limit(self, name: str, knob: Knob, controller: str) -> float | None:
        value = self._read(name, controller, lambda directory: self._rules[
            knob, directory.version].read(directory, None))
        return None if value is None else float(value)

    def _allowed(self, name: str) -> frozenset[int] | None:
        """The CPUs that a workload may run on.

        One that was made below a group whose set we narrowed took over the
        narrow set; it counts as having what the group had before.
        """
        cpus = self._effective(name)
        for group, full in list(self._full_sets.items()):
            if within(name, group) and cpus == self._effective(group):
                return full
        return cpus

    def _effective(self, name: str) -> frozenset[int] | None:
        return self._read(name, 'cpuset', lambda directory: read_cpus(
            directory, 'cpuset.effective_cpus' if directory.version == 1
            else 'cpuset.cpus.effective')) or None

    def _read(self, name: str, controller: str,
              read: Callable[[CgroupDirectory], T]) -> T | None:
        """Return what is read of a cgroup, ``None`` where it cannot be."""
        mount = self._mounts.get(controller)
        if mount is None:
            return None
        try:
            return read(CgroupDirectory(mount.path + name,
                                        version=mount.version))
        except errors.DriverError:
            return None
