# SPDX-License-Identifier: Apache-2.0

"""Kernels as processes: started, read, ended."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import os
import pathlib
import select
import selectors
import signal
import subprocess
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench.host import cgroup as cgroup_
from scavenger_openstack.ibench import interrupt as interrupt_

END_S = 5.0
CALIBRATE_S = 0.2
_EVERY_S = 0.1
_SHORTEST_EVERY_S = 0.001
_READ_BYTES = 1 << 16

Event = dict[str, Any]


class Host(NamedTuple):
    """Where kernels run.

    :ivar program: the one with all kernels
    :ivar enter: words before it, which enter a network namespace
    """

    program: pathlib.Path
    interrupt: interrupt_.Stop
    cgroup: cgroup_.Cgroup | None = None
    enter: tuple[str, ...] = ()


@dataclasses.dataclass
class Result:
    """What a kernel reported.

    :ivar calibrated: its rates alone; None where they were given
    :ivar levels: the last report of each level, in order
    :ivar samples: every report, with ``at_s`` since the kernel began
    """

    start: arguments.Start
    calibrated: Event | None = None
    levels: list[Event] = dataclasses.field(default_factory=list)
    samples: list[Event] = dataclasses.field(default_factory=list)

    def add(self, event: Event, at_s: float) -> None:
        """Take one line in.

        :raises DriverError: the line is none of a kernel.
        """
        kind = event.get('event')
        if kind == 'calibrated':
            self.calibrated = event
        elif kind == 'level':
            last = self.levels[-1] if self.levels else None
            if last and last['percent'] == event['percent'] \
                    and last['seconds'] < event['seconds']:
                self.levels[-1] = event
            else:
                self.levels.append(event)
            self.samples.append({**event, 'at_s': at_s})
        elif kind != 'end':
            raise errors.DriverError(f'{self.start.soi.name} reports an '
                                     f'unknown event: {event!r:.200}')


class Kernel:
    """One kernel that runs; :meth:`end` works at any moment."""

    def __init__(self, host: Host, start: arguments.Start,
                 words: Sequence[str]) -> None:
        self.result = Result(start)
        self.closed = False
        self._rest = b''
        self._begin_s = time.monotonic()
        command = [*host.enter, str(host.program), start.soi.name,
                   *start.words, *words]
        self.process = start_process(command, host.cgroup)

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> Iterator[Event]:
        """Yield the events that have arrived; :attr:`closed` at the end.

        :raises DriverError: a line is no report of a kernel.
        """
        data = os.read(self.fileno(), _READ_BYTES)
        self.closed = not data
        *lines, self._rest = (self._rest + data).split(b'\n')
        at_s = time.monotonic() - self._begin_s
        for line in lines:
            try:
                event = json.loads(line)
                self.result.add(event, at_s)
            except errors.MISREAD as exc:
                raise errors.DriverError(
                    f'{self.result.start.soi.name} reports a line that '
                    f'cannot be read: {line!r:.200}') from exc
            yield event

    def check(self) -> None:
        """Wait for the end.

        :raises ConfigError: the kernel cannot run here; its sentence.
        :raises DriverError: it was killed, or does not end.
        """
        name = self.result.start.soi.name
        try:
            _, text = self.process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired as exc:
            raise errors.DriverError(
                f'{name} has closed its output and does not end') from exc
        status = self.process.returncode
        sentence = _sentence(text)
        if status < 0:
            raise errors.DriverError(
                f'{name} was ended by {signal.Signals(-status).name}'
                + (': was the memory of the host or its cgroup used up '
                   '(dmesg)?' if status == -signal.SIGKILL else
                   f'; {sentence}' if sentence else ''))
        if status:
            raise errors.ConfigError(
                f'{name}: {sentence or f"exit status {status}"}')

    def end(self) -> None:
        """End it; ended already is fine."""
        end_process(self.process)


def start_process(command: Sequence[str], cgroup: cgroup_.Cgroup | None,
                  cpus: Iterable[int] = ()) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, inside of the cgroup.

    :param cpus: where it runs; none: where this process may
    :raises ConfigError: it cannot be started.
    """
    def prepare() -> None:
        if cgroup is not None:
            cgroup.join()
        if cpus:
            os.sched_setaffinity(0, cpus)

    try:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=prepare)
    except (OSError, subprocess.SubprocessError) as exc:
        where = f' in the cgroup {cgroup.path}' if cgroup else ''
        raise errors.ConfigError(
            f'{command[0]} cannot be started{where}: '
            f'{getattr(exc, "strerror", None) or exc}') from exc


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process: it is asked, then killed; ended already is fine."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def wait_serving(process: subprocess.Popen[bytes],
                 interrupt: interrupt_.Stop) -> None:
    """Wait until a remote end says that it listens.

    :raises ConfigError: it cannot; its sentence.
    :raises Interrupted: a signal came.
    """
    assert process.stdout is not None and process.stderr is not None
    while not select.select([process.stdout], [], [], interrupt_.SLICE_S)[0]:
        interrupt.check()
    if not process.stdout.readline():
        raise errors.ConfigError(
            _sentence(process.stderr.read())
            or f'the remote end ended with status {process.wait(END_S)}')


