# SPDX-License-Identifier: Apache-2.0


"""The cgroups that are kept open to read and set limits."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping

from scavenger_openstack.drivers.cgroup.available_cpus import read_cpus
from scavenger_openstack.drivers.cgroup.cpuset_tree import FastCpuSet
from scavenger_openstack.drivers.cgroup import discovery
from scavenger_openstack.drivers.cgroup.knobs import Rule
from scavenger_openstack.drivers.cgroup.pods import Pods
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack import errors
from scavenger_openstack.types import format_cpus


class Directories:
    """The open cgroups of workloads and groups, by name and controller.

    :param mounts: where cgroup controllers are mounted
    :param root_dir: where /sys is looked for
    """

    def __init__(self, mounts: Mapping[str, Mount], root_dir: str) -> None:
        self._mounts = mounts
        self._root_dir = root_dir
        # The kernel does not take away a set from a cgroup with processes:
        # one of v2 that was empty comes back as all CPUs, the same effect.
        self._no_cpus = format_cpus(online_cpus.possible(root_dir))
        self._directories: dict[tuple[str, str], CgroupDirectory] = {}
        self._sets: dict[str, FastCpuSet] = {}
        self._pods: dict[str, Pods] = {}

    def directory(self, name: str, controller: str) -> CgroupDirectory:
        """A cgroup in the hierarchy of a controller that is mounted.

        :raises Unsupported: this is no name of a cgroup.
        :raises DriverError: it cannot be opened.
        """
        opened = self._directories.get((name, controller))
        if opened is None:
            if not discovery.is_normal(name):
                raise errors.Unsupported(f'{name!r} is not a cgroup here')
            mount = self._mounts.get(controller)
            if mount is None:
                raise errors.Unsupported(
                    f'the controller {controller} is not mounted any more',
                    cause=f'{controller} is not mounted')
            opened = CgroupDirectory(mount.path + name, version=mount.version,
                                     no_cpus=self._no_cpus)
            self._directories[name, controller] = opened
        return opened

    def cpu_set(self, name: str) -> FastCpuSet:
        """The CPU set of a cgroup and all below.

        :raises Unsupported: there is no cpuset controller.
        :raises DriverError: it cannot be opened.
        """
        opened = self._sets.get(name)
        if opened is None:
            if 'cpuset' not in self._mounts:
                raise errors.Unsupported(
                    'cpu_set: this host has no cpuset controller',
                    cause='no cpuset controller')
            opened = FastCpuSet(self.directory(name, 'cpuset'),
                                self._root_dir)
            self._sets[name] = opened
        return opened

    def pods(self, name: str, rule: Rule) -> Pods:
        """The pods in a cgroup of kubelet.

        :raises DriverError: they cannot be listed.
        """
        opened = self._pods.get(name)
        if opened is None:
            opened = self._pods[name] = Pods(
                self.directory(name, rule.controller), rule)
        return opened

    def forget_pods(self, name: str) -> None:
        """Forget the pods of a cgroup: nothing is set on them any more."""
        self._pods.pop(name, None)

    def changed_pods(self) -> list[str]:
        """Find pods that came, once per tick; in which cgroups some did on
        which nothing is set so far."""
        changed = []
        for name, pods in list(self._pods.items()):
            try:
                pods.refresh()
            except errors.DriverError:
                self.forget_pods(name)      # they are opened again
                continue
            if pods.changed():
                changed.append(name)
        return changed

    def set_in_force(self, name: str) -> frozenset[int]:
        """The CPU set of v1."""
        directory = self.directory(name, 'cpuset')
        cpu_set = self._sets.get(name)
        return (read_cpus(directory) if cpu_set is None
                else cpu_set.read())

    def forget(self, name: str) -> None:
        """Forget the open files of a cgroup, but not a CPU set that is still
        in place: it knows which sets below it are not ours."""
        for key in [k for k in list(self._directories) if k[0] == name]:
            self._directories.pop(key, None)
        self._pods.pop(name, None)
        cpu_set = self._sets.get(name)
        if cpu_set is not None and not cpu_set.in_place():
            del self._sets[name]

    def forget_controllers(self, controllers: Collection[str]) -> None:
        """Forget the cgroups of controllers that are mounted elsewhere now."""
        for key in [k for k in list(self._directories)
                    if k[1] in controllers]:
            self._directories.pop(key, None)
        if 'cpuset' in controllers:
            self._sets.clear()

    def forget_disks(self) -> None:
        """Limits are about other disks from now on."""
        for directory in list(self._directories.values()):
            directory.devices = ()

    def clear(self) -> None:
        """Close what is kept open."""
        self._directories.clear()
        self._sets.clear()
        self._pods.clear()
