# SPDX-License-Identifier: Apache-2.0

"""Turns with a kernel: it is started, has filled, is measured, is ended."""

from __future__ import annotations

from collections.abc import Sequence
import select
import time
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.arguments import Level
from scavenger_openstack.ibench.interrupt import SLICE_S
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile import workload
from scavenger_openstack.ibench import run

REPORTS = 20
"""Of a kernel in a turn."""
LONGEST_REPORT_S = 0.05


class Injector(NamedTuple):
    """An injector of the turns of one SoI.

    :ivar chunk_s: of its kernel alone
    :ivar is_apart: the workload does not use its CPUs: what it waits for
        them is other work's doing, and no part of its rate
    """

    host: run.Host
    start: arguments.Start
    signal: signals.Signal
    seconds: float
    chunk_s: float
    is_apart: bool = False

    def take(self, percent: float | None) -> measure.Reading:
        """Take a turn beside this intensity, or alone.

        :raises Unfit: the workload has ended.
        :raises ConfigError: the kernel cannot run here.
        :raises DriverError: it fails, or the turn has no value.
        :raises Interrupted: a signal came.
        """
        if percent is None:
            return measure.Reading(alone(self.host, self.signal,
                                         self.seconds))
        every_s = min(LONGEST_REPORT_S, self.seconds / REPORTS)
        words = run.level_words([Level(percent, run.ENDLESS_S)],
                                chunk_s=self.chunk_s, every_s=every_s)
        windows: list[_Window] = []
        values: list[float] = []

        def on_turn(kernels: Sequence[run.Kernel]) -> bool:
            now_s = time.monotonic()
            if not windows:
                if _is_ready(kernels[0].result):
                    windows.append(_Window(kernels[0], self.is_apart))
                    self.signal.begin(now_s, self.seconds)
                return False
            value = self.signal.read(now_s)
            if value is None:
                return False
            windows[0].end()
            values.append(value)
            return True

        run.play(self.host, [(self.start, words)], on_turn=on_turn,
                 turn_s=min(SLICE_S, every_s),
                 wake=self.signal.wake)
        if not values:
            raise errors.DriverError(
                f'{self.start.soi.name} ended too early')
        return measure.Reading(values[0], windows[0].rate())


class _Window:
    """The part of a kernel's run that counts.

    :param is_apart: without the time that it waits for its CPUs
    """

    def __init__(self, kernel: run.Kernel, is_apart: bool) -> None:
        self._kernel = kernel
        self._is_apart = is_apart
        self._first = kernel.result.samples[-1]
        self._begin = self._read_times()
        self._waited_s = 0.0

    def end(self) -> None:
        """Read how long it has waited; it still runs."""
        if self._begin:
            # The main thread sleeps.
            threads = max(1, len(self._begin) - 1)
            self._waited_s = workload.passed(
                self._begin, self._read_times()
            ).cpu_wait / workload.NS_PER_S / threads

    def rate(self) -> float | None:
        """Return operations per second; None without another report."""
        last = self._kernel.result.samples[-1]
        seconds = last['seconds'] - self._first['seconds'] - self._waited_s
        return ((last['operations'] - self._first['operations']) / seconds
                if seconds > 0 else None)

    def _read_times(self) -> dict[int, workload.Times]:
        if not self._is_apart:
            return {}
        pid = self._kernel.process.pid
        return workload.read_times(workload.threads_of([pid]), disks=False)


def alone(host: run.Host, signal: signals.Signal, seconds: float) -> float:
    """Return the signal in a turn without any kernel."""
    signal.begin(time.monotonic(), seconds)
    wakes = [] if signal.wake is None else [signal.wake]
    while (value := signal.read(time.monotonic())) is None:
        host.interrupt.check()
        select.select(wakes, [], [], min(SLICE_S, seconds / 10))
    return value


def _is_ready(result: run.Result) -> bool:
    """Whether a kernel runs, and holds what it is to hold."""
    if len(result.samples) < 2:
        return False
    held = [sample.get('held_bytes') for sample in result.samples[-2:]]
    return held[0] == held[1]
