# SPDX-License-Identifier: Apache-2.0

"""The CPU set of a domain: that of the cgroups which libvirt made for it.

libvirt has no call that removes a pin, so a pin of ours would stay in the
XML and move with the VM to hosts that have other CPUs.  A set of a cgroup
does not move, and ends with this run of the domain.

On version 2 a set bounds all sets below it, whatever libvirt sets there.
On version 1 it has to contain all sets below it, so libvirt could not plug in
a vCPU, or pin one, outside of our set: there the set of each cgroup with
threads is set, and that of their parent is not.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import cpuset_tree
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack import errors
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import phase
from scavenger_openstack.types import Value

T = TypeVar('T')

READ_TICKS = 8
"""What other programs have set is read in one of this many ticks: a hundred
VMs have a thousand files.  What is moved is read before, too; whether cgroups
came or went is read in each."""

_ENTRY = cgroup_files.Entry('cpuset.cpus')


class _Part(NamedTuple):
    """One cgroup of a domain, and its CPU set."""

    directory: cgroup_files.CgroupDirectory
    cpus: cpuset_tree.FastCpuSet


class CpuSet:
    """The CPU set of one run of a domain.

    ``allowed`` are the CPUs that libvirt lets its vCPUs use, ``None`` for all:
    on version 2 the cgroup that is set does not have them.

    :raises Unsupported: the domain has no such cgroups.
    :raises DriverError: they cannot be read.
    """

    def __init__(self, name: str, machine: domain_cgroup.DomainCgroup | None,
                 root_dir: str = '/') -> None:
        path = machine.parts.get('cpuset') if machine is not None else None
        if machine is None or path is None:
            raise errors.Unsupported(
                f'domain {name} has no cgroup of its own for CPU sets: see '
                'cgroup_controllers in qemu.conf',
                cause='cpuset of cgroup_controllers')
        self._version = machine.above['cpuset'].version
        self._root_dir = root_dir
        # v2 does not accept an empty set for a cgroup with processes.
        self._no_cpus = format_cpus(online_cpus.possible(root_dir))
        self._directory = self._open(path)
        self._parts: dict[str, _Part] = {}
        self._leased: Sequence[base.RestoreAction] = ()
        self._own: Mapping[int, frozenset[int]] = {}
        self._moved: tuple[tuple[cpuset_tree.FastCpuSet, frozenset[int]],
                           ...] = ()
        self.allowed: frozenset[int] | None = None
        self._links = self._written = -1
        self._tick = int(READ_TICKS * phase(name))  # not all in the same
        self._is_set = True     # as the fast loop wants it
        if self._version == 2:
            self._parts[''] = self._part(self._directory)

    def read(self) -> Value | None:
        """Return the CPUs that any part may use, ``None`` for no limit."""
        if not self._parts:
            self._find_parts()
        cpus: frozenset[int] = frozenset().union(*self._each(
            lambda part: part.cpus.read()))
        allowed = self.allowed or cpus
        return format_cpus(cpus & allowed or cpus or allowed) or None

    def actions(self) -> list[base.RestoreAction]:
        """Return the actions that restore the present sets."""
        self._find_parts()
        return self._each(lambda part: part.directory.action(
            _ENTRY, format_cpus(part.cpus.read()) or self._no_cpus))

    def write(self, value: Value, state: base.KnobState | None = None
              ) -> Value | None:
        """Set all parts of the last :meth:`actions`, or none.

        Each keeps within its set in the lease, unless no CPU would be left.
        """
        try:
            cpus = parse_cpus(str(value))
        except ValueError as exc:
            raise errors.DriverError(f'{Knob.CPU_SET}: {exc}') from None
        own = {} if state is None else {
            action['inode']: parse_cpus(action['text'])
            for action in state.original.actions}
        before = self._each(lambda part: (part, part.cpus.read()))

        def write(part: _Part) -> None:
            part.cpus.refresh()
            part.cpus.write(own.get(part.directory.inode, cpus) & cpus or cpus)

        try:
            self._each(write)
        except errors.DriverError:
            for part, old_cpus in before:
                with contextlib.suppress(errors.DriverError):
                    part.cpus.write(old_cpus)
            raise
        self._written = self._links
        return self.read()

    # --- for the fast loop

    def begin(self) -> None:
        """Take the sets of this moment for those before us."""
        self._moved = ()
        for part in self._parts.values():
            part.cpus.begin()

    def unleased(self) -> Mapping[int, frozenset[int]] | None:
        self._tick += 1
        links = self._directory.links()
        if (self._tick % READ_TICKS and self._is_set and links == self._links
                and len(self._moved) == len(self._parts)):
            return None
        self._is_set = True
        theirs: dict[int, frozenset[int]] = {}
        for sets in self._each(lambda part: part.cpus.unleased()):
            theirs.update(sets or {})
        if self._version == 2:      # one set bounds those below
            self._links = links
            return theirs or None
        has_grown = (links != self._links
                     or len(self._moved) != len(self._parts))
        return theirs if theirs or has_grown else None

    def refresh(self, leased: Sequence[base.RestoreAction]) -> bool:
        """See :class:`scavenger_openstack.drivers.base.CpuSet`.

        A part that is not in the lease yet is not set.
        """
        self._find_parts()
        if leased is not self._leased:
            self._leased = leased
            self._own = {action['inode']: parse_cpus(action['text'])
                         for action in leased}
        own, before = self._own, self._moved
        due = self._each(lambda part: part.directory.inode in own
                         and part.cpus.leased())
        # vCPUs first: they are what keeps CPUs busy.
        self._moved = tuple(
            (part.cpus, own[part.directory.inode])
            for _, part in sorted(self._parts.items(), reverse=True)
            if part.directory.inode in own)
        return any(due) or self._moved != before

    def has(self, cpus: frozenset[int]) -> bool:
        for part, own in self._moved:
            if not part.has(own & cpus or cpus):
                return False
        return bool(self._moved)

    def set(self, cpus: frozenset[int]) -> None:
        """See :class:`scavenger_openstack.drivers.base.CpuSet`.

        Each part keeps within its set in the lease, unless no CPU would be
        left.  One that is refused keeps no other from being set.
        """
        problem, gone = None, True
        for part, own in self._moved:
            try:
                part.set(own & cpus or cpus)
                self._is_set &= part.has(own & cpus or cpus)
            except errors.WorkloadGone:
                continue
            except errors.DriverError as exc:
                problem = exc
            gone = False
        if problem is not None:
            raise problem
        if gone:
            raise errors.WorkloadGone(
                f'{self._directory.path}: its cgroups are gone')

    def changed(self) -> bool:
        """Return whether parts came or went since it was written."""
        return (self._version == 1
                and self._directory.links() != self._written)

    def _open(self, path: str) -> cgroup_files.CgroupDirectory:
        return cgroup_files.CgroupDirectory(path, version=self._version)

    def _part(self, directory: cgroup_files.CgroupDirectory) -> _Part:
        return _Part(directory, cpuset_tree.FastCpuSet(directory,
                                                       self._root_dir))

    def _find_parts(self) -> None:
        """Open the parts that are there now."""
        links = self._directory.links()
        if self._version == 2 or links == self._links:
            self._links = links
            return
        parts = {}
        for name in sorted(self._directory.subdirectories()):
            if not domain_cgroup.is_part(name):
                continue
            try:
                part = self._parts.get(name) or self._part(
                    self._open(f'{self._directory.path}/{name}'))
                cpus = part.cpus.read()
            except errors.WorkloadGone:
                links = -1
                continue
            if cpus:
                parts[name] = part
            else:
                links = -1      # libvirt is about to let it have CPUs
        self._parts, self._links = parts, links

    def _each(self, do: Callable[[_Part], T]) -> list[T]:
        """Call ``do`` for each part that is still there.

        :raises WorkloadGone: no part is.
        """
        results = []
        for name, part in list(self._parts.items()):
            try:
                results.append(do(part))
            except errors.WorkloadGone:
                del self._parts[name]
                self._links = self._written = -1
        if not results:
            raise errors.WorkloadGone(
                f'{self._directory.path}: its cgroups are gone')
        return results
