# SPDX-License-Identifier: Apache-2.0

"""Monitoring groups of resctrl: bytes over the memory bus, by workload.

A group takes one of the few monitoring ids of the CPU, so groups are there
for as long as a window of direct evidence, and only where no other program
has any.  Source: the kernel's Documentation/filesystems/resctrl.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import os

from scavenger_openstack.drivers.resctrl import tree
from scavenger_openstack import errors
from scavenger_openstack.restore import resctrl

MOST_GROUPS = 32
"""At a time; the bytes of other workloads are counted together."""

FEATURE = 'mbm_total_bytes'

PURPOSE = 'tell which workload fills the memory bus'


class Groups:
    """A monitoring group for each of some workloads.

    :param top: where resctrl is mounted
    :param threads: of each workload, the busiest first
    :raises Unsupported: resctrl cannot be used, and what would help.
    :raises DriverError: another program changes groups for long.
    :raises OSError: a group cannot be made.
    """

    def __init__(self, top: str, threads: Mapping[str, frozenset[int]]
                 ) -> None:
        self._groups: dict[str, str] = {}
        self._before: dict[str, int | None] = {}
        tree.check_usable(top, PURPOSE, 'mon_groups')
        # A monitoring group has threads of the control group that it is in.
        limited = f'{top}/{resctrl.GROUP}'
        inside = tree.tasks(limited)
        self._controls = (top, limited) if os.path.isdir(limited) else (top,)
        try:
            with tree.locked(top, PURPOSE):
                for workload in list(threads)[:_room(top)]:
                    control = (top if inside.isdisjoint(threads[workload])
                               else limited)
                    path = (f'{control}/mon_groups/{tree.MONITORING}'
                            f'{len(self._groups)}')
                    os.mkdir(path)
                    self._groups[workload] = path
            for workload, path in self._groups.items():
                tree.move(path, threads[workload], PURPOSE)
            self._before = self._read()
        except BaseException:
            self.close()
            raise

    def bytes_of(self) -> tuple[dict[str, float], float | None]:
        """Bytes over the memory bus since the groups were made, of each
        workload, and of all others together; ``None`` where the kernel could
        not tell.  A workload of which it could not is left out.

        :raises OSError: a group is gone.
        """
        grown: dict[str, float | None] = {}
        for workload, now in self._read().items():
            before = self._before[workload]
            grown[workload] = (None if now is None or before is None
                               or now < before else float(now - before))
        every = grown.pop('', None)
        counted = {workload: count for workload, count in grown.items()
                   if count is not None}
        return counted, None if every is None or len(counted) < len(grown) \
            else max(0.0, every - sum(counted.values()))

    def close(self) -> None:
        """Remove the groups; their threads go back to where they were."""
        while self._groups:
            _, path = self._groups.popitem()
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)

    def _read(self) -> dict[str, int | None]:
        """Return the counters; '' is all of the control groups, which count
        what the monitoring groups in them do, too."""
        totals = [_total(control) for control in self._controls]
        return {'': None if None in totals else sum(filter(None, totals)),
                **{workload: _total(path)
                   for workload, path in self._groups.items()}}


def remove_left(top: str) -> None:
    """Remove the groups that an agent left which was killed.

    :raises OSError: one cannot be removed.
    """
    for directory in (f'{top}/mon_groups',
                      f'{top}/{resctrl.GROUP}/mon_groups'):
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(directory):
                if name.startswith(tree.MONITORING):
                    with contextlib.suppress(FileNotFoundError):
                        os.rmdir(f'{directory}/{name}')


def _room(top: str) -> int:
    """Return how many groups may be made now.

    :raises Unsupported: none, and why.
    """
    try:
        with open(f'{top}/info/L3_MON/mon_features') as file:
            features = file.read().split()
        with open(f'{top}/info/L3_MON/num_rmids') as file:
            ids = int(file.read())
    except FileNotFoundError:
        features, ids = [], 0
    if FEATURE not in features:
        raise errors.Unsupported(
            f'cannot {PURPOSE}: this CPU does not count it in resctrl')
    others = tree.control_groups(top)
    others += [name for name in sorted(os.listdir(f'{top}/mon_groups'))
               if not name.startswith(tree.MONITORING)]
    if others:
        raise errors.Unsupported(
            f'cannot {PURPOSE}: another program has groups in {top}, '
            f'{others[0]} for one')
    remove_left(top)
    # One is that of all others, one of what is limited.
    room = min(MOST_GROUPS, ids - 1 - os.path.isdir(f'{top}/{resctrl.GROUP}'))
    if room < 1:
        raise errors.Unsupported(
            f'cannot {PURPOSE}: the CPU has only {ids} monitoring ids')
    return room


def _total(path: str) -> int | None:
    """Return the bytes of a group over all memory buses; ``None`` where the
    kernel has none: it writes ``Unavailable`` for a moment, or ``Error``.

    :raises OSError: it cannot be read.
    """
    total = 0
    names = [name for name in os.listdir(f'{path}/mon_data')
             if name.startswith('mon_L3_')]
    for name in names:
        with open(f'{path}/mon_data/{name}/{FEATURE}') as file:
            text = file.read().strip()
        if not text.isdecimal():
            return None
        total += int(text)
    return total if names else None
