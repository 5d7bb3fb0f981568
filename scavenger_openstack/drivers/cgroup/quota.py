# SPDX-License-Identifier: Apache-2.0

"""Writing a CPU quota, and what keeps the kernel from taking it."""

from __future__ import annotations

from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_files import Entry
from scavenger_openstack import errors

_QUOTA, _PERIOD = 'cpu.cfs_quota_us', 'cpu.cfs_period_us'


def put(d: CgroupDirectory, entry: Entry, text: str, *, quota_us: int,
        period_us: int) -> None:
    """Write a quota.

    :raises DriverError: the kernel does not take it; the message says why.
    """
    try:
        d.put(entry, text)
    except errors.DriverError as exc:
        why = _why_not(d, quota_us, period_us)
        if not why:
            raise
        raise errors.Denied(f'cannot write {text!r} to {d.path}/{entry.file} '
                            f'{why}') from exc


def _why_not(d: CgroupDirectory, quota_us: int, period_us: int) -> str:
    """Return what the kernel compares a quota with and finds in the way."""
    burst_file = 'cpu.cfs_burst_us' if d.version == 1 else 'cpu.max.burst'
    try:
        burst_us = d.read_int(burst_file)
    except errors.DriverError:
        burst_us = 0    # kernels before 5.14 have none
    if burst_us > quota_us:
        return (f'while {burst_file} there is {burst_us}: the kernel takes no '
                'quota below the burst; write 0 to that file')
    if d.version != 1:
        return ''
    try:
        inside = d.subdirectories()
    except errors.DriverError:
        inside = []
    for where, name in (('..', 'the parent cgroup'),
                        *((name, f'the cgroup {name} inside it')
                          for name in inside)):
        try:
            other_us = d.read_int(f'{where}/{_QUOTA}')
            cores = other_us / d.read_int(f'{where}/{_PERIOD}')
        except (errors.DriverError, ZeroDivisionError):
            continue    # the root has none
        more = cores > quota_us / period_us
        if other_us > 0 and more == (where != '..') \
                and cores != quota_us / period_us:
            return (f'while {name} has a quota of {cores:g} cores: cgroup v1 '
                    f'takes no {"lower" if more else "higher"} one')
    return ''
