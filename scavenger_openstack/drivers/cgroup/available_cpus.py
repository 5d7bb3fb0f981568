# SPDX-License-Identifier: Apache-2.0

"""Which CPUs a cgroup can be given, and what keeps the others from it."""

from __future__ import annotations

import functools
import logging

from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack import errors
from scavenger_openstack.restore import cpuset
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import parse_cpus

LOG = logging.getLogger(__name__)

parse = functools.lru_cache(maxsize=4096)(parse_cpus)
"""The same few texts are read in each tick."""


def read_cpus(directory: CgroupDirectory, file: str = cpuset.FILE
              ) -> frozenset[int]:
    """The CPUs in a file.

    :raises DriverError: it cannot be read or holds something else.
    """
    text = directory.read(file)
    try:
        return parse(text)
    except ValueError as exc:
        raise errors.DriverError(f'{directory.path}/{file} holds '
                                 f'{text[:40]!r}, not a CPU list') from exc


def obtainable(directory: CgroupDirectory, cpus: frozenset[int]
               ) -> frozenset[int]:
    """Return which of ``cpus`` a cgroup of version 2 may be given.

    What its parent lacks is offline, or belongs to a cgroup beside it that
    is a partition: Linux before 6.1 refuses such a set, later versions take
    it and end the partition.

    :raises DriverError: there is none of them.
    """
    # The cgroup may be a partition itself.
    available = cpus & (read_cpus(directory)
                        | read_cpus(directory, '../cpuset.cpus.effective'))
    if not available:
        raise errors.DriverError(f'{directory.path}: ' + (
            withheld(directory, cpus) or 'the cgroup above it does not have '
            f'these CPUs: {format_cpus(cpus)}'))
    _log_withheld(directory, cpus - available)
    return available


def withheld(directory: CgroupDirectory, cpus: frozenset[int]) -> str:
    """Return which cgroups beside this one keep some of these CPUs from it,
    for people; '' for none."""
    try:
        others = cpuset.withheld(directory.fileno(), directory.version)
    except (OSError, ValueError):
        return ''
    return cpuset.explained(cpus, others, directory.fileno(),
                            directory.version)


def beside_exclusive(directory: CgroupDirectory, cpus: frozenset[int]
                     ) -> frozenset[int]:
    """Return which of ``cpus`` a cgroup of version 1 may be given beside those
    that have some to themselves."""
    try:
        others = cpuset.withheld(directory.fileno(), directory.version)
    except (OSError, ValueError):
        return cpus
    left = cpus.difference(*others.values())
    if left:
        _log_withheld(directory, cpus - left)
    return left


def _log_withheld(directory: CgroupDirectory, cpus: frozenset[int]) -> None:
    """Name the CPUs that a cgroup is not given, when they are others."""
    if cpus != directory.withheld:
        directory.withheld = cpus
        why = cpus and withheld(directory, cpus)
        if why:
            LOG.warning('%s: its CPU set is written without %s: %s',
                        directory.path, format_cpus(cpus), why)
