# SPDX-License-Identifier: Apache-2.0

"""``cpu.idle`` of the pods in a cgroup of kubelet.

kubelet writes ``cpu.shares`` (version 2: ``cpu.weight``) of its own cgroups
each minute.  The kernel refuses that of one with ``cpu.idle``, and kubelet
then starts no pod.  So it is set on the pods in them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
from typing import TypeVar

from scavenger_openstack.algorithms.classify import is_of_kubelet
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_files import Entry
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

T = TypeVar('T')

_IDLE = Entry('cpu.idle')


class Pods:
    """The pods of one such cgroup, kept open.

    :param top: the cgroup
    :param rule: how ``cpu.idle`` is read and written
    :raises DriverError: they cannot be listed.
    """

    def __init__(self, top: CgroupDirectory, rule: knobs.Rule) -> None:
        self._top = top
        self._rule = rule
        self._pods: dict[str, CgroupDirectory] = {}
        self._owners = [top]
        self._links: list[int] = []
        self._new: dict[str, CgroupDirectory] = {}
        self._written: set[str] = set()
        self._value = 0
        self.refresh()
        self._pods, self._new = self._new, {}

    def refresh(self) -> None:
        """Find the pods that came or went, once per tick.  One that has just
        come counts from the next tick on: kubelet sets its weight first.

        :raises DriverError: they cannot be listed.
        """
        self._pods.update(self._new)
        self._new = {}
        owners = [self._top]
        if [owner.links() for owner in self._owners] == self._links:
            return
        pods = {}
        for owner in owners:
            for name in owner.subdirectories():
                try:
                    child = self._pods.get(f'{owner.path}/{name}') \
                        or owner.child(name)
                except errors.WorkloadGone:
                    continue
                if is_of_kubelet(child.path):
                    owners.append(child)
                else:
                    pods[child.path] = child
        self._owners = owners
        self._links = [owner.links() for owner in owners]
        self._pods, self._new = (
            {path: pod for path, pod in pods.items()
             if (path in self._pods) is is_old} for is_old in (True, False))

    def read(self, state: base.KnobState | None = None) -> Value | None:
        """Return whether all pods are idle, as far as they were there at the
        last write; what was written, if none of those is left."""
        values = self._each(lambda pod: self._limit(pod).read(),
                            self._written or self._pods)
        return int(all(values)) if values else self._value

    def actions(self) -> list[base.RestoreAction]:
        """Return what brings back ``cpu.idle`` of each, and its weight.

        The first is about the cgroup itself, in which nothing is changed.
        """
        return [*self._top.actions([_IDLE]), *(
            action for actions in self._each(
                lambda pod: self._limit(pod).actions(), self._pods)
            for action in actions)]

    def write(self, value: Value, state: base.KnobState | None = None
              ) -> None:
        """Set the knob on all pods, or on none.

        :raises DriverError: it failed.
        """
        before: list[tuple[CgroupDirectory, Sequence[base.RestoreAction]]] = []

        def write(pod: CgroupDirectory) -> None:
            actions = self._limit(pod).actions()
            self._limit(pod).write(value)
            before.append((pod, actions))

        try:
            self._each(write, self._pods)
        except errors.DriverError:
            for pod, actions in before:
                knobs.put_back(pod, actions)
            raise
        self._written = set(self._pods)
        self._value = int(bool(knobs.number(Knob.CPU_IDLE, value)))

    def _limit(self, pod: CgroupDirectory) -> knobs.Limit:
        return knobs.Limit(self._rule, pod)

    def changed(self) -> bool:
        """Return whether a pod came since the last write."""
        return not self._written.issuperset(self._pods)

    def _each(self, do: Callable[[CgroupDirectory], T],
              paths: Collection[str]) -> list[T]:
        """Call ``do`` for each of these pods that is still there."""
        results = []
        for path, pod in list(self._pods.items()):
            if path not in paths:
                continue
            try:
                results.append(do(pod))
            except errors.WorkloadGone:
                del self._pods[path]
                self._links = []
        return results
