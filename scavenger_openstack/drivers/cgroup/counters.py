# SPDX-License-Identifier: Apache-2.0


"""What cgroups have used so far, over kept descriptors.

The hot part of the agent: everything here runs for each workload at each
tick.  A file whose bytes did not change is not parsed again.  One that can
only change together with another is read when that did, one whose kernel
counter was never switched on (no quota, no I/O limit) not at all; both at
every eighth tick all the same (the kernel folds its statistics with some
delay, and others set limits, too).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import errno
import logging
import os

from scavenger_openstack.drivers.cgroup import statistics
from scavenger_openstack.drivers.cgroup import used_disks
from scavenger_openstack.drivers.kernel.cgroup_files import ABSENT
from scavenger_openstack.drivers.kernel.cgroup_files import OUT_OF_FILES
from scavenger_openstack import log_once
from scavenger_openstack.types import Knob
from scavenger_openstack.types import phase
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

_COUNTED: Mapping[Knob, tuple[int, ...]] = {
    Knob.CPU_CORES: (statistics.CPU_S,),
    Knob.MEMORY_BYTES: (statistics.USED_BYTES, statistics.DROPPABLE_BYTES),
    Knob.IO_BYTES_PER_S: (statistics.IO_BYTES,),
    Knob.IO_OPS_PER_S: (statistics.IO_OPS,)}
_FULL_READ_TICKS = 8
_PRESSURE_OFF = '; this kernel does not count pressure: boot it with psi=1'


def _open(path: str) -> int | None:
    """:raises OSError: there are no descriptors left."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in OUT_OF_FILES:
            raise
        return None


class _Kept:
    __slots__ = ('bad', 'bit', 'data', 'fd', 'file', 'inode', 'of_refaults',
                 'off', 'path', 'size', 'source', 'wakes')

    def __init__(self, source: statistics.Source, path: str, fd: int) -> None:
        self.source = source
        self.path = path
        self.file = os.path.basename(path)
        self.inode = _inode(os.path.dirname(path))
        self.fd = fd
        self.size = 64      # a larger buffer costs more; it grows
        self.data: bytes | None = None   # an empty file tells, too
        self.bad = False
        self.off = False
        self.of_refaults = source.of_refaults
        self.bit = 1 << source.fields[0]
        self.wakes = 0

    def in_place(self) -> bool:
        """Return whether the cgroup is there: a file that is gone says only
        that its controller was turned off."""
        return self.inode == _inode(os.path.dirname(self.path)) != 0


def _inode(directory: str) -> int:
    """Return the inode of a directory, 0 when there is none."""
    try:
        return os.stat(directory).st_ino
    except OSError:
        return 0


