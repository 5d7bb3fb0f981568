# SPDX-License-Identifier: Apache-2.0


"""Longer samples of a contention signal, made of the loop's ticks.

Both papers look less often than our loop turns: CPI2 at 10 seconds of each
minute (table 2), PerfCloud at 5 seconds (III-D).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.algorithms.signals import MIN_CORES
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.signals import Signal
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates
from scavenger_openstack.types import WorkloadRates

SLACK_S = 0.001
"""Ticks are not quite punctual."""


class Sample(NamedTuple):
    """One sample: by workload id, the means of the signal, of the use and of
    what else the sampler was made with; what could not be measured is left
    out.  ``time_s`` is when it ended, ``rates`` are those of the last tick.
    """

    time_s: float
    values: dict[str, float]
    uses: dict[str, float]
    rates: dict[str, WorkloadRates]
    correlated: Mapping[str, float] = {}


def weight(signal: Signal, rates: WorkloadRates) -> float:
    """Return how much one tick's value counts in the mean of several.

    A ratio of sums is the mean of the ratios weighted by the denominator:
    instructions for cpi, seconds run for run_delay, operations for io_wait.
    """
    if signal.name == 'io_wait':
        ops = number(rates.io_ops_per_s)
        return 1.0 if ops is None else ops
    cores = number(rates.cpu_cores) or 0.0
    if signal.name == 'cpi' and rates.cpi:
        return cores / rates.cpi
    return cores


class Sampler:
    """Collects ticks for ``duration_s`` out of every ``interval_s``.

    :param correlated: of which there is a mean besides that of the use
    """

    def __init__(self, signal: Signal, *, duration_s: float,
                 interval_s: float, correlated: Callable[
                     [WorkloadRates], float | None] | None = None) -> None:
        self._signal = signal
        self._correlated = correlated
        self._duration_s = duration_s
        self._interval_s = interval_s
        self._began_s: float | None = None
        self._sums: dict[str, list[float]] = {}
        self._rates: dict[str, WorkloadRates] = {}

    def add(self, now: float, rates: Rates) -> Sample | None:
        """Take one tick; the sample, when this tick completes one."""
        signal = self._signal
        # A tick tells of the time before it.
        if (self._began_s is None or not 0 < now - self._began_s <= (
                self._interval_s + self._duration_s)):
            self._restart(now - rates.interval_s)   # or the clock jumped
        passed = now - (self._began_s or 0.0)
        if passed <= self._interval_s - self._duration_s + SLACK_S:
            return None
        for rated in rates.workloads:
            name = rated.workload.id
            sums = self._sums.get(name)
            if sums is None:
                sums = self._sums[name] = [0.0] * 6
            self._rates[name] = rated
            value = signal.value(rated)
            if value is not None:
                share = weight(signal, rated)
                sums[0] += value * share
                sums[1] += share
            use = signal.use(rated)
            if use is not None:
                sums[2] += use
                sums[3] += 1
            if self._correlated is not None:
                use = self._correlated(rated)
                if use is not None:
                    sums[4] += use
                    sums[5] += 1
        if passed < self._interval_s - SLACK_S:
            return None
        sample = Sample(
            now,
            {name: sums[0] / sums[1] for name, sums in self._sums.items()
             if sums[1] > 0},
            {name: sums[2] / sums[3] for name, sums in self._sums.items()
             if sums[3]},
            self._rates,
            {name: sums[4] / sums[5] for name, sums in self._sums.items()
             if sums[5]})
        self._restart(now)
        return sample

    def _restart(self, now: float) -> None:
        self._began_s = now
        self._sums = {}
        self._rates = {}


class CpiSampler:
    """The gate of 0.25 CPU-s/s is for a sample as a whole, not for its ticks.

    That on disk operations, which is not in the paper, is for each tick.
    Source: CPI2, section 4.1, table 2.
    """

    def __init__(self, signal: Signal, *, duration_s: float,
                 interval_s: float) -> None:
        self._gated = signal.knob is Knob.CPU_CORES
        if self._gated:
            field = signal.field
            signal = signal._replace(
                value=lambda rates: number(getattr(rates, field)))
        self._sampler = Sampler(signal, duration_s=duration_s,
                                interval_s=interval_s)

    def add(self, now: float, rates: Rates) -> Sample | None:
        """Take one tick; the sample, when this tick completes one."""
        sample = self._sampler.add(now, rates)
        if sample is None or not self._gated:
            return sample
        return sample._replace(values={
            name: value for name, value in sample.values.items()
            if sample.uses.get(name, 0.0) >= MIN_CORES})
