# SPDX-License-Identifier: Apache-2.0

"""The reader of this host's history, such as why a VM was limited at 03:00.

The history outlives restarts and reboots, and is readable while no agent runs.
"""

from __future__ import annotations

from collections.abc import Iterator
import datetime
import pathlib

from scavenger_openstack.agent.events import segments
from scavenger_openstack.agent import names
from scavenger_openstack.agent import status
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.events import Event
from scavenger_openstack.wire import codec


class Reader:
    """Reads a directory of :class:`.store.Store`, oldest event first.

    ``names`` are those of the lines so far.  ``unreadable`` is the number of
    lines that could not be read.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._path = directory
        self.unreadable = 0
        self.names = names.Names()

    def events(self, since_s: float = 0.0) -> Iterator[Event]:
        """Generate the events from ``since_s``, a UNIX time, on.

        :raises ScavengerError: there is no history, or others may have
            written it.
        """
        try:
            for segment in segments.segments(self._path, 'events'):
                yield from self._read(segment.path, since_s)
        except FileNotFoundError:
            raise errors.ScavengerError(
                f'{self._path}: no history; has an agent run with this '
                'configuration, and is [agent] history_mib not 0?') from None
        except PermissionError as exc:
            raise errors.ScavengerError(
                f'{self._path}: {exc.strerror}; must run as root') from exc
        except OSError as exc:
            raise errors.ScavengerError(
                f'{self._path}: not readable: {exc.strerror}') from exc

    def _read(self, path: pathlib.Path, since_s: float) -> Iterator[Event]:
        try:
            file = status.open_file(path)
        except FileNotFoundError:       # the agent has removed the oldest
            return
        with file:
            for data, _ in segments.lines(file):
                parsed = segments.parse(data)
                try:
                    line = segments.decode(parsed.data if parsed else b'')
                except errors.WireError:
                    self.unreadable += 1
                    continue
                self.names.read(line.names)
                if line.entry.time_s >= since_s:
                    yield line.entry


def as_json(event: Event, vm_names: names.Names) -> str:
    """Return an event with the names of its VMs as a line of JSON."""
    data = codec.encode(event).decode()
    by_uuid = vm_names.of(data)
    return data if not by_uuid else (
        f'{data[:-1]},"names":{codec.encode(by_uuid).decode()}}}')


def since(text: str, now_s: float) -> float:
    """Return the UNIX time of ``--since``.

    :param text: a duration such as ``2h`` or ``1h30m``, or a date and time as
        in ISO 8601, in UTC unless it has an offset
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
