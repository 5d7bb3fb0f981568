# SPDX-License-Identifier: Apache-2.0

"""The events of this host on disk: its history, and the entries of reports.

There are segments of two kinds.  ``events`` are the history.  ``reports`` are
only for the control plane: statistics, an incident with its measurements
(under the number of its event, which has none), and that an incident goes on.
The entries after a position, in a file of its own, are not acknowledged by the
conductor yet.  The agent goes on in spite of any fault of the files.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import heapq
import itertools
import math
import operator
import pathlib
import threading
import uuid

from oslo_log import log

from scavenger_openstack.agent.events import segments
from scavenger_openstack.agent.events.segments import Segment
from scavenger_openstack.agent.events.segments import Series
from scavenger_openstack.agent import names
from scavenger_openstack.agent import private_files
from scavenger_openstack.agent import status
from scavenger_openstack import errors
from scavenger_openstack.events import Event
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

POSITION = 'acknowledged'
"""The file with the last entry that the conductor has."""

PASSING = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Faults that are not those of a file."""

_STATISTICS = b'{"entry":{"type":"statistics"'


class Position(report.Wire, frozen=True):
    """The last entry that the conductor has: all before it is reported."""

    run: report.Count
    sequence: report.Count


class Store:
    """The entries of one run of an agent, with the numbers 1, 2, ...

    :param directory: made if it is missing; only its owner may use it
    :param history_bytes: most bytes of events; those that wait for the
        conductor stay also beyond this
    :param reports_bytes: most bytes of statistics and measurements while
        they wait; the oldest are dropped.  ``None``: there is no control plane
    :param vm_names: the names of VMs, which are kept with their UUIDs
    """

    def __init__(self, directory: pathlib.Path, history_bytes: int,
                 reports_bytes: int | None = None,
                 vm_names: names.Names | None = None,
                 warn: Callable[[str], None] = LOG.warning) -> None:
        self.path = directory
        self.run_id = uuid.uuid4().hex
        self.dropped = 0
        """Events and statistics that there was no room for."""
        self.fault = ''
        """The reason why nothing can be written at present, '' for none."""
        self._reports_to = reports_bytes is not None
        self._events = Series(directory, 'events', history_bytes)
        self._reports = Series(directory, 'reports', reports_bytes or 0)
        self._series = self._events, self._reports
        self._vm_names = vm_names or names.Names()
        self._warn = warn
        # The tick adds, and the thread of the reports reads.
        self._lock = threading.Lock()
        self._run = 0
        self._is_open = False
        self._sequence = self._done = 0
        self._position: Position | None = None
        self._offsets: dict[pathlib.Path, int] = {}
        self._damaged: set[tuple[pathlib.Path, int]] = set()
        self._lost = 0

    def add(self, events: Iterable[Event]) -> None:
        """Append events, numbered in this order, without waiting for the
        disk; their ``sequence`` does not count."""
        if self._events.most_bytes or self._reports_to:
            with self._lock:
                for event in events:
                    self._put(event, self._events)
                self._write()

    def add_reports(self, entries: Iterable[Event]) -> None:
        """Append entries for reports that are not part of the history."""
        if self._reports_to:
            with self._lock:
                for event in entries:
                    self._put(event, self._reports)
                self._write()

    def _put(self, event: Event, series: Series) -> None:
        """Number an entry and queue its line; one that no conductor accepts
        is logged and left out."""
        number = self._sequence + 1
        entry = codec.replace(event, sequence=number)
        try:
            data = codec.checked(entry, report.AnyEntry,
                                 report.MAX_ENTRY_BYTES)
        except errors.WireError as exc:
            self._warn(f'an event is left out: {exc}; please report this')
            return
        self._sequence = number
        if series is self._reports:
            series.put(number, b'{"entry":%s}' % data)
            return
        if isinstance(entry, report.Incident) and entry.evidence:
            if self._reports_to:
                self._reports.put(number, b'{"entry":%s}' % data)
            data = codec.encode(codec.replace(entry, evidence=[]))
        by_uuid = self._vm_names.of(data.decode())
        series.put(number, b'{"entry":%s%s}' % (
            data, b',"names":%s' % codec.encode(by_uuid) if by_uuid else b''))

    def _write(self) -> None:
        """Write the queued lines; a fault of the disk is logged once."""
        try:
            if any(series.is_removed for series in self._series):
                self._warn(f'{self.path}: files were removed by another '
                           'program; what they held is not reported')
                self._is_open = False
            has_begun = not self._is_open
            if has_begun:
                self._open()
            for series in self._series:
                has_begun |= series.write(self._run, self.run_id)
            if has_begun:
                self._prune()
        except OSError as exc:
            self._set_fault(exc.strerror or str(exc))
            self._is_open = False
            for series in self._series:
                self._drop(series.drop(), series)
        else:
            self._set_fault('')

    def _set_fault(self, why: str) -> None:
        fault = why and (
            f'{self.path}: the history is not written: {why}. Events wait in '
            'memory and are lost if the agent ends; limits are set and '
            'removed all the same. Make it writable, with free space')
        if fault and not self.fault:
            self._warn(fault)
        elif self.fault and not fault:
            LOG.info('%s: the history is written again; events lost: %d',
                     self.path, self._lost)
            self._lost = 0
        self.fault = fault

    def _drop(self, lines: Iterable[bytes], series: Series) -> None:
        """Count lines that are lost."""
        count = sum(series is self._events or _STATISTICS in line[:80]
                    for line in lines)
        self.dropped += count
        if series is self._events and count:
            if not self._lost:
                self._warn(f'{self.path}: nothing is written, and the memory '
                           'for events is full: the oldest are lost; make it '
                           'writable, with free space')
            self._lost += count

    def _open(self) -> None:
        """List the files of earlier runs, and begin a run.

        :raises OSError: the directory cannot be made or used.
        """
        private_files.make_directory(
            self.path, self._warn, lambda name: (
                segments.is_name(name) or name.startswith(POSITION)))
        for series in self._series:
            series.load(self._warn)
        if not self._run:
            last = max((series.segments[-1].run for series in self._series
                        if series.segments), default=0)
            self._load_position(last)
            self._run = max(last, self._position.run
                            if self._position else 0) + 1
        elif self._position:        # the directory may be another by now
            with contextlib.suppress(OSError):
                self._save_position(sync=False)
        self._is_open = True

    def _load_position(self, last: int) -> None:
        """Read the position; without a file all runs count as reported.

        :param last: the number of the last run
        """
        path = self.path / POSITION
        if not self._reports_to:
            path.unlink(missing_ok=True)
            return
        try:
            if why := private_files.why_not(path):
                raise errors.ScavengerError(why)
            self._position = codec.decode(
                status.read_file(path, 1024), Position, 1023)
        except FileNotFoundError:
            self._position = Position(run=last, sequence=2 ** 53)
            self._save_position(sync=False)
        except (errors.ScavengerError, PermissionError) as exc:
            private_files.move_aside(path, f'{exc}; entries that were '
                                     'reported are reported again',
                                     self._warn)
            self._position = Position(run=0, sequence=0)

    def _save_position(self, *, sync: bool) -> None:
        private_files.replace(self.path / POSITION,
                              codec.encode(self._position), sync=sync)

    def _reported(self, run: int) -> float:
        """Return the sequence up to which a run has been reported."""
        position = self._position
        sequence = (math.inf if not self._reports_to else
                    0 if position is None or position.run < run else
                    position.sequence if position.run == run else math.inf)
        return max(sequence, self._done) if run == self._run else sequence

    def _waits(self, series: Series) -> Iterator[Segment]:
        """Generate the segments with entries that may not be reported."""
        files_now = series.segments     # another thread makes another list
        for segment, after in itertools.zip_longest(files_now, files_now[1:]):
            reported = self._reported(segment.run)
            is_reported = reported == math.inf or (
                after is not None and after.run == segment.run
                and after.first <= reported + 1)
            if not is_reported:
                yield segment

    def _prune(self) -> None:
        """Remove the oldest segments for which there is no room; of events
        only those that are reported."""
        waits = set(self._waits(self._reports))
        for segment in self._reports.segments:
            if not self._reports.is_open(segment) and (
                    segment not in waits or self._reports.is_full()):
                if segment in waits:
                    self._drop((line for line, _ in self._read(
                        segment, self._offsets.get(segment.path, 0))),
                        self._reports)
                self._remove(self._reports, segment)
        waits = set(self._waits(self._events))
        for segment in self._events.segments:
            if (not self._events.is_full() or segment in waits
                    or self._events.is_open(segment)):
                break
            self._remove(self._events, segment)

    def _remove(self, series: Series, segment: Segment) -> None:
        series.remove(segment)
        self._offsets.pop(segment.path, None)
        for place in list(self._damaged):   # the other thread adds to it
            if place[0] == segment.path:
                self._damaged.discard(place)

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes of all waiting entries, also of those in memory."""
        with self._lock:
            reported = self._reported(self._run)
            return sum(
                series.size(segment) - self._offsets.get(segment.path, 0)
                for series in self._series for segment in self._waits(series)
            ) + sum(len(line) for series in self._series
                    for sequence, line in series.waiting
                    if sequence > reported)

    def batch(self, most: int, most_bytes: int) -> tuple[str, list[Event]]:
        """Return the id of the oldest run with entries that wait, and the
        oldest of these.

        :param most: most entries, of ``most_bytes`` in all; but at least
            one if any waits
        """
        with self._lock:
            self._write()
            waits = [list(self._waits(series)) for series in self._series]
            waiting = [list(series.waiting) for series in self._series]
            # Entries added meanwhile may be read of one kind only.
            last = self._sequence
        runs = {(segment.run, segment.run_id)
                for of_series in waits for segment in of_series}
        for run, run_id in sorted(runs | {(self._run, self.run_id)}):
            is_ours = run == self._run
            lines = heapq.merge(*(
                self._lines([segment for segment in of_series
                             if segment.run == run],
                            in_memory if is_ours else [])
                for of_series, in_memory in zip(waits, waiting, strict=True)),
                key=operator.itemgetter(0))
            try:
                entries = segments.first_entries(
                    lines, last if is_ours else math.inf, most, most_bytes)
            except OSError:     # later: its first entries may be missing
                break
            if entries:
                return run_id, entries
        return self.run_id, []

    def _lines(self, of_run: Iterable[Segment],
               waiting: Iterable[tuple[int, bytes]]
               ) -> Iterator[tuple[int, bytes, Event]]:
        """Generate the lines of one run and kind that are not reported: the
        sequence, the JSON and the entry of each."""
        last = self._reported(self._run)
        for segment in of_run:
            reported = self._reported(segment.run)
            last = max(last if segment.run == self._run else 0, reported)
            for line, end in self._read(
                    segment, self._offsets.get(segment.path, 0)):
                parsed = segments.parse(line)
                if parsed and parsed.sequence <= last:
                    if parsed.sequence <= reported:
                        self._offsets[segment.path] = end
                elif parsed and (entry := segments.entry(parsed)):
                    last = parsed.sequence
                    yield last, parsed.data, entry
                elif line.endswith(b'\n') and (
                        segment.path, end) not in self._damaged:
                    self._damaged.add((segment.path, end))
                    self._warn(f'{segment.path}: the line at byte '
                               f'{end - len(line)} is damaged and not '
                               'reported')
        for sequence, line in waiting:
            parsed = segments.parse(line)
            if sequence > last and parsed and (
                    entry := segments.entry(parsed)):
                yield sequence, line, entry

    def _read(self, segment: Segment, offset: int = 0
              ) -> Iterator[tuple[bytes, int]]:
        """:raises OSError: it may be readable later."""
        try:
            with status.open_file(segment.path) as file:
                file.seek(offset)
                yield from segments.lines(file)
        except (OSError, errors.ScavengerError) as exc:
            if isinstance(exc, OSError) and exc.errno in PASSING:
                raise
            if (segment.path, 0) not in self._damaged:
                self._damaged.add((segment.path, 0))
                self._warn(f'{segment.path}: not readable, so not reported: '
                           f'{exc}')

    def acknowledged(self, run_id: str, sequence: int) -> None:
        """Note that the conductor has the entries of a run up to this one."""
        with self._lock:
            run = self._run
            if run_id == self.run_id:
                self._done = max(self._done, sequence)
            else:
                run = next((segment.run for series in self._series
                            for segment in series.segments
                            if segment.run_id == run_id), 0)
            position = self._position
            if position is None or (run, sequence) <= (
                    position.run, position.sequence) or self._has_before(run):
                return
            self._position = Position(run=run, sequence=sequence)
        # If that fails they are reported again, which the conductor detects.
        with contextlib.suppress(OSError):
            self._save_position(sync=True)
        with self._lock, contextlib.suppress(OSError):
            self._prune()
        self._has_before(run + 1)

    def _has_before(self, run: int) -> bool:
        """Return whether an earlier run has entries to report; set offsets."""
        try:
            before = [next(self._lines([segment], ()), None)
                      for series in self._series
                      for segment in self._waits(series) if segment.run < run]
        except OSError:
            return True
        return any(before)

    def close(self) -> None:
        """Write the queued lines, as far as possible."""
        with self._lock:
            if any(series.waiting for series in self._series):
                self._write()
            for series in self._series:
                series.close()
            self._is_open = False
