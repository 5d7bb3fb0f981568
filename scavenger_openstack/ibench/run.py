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
from typing import Protocol

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench.host.cgroup import Cgroup
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench.interrupt import SLICE_S

END_S = 5.0
CALIBRATE_S = 0.2
EVERY_S = 0.1
_SHORTEST_EVERY_S = 0.001
ENDLESS_S = 1e6
"""Of a level that is held until the kernel is ended."""
_READ_BYTES = 1 << 16

Event = dict[str, Any]


class Source(Protocol):
    """A source that can be waited for until it can be read."""

    def fileno(self) -> int:
        """Return its descriptor."""


class Host(NamedTuple):
    """The host and CPUs that kernels run on.

    :ivar program: the one with all kernels
    :ivar enter: words before it, which enter a network namespace
    """

    program: pathlib.Path
    interrupt: Interrupt
    cgroup: Cgroup | None = None
    enter: tuple[str, ...] = ()


@dataclasses.dataclass
class Result:
    """The report of a kernel.

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


def start_process(command: Sequence[str], cgroup: Cgroup | None,
                  cpus: Iterable[int] = (), *,
                  stdout: int | None = subprocess.PIPE,
                  stderr: int | None = subprocess.PIPE
                  ) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, inside of the cgroup.

    :param cpus: where it runs; none: where this process may
    :param stdout: as that of :class:`subprocess.Popen`
    :param stderr: likewise
    :raises ConfigError: it cannot be started.
    """
    def prepare() -> None:
        if cgroup is not None:
            cgroup.join()
        if cpus:
            os.sched_setaffinity(0, cpus)

    try:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=stderr, start_new_session=True, preexec_fn=prepare)
    except (OSError, subprocess.SubprocessError) as exc:
        where = f' in the cgroup {cgroup.path}' if cgroup else ''
        raise errors.ConfigError(
            f'{command[0]} cannot be started{where}: '
            f'{getattr(exc, "strerror", None) or exc}') from exc


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process of :func:`start_process` and its process group: SIGTERM
    first, then SIGKILL; ended already is fine."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def wait_serving(process: subprocess.Popen[bytes],
                 interrupt: Interrupt) -> None:
    """Wait until a remote end says that it listens.

    :raises ConfigError: it cannot; its sentence.
    :raises Interrupted: a signal came.
    """
    assert process.stdout is not None and process.stderr is not None
    while not select.select([process.stdout], [], [], SLICE_S)[0]:
        interrupt.check()
    if not process.stdout.readline():
        raise errors.ConfigError(
            _sentence(process.stderr.read())
            or f'the remote end ended with status {process.wait(END_S)}')


def _sentence(text: bytes) -> str:
    """Return what a kernel wrote to standard error, in one line."""
    return ' '.join(text.decode('utf-8', 'replace').split()).removeprefix(
        f'{build.PROGRAM}: ')


def calibrate(host: Host, start: arguments.Start,
              seconds: float = CALIBRATE_S, times: int = 1) -> Event:
    """Return the rates of a kernel that runs alone.

    :param times: of so many runs the fastest counts: other work disturbed it
        least
    :raises ConfigError: it cannot run here.
    :raises DriverError: it fails.
    :raises Interrupted: a signal came.
    """
    rates = []
    for _ in range(times):
        result, = play(host, [(start, (f'calibrate_s={seconds:g}',))])
        if result.calibrated is None:
            raise errors.DriverError(f'{start.soi.name} ended without a '
                                     'calibration')
        rates.append(result.calibrated)
    return min(rates, key=lambda calibrated: calibrated['chunk_s'])


def level_words(levels: Sequence[arguments.Level], *,
                chunk_s: float | None = None, every_s: float = EVERY_S
                ) -> tuple[str, ...]:
    """Return the words of a kernel for its levels.

    :param chunk_s: from a calibration; None: the kernel calibrates first
    :param every_s: from one report to the next, at most a level
    """
    every_s = max(_SHORTEST_EVERY_S, min(
        every_s, *(level.seconds for level in levels)))
    return (*([] if chunk_s is None else [f'chunk_s={chunk_s:.9g}']),
            arguments.levels_word(levels), f'every_s={every_s:g}')


def play(host: Host, jobs: Sequence[tuple[arguments.Start, Sequence[str]]],
         *, on_event: Callable[[Kernel, Event], None] | None = None,
         on_turn: Callable[[Sequence[Kernel]], bool | None] | None = None,
         turn_s: float = SLICE_S,
         wake: Source | None = None) -> list[Result]:
    """Run kernels beside each other until each has ended, or ``on_turn``
    ends them.

    :param jobs: each kernel, with its further words
    :param on_turn: called at least each ``turn_s``; true ends all kernels
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
                if on_turn is not None and on_turn(kernels):
                    break
    finally:
        for kernel in kernels:
            kernel.end()
    return [kernel.result for kernel in kernels]
