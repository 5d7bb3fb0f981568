# SPDX-License-Identifier: Apache-2.0

"""Signals of a workload: what its QoS is about, read turn by turn."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import os
import select
import signal as unix_signal
import statistics
import subprocess
import time
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.perf import grade
from scavenger_openstack import errors
from scavenger_openstack.ibench.profile import workload as profiled_workload
from scavenger_openstack.ibench.profile.workload import Unfit
from scavenger_openstack.ibench import run

DURATION = 'duration_s'
SILENT_S = 30.0
"""A program that prints numbers prints one within this."""
IDLE_S = 5.0
"""A workload that is to be counted runs within this."""
MAX_COUNTERS = 2
_READ_BYTES = 1 << 16


class Signal(Protocol):
    """A signal that is measured of a workload in each turn.

    :ivar wake: can be read when :meth:`read` is due before the end of the
        time; None: it never is
    """

    wake: run.Source | None

    def begin(self, now_s: float, seconds: float) -> None:
        """Begin a turn.

        :param seconds: its least length
        :raises Unfit: the workload has ended.
        """

    def read(self, now_s: float) -> float | None:
        """Return the value of the turn; None while it goes on.

        :raises Unfit: the workload has ended.
        :raises DriverError: the turn has no value.
        """


class Counted(NamedTuple):
    """A signal out of what the kernel counts of a workload's threads.

    :ivar below: it must stay below its bound
    :ivar of: the value, of what passed and of the instructions, which are
        None where they are not counted; None: no value
    """

    below: bool
    of: Callable[[profiled_workload.Times, int | None], float | None]
    help: str


def _progress(passed: profiled_workload.Times, instructions: int | None
              ) -> float | None:
    wanted_ns = passed.ran + passed.cpu_wait + (passed.io_wait or 0)
    if not wanted_ns:
        return None
    return (passed.ran if instructions is None else instructions) / wanted_ns


def _run_delay(passed: profiled_workload.Times, instructions: int | None
               ) -> float | None:
    return passed.cpu_wait / passed.ran if passed.ran else None


def _io_wait(passed: profiled_workload.Times, instructions: int | None
             ) -> float | None:
    return (passed.io_wait / passed.ran
            if passed.ran and passed.io_wait is not None else None)


COUNTED = {
    'progress': Counted(
        False, _progress, 'instructions per ns, where this host counts them, '
        'else ns of CPU time per ns, that it ran or waited for a CPU or a '
        'disk'),
    'run_delay': Counted(True, _run_delay, 's waited for a CPU per s run'),
    'io_wait': Counted(True, _io_wait, 's waited for disks per s run')}
"""The signals that need no program that prints them."""


class CountedSignal:
    """One of :data:`COUNTED` of a workload."""

    wake: run.Source | None = None

    def __init__(self, name: str, workload: profiled_workload.Workload
                 ) -> None:
        self._name = name
        self._counted = COUNTED[name]
        self._workload = workload
        self._disks = profiled_workload.counts_disk_waits()
        if name == 'io_wait' and not self._disks:
            raise Unfit('io_wait is not counted: this kernel does it after '
                        'sysctl kernel.task_delayacct=1, for threads that '
                        'begin from then on')
        self._counters = (_open_counters(workload)
                          if name == 'progress' else None)
        self._end_s = 0.0
        self._times: dict[int, profiled_workload.Times] = {}
        self._instructions: int | None = None

    @property
    def counts_instructions(self) -> bool:
        """Whether contention for caches and memory shows in it."""
        return self._counters is not None

    def begin(self, now_s: float, seconds: float) -> None:
        self._times = self._read_times()
        self._instructions = self._read_instructions()
        self._end_s = now_s + seconds

    def read(self, now_s: float) -> float | None:
        if now_s < self._end_s:
            return None
        passed = profiled_workload.passed(self._times, self._read_times())
        count = self._read_instructions()
        value = self._counted.of(
            passed, None if count is None or self._instructions is None
            else count - self._instructions)
        if value is None and now_s > self._end_s + IDLE_S:
            raise errors.DriverError(
                f'{self._workload.name} did not run for {IDLE_S:g} s, so '
                f'{self._name} has no value: give it load or more --seconds')
        return value        # None: the turn goes on until it has run

    def _read_times(self) -> dict[int, profiled_workload.Times]:
        return profiled_workload.read_times(self._workload.threads(),
                                            disks=self._disks)

    def _read_instructions(self) -> int | None:
        values = self._counters.read() if self._counters else None
        return values[2] if values else None

    def close(self) -> None:
        if self._counters is not None:
            self._counters.close()


def _open_counters(workload: profiled_workload.Workload
                   ) -> perf_event.CgroupCounters | None:
    """Count the instructions of a workload; None: nothing does here."""
    if workload.place is None or not perf_event.supported():
        return None
    cpus = workload.cpus()
    events = [event for event in grade.grade(
        '/', cpu=min(cpus), max_counters=MAX_COUNTERS).events
        if event.field == 'instructions']
    if not events:
        return None
    try:
        counters = perf_event.CgroupCounters(workload.place, events)
        counters.cover(cpus, enabled=True)
    except OSError:
        return None
    return counters


class Elapsed:
    """The time of a turn alone: the signal of no workload."""

    wake: run.Source | None = None
    _end_s = 0.0

    def begin(self, now_s: float, seconds: float) -> None:
        self._end_s = now_s + seconds

    def read(self, now_s: float) -> float | None:
        return None if now_s < self._end_s else 0.0


class PrintedSignal:
    """The median of the numbers that a program prints in a turn, one in each
    line.

    The first of a turn is left out where there are others: it is about the
    time before, too.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdout is not None
        self.wake: run.Source | None = process.stdout
        self._fd = process.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._rest = b''
        self._values: list[float] = []
        self._begin_s = self._seconds = 0.0

    def begin(self, now_s: float, seconds: float) -> None:
        self._drain()
        self._values.clear()
        self._begin_s, self._seconds = now_s, seconds

    def read(self, now_s: float) -> float | None:
        self._drain()
        passed_s = now_s - self._begin_s
        if passed_s < self._seconds:
            return None
        if self._values:
            return statistics.median(self._values[1:] or self._values)
        if passed_s > max(SILENT_S, 2 * self._seconds):
            raise Unfit(f'{name_of(self._process)} printed no number in '
                        f'{passed_s:.0f} s: it is to print one per line, and '
                        'to flush each')
        return None

    def _drain(self) -> None:
        """Take in the lines that have arrived."""
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise Unfit(_ended(self._process))
            *lines, self._rest = (self._rest + data).split(b'\n')
            for line in lines:
                with contextlib.suppress(ValueError, IndexError):
                    self._values.append(float(line.split()[-1]))


