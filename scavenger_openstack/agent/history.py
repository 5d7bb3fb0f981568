# SPDX-License-Identifier: Apache-2.0

"""What happened on this host: limits, incidents and kills, on disk.

One JSON line per event, in two files of bounded size.  They answer "why was
it limited at 03:00?" without a recording, also after a restart or a reboot.
Which events there are is decided in :mod:`.events`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import datetime
import errno
import os
import pathlib
import stat
from typing import BinaryIO

from oslo_log import log

from scavenger_openstack.agent import names
from scavenger_openstack.agent import status
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.events import Event
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

MOST_LINE = 1 << 22
"""A longer line, in bytes, is none of ours and must not fill the memory."""

class Line(report.Wire, frozen=True):
    """An event, and the names of the VMs whose UUIDs it has."""

    entry: report.AnyEntry
    names: dict[str, dict[str, str]] = {}


class History:
    """The writer.  Whatever goes wrong with the files, the agent goes on.

    :param path: the newer file; the older one has ``.1`` appended
    :param most_bytes: both files together at most; 0 writes none
    :param vm_names: the names of VMs, which are written with their UUIDs
    """

    def __init__(self, path: pathlib.Path, most_bytes: int,
                 vm_names: names.Names | None = None) -> None:
        self.path = path
        self.fault = ''
        """Why nothing is written at present, '' while it is."""
        self._half = most_bytes // 2
        self._known = vm_names or names.Names()
        self._fd = -1
        self._size = 0

    def add(self, events: Sequence[Event]) -> None:
        """Append events to the file, without waiting for the disk."""
        if not events or not self._half:
            return
        try:
            for event in events:
                self._append(as_line(event, self._known) + b'\n')
        except OSError as exc:
            self._set_fault(
                f'{self.path}: the history is not written: '
                f'{exc.strerror or exc}. Limits are set and removed all the '
                'same; make it writable, with free space')
            self.close()
        else:
            self._set_fault('')

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _append(self, data: bytes) -> None:
        if self._fd < 0:
            self._open()
        if self._size and self._size + len(data) > self._half:
            os.replace(self.path, older(self.path))
            self.close()
            self._open()
        try:
            if os.write(self._fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):  # no half line
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND
                           | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK,
                           0o600)
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            raise OSError(0, 'not a regular file with one name')
        if info.st_uid not in (0, os.geteuid()):
            raise OSError(0, f'it belongs to user {info.st_uid}')
        self._size = info.st_size
        if self._size and os.pread(self._fd, 1, self._size - 1) != b'\n':
            self._size += os.write(self._fd, b'\n')     # after a kill -9

    def _set_fault(self, fault: str) -> None:
        if fault and not self.fault:
            LOG.warning('%s', fault)
        elif self.fault and not fault:
            LOG.info('%s: the history is written again; what happened '
                     'meanwhile is missing', self.path)
        self.fault = fault

def older(path: pathlib.Path) -> pathlib.Path:
    """The file that the lines before those of ``path`` are in."""
    return path.with_name(path.name + '.1')


def as_line(event: Event, vm_names: names.Names) -> bytes:
    """Return the JSON of an event with the names of its VMs."""
    return codec.encode(Line(entry=event, names=vm_names.of(
        codec.encode(event).decode())))


class Reader:
    """Reads both files, oldest line first.

    ``names`` are those that the lines so far told.  After all is read
    ``unreadable`` says how many lines were not.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.unreadable = 0
        self.names = names.Names()

    def events(self, since_s: float = 0.0) -> Iterator[Event]:
        """The events from ``since_s``, a wall time, on.

        :raises ScavengerError: there is no history, or it is not to be
            trusted.
        """
        exists = False
        for path in (older(self._path), self._path):
            try:
                with status.open_file(path) as file:
                    exists = True
                    yield from self._parse(_lines(file), since_s)
            except FileNotFoundError:
                continue
            except PermissionError as exc:
                raise errors.ScavengerError(
                    f'{path}: {exc.strerror}; must run as root') from exc
            except OSError as exc:
                raise errors.ScavengerError(
                    f'{path}: not readable: {exc.strerror}') from exc
        if not exists:
            raise errors.ScavengerError(
                f'{self._path}: no history; has an agent run with this '
                'configuration, and is [agent] history_mib not 0?')

    def _parse(self, lines: Iterable[bytes], since_s: float
               ) -> Iterator[Event]:
        for line in lines:
            try:
                read = codec.decode(line, Line, MOST_LINE)
            except errors.WireError:
                self.unreadable += 1
                continue
            self.names.read(read.names)
            if read.entry.time_s >= since_s:
                yield read.entry


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that are not empty, of one that is too long the first part.
    """
    begins = True
    while line := file.readline(MOST_LINE):
        if begins and line != b'\n':
            yield line
        begins = line.endswith(b'\n')


def since(text: str, now_s: float) -> float:
    """The wall time that ``--since`` means: a duration such as ``2h`` or
    ``1h30m``, or a date and time as in ISO 8601, in UTC unless it has an
    offset.

    :raises ConfigError: it is neither.
    """
    seconds = command_line.duration_s(text)
    if seconds is not None:
        return now_s - seconds
    try:
        moment = datetime.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(
            tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise errors.ConfigError(
            f'--since {text}: neither a duration such as 90m, 2h or 3d nor '
            'a time such as 2026-01-31T03:00') from None
