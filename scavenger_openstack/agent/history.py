# SPDX-License-Identifier: Apache-2.0

"""What happened on this host: limits, incidents and kills, on disk.

One JSON line per event, in two files of bounded size.  They answer "why was
it limited at 03:00?" without a recording, also after a restart or a reboot.
Which events there are is decided in :mod:`.transitions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import datetime
import errno
import json
import os
import pathlib
import stat
from typing import Any
from typing import BinaryIO

from oslo_log import log

from scavenger_openstack.agent import names
from scavenger_openstack.agent.profiling.event import ProfilingEvent
from scavenger_openstack.agent import status
from scavenger_openstack.agent import transitions
from scavenger_openstack.agent.transitions import AgentEvent
from scavenger_openstack.agent.transitions import Event
from scavenger_openstack.agent.transitions import IncidentEvent
from scavenger_openstack.agent.transitions import KillEvent
from scavenger_openstack.agent.transitions import LimitEvent
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire.json_fields import as_json
from scavenger_openstack.wire.json_fields import Check
from scavenger_openstack.wire.json_fields import number
from scavenger_openstack.wire.json_fields import text
from scavenger_openstack.wire.json_fields import whole

LOG = log.getLogger(__name__)

MOST_LINE = 1 << 22
"""A longer line, in bytes, is none of ours and must not fill the memory."""

LOG_LINES = 100
LOG_WINDOW_S = 60.0
"""So many lines go to the log in so many seconds; the file has the rest."""

KINDS: dict[str, tuple[type, dict[str, Check]]] = {
    'agent': (AgentEvent, {'what': text, 'detail': text, 'pid': whole}),
    'limit': (LimitEvent, {
        'what': text, 'workload': text, 'knob': json_fields.knob,
        'owner': text, 'reason': text, 'original': lambda one, _: one,
        'value': lambda one, _: one, 'lowest': lambda one, _: one,
        'highest': lambda one, _: one, 'since_s': number, 'why': text,
        'incidents': json_fields.texts}),
    'incident': (IncidentEvent, {
        'what': text, 'controller': text, 'incident': json_fields.incident,
        'begun_s': number}),
    'kill': (KillEvent, {'action': json_fields.action, 'processes': whole}),
    'profiling': (ProfilingEvent, {
        'what': text, 'id': text, 'workload': text, 'seconds': number,
        'detail': text, 'profile': text}),
}
"""Each type of line: what it becomes, and its fields besides the time."""


class History:
    """The writer.  Whatever goes wrong with the files, the agent goes on.

    :param path: the newer file; the older one has ``.1`` appended
    :param most_bytes: both files together at most; 0 writes none
    :param known: the names of VMs, which are written with their UUIDs
    """

    def __init__(self, path: pathlib.Path, most_bytes: int,
                 known: names.Names | None = None) -> None:
        self.path = path
        self.fault = ''
        """Why nothing is written at present, '' while it is."""
        self._half = most_bytes // 2
        self._known = known or names.Names()
        self._fd = -1
        self._size = 0
        self._window_s = 0.0
        self._lines = 0

    def add(self, events: Sequence[Event]) -> None:
        """Log the events and append them to the file, without waiting for
        the disk."""
        if not events:
            return
        self._log(events)
        if not self._half:
            return
        try:
            for event in events:
                self._append(json.dumps(as_line(
                    event, self._known), separators=(
                        ',', ':')).encode() + b'\n')
        except OSError as exc:
            self._say(f'{self.path}: the history is not written: '
                      f'{exc.strerror or exc}. Limits are set and removed '
                      'all the same; make it writable, with free space')
            self.close()
        else:
            self._say('')

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

    def _say(self, fault: str) -> None:
        if fault and not self.fault:
            LOG.warning('%s', fault)
        elif self.fault and not fault:
            LOG.info('%s: the history is written again; what happened '
                     'meanwhile is missing', self.path)
        self.fault = fault

    def _log(self, events: Sequence[Event]) -> None:
        now_s = events[0].wall_time_s
        if not 0 <= now_s - self._window_s < LOG_WINDOW_S:
            if self._lines > LOG_LINES:
                LOG.info('more changes of limits and incidents within %.0f '
                         's: %d; see scavenger-agent history', LOG_WINDOW_S,
                         self._lines - LOG_LINES)
            self._window_s, self._lines = now_s, 0
        for sentence in transitions.sentences([
                event for event in events
                if isinstance(event, LimitEvent | IncidentEvent
                              | ProfilingEvent)]):
            self._lines += 1
            if self._lines <= LOG_LINES:
                LOG.info('%s', sentence)


def older(path: pathlib.Path) -> pathlib.Path:
    """The file that the lines before those of ``path`` are in."""
    return path.with_name(path.name + '.1')


def as_line(event: Event, known: names.Names) -> dict[str, Any]:
    """The JSON object of one event, with the names of its VMs."""
    kind = next(name for name, (cls, _) in KINDS.items()
                if isinstance(event, cls))
    document = {'type': kind, **as_json(event)}
    found = known.of(document)
    return {**document, 'names': found} if found else document


def of_line(document: Any) -> Event:
    """The event of a JSON object.

    :raises ValueError: which field is wrong, and how.
    """
    kind = json_fields.mapping(document, 'line').get('type')
    if not isinstance(kind, str) or kind not in KINDS:
        raise json_fields.bad('type', kind, 'one of ' + ', '.join(KINDS))
    cls, checks = KINDS[kind]
    fields = json_fields.fields(
        {name: value for name, value in document.items()
         if name not in ('type', 'names')},
        '', {'wall_time_s': number, **checks},
        tuple(name for name in cls._fields      # type: ignore[attr-defined]
              if name not in cls._field_defaults))  # type: ignore[attr-defined]
    if cls is LimitEvent:
        for name in ('original', 'value', 'lowest', 'highest'):
            if fields.get(name) is not None:
                fields[name] = json_fields.knob_value(fields[name], name,
                                                      fields['knob'])
    event: Event = cls(**fields)
    return event


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
        found = False
        for path in (older(self._path), self._path):
            try:
                with status.open_file(path) as file:
                    found = True
                    yield from self._parse(_lines(file), since_s)
            except FileNotFoundError:
                continue
            except PermissionError as exc:
                raise errors.ScavengerError(
                    f'{path}: {exc.strerror}; must run as root') from exc
            except OSError as exc:
                raise errors.ScavengerError(
                    f'{path}: not readable: {exc.strerror}') from exc
        if not found:
            raise errors.ScavengerError(
                f'{self._path}: no history; has an agent run with this '
                'configuration, and is [agent] history_mib not 0?')

    def _parse(self, lines: Iterable[bytes], since_s: float
               ) -> Iterator[Event]:
        for line in lines:
            try:
                document = json.loads(line)
                event = of_line(document)
                self.names.read(document.get('names', {}))
            except (ValueError, RecursionError):
                self.unreadable += 1
                continue
            if event.wall_time_s >= since_s:
                yield event


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
        found = datetime.datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(
            tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise errors.ConfigError(
            f'--since {text}: neither a duration such as 90m, 2h or 3d nor '
            'a time such as 2026-01-31T03:00') from None


def line(event: Event, known: names.Names) -> str:
    """One event for people to read, with its time in UTC."""
    try:
        when = datetime.datetime.fromtimestamp(
            event.wall_time_s, datetime.UTC).isoformat(' ', 'seconds')
    except (ValueError, OverflowError, OSError):
        when = f'{event.wall_time_s:.0f} s'
    return f'{when}  {transitions.sentence(event, known)}'
