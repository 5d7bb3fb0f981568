# SPDX-License-Identifier: Apache-2.0

"""Lines of JSON in segments of bounded size, each file of one run.

A line is a checksum, the sequence number of an entry, and its JSON.  Only the
run that began a segment appends to it, so that a line which a kill cut off is
the last of its file.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import os
import pathlib
import re
from typing import BinaryIO
from typing import NamedTuple
import zlib

from scavenger_openstack.agent import private_files
from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

MOST_LINE = 1 << 20
"""Most bytes of a line; a longer one is damaged and must not fill the memory.
"""

MOST_WAITING = 10_000
MOST_WAITING_BYTES = 4 << 20
"""Most lines that wait in memory while the disk has a fault, and most bytes of
them."""
KEPT = 0.9
"""The share of these limits that is left after the oldest are dropped."""

BLOCK = 4096
"""Bytes that a small file takes on the disk."""
SEGMENTS = 8
"""Number of files of one kind."""
SMALL = 1 << 20
"""Bytes of all files of a kind of which no history is kept."""

_NAME = re.compile(r'(\d{10})-([0-9a-f]{32})-(\d{16})\.(events|reports)')


class Line(report.Wire, frozen=True):
    """An event, and the names of the VMs whose UUIDs it has."""

    entry: report.AnyEntry
    names: dict[str, dict[str, str]] = {}


class Segment(NamedTuple):
    """A file: the number of its run, which grows from run to run, the run's
    id, and the sequence of its first line."""

    run: int
    run_id: str
    first: int
    path: pathlib.Path


def is_name(name: str) -> bool:
    """Return whether a file is a segment, or one that was moved aside."""
    return _NAME.match(name) is not None


def segments(directory: pathlib.Path, kind: str) -> list[Segment]:
    """Return the segments in a directory, oldest first.

    :param kind: ``events`` or ``reports``
    :raises OSError: the directory cannot be read.
    """
    matches = map(_NAME.fullmatch, os.listdir(directory))
    return sorted(Segment(int(match[1]), match[2], int(match[3]),
                          directory / match[0])
                  for match in matches if match and match[4] == kind)


def encode(sequence: int, data: bytes) -> bytes:
    """Return the line of an entry.

    :param data: of a :class:`Line` as JSON
    """
    text = b'%d %s' % (sequence, data)
    return b'%08x %s\n' % (zlib.crc32(text), text)


class Parsed(NamedTuple):
    """The sequence of a line and its JSON."""

    sequence: int
    data: bytes


def parse(line: bytes) -> Parsed | None:
    """Return the parts of a line, ``None`` of a damaged one."""
    text = line[9:-1]
    if line[:9] != b'%08x ' % zlib.crc32(text) or line[-1:] != b'\n':
        return None
    sequence, _, data = text.partition(b' ')
    return Parsed(int(sequence), data) if sequence.isdigit() else None


def decode(data: bytes) -> Line:
    """Return the :class:`Line` of JSON.

    :raises WireError: it is of another version.
    """
    return codec.decode(data, Line, MOST_LINE)


def entry(line: Parsed) -> report.AnyEntry | None:
    """Return the entry of a line, ``None`` if it is of another version."""
    try:
        entry = decode(line.data).entry
    except errors.WireError:
        return None
    return entry if entry.sequence == line.sequence else None


def lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Generate the rest of the lines of a file, each with the offset of its
    end; of a line that is too long only its first part."""
    begins, end = True, file.tell()
    while line := file.readline(MOST_LINE):
        end += len(line)
        if begins:
            yield line, end
        begins = line.endswith(b'\n')


def first_entries(lines: Iterable[tuple[int, bytes, report.AnyEntry]],
                  last: float, most: int, most_bytes: int
                  ) -> list[report.AnyEntry]:
    """Return the first entries, up to a sequence; of one with and without
    measurements that with them, which comes later."""
    entries: dict[int, report.AnyEntry] = {}
    for sequence, data, entry in lines:
        most_bytes -= len(data)
        if sequence > last or sequence not in entries and entries and (
                len(entries) == most or most_bytes < 0):
            break
        entries[sequence] = entry
    return list(entries.values())


