# SPDX-License-Identifier: Apache-2.0

"""The cgroups that belong to domains: no VM is limited as a cgroup, too."""

from __future__ import annotations

from collections.abc import Mapping
import logging
import posixpath

from scavenger_openstack.drivers.kernel.cgroup_members import upward
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.domain_cgroup import DomainCgroup
from scavenger_openstack import log_once
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)


class DomainCgroups:
    """The cgroups of all domains, to leave them out of the other workloads.

    :param mounts: where cgroup controllers are mounted
    :ivar machines: the cgroups of each domain, by its UUID
    :ivar own: the UUID of each domain, by the paths of its cgroups
    """

    def __init__(self, mounts: Mapping[str, Mount]) -> None:
        self._mounts = mounts
        self.machines: Mapping[str, DomainCgroup] = {}
        self.own: dict[str, str] = {}
        self._holding: dict[str, str] = {}
        self._logged = log_once.LogOnce()

    def follow(self, machines: Mapping[str, DomainCgroup]) -> None:
        """Replace the domains by these, by their UUIDs."""
        if machines == self.machines:
            return
        self.machines = dict(machines)
        self.own = {
            f'{mount.path}/{machine.name}'.removeprefix(
                self._mounts[controller].path): uuid
            for uuid, machine in machines.items()
            for controller, mount in machine.above.items()}
        self._holding = {above: uuid for path, uuid in self.own.items()
                         for above in upward(path)}

    def directory(self, workload: str, controller: str) -> str | None:
        """Return the directory of a domain or a cgroup below a controller;
        ``None`` where it has none."""
        machine = self.machines.get(workload)
        if machine is not None:
            return machine.path(controller)
        mount = self._mounts.get(controller)
        return (mount.path + workload
                if mount is not None and workload.startswith('/') else None)

    def without(self, samples: tuple[WorkloadSample, ...]
                ) -> tuple[WorkloadSample, ...]:
        """Return the samples of cgroups that belong to no domain."""
        if not self.own:
            return samples
        return tuple(sample for sample in samples
                     if not self._is_of_domain(sample.workload))

    def _is_of_domain(self, workload: Workload) -> bool:
        uuid = (self._holding.get(workload.id)
                or self._holding.get(workload.group or ''))
        for path in () if uuid else upward(workload.id):
            uuid = uuid or self.own.get(path)
        if not uuid:
            return False
        parent = posixpath.dirname(workload.id)
        if self._logged.due(parent):
            LOG.warning(
                'cgroup %s is not watched: it holds, is a part of, or would '
                'be limited together with the VM %s, which is watched by '
                '[libvirt] uri; leave it out of [cgroups] %s_parents',
                workload.id, uuid, workload.priority)
        return True
