# SPDX-License-Identifier: Apache-2.0

"""``cpu.idle`` of a domain, which libvirt does not have."""

from __future__ import annotations

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

RULES = knobs.rules(tuple)


class Idle:
    """``cpu.idle`` of the machine's own cgroup, which has only the domain.

    :raises Unsupported: the domain has no such cgroup.
    :raises DriverError: it cannot be opened.
    """

    def __init__(self, name: str, machine: domain_cgroup.DomainCgroup | None
                 ) -> None:
        path = machine.path('cpu') if machine is not None else None
        if machine is None or path is None:
            raise errors.Unsupported(
                f'domain {name} has no cgroup of its own for CPUs: see '
                'cgroup_controllers in qemu.conf',
                cause='cpu of cgroup_controllers')
        version = machine.above['cpu'].version
        self._directory = cgroup_files.CgroupDirectory(path, version=version)
        self._rule = RULES[Knob.CPU_IDLE, version]

    def read(self) -> Value | None:
        return self._rule.read(self._directory, None)

    def actions(self) -> list[base.RestoreAction]:
        return self._directory.actions(self._rule.entries(self._directory))

    def write(self, value: Value, state: base.KnobState | None = None
              ) -> Value | None:
        knobs.write(self._rule, self._directory, value, ())
        return self.read()
