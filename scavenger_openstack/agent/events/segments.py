# SPDX-License-Identifier: Apache-2.0

"""Lines of JSON in segments of bounded size, each file of one run.

A line is a checksum, the sequence number of an entry, and its JSON.  A
segment is only appended to, by the run that began it, so that a line which a
kill cut off is the last of its file.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
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
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

MOST_LINE = 1 << 20
"""A longer line, in bytes, is none of ours and must not fill the memory."""

MOST_WAITING = 10_000
MOST_WAITING_BYTES = 4 << 20
"""Lines that wait in memory for a disk that takes none, and their bytes."""
KEPT = 0.9
"""The share of that which is left when room has been made."""

BLOCK = 4096
"""What a small file takes on the disk."""
SEGMENTS = 8
"""Into so many files what is kept is divided."""
SMALL = 1 << 20
"""What is divided where nothing is kept for longer than needed."""

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


def parse(line: bytes) -> tuple[int, bytes] | None:
    """Return the sequence and the JSON of a line, ``None`` of a damaged one.
    """
    text = line[9:-1]
    if line[:9] != b'%08x ' % zlib.crc32(text) or line[-1:] != b'\n':
        return None
    sequence, _, data = text.partition(b' ')
    return (int(sequence), data) if sequence.isdigit() else None


def decode(data: bytes) -> Line:
    """Return what :func:`encode` was given.

    :raises WireError: it is of another version.
    """
    return codec.decode(data, Line, MOST_LINE)


def lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Generate the lines of a file from where it is, each with the offset of
    its end; of one that is too long only its first part."""
    begins, end = True, file.tell()
    while line := file.readline(MOST_LINE):
        end += len(line)
        if begins:
            yield line, end
        begins = line.endswith(b'\n')


class Series:
    """Writes segments of one kind, and removes the oldest.

    :param most_bytes: of all segments
    """

    def __init__(self, directory: pathlib.Path, kind: str, most_bytes: int
                 ) -> None:
        self.segments: list[Segment] = []
        self.waiting = collections.deque[tuple[int, bytes]]()
        """Lines that the disk has not taken, with their sequence."""
        self.waiting_bytes = 0
        self.most_bytes = most_bytes
        self.segment_bytes = max(BLOCK, (most_bytes or SMALL) // SEGMENTS)
        self._directory = directory
        self._kind = kind
        self._sizes: dict[pathlib.Path, int] = {}
        self._fd = -1
        self._size = 0

    def load(self, warn: Callable[[str], None]) -> None:
        """List what earlier runs left; what others may have written is moved
        aside.

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
        """Have a line wait for :meth:`write`."""
        line = encode(sequence, data)
        self.waiting.append((sequence, line))
        self.waiting_bytes += len(line)

    def write(self, run: int, run_id: str) -> bool:
        """Append what waits to the segment of a run; return whether another
        segment was begun.

        :raises OSError: some of it could not be written, and still waits.
        """
        begun = False
        while self.waiting:
            if self._fd < 0 or self._size and (
                    self._size + len(self.waiting[0][1])
                    > self.segment_bytes):
                self._begin(run, run_id)
                begun = True
            size, some = self._size, []
            for _, line in self.waiting:
                if size and size + len(line) > self.segment_bytes:
                    break
                some.append(line)
                size += len(line)
            try:
                if os.write(self._fd, b''.join(some)) < size - self._size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                with contextlib.suppress(OSError):  # no half line
                    os.ftruncate(self._fd, self._size)
                raise
            self.waiting_bytes -= size - self._size
            self._size = self._sizes[self.segments[-1].path] = size
            for _ in some:
                self.waiting.popleft()
        return begun

    def _begin(self, run: int, run_id: str) -> None:
        self.close()
        first = self.waiting[0][0]
        path = self._directory / f'{run:010}-{run_id}-{first:016}.{self._kind}'
        with contextlib.suppress(FileNotFoundError):
            path.unlink()       # left empty by a disk that is full
        self._fd = private_files.create(path)
        self._size = self._sizes[path] = 0
        self.segments = [*(segment for segment in self.segments
                           if segment.path != path),
                         Segment(run, run_id, first, path)]

    def drop(self) -> list[bytes]:
        """Forget the oldest lines that wait if there are too many; return
        them."""
        if len(self.waiting) <= MOST_WAITING and (
                self.waiting_bytes <= MOST_WAITING_BYTES):
            return []
        dropped = []
        while self.waiting and (
                len(self.waiting) > KEPT * MOST_WAITING
                or self.waiting_bytes > KEPT * MOST_WAITING_BYTES):
            dropped.append(self.waiting.popleft()[1])
            self.waiting_bytes -= len(dropped[-1])
        return dropped

    def size(self, segment: Segment) -> int:
        """Return the bytes of a segment."""
        return self._sizes[segment.path]

    def is_full(self) -> bool:
        """Whether another segment has no room besides those that are kept."""
        return self.segment_bytes + sum(
            max(BLOCK, size) for size in self._sizes.values()
            ) > self.most_bytes

    def is_open(self, segment: Segment) -> bool:
        """Whether this run appends to a segment."""
        return self._fd >= 0 and segment is self.segments[-1]

    def remove(self, segment: Segment) -> None:
        """Remove a segment.

        :raises OSError: it cannot be.
        """
        segment.path.unlink(missing_ok=True)
        self.segments = [other for other in self.segments
                         if other is not segment]
        del self._sizes[segment.path]

    def close(self) -> None:
        """Append to another segment from now on."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
