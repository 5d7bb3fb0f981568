# SPDX-License-Identifier: Apache-2.0

"""Which workloads made dirty what the host's own threads write to a disk.

A program that writes without waiting for the disk leaves that to threads of
the kernel, so that a disk that is busy with it serves the host.  Whose pages
were written is counted by cgroup: version 2 charges each write to the cgroup
that made the page dirty (``io.stat``).  In version 1 it is what the threads
made dirty (:mod:`.taskstats`) less what is dirty still (``memory.stat``).
Both count writes past the page cache, too, which leave nothing dirty.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import os
import re
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import THE_HOST

MOST = 1000
"""Workloads that are read at a time."""

LEAST_BYTES = 1 << 20
"""Of dirty pages: the threads of what has less are not asked about."""

MOST_THREADS = 200
"""Of all workloads, that are asked about at a time."""

_WRITEBACK = re.compile(
    r'kworker(?![-+](?:kthrotld|kblockd))|jbd2/|xfsaild/')
"""Threads of the kernel that write what others made dirty.

A worker is called after what it did last, which may be anything but the work
of those that are bound to a CPU: writeback has workers that are not.
"""

_PAGE_BYTES = os.sysconf('SC_PAGE_SIZE')
_DIRTY = {1: (b'total_dirty ', b'total_writeback '),
          2: (b'file_dirty ', b'file_writeback ')}


class Dirty(NamedTuple):
    """Of a workload: ``bytes`` of pages that are not on a disk yet.

    ``written_bytes``: what was written so far of such pages, by whatever
    thread, and of what it wrote past them; ``None``: not counted.
    """

    bytes: int
    written_bytes: int | None


class Look(NamedTuple):
    """All of one moment: the pages of all the host that were written so far,
    in bytes, and the workloads."""

    written_bytes: int
    workloads: Mapping[str, Dirty]


class DirtyPages:
    """Reads which workloads have dirty pages.

    :param mounts: where cgroup controllers are mounted; may change
    :param domains: the cgroups of VMs
    :param root_dir: the directory that /proc is in
    """

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/') -> None:
        self._mounts = mounts
        self._domains = domains
        self._root_dir = root_dir.rstrip('/')

    def read(self, workloads: Collection[str]) -> Look | None:
        """Return the dirty pages of workloads now; ``None`` where they are not
        counted by cgroup.

        One that cannot be read is left out: the host is named for it.
        """
        memory, disks = (self._mounts.get(name)
                         for name in ('memory', 'blkio'))
        if memory is None or len(workloads) > MOST:
            return None
        try:
            written = _PAGE_BYTES * rows.number(
                rows.read(f'{self._root_dir}/proc/vmstat'), b'nr_written ')
        except (OSError, ValueError):
            return None
        paths = {workload: path for workload in workloads
                 if (path := self._domains.directory(workload, 'memory'))}
        pages: dict[str, int] = {}
        for workload, path in paths.items():
            with contextlib.suppress(OSError, ValueError):
                pages[workload] = rows.total(
                    rows.read(f'{path}/memory.stat'), *_DIRTY[memory.version])
        counted = (self._of_disks(pages)
                   if disks is not None and disks.version == 2
                   else self._of_threads(pages, paths))
        return Look(written, {workload: Dirty(size, counted.get(workload))
                              for workload, size in pages.items()})

    def _of_disks(self, workloads: Iterable[str]) -> dict[str, int]:
        """Return the bytes that version 2 counts as written, without what is
        stacked upon disks."""
        devices = disk_waits.disks(self._root_dir)
        written: dict[str, int] = {}
        for workload in workloads:
            path = self._domains.directory(workload, 'blkio')
            with contextlib.suppress(OSError, ValueError):
                written[workload] = _written(
                    rows.read(f'{path}/io.stat'), devices)
        return written

    @staticmethod
    def _of_threads(pages: Mapping[str, int], paths: Mapping[str, str]
                    ) -> dict[str, int]:
        """Return the bytes that threads wrote, of workloads with most dirty
        pages."""
        threads: dict[str, list[int]] = {}
        left = MOST_THREADS
        for workload in sorted(pages, key=pages.__getitem__, reverse=True):
            if pages[workload] < LEAST_BYTES:
                break
            with contextlib.suppress(cgroup_members.TooMany, OSError,
                                     ValueError):
                threads[workload] = cgroup_members.members(
                    cgroup_members.nodes_of(paths[workload], left),
                    cgroup_members.THREADS_V1, left)
                left -= len(threads[workload])
        asked = [(taskstats.TASK, thread) for workload in threads
                 for thread in threads[workload]]
        if not asked:
            return {}
        try:
            with contextlib.closing(taskstats.Taskstats()) as kernel:
                answers = iter(kernel.ask(asked))
        except (OSError, ValueError):
            return {}
        return {workload: sum(
            task.write_bytes - task.cancelled_bytes for task in
            itertools.islice(answers, len(tasks)) if task) - pages[workload]
            for workload, tasks in threads.items()}


def shares(looks: Sequence[Look]) -> dict[str, float]:
    """Return the part of each workload in what was written back; the rest of
    1 is of none.

    :param looks: at the begin of a window, within it, and at its end
    """
    if not looks:
        return {}
    written: dict[str, int] = {}
    for workload in looks[-1].workloads:
        dirty = [reading.workloads[workload] for reading in looks
                 if workload in reading.workloads]
        so_far = [pages.written_bytes for pages in dirty
                  if pages.written_bytes is not None]
        # What never has a dirty page writes past them.
        if any(pages.bytes for pages in dirty) and so_far[-1:] > so_far[:1]:
            written[workload] = so_far[-1] - so_far[0]
    total = max(looks[-1].written_bytes - looks[0].written_bytes,
                sum(written.values()))
    return {workload: size / total for workload, size in written.items()}


def attributed(answer: DirectEvidence, parts: Mapping[str, float]
               ) -> DirectEvidence:
    """Return the answer with what the host wrote back held by the workloads
    of ``parts``.

    :param parts: as of :func:`shares`, of what shares a disk with the victim
    """
    written_s = sum(seconds for name, seconds in answer.threads.items()
                    if _WRITEBACK.match(name))
    held_s = {workload: written_s * part for workload, part in parts.items()
              if written_s * part > 0}
    if not held_s:
        return answer
    direct_s = answer.holders
    rest_s = max(0.0, direct_s.get(THE_HOST, 0.0) - sum(held_s.values()))
    rest = max(0.0, 1.0 - sum(parts.values()))
    threads = {name: seconds * rest if _WRITEBACK.match(name) else seconds
               for name, seconds in answer.threads.items()}
    return answer._replace(
        holders={**direct_s, THE_HOST: rest_s, **{
            workload: direct_s.get(workload, 0.0) + seconds
            for workload, seconds in held_s.items()}},
        threads={name: seconds for name, seconds in threads.items()
                 if seconds > 0},
        by_share=tuple(workload for workload, seconds in held_s.items()
                       if seconds > direct_s.get(workload, 0.0)))


def _written(data: bytes, devices: Collection[str]) -> int:
    """Return what ``io.stat`` counts for these disks; a cgroup that has used
    none has no line."""
    return sum(int(grammar.pairs(counts).get('wbytes', 0))
               for device, counts in map(grammar.device_row, data.decode(
                   errors='replace').split('\n')) if device in devices)
