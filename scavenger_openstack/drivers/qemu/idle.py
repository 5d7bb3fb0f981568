# SPDX-License-Identifier: Apache-2.0

"""``cpu.idle`` of a domain, which libvirt does not have."""

from __future__ import annotations

from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

RULES = knobs.rules(tuple)


def limit(name: str, machine: domain_cgroup.DomainCgroup | None
          ) -> knobs.Limit:
    """Return that of the machine's own cgroup, which has only the domain.

    :raises Unsupported: the domain has no such cgroup.
    :raises DriverError: it cannot be opened.
    """
    path = machine.path('cpu') if machine is not None else None
    if machine is None or path is None:
        raise errors.Unsupported(
            f'domain {name} has no cgroup of its own for CPUs: see '
            'cgroup_controllers in qemu.conf',
            cause='cpu of cgroup_controllers')
    version = machine.above['cpu'].version
    return knobs.Limit(RULES[Knob.CPU_IDLE, version],
                       cgroup_files.CgroupDirectory(path, version=version))
