# SPDX-License-Identifier: Apache-2.0

"""The cgroups that libvirt made for a domain.

Without systemd they are called ``qemu-1-NAME.libvirt-qemu``, with it
``machine-qemu\x2d1\x2dNAME.scope``, wherever their parents are.  In them, or
in a child ``libvirt``, each vCPU has one, ``vcpuN``, and the rest of QEMU
one, ``emulator``; version 1 has those parts in cpu, cpuset and cpuacct only.

Sources: libvirt's vircgroup.c, domain_cgroup.c and domain_driver.c.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import NamedTuple

from scavenger_openstack.drivers.cgroup import statistics
from scavenger_openstack.drivers.cgroup.statistics import CPU_S
from scavenger_openstack.drivers.cgroup.statistics import Source
from scavenger_openstack.drivers.cgroup.statistics import US_PER_S
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel.perf_event import Place

_NAME = re.compile(r'qemu-.+\.libvirt-qemu|machine-qemu\\x2d.+\.scope')
_PART = re.compile('emulator|vcpu[0-9]+|iothread[0-9]+')


class DomainCgroup(NamedTuple):
    """The places of the cgroups of one domain.

    ``name`` is the same in all hierarchies.  ``above`` maps a controller to
    the directory that the machine's own is in, ``parts`` to the one that the
    ``vcpuN`` are in.
    """

    name: str
    above: Mapping[str, Mount]
    parts: Mapping[str, str]

    def path(self, controller: str) -> str | None:
        """Return the machine's own directory; ``None`` where it has none."""
        mount = self.above.get(controller)
        return None if mount is None else f'{mount.path}/{self.name}'

    def place(self, virt_type: str) -> Place | None:
        """Return where hardware counters count the domain, ``None`` for
        nowhere.

        The work of the host for a guest is not the guest's work, unless QEMU
        is the CPU, too: of an emulated guest nothing runs as a guest.

        :param virt_type: of the domain, ``kvm`` or ``qemu``
        """
        path = self.path('perf_event')
        return None if path is None else Place(path, virt_type == 'kvm')


def is_part(name: str) -> bool:
    """Return whether a cgroup is, by its name, that of some threads of a
    domain."""
    return _PART.fullmatch(name) is not None


def is_machine(path: str) -> bool:
    """Return whether a cgroup is, by its name, all of a domain of QEMU."""
    name = path.removesuffix('/libvirt').rpartition('/')[2]
    return _NAME.fullmatch(name) is not None


def machine(text: str, mounts: Mapping[str, Mount]) -> DomainCgroup | None:
    """Find a domain's cgroups in ``/proc/PID/cgroup`` of its QEMU.

    In some hierarchies QEMU is in the machine's cgroup itself, in some in a
    part of it, in some elsewhere; ``None`` when it has none at all.
    """
    paths = cgroup_members.paths(text)
    name = ''
    above: dict[str, Mount] = {}
    parts: dict[str, str] = {}
    for controller, mount in mounts.items():
        path = paths.get(
            cgroup_members.hierarchy(controller, mount.version), '')
        head, _, last = path.rpartition('/')
        if _PART.fullmatch(last):
            path = head
            head, _, last = path.rpartition('/')
        if last == 'libvirt':
            head, _, last = head.rpartition('/')
        name = name or (last if _NAME.fullmatch(last) else '')
        if name and last == name and not path.startswith('/..'):
            above[controller] = Mount(mount.path + head, mount.version)
            parts[controller] = mount.path + path
    return DomainCgroup(name, above, parts) if above else None


def sources(place: DomainCgroup, *, pressure: bool) -> list[Source]:
    """Return the files to read in the machine's own cgroup: none of its I/O,
    since libvirt counts more of disks."""
    mounts = {name: mount for name, mount in place.above.items()
              if name != 'blkio'}
    files = statistics.sources(mounts, (), pressure=pressure, refaults=True)
    unified = mounts.get('unified')
    if unified is not None and all(CPU_S not in source.fields
                                   for source in files):
        # libvirt leaves cpuacct alone when the v2 tree counts CPU time; what
        # is throttled is in another hierarchy.
        files.append(Source(unified.path, ('cpu.stat',), statistics.seconds(
            CPU_S, US_PER_S, b'usage_usec '), (CPU_S,)))
    return files
