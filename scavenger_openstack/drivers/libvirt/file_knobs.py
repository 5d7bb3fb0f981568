# SPDX-License-Identifier: Apache-2.0

"""The limits of a domain that are files of its cgroups.

libvirt is not asked: they hold, and are removed, while it hangs.
"""

from __future__ import annotations

import contextlib

from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.drivers.qemu import idle
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

KNOBS = frozenset((Knob.CPU_IDLE, Knob.CPU_SET))

File = knobs.Limit | cpuset.CpuSet


class Files:
    """Those of one run of a domain."""

    def __init__(self, machine: domain_cgroup.DomainCgroup | None,
                 root_dir: str) -> None:
        self._machine = machine
        self._root_dir = root_dir
        self._idle: knobs.Limit | None = None
        self._cpus: cpuset.CpuSet | None = None

    def of(self, knob: Knob, domain: xml.Domain) -> File:
        """Return what reads and sets one of :data:`KNOBS`.

        :raises Unsupported: the domain has no such cgroup, or CPUs of its
            own.
        :raises DriverError: it cannot be opened.
        """
        if knob is Knob.CPU_IDLE:
            self._idle = self._idle or idle.limit(domain.name, self._machine)
            return self._idle
        if domain.dedicated or domain.numa_nodes is not None:
            raise errors.Unsupported(
                f'domain {domain.name} has CPUs or NUMA nodes of its own: '
                'its CPU set is left alone')
        self._cpus = self._cpus or cpuset.CpuSet(
            domain.name, self._machine, self._root_dir)
        self._cpus.allowed = domain.allowed_cpus
        return self._cpus

    def is_idle(self) -> bool:
        """Return whether the domain is idle for the scheduler, if known."""
        with contextlib.suppress(errors.ScavengerError):
            return self._idle is not None and self._idle.read() == 1
        return False

    def plugged(self) -> bool:
        """Return whether vCPUs came or went since its CPU set was written."""
        return self._cpus is not None and self._cpus.changed()