class Series:
    """Writes segments of one kind, and removes the oldest.

    :param most_bytes: of all segments
    """

    def __init__(self, directory: pathlib.Path, kind: str, most_bytes: int
                 ) -> None:
        self.segments: list[Segment] = []
        self.waiting = collections.deque[tuple[int, bytes]]()
        """Lines that are not written yet, with their sequence."""
        self.waiting_bytes = 0
        self.most_bytes = most_bytes
        self.segment_bytes = max(BLOCK, (most_bytes or SMALL) // SEGMENTS)
        self._directory = directory
        self._kind = kind
        self._sizes: dict[pathlib.Path, int] = {}
        self._fd = -1
        self._size = 0

    def load(self, warn: Callable[[str], None]) -> None:
        """List the segments of earlier runs; files that others may have
        written are moved aside.

        :raises OSError: the directory cannot be read.
        """
        self.close()
        self.segments, self._sizes = [], {}
        for segment in segments(self._directory, self._kind):
            if why := private_files.why_not(segment.path):
                private_files.move_aside(segment.path, why, warn)
                continue
            self.segments.append(segment)
            self._sizes[segment.path] = segment.path.stat().st_size

    def put(self, sequence: int, data: bytes) -> None:
        """Queue a line for :meth:`write`."""
        line = encode(sequence, data)
        self.waiting.append((sequence, line))
        self.waiting_bytes += len(line)

    def write(self, run: int, run_id: str) -> bool:
        """Append the queued lines to the segment of a run; return whether
        another segment was begun.

        :raises OSError: some lines could not be written, and still wait.
        """
        begun = False
        while self.waiting:
            first, line = self.waiting[0]
            if self._fd < 0 or self._size and (
                    self._size + len(line) > self.segment_bytes):
                self._begin(run, run_id, first)
                begun = True
            size, written = self._size, []
            for _, line in self.waiting:
                if size and size + len(line) > self.segment_bytes:
                    break
                written.append(line)
                size += len(line)
            try:
                if os.write(self._fd, b''.join(written)) < size - self._size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                with contextlib.suppress(OSError):  # no half line
                    os.ftruncate(self._fd, self._size)
                raise
            self.waiting_bytes -= size - self._size
            self._size = self._sizes[self.segments[-1].path] = size
            for _ in written:
                self.waiting.popleft()
        return begun

    def _begin(self, run: int, run_id: str, first: int) -> None:
        self.close()
        path = self._directory / f'{run:010}-{run_id}-{first:016}.{self._kind}'
        with contextlib.suppress(FileNotFoundError):
            path.unlink()       # left empty by a disk that is full
        self._fd = private_files.create(path)
        self._size = self._sizes[path] = 0
        self.segments = [*(segment for segment in self.segments
                           if segment.path != path),
                         Segment(run, run_id, first, path)]

    def drop(self) -> list[bytes]:
        """Drop the oldest queued lines if there are too many; return them."""
        if len(self.waiting) <= MOST_WAITING and (
                self.waiting_bytes <= MOST_WAITING_BYTES):
            return []
        dropped = []
        while self.waiting and (
                len(self.waiting) > KEPT * MOST_WAITING
                or self.waiting_bytes > KEPT * MOST_WAITING_BYTES):
            _, line = self.waiting.popleft()
            dropped.append(line)
            self.waiting_bytes -= len(line)
        return dropped

    def size(self, segment: Segment) -> int:
        """Return the bytes of a segment."""
        return self._sizes[segment.path]

    def is_full(self) -> bool:
        """Return whether there is no room for another segment."""
        return self.segment_bytes + sum(
            max(BLOCK, size) for size in self._sizes.values()
            ) > self.most_bytes

    @property
    def is_removed(self) -> bool:
        """Whether another program has removed the file that is open."""
        return self._fd >= 0 and not os.fstat(self._fd).st_nlink

    def is_open(self, segment: Segment) -> bool:
        """Return whether this run appends to a segment."""
        return self._fd >= 0 and segment is self.segments[-1]

    def remove(self, segment: Segment) -> None:
        """Remove a segment.

        :raises OSError: it cannot be removed.
        """
        segment.path.unlink(missing_ok=True)
        self.segments = [kept for kept in self.segments if kept is not segment]
        del self._sizes[segment.path]

    def close(self) -> None:
        """Close the open segment; the next lines begin another one."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
