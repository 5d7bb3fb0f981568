# SPDX-License-Identifier: Apache-2.0

"""Which workloads took memory while others waited for it.

Read at both ends of a window: for how long threads of the victim waited
(its memory.pressure), and what each workload took: by how much it grew, and
what was reclaimed of it meanwhile, page cache included.  Whose pages were
reclaimed for whom the kernel does not tell: these are shares of use.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import errno
import os
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.drivers.cgroup import statistics
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack import errors
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource

PAGE_BYTES = os.sysconf('SC_PAGE_SIZE')

PURPOSE = 'tell which workload takes the memory that others wait for'

_NO_PRESSURE = ('no memory.pressure of a workload can be read; boot the '
                'kernel with psi=1')

T = TypeVar('T')


class Use(NamedTuple):
    """Of one workload: bytes that it took so far, and seconds that its
    threads waited for memory, and how often it met a limit of its own.

    ``None`` is not known.
    """

    taken_bytes: int | None
    waited_s: float | None
    limited: int | None


Uses = windows.Noted[Mapping[str, Use]]
"""Those of workloads when a window began."""


class MemoryEvidence(windows.Windows[Uses]):
    """Evidence for memory."""

    resource, names, purpose = Resource.MEMORY, 'memory', PURPOSE

    def _count(self, victims: Collection[str]) -> Uses:
        if 'memory' not in self._mounts:
            raise errors.Unsupported(
                f'cannot {PURPOSE}: no controller for memory is mounted')
        uses = self._uses()
        if all(uses[victim].waited_s is None for victim in victims
               if victim in uses):
            raise errors.Unsupported(f'cannot {PURPOSE}: {_NO_PRESSURE}')
        return Uses(uses)

    def _counted(self, window: windows.Window[Uses], counter: Uses,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        return tuple(evidence(counter.what, self._uses(), window.victims,
                              window_s))

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        """How long a victim waits is not known then."""
        return ()

    def _uses(self) -> dict[str, Use]:
        """Return what all workloads used so far."""
        samples = self._sample.workloads if self._sample else ()
        version = self._mounts['memory'].version
        return {sample[0].id: _use(
            version, self._domains.directory(sample[0].id, 'memory'),
            self._domains.directory(sample[0].id, 'unified'))
            for sample in samples}


def evidence(before: Mapping[str, Use], after: Mapping[str, Use],
             asked: Collection[str], window_s: float
             ) -> Iterable[DirectEvidence]:
    """Yield the part of each workload in the memory that all took while each
    of those asked about waited for memory.

    Nothing for a workload of which it is not known how long it waited.  A
    workload that met its own limit waited for itself.
    """
    taken: dict[str, float] = {}
    for name, use in after.items():
        start = before.get(name)
        if (start is not None and use.taken_bytes is not None
                and start.taken_bytes is not None):
            taken[name] = max(0.0, use.taken_bytes - start.taken_bytes)
    total = sum(taken.values())
    for name in asked:
        if name not in before or name not in after:
            continue
        start, use = before[name], after[name]
        if start.waited_s is None or use.waited_s is None:
            continue
        waited_s = max(0.0, use.waited_s - start.waited_s)
        if use.limited != start.limited:
            holders = {name: waited_s}
        else:
            holders = {other: waited_s * count / total
                       for other, count in taken.items() if count > 0}
        yield DirectEvidence(name, Resource.MEMORY, window_s, waited_s,
                             holders, shared=True)


def _use(version: int, directory: str | None, unified: str | None) -> Use:
    if directory is None:
        return Use(None, None, None)
    waited_s = None if unified is None else _parsed(
        f'{unified}/memory.pressure', statistics.some_s)
    if version == 1:
        return Use(
            _parsed(f'{directory}/memory.stat', _taken_v1), waited_s,
            _parsed(f'{directory}/memory.failcnt', int))
    used = _parsed(f'{directory}/memory.current', int)
    stolen = _parsed(f'{directory}/memory.stat', _stolen_v2)
    return Use(
        None if used is None or stolen is None else used + stolen, waited_s,
        _parsed(f'{directory}/memory.events', _limited_v2))


def _taken_v1(data: bytes) -> int:
    """Return all pages that were ever charged, of cgroups below, too."""
    return PAGE_BYTES * rows.number(data, b'total_pgpgin ')


def _stolen_v2(data: bytes) -> int:
    """Return what was ever reclaimed."""
    return PAGE_BYTES * rows.number(data, b'pgsteal ')


def _limited_v2(data: bytes) -> int:
    return rows.total(data, b'high ', b'max ')


def _parsed(path: str, parse: Callable[[bytes], T | None]) -> T | None:
    """Return what is in a file; ``None``: no file, or something else.

    :raises OSError: it may not be read.
    """
    try:
        return parse(rows.read(path))
    except (ValueError, IndexError):
        return None
    except OSError as exc:
        if exc.errno not in cgroup_members.ABSENT | {errno.EOPNOTSUPP}:
            raise
        return None
