# SPDX-License-Identifier: Apache-2.0



"""Recordings read again, and a driver that plays one back."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import json
import pathlib
from typing import Any

from oslo_config import cfg

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.still_host import StillHost
from scavenger_openstack import errors
from scavenger_openstack.recording import line_format
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value
from scavenger_openstack.wire import json_fields

MAX_LINE_BYTES = 1 << 26
"""A longer line is no line of ours and must not fill the memory."""


class Recording:
    """A recording that is being read: its ``header``, then its turns.

    Iterating raises :class:`~scavenger_openstack.errors.DriverError` at the
    first line that is wrong: ``FILE:LINE: field: what``.  ``cut_off`` is
    the number of a last line that was never finished, as a crash leaves it;
    such a line is passed over.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._file = path.open('rb')
        self._line = 0
        self.cut_off: int | None = None
        try:
            data = self._next()
            if not data:
                raise self.error('there is no header: not a recording')
            try:
                self.header = line_format.header(self._parse(data))
            except (ValueError, RecursionError) as exc:
                raise self.error(str(exc)) from None
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[line_format.RecordedTick]:
        samples = json_fields.Samples()
        turn: line_format.RecordedTick | None = None
        time_s = self.header.time_s
        with self._file:
            while data := self._next():
                try:
                    turn = line_format.turn(
                        self._parse(data), self._line, samples, turn)
                except (ValueError, RecursionError) as exc:
                    raise self.error(str(exc)) from None
                if turn.time_s < time_s:
                    raise self.error(f'time_s: {turn.time_s} is before '
                                     f'{time_s}, the time of the line above')
                time_s = turn.time_s
                yield turn

    def close(self) -> None:
        self._file.close()

    def error(self, what: str) -> errors.DriverError:
        return errors.DriverError(f'{self._path}:{self._line}: {what}')

    def _next(self) -> bytes:
        """The next line; empty after the last one that was finished."""
        data = self._file.readline(MAX_LINE_BYTES)
        self._line += 1
        if data and not data.endswith(b'\n'):
            if len(data) == MAX_LINE_BYTES:
                raise self.error(f'longer than {MAX_LINE_BYTES} bytes: not '
                                 'a recording')
            if self._line > 1:
                self.cut_off = self._line
                return b''
        return data

    @staticmethod
    def _parse(data: bytes) -> Any:
        try:
            return json.loads(data.decode())
        except (ValueError, RecursionError) as exc:
            raise ValueError(f'not JSON: {exc!s:.120}') from None


def read(path: pathlib.Path) -> Recording:
    """Open a recording.

    :raises OSError: it cannot be opened.
    :raises DriverError: it has no header of a known version.
    """
    return Recording(path)


class Replay(StillHost):
    """Implements :class:`scavenger_openstack.drivers.base.Driver` over the
    recording ``[replay] file``: what it saw can be seen, nothing written.

    :raises ConfigError: there is no such file, or it is no recording.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        name = conf.replay.file
        if not name:
            raise errors.ConfigError(
                '[replay] file: not set; the driver "replay" needs the '
                'recording that it shall play back')
        try:
            self._recording = read(pathlib.Path(name))
        except OSError as exc:
            raise errors.ConfigError(
                f'[replay] file: {name}: {exc.strerror}') from exc
        except errors.DriverError as exc:
            raise errors.ConfigError(f'[replay] file: {exc}') from exc
        self._name = name
        self._turns = iter(self._recording)
        self.turn: line_format.RecordedTick | None = None
        self.over = False

    def sample(self) -> HostSample:
        """The next sample of the recording.

        :raises DriverError: the host could not be read at that time, the
            line is wrong, or the recording has :attr:`over`.
        """
        if not self.over:
            self.turn = next(self._turns, None)
            self.over = self.turn is None
        if self.turn is None:
            raise errors.DriverError(f'{self._name}: the recording has ended')
        if self.turn.sample is None:
            raise errors.DriverError(
                f'{self._name}:{self.turn.line}: the host could not be read')
        return self.turn.sample

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
        """What the knob held without us when the sample was taken."""
        return (self.turn.originals.get((workload, knob))
                if self.turn else None)

    def restore_actions(self, workload: str, knob: Knob,
                        state: base.KnobState | None = None
                        ) -> Sequence[base.RestoreAction]:
        raise self._unsupported(workload)

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value | None:
        raise self._unsupported(workload)

    def kill(self, workload: str) -> int:
        raise self._unsupported(workload)

    def fast_cpu_set(self, group: str) -> base.CpuSet:
        raise self._unsupported(group)

    def close(self) -> None:
        self._recording.close()

    def _unsupported(self, workload: str) -> errors.Unsupported:
        return errors.Unsupported(
            f'{workload} is from a recording, which cannot be changed; set '
            'the modes of the controllers to observe')