def _sentence(text: bytes) -> str:
    """What a kernel wrote to standard error, in one line."""
    return ' '.join(text.decode('utf-8', 'replace').split()).removeprefix(
        f'{build.PROGRAM}: ')


def calibrate(host: Host, start: arguments.Start,
              seconds: float = CALIBRATE_S) -> Event:
    """Return the rates of a kernel that runs alone.

    :raises ConfigError: it cannot run here.
    :raises DriverError: it fails.
    :raises Interrupted: a signal came.
    """
    result, = play(host, [(start, (f'calibrate_s={seconds:g}',))])
    if result.calibrated is None:
        raise errors.DriverError(f'{start.soi.name} ended without a '
                                 'calibration')
    return result.calibrated


def calibrated_words(calibrated: Event, levels: Sequence[arguments.Level]
                     ) -> tuple[str, ...]:
    """Return the words for levels after a calibration of before."""
    return (f'chunk_s={calibrated["chunk_s"]:.9g}', *level_words(levels))


def level_words(levels: Sequence[arguments.Level]) -> tuple[str, ...]:
    """Return the words for levels that follow a calibration."""
    shortest_s = min(level.seconds for level in levels)
    every_s = max(_SHORTEST_EVERY_S, min(_EVERY_S, shortest_s))
    return arguments.levels_word(levels), f'every_s={every_s:g}'


def play(host: Host, jobs: Sequence[tuple[arguments.Start, Sequence[str]]],
         *, on_event: Callable[[Kernel, Event], None] | None = None,
         on_turn: Callable[[Sequence[Kernel]], None] | None = None,
         turn_s: float = interrupt_.SLICE_S,
         wake: selectors.HasFileno | None = None) -> list[Result]:
    """Run kernels beside each other until each has ended.

    :param jobs: each kernel, with its further words
    :param on_turn: called at least each ``turn_s``
    :param wake: it is called at once, too, when this can be read
    :raises ConfigError: one cannot run here; the others are ended.
    :raises DriverError: one fails; likewise.
    :raises Interrupted: a signal came; likewise.
    """
    kernels: list[Kernel] = []
    try:
        with selectors.DefaultSelector() as selector:
            for start, words in jobs:
                kernels.append(Kernel(host, start, words))
                selector.register(kernels[-1], selectors.EVENT_READ)
            if wake is not None:
                selector.register(wake, selectors.EVENT_READ)
            while not all(kernel.closed for kernel in kernels):
                host.interrupt.check()
                for key, _ in selector.select(turn_s):
                    kernel = key.fileobj
                    if not isinstance(kernel, Kernel):
                        continue
                    for event in kernel.read():
                        if on_event is not None:
                            on_event(kernel, event)
                    if kernel.closed:
                        selector.unregister(kernel)
                        kernel.check()
                if on_turn is not None:
                    on_turn(kernels)
    finally:
        for kernel in kernels:
            kernel.end()
    return [kernel.result for kernel in kernels]