class DurationSignal:
    """The time that a command takes that ends: the median of the runs in a
    turn.

    :param start: starts it
    """

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._epoll = select.epoll()    # of the run that goes on
        self.wake: run.Source | None = self._epoll
        self._descriptor: int | None = None
        self._durations: list[float] = []
        self._begin_s = self._seconds = self._run_s = 0.0

    def begin(self, now_s: float, seconds: float) -> None:
        self.end_run()
        self._durations.clear()
        self._begin_s, self._seconds = now_s, seconds
        self._begin_run()

    def read(self, now_s: float) -> float | None:
        process = self._process
        if process is None or process.poll() is None:
            return None
        self._durations.append(now_s - self._run_s)
        if process.returncode:
            raise Unfit(_ended(process))
        self.end_run()
        if now_s - self._begin_s < self._seconds:
            self._begin_run()
            return None
        return statistics.median(self._durations)

    def _begin_run(self) -> None:
        self._run_s = time.monotonic()
        self._process = self._start()
        self._descriptor = os.pidfd_open(self._process.pid)
        self._epoll.register(self._descriptor, select.EPOLLIN)

    def end_run(self) -> None:
        """End the run that goes on; none does is fine."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._process is not None:
            run.end_process(self._process)
            self._process = None

    def close(self) -> None:
        self.end_run()
        self._epoll.close()


def name_of(process: subprocess.Popen[bytes]) -> str:
    """Return how messages name a program that a profile has started."""
    return os.path.basename(process.args[0])    # type: ignore[index,arg-type]


def _ended(process: subprocess.Popen[bytes]) -> str:
    status = process.wait()
    how = (f'was ended by {unix_signal.Signals(-status).name}' if status < 0
           else f'ended with status {status}')
    return (f'{name_of(process)} {how} in the middle of the profile: it is '
            'to ' + ('end with status 0' if status else
                     'run until it is ended')
            + ', its own errors are above')


def names() -> str:
    """Return the signals that are counted, with what they are."""
    return '; '.join(f'{name}: {counted.help}'
                     for name, counted in COUNTED.items())
