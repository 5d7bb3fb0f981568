# SPDX-License-Identifier: Apache-2.0


"""The CPU set at which the fast loop settles within a step of seconds.

Letters as in :mod:`~.perfiso.perfiso`: N CPUs of the host, B the buffer, S
the CPUs of the background, g the time after which it gets one more; F is how
many threads of the foreground run at a moment, d how long each does.

S falls to N - B - F at once and grows by one per g, so at any moment
N - B - S is M, the largest of F(t - s) - floor(s / g) over all s: a high F
is remembered until S has grown back.  F is another about every d, so that

    P(M <= m) = product over k = 0, 1, ... of P(F <= m + k) ^ (g / d),

the first exponent at least 1.  F of a service is the number in a queue with
batches and no waiting, a negative binomial whose variance over its mean is
that of its arrivals, up to its vCPUs.  Compared with steps of a millisecond
in ``tests/unit/laboratory/test_settled_set.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.simulator.guest import Guest
from scavenger_openstack import types

LEAST_THREADS = 1e-3
"""Fewer threads than this, on average, are none."""


class Settled(NamedTuple):
    """The set, and of how many moments the loop finds too few idle CPUs in
    how many although the background has one CPU only."""

    cpus: frozenset[int]
    moments: int
    short: int


class SettledSet:
    """The set from one step to the next.

    A fraction of a CPU is one CPU in so many of the steps.
    """

    def __init__(self, params: perfiso.Params,
                 topology: Mapping[int, types.Cpu]) -> None:
        self._buffer = perfiso.buffer_cores(params, len(topology))
        self._grow_s = params.grow_interval_ms / 1000
        self._topology = topology
        self._cpus = frozenset(topology)
        self._rest = 0.0
        self._chosen: dict[tuple[frozenset[int], frozenset[int], int],
                           frozenset[int]] = {}

    def step(self, guests: Sequence[Guest], step_s: float, cpus: int,
             allowed: frozenset[int]) -> Settled:
        """Return the set for a step, by what all want in it.

        :param cpus: N
        :param allowed: what the background may have at most
        """
        most = cpus - self._buffer
        wanted = [guest for guest in guests
                  if guest.spec.priority is types.Priority.FOREGROUND
                  and guest.wanted > LEAST_THREADS]
        parts, thread_s = running(wanted, cpus), _thread_s(wanted)
        below = deepest(parts, self._grow_s, thread_s)
        background = math.fsum(
            guest.demand for guest in guests
            if guest.spec.priority is types.Priority.BACKGROUND)
        size = math.fsum(
            part * max(1, most - m) for m, part in enumerate(below))
        # What a quota holds runs as wide as it may, but for less time.
        short = math.fsum(parts[max(0, most):]) * min(1.0, background / size)
        if background <= size:
            # It leaves so many CPUs idle that it may have all.
            size = float(len(allowed))
        self._rest += min(size, len(allowed))
        whole = max(1, int(self._rest + 1e-9))
        self._rest = min(1.0, max(0.0, self._rest - whole))
        moments = max(1, round(step_s / thread_s)) if thread_s else 1
        return Settled(self._choose(whole, allowed), moments,
                       round(moments * short))

    def _choose(self, count: int, allowed: frozenset[int]) -> frozenset[int]:
        key = self._cpus, allowed, count
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) >= perfiso.MAX_CHOSEN:
                self._chosen.clear()
            chosen = self._chosen[key] = perfiso.choose_cpus(
                count, allowed, self._topology, self._cpus)
        self._cpus = chosen
        return chosen


def running(guests: Collection[Guest], most: int) -> list[float]:
    """How likely 0, 1, ... ``most`` threads of these run at a moment."""
    fixed, mean, variance = 0.0, 0.0, 0.0
    for guest in guests:
        if guest.spec.is_service:
            own = threads(guest.wanted, guest.spec.arrivals, guest.spec.vcpus)
            mean += guest.wanted
            variance += _variance(own)
        else:
            fixed += guest.wanted
    parts = threads(mean, max(1.0, variance / mean) if mean else 1.0, most)
    shift = min(most, math.ceil(fixed - 1e-9))
    shifted = [0.0] * shift + parts[:most + 1 - shift]
    shifted[-1] += math.fsum(parts[most + 1 - shift:])
    return shifted


def threads(mean: float, spread: float, most: int) -> list[float]:
    """A negative binomial of this mean, cut at ``most``.

    :param spread: variance over mean; a Poisson's is 1
    """
    if mean <= 0:
        return [1.0] + [0.0] * most
    if spread <= 1 + 1e-6:
        part, parts = math.exp(-mean), []
        for k in range(most):
            parts.append(part)
            part *= mean / (k + 1)
    else:
        size, ratio = mean / (spread - 1), 1 - 1 / spread
        part, parts = math.pow(1 - ratio, size), []
        for k in range(most):
            parts.append(part)
            part *= (k + size) / (k + 1) * ratio
    return [*parts, max(0.0, 1 - math.fsum(parts))]


def deepest(parts: Sequence[float], grow_s: float, thread_s: float
            ) -> list[float]:
    """How likely M is 0, 1, ..., from how likely F is.

    :param grow_s: g
    :param thread_s: d
    """
    total, below = 0.0, []
    for part in parts:
        total += part
        below.append(min(1.0, total))
    often = grow_s / thread_s if thread_s > 0 else 1.0
    most = [math.pow(below[m], max(1.0, often)) * math.prod(
        math.pow(value, often) for value in below[m + 1:])
        for m in range(len(below))]
    most[-1] = 1.0
    return [high - low for low, high in zip([0.0, *most], most, strict=False)]


def _variance(parts: Sequence[float]) -> float:
    mean = math.fsum(k * part for k, part in enumerate(parts))
    return math.fsum((k - mean) ** 2 * part for k, part in enumerate(parts))


def _thread_s(guests: Collection[Guest]) -> float:
    """How long a thread of a service runs, on average over what runs."""
    services = [guest for guest in guests if guest.spec.is_service]
    wanted = math.fsum(guest.wanted for guest in services)
    return math.fsum(guest.wanted * guest.spec.cpu_s / guest.speed
                     for guest in services) / wanted if wanted else 0.0
