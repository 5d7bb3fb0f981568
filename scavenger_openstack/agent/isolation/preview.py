# SPDX-License-Identifier: Apache-2.0

"""What blind isolation would do, without doing it.

It goes by how long each CPU was busy between two ticks: no BPF program at
each context switch, no real-time thread, nothing but the tick's own sample.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Rates

ROUNDING = 0.01
"""The kernel counts busy time in steps of 10 ms."""


def idle_cpus(before_s: Mapping[int, float], busy_s: Mapping[int, float],
              interval_s: float, cpus: frozenset[int]) -> int | None:
    """Return how many of ``cpus`` were idle in the mean, rounded down.

    A CPU of which that is not known counts as busy.

    :param before_s: seconds that each CPU had run something, one interval ago
    :param busy_s: the same now
    :return: ``None`` if it is known of none
    """
    if interval_s <= 0:
        return None
    shares = [1 - (busy_s[cpu] - before_s[cpu]) / interval_s for cpu in cpus
              if cpu in busy_s and cpu in before_s]
    if not shares:
        return None
    return math.floor(math.fsum(min(1.0, max(0.0, share))
                                for share in shares) + ROUNDING * len(shares))


class Preview:
    """The CPU set that the background would have, once per tick."""

    def __init__(self, params: perfiso.Params) -> None:
        self._params = params
        self._topology: Mapping[int, Cpu] = {}
        self._controller: perfiso.Controller | None = None
        self._busy_s: Mapping[int, float] = {}
        self._time_s = 0.0
        self._cpus: frozenset[int] | None = None
        self._looks = 0

    def update(self, rates: Rates, bounds: perfiso.Bounds) -> None:
        """Take in what one tick saw."""
        before_s, self._busy_s = self._busy_s, rates.cpu_busy_s
        interval_s, self._time_s = rates.time_s - self._time_s, rates.time_s
        idle = idle_cpus(before_s, self._busy_s, interval_s, bounds.watched)
        if idle is None:
            return
        if self._controller is None or rates.topology != self._topology:
            self._topology = rates.topology
            self._controller = perfiso.Controller(
                self._params, topology=rates.topology,
                current=self._cpus or bounds.allowed)
        self._looks += 1
        self._cpus = bounds.beside | self._controller.step(
            rates.time_s, idle, bounds.allowed, buffer=bounds.buffer,
            least=int(not bounds.beside))

    def facts(self) -> dict[str, Any]:
        """Return the state for the status, plain JSON; no set is in force."""
        cpus = self._cpus
        return {'looks': self._looks,
                'would_be_cpus': None if cpus is None else len(cpus),
                'would_be_cpu_set': (None if cpus is None
                                     else format_cpus(cpus))}
