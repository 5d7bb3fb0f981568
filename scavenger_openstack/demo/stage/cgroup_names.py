# SPDX-License-Identifier: Apache-2.0

"""What the kernel's files are called in each version of cgroups."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


class File(NamedTuple):
    """A file of a cgroup, and the word before the number that is meant."""

    controller: str
    name: str
    key: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """One version's files and the forms of what is written to them.

    ``controllers`` have the names of version 1 in both: a controller is
    looked up by the mount that it has.  ``swap`` at 0 is none.  ``knobs`` are
    all files that the agent may change: each has to read the same after it
    has gone.
    """

    version: int
    cpu_time: File
    cpu_time_per_s: float
    cpu_weight: File
    usual_weight: int
    cpu_quota: File
    cpu_idle: File
    cpus: File
    every_cpu: str | None
    cpus_in_force: File
    memory: File
    memory_limit: File
    memory_limits: tuple[File, ...]
    refusals: File
    swap: File
    unlimited: str
    knobs: tuple[File, ...]


QUOTA_PERIOD_US = 100_000
"""The kernel's own; version 1 has it in another file."""

V1 = Names(
    version=1,
    cpu_time=File('cpuacct', 'cpuacct.usage'),
    cpu_time_per_s=1e9,
    cpu_weight=File('cpu', 'cpu.shares'),
    usual_weight=1024,
    cpu_quota=File('cpu', 'cpu.cfs_quota_us'),
    cpu_idle=File('cpu', 'cpu.idle'),
    cpus=File('cpuset', 'cpuset.cpus'),
    every_cpu=None,
    cpus_in_force=File('cpuset', 'cpuset.effective_cpus'),
    memory=File('memory', 'memory.usage_in_bytes'),
    memory_limit=File('memory', 'memory.limit_in_bytes'),
    memory_limits=(File('memory', 'memory.limit_in_bytes'),),
    refusals=File('memory', 'memory.failcnt'),
    swap=File('memory', 'memory.swappiness'),
    unlimited='-1',
    knobs=(
        File('cpu', 'cpu.shares'), File('cpu', 'cpu.cfs_period_us'),
        File('cpu', 'cpu.cfs_quota_us'), File('cpu', 'cpu.idle'),
        File('cpuset', 'cpuset.cpus'), File('cpuset', 'cpuset.mems'),
        File('memory', 'memory.limit_in_bytes'),
        File('memory', 'memory.soft_limit_in_bytes'),
        File('freezer', 'freezer.state'),
        File('blkio', 'blkio.throttle.read_bps_device'),
        File('blkio', 'blkio.throttle.write_bps_device'),
        File('blkio', 'blkio.throttle.read_iops_device'),
        File('blkio', 'blkio.throttle.write_iops_device')))

V2 = Names(
    version=2,
    cpu_time=File('cpuacct', 'cpu.stat', 'usage_usec '),
    cpu_time_per_s=1e6,
    cpu_weight=File('cpu', 'cpu.weight'),
    usual_weight=100,
    cpu_quota=File('cpu', 'cpu.max'),
    cpu_idle=File('cpu', 'cpu.idle'),
    cpus=File('cpuset', 'cpuset.cpus'),
    every_cpu='',
    cpus_in_force=File('cpuset', 'cpuset.cpus.effective'),
    memory=File('memory', 'memory.current'),
    memory_limit=File('memory', 'memory.max'),
    memory_limits=(File('memory', 'memory.high'),
                   File('memory', 'memory.max')),
    # not memory.events, which counts what is below it as well
    refusals=File('memory', 'memory.events.local', 'max '),
    swap=File('memory', 'memory.swap.max'),
    unlimited='max',
    knobs=(
        File('cpu', 'cpu.weight'), File('cpu', 'cpu.max'),
        File('cpu', 'cpu.idle'),
        File('cpuset', 'cpuset.cpus'), File('cpuset', 'cpuset.mems'),
        File('memory', 'memory.high'), File('memory', 'memory.max'),
        File('freezer', 'cgroup.freeze'), File('blkio', 'io.max')))

NAMES = {1: V1, 2: V2}
