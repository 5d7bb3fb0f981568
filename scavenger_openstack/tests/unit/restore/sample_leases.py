# SPDX-License-Identifier: Apache-2.0

"""Leases and restore actions that are sound."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.restore import records

MOUNTS = [('/cg/cpu', 'cgroup', 1), ('/cg/two', 'cgroup2', 2)]
WRITE = {'do': 'write', 'dir': '/cg/cpu/batch/a', 'inode': 7,
         'file': 'cpu.cfs_quota_us', 'text': '-1'}
LIMIT = {**WRITE, 'file': 'blkio.throttle.read_bps_device', 'text': '0',
         'device': '8:0'}
IO_MAX = {**WRITE, 'dir': '/cg/two/a', 'file': 'io.max', 'device': '8:0',
          'text': 'rbps=max wbps=1048576 riops=max wiops=max'}
TC = {'do': 'tc', 'netns': '', 'dev': 'tap0', 'ifindex': 5}


def lease(*steps_: dict[str, Any], **changes: Any) -> records.Lease:
    fields = {'workload': '/batch/a', 'knob': 'cpu_cores',
              'boot_id': records.boot_id(),
              'actions': list(steps_ or (WRITE,)),
              'name': '0' * 32 + '.json', **changes}
    return records.Lease(**fields)
