# SPDX-License-Identifier: Apache-2.0


"""How well a tenant really fared: what no controller can see."""

from __future__ import annotations

import math
from typing import NamedTuple

BINS_PER_E = 20
"""Bins of the latency histogram per factor of e: 5 % each."""


class Result(NamedTuple):
    """A tenant over the time since the last :meth:`Truth.reset`.

    Rates are per second of the time counted; latencies in seconds, ``None``
    for a batch.
    """

    seconds: float
    requests_per_s: float
    p50_s: float | None
    p99_s: float | None
    mean_s: float | None
    cpu_work: float
    io_ops_per_s: float
    tx_bytes_per_s: float
    memory_bytes: float


class Truth:
    """Counts work and latencies of one tenant.

    ``series`` has one entry per step and tenant while ``keep`` is set: mean
    latency of a service's step, CPU work per second of a batch's.
    """

    __slots__ = ('_bins', 'seconds', 'requests', 'latency_s', 'cpu_work_s',
                 'io_ops', 'tx_bytes', 'memory_byte_s', 'keep', 'series')

    def __init__(self, keep: bool = False) -> None:
        self.keep = keep
        self.series: list[tuple[float, float]] = []
        self.reset()

    def reset(self) -> None:
        self._bins: dict[int, float] = {}
        self.seconds = 0.0
        self.requests = 0.0
        self.latency_s = 0.0
        self.cpu_work_s = 0.0
        self.io_ops = 0.0
        self.tx_bytes = 0.0
        self.memory_byte_s = 0.0

    def add(self, number: float, latency_s: float) -> None:
        """Add so many requests that took so long."""
        self.requests += number
        self.latency_s += number * latency_s
        bin_ = int(math.log(latency_s) * BINS_PER_E // 1)
        self._bins[bin_] = self._bins.get(bin_, 0.0) + number

    def percentile(self, share: float) -> float | None:
        """Latency in seconds that ``share`` of the requests stay below."""
        if not self._bins:
            return None
        left = share * self.requests
        for bin_ in sorted(self._bins):
            left -= self._bins[bin_]
            if left <= 0:
                break
        return math.exp((bin_ + 0.5) / BINS_PER_E)

    def result(self) -> Result:
        seconds = self.seconds or 1.0
        return Result(
            self.seconds, self.requests / seconds, self.percentile(0.5),
            self.percentile(0.99),
            self.latency_s / self.requests if self.requests else None,
            self.cpu_work_s / seconds, self.io_ops / seconds,
            self.tx_bytes / seconds, self.memory_byte_s / seconds)
