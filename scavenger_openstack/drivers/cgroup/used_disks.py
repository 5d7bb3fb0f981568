# SPDX-License-Identifier: Apache-2.0

"""The disks that a workload uses, by what its cgroup counts for each."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import contextlib

from scavenger_openstack.restore import grammar

LOOKS = 10
"""So many looks without operations, and a disk is no longer used: programs
are read once, from another disk than that on which they work."""


def operations(data: bytes) -> dict[str, int]:
    """Return operations so far by ``major:minor``, of v1
    ``blkio.throttle.io_serviced`` or v2 ``io.stat``."""
    done = {}
    for line in data.decode(errors='replace').split('\n'):
        device, counts = grammar.device_row(line)
        words = line.split()
        with contextlib.suppress(ValueError):
            if len(words) == 3 and words[1] == 'Total':
                done[words[0]] = int(words[2])
            elif 'ios=' in counts:
                numbers = grammar.pairs(counts)
                done[device] = sum(int(numbers.get(key, 0))
                                   for key in ('rios', 'wios'))
    return done


class UsedDisks:
    """The disks of one workload, from look to look."""

    __slots__ = ('_done', '_left')

    def __init__(self) -> None:
        self._done: Mapping[str, int] = {}
        self._left: dict[str, int] = {}

    def look(self, done: Mapping[str, int], disks: Collection[str]
             ) -> tuple[str, ...]:
        """Return the disks that are used; none while none is known.

        :param done: operations so far by disk
        :param disks: those that count
        """
        before, self._done = self._done, done
        self._left = {disk: left - 1 for disk, left in self._left.items()
                      if left > 1}
        self._left |= {disk: LOOKS for disk, count in done.items()
                       if count != before.get(disk, 0)}
        return tuple(sorted(disk for disk in self._left if disk in disks))