class Counters:
    """The kept descriptors of one workload and what they said last.

    :param below: its cgroup, below each mount
    :param logged: what was logged of this host
    """

    __slots__ = ('_below', '_kept', '_last', '_logged', '_missing', '_tick',
                 'values')

    def __init__(self, wanted: Sequence[statistics.Source], below: str,
                 logged: log_once.LogOnce) -> None:
        self.values = statistics.nothing()
        self._logged = logged
        self._below = below
        self._last: WorkloadSample | None = None    # until a file changes
        self._kept: list[_Kept] = []
        self._missing = list(wanted)
        # Not all in one tick.
        self._tick = int(_FULL_READ_TICKS * phase(below))
        try:
            self._open_missing()
        except OSError:
            self.close()
            raise

    def follow(self, wanted: Sequence[statistics.Source]) -> None:
        """Read these files from now on: controllers are mounted elsewhere."""
        self.close()
        self.values = statistics.nothing()
        self._last = None
        self._missing = list(wanted)
        self.wake()

    def _look_again(self) -> None:
        """Open what did not exist so far, and again what cannot be read:
        hierarchies fill one by one, and a controller that was disabled
        comes back with other files."""
        with contextlib.suppress(OSError):      # no descriptors are left
            for kept in self._kept:
                if kept.bad and (fd := _open(kept.path)) is not None:
                    os.close(kept.fd)
                    kept.fd = fd
            if self._missing:
                self._open_missing()

    def _open_missing(self) -> None:
        """:raises OSError: there are no descriptors left."""
        try:
            for source in list(self._missing):
                for file in source.files:
                    path = f'{source.mount}{self._below}/{file}'
                    if (fd := _open(path)) is not None:
                        self._kept.append(_Kept(source, path, fd))
                        self._missing.remove(source)
                        break
        finally:
            self._arrange()

    def _arrange(self) -> None:
        # Leaders first: what follows looks at what they said this tick.
        self._kept.sort(key=lambda kept: kept.source.fields[0])
        counted = {kept.source.fields[0] for kept in self._kept}
        for kept in self._kept:
            kept.wakes = sum(1 << place for place in kept.source.follows
                             if counted.issuperset(kept.source.follows))

    def parse_again(self) -> None:
        """Parse all files the next time: other disks count."""
        for kept in self._kept:
            kept.data = None
        self.wake()

    def wake(self) -> None:
        """Read all files the next time: a limit was set."""
        self._tick = -1

    def read(self, *, with_refaults: bool = True) -> statistics.Values | None:
        """Return all values of now, or ``None``: the workload is gone.

        :param with_refaults: read how much page cache was read again, too:
            while none is on this host, none is by this workload
        """
        values = self.values
        pread = os.pread
        gone: list[_Kept] = []
        self._tick += 1
        changed = 0
        if not self._tick % _FULL_READ_TICKS:
            changed = -1
            self._look_again()
        for kept in self._kept:
            if kept.wakes and not kept.wakes & changed and kept.data:
                continue
            if changed >= 0 and (kept.off or (
                    kept.of_refaults and kept.data and not with_refaults)):
                continue
            try:
                data = pread(kept.fd, kept.size, 0)
                if data == kept.data and not kept.bad:
                    continue
                changed |= kept.bit
                self._last = None
                while len(data) == kept.size:
                    kept.size *= 4
                    data = pread(kept.fd, kept.size, 0)
                kept.source.parse(data, values)
            except OSError as exc:
                if exc.errno in ABSENT:
                    gone.append(kept)
                    continue
                why = os.strerror(exc.errno or 0)
                if exc.errno == errno.EOPNOTSUPP:
                    self._unknown(kept, why + _PRESSURE_OFF, _PRESSURE_OFF)
                else:
                    self._unknown(kept, why, f'{kept.file} {why}')
                continue
            except (ValueError, IndexError):
                self._unknown(kept, f'holds {data[:60]!r}',
                              f'content of {kept.file}')
                continue
            kept.data = data
            if kept.bad:
                self._logged.over(kept.path)
            kept.bad = False
            off = kept.source.off
            kept.off = off is not None and data.startswith(off)
        if gone:
            if not all(kept.in_place() for kept in gone):
                return None
            self._drop(gone)
        return values

    def _drop(self, gone: Sequence[_Kept]) -> None:
        """Set the values of files that vanished to None; open their
        successors."""
        self._last = None
        for kept in gone:
            os.close(kept.fd)
            self._kept.remove(kept)
            self._missing.append(kept.source)
            for place in kept.source.fields:
                self.values[place] = None
        with contextlib.suppress(OSError):
            self._open_missing()

    def _unknown(self, kept: _Kept, why: str, cause: str) -> None:
        self._last = None
        for place in kept.source.fields:
            self.values[place] = None
        if not kept.bad and self._logged.due(kept.path, cause=cause):
            LOG.warning('%s: %s; what it counts is unknown until it can be '
                        'read again%s', kept.path, why, log_once.SAME_CAUSE)
        kept.bad = True

    def unknown(self, knob: Knob) -> str:
        """The first file without which the last sample does not know what a
        knob limits; '' if it does.  The next one looks for all of them."""
        places = _COUNTED.get(knob, ())
        if all(self.values[place] is not None for place in places):
            return ''
        self.wake()
        return next((f'{source.mount}{self._below}/{source.files[0]}'
                     for source in (*self._missing, *(
                         kept.source for kept in self._kept if kept.bad))
                     if not set(places).isdisjoint(source.fields)), '')

    def disk_operations(self) -> Mapping[str, int]:
        """Operations so far by disk, as of the last :meth:`read`; empty where
        they are not counted."""
        return next((
            used_disks.operations(kept.data) for kept in self._kept
            if kept.data and statistics.IO_OPS in kept.source.fields), {})

    def sample(self, workload: Workload, *, with_refaults: bool = True
               ) -> WorkloadSample | None:
        """The sample of now, or ``None``: the workload is gone; as
        :meth:`read`."""
        values = self.read(with_refaults=with_refaults)
        if values is None:
            return None
        last = self._last
        if last is not None and last.workload is workload:
            return last
        (cpu_s, throttled_s, used, droppable, io_bytes, io_ops,
         psi_cpu_s, psi_io_s, psi_memory_s, refaults) = values
        memory = (None if used is None or droppable is None
                  else max(0, int(used - droppable)))
        self._last = WorkloadSample(
            workload, cpu_s, None, throttled_s, None, None, None, None, None,
            None, None, None, io_ops, io_bytes,  # type: ignore[arg-type]
            None, None, psi_cpu_s, psi_io_s, psi_memory_s, memory,
            droppable, refaults)  # type: ignore[arg-type]
        return self._last

    def close(self) -> None:
        """Give the descriptors back."""
        for kept in self._kept:
            os.close(kept.fd)
            self._logged.forget(kept.path)
        self._kept = []
