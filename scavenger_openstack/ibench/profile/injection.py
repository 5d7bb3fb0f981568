# SPDX-License-Identifier: Apache-2.0

"""Turns with a kernel: it is started, has filled, is measured, is ended."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import select
import time
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.arguments import Level
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench import run

CALIBRATIONS = 3
"""Of so many the fastest counts."""
ENDLESS_S = 1e6
REPORTS = 20
"""Of a kernel in a turn."""
LONGEST_REPORT_S, SHORTEST_REPORT_S = 0.05, 0.001


class _Enough(Exception):
    """The turn is over."""


class Injector(NamedTuple):
    """What takes turns of one SoI.

    :ivar chunk_s: of its kernel alone
    """

    host: run.Host
    start: arguments.Start
    signal: signals.Signal
    seconds: float
    chunk_s: float

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
        values: list[float] = []
        first: list[int] = []

        def on_turn(kernels: Sequence[run.Kernel]) -> None:
            now_s = time.monotonic()
            if not first:
                if _is_ready(kernels[0].result):
                    first.append(len(kernels[0].result.samples) - 1)
                    self.signal.begin(now_s, self.seconds)
                return
            value = self.signal.read(now_s)
            if value is not None:
                values.append(value)
                raise _Enough

        result = _play_endless(self.host, self.start, self.chunk_s, percent,
                               self.seconds, on_turn, self.signal)
        return measure.Reading(values[0], _rate(result, first[0]))


def alone(host: run.Host, signal: signals.Signal, seconds: float) -> float:
    """Return the signal in a turn without any kernel."""
    signal.begin(time.monotonic(), seconds)
    while (value := signal.read(time.monotonic())) is None:
        host.interrupt.check()
        select.select([signal], [], [], min(interrupt_.SLICE_S, seconds / 10))
    return value


def calibrate(host: run.Host, start: arguments.Start, seconds: float
              ) -> run.Event:
    """Return the calibration of a kernel that other work disturbed least."""
    return min((run.calibrate(host, start, seconds)
                for _ in range(CALIBRATIONS)),
               key=lambda calibrated: calibrated['chunk_s'])


def rate_alone(host: run.Host, start: arguments.Start, chunk_s: float,
               seconds: float) -> float | None:
    """Return the rate of a kernel at full intensity, without the workload;
    None without a report."""
    first: list[int] = []
    end_s: list[float] = []

    def on_turn(kernels: Sequence[run.Kernel]) -> None:
        now_s = time.monotonic()
        if not first and _is_ready(kernels[0].result):
            first.append(len(kernels[0].result.samples) - 1)
            end_s.append(now_s + seconds)
        if end_s and now_s >= end_s[0]:
            raise _Enough

    result = _play_endless(host, start, chunk_s, measure.FULL, seconds,
                           on_turn, None)
    return _rate(result, first[0])


def _play_endless(host: run.Host, start: arguments.Start, chunk_s: float,
                  percent: float, seconds: float,
                  on_turn: Callable[[Sequence[run.Kernel]], None],
                  wake: signals.Signal | None) -> run.Result:
    """Run a kernel until ``on_turn`` has enough of it."""
    every_s = min(LONGEST_REPORT_S, max(SHORTEST_REPORT_S,
                                        seconds / REPORTS))
    words = (f'chunk_s={chunk_s:.9g}', f'every_s={every_s:g}',
             arguments.levels_word([Level(percent, ENDLESS_S)]))
    played: list[run.Kernel] = []

    def watch(kernels: Sequence[run.Kernel]) -> None:
        played[:] = kernels
        on_turn(kernels)

    with contextlib.suppress(_Enough):
        run.play(host, [(start, words)], on_turn=watch,
                 turn_s=min(interrupt_.SLICE_S, every_s), wake=wake)
        raise errors.DriverError(f'{start.soi.name} ended too early')
    return played[0].result


def _is_ready(result: run.Result) -> bool:
    """Whether a kernel runs, and holds what it is to hold."""
    if len(result.samples) < 2:
        return False
    held = [sample.get('held_bytes') for sample in result.samples[-2:]]
    return held[0] == held[1]


def _rate(result: run.Result, first: int) -> float | None:
    """Operations per second since a report; None without another one."""
    begin, end = result.samples[first], result.samples[-1]
    seconds = end['seconds'] - begin['seconds']
    return ((end['operations'] - begin['operations']) / seconds
            if seconds > 0 else None)
