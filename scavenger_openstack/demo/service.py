# SPDX-License-Identifier: Apache-2.0

"""The service: its requests, its program, and the latencies it records."""

from __future__ import annotations

import array
import math
import pathlib
import random

from scavenger_openstack.ibench import build

SOURCES = pathlib.Path(__file__).parent / 'load'
PROGRAM = 'scavenger-demo-service'

REQUESTS_PER_S_AND_CPU = 52.5
CPU_MS = (2.0, 6.0)
"""A request is as long as a tick of the usual kernel (4 ms at 250 Hz)."""
BURST_SHARE = 0.4
"""Share of the requests that come in bursts, of one per thread."""
THREADS_PER_CPU = 4
PERIOD_S = 600.0
"""Time after which the same requests come again."""

Request = tuple[float, float]
"""The moment of a request, in s, and the CPU time that it takes, in ms."""


def requests(seed: str, seconds: float, cpus: int) -> list[Request]:
    """Return the requests of some seconds, in order.

    They are a Poisson process, a part of it in bursts; the same for the same
    arguments.
    """
    size = THREADS_PER_CPU * cpus
    rate = REQUESTS_PER_S_AND_CPU * cpus
    planned = []
    for kind, per_s, burst in (('single', rate * (1 - BURST_SHARE), 1),
                               ('burst', rate * BURST_SHARE / size, size)):
        rng = random.Random(f'{seed} {kind}')
        at_s = 0.0
        while (at_s := at_s + rng.expovariate(per_s)) < seconds:
            planned += [(at_s, rng.uniform(*CPU_MS)) for _ in range(burst)]
    return sorted(planned)


def compile_program() -> pathlib.Path:
    """Return the path of the service's program.

    :raises ConfigError: there is no compiler, or no place for it.
    :raises DriverError: the compiler fails.
    """
    return build.build(SOURCES, program=PROGRAM)


class Service:
    """The files of a service that runs.

    :param directory: where they are
    :param start_s: when its first period begins, of ``time.monotonic``
    """

    def __init__(self, directory: pathlib.Path, planned: list[Request],
                 cpus: int, start_s: float) -> None:
        self._requests = directory / 'requests'
        self._latencies = directory / 'latencies'
        self._planned = planned
        self._start_s = start_s
        self._threads = THREADS_PER_CPU * cpus
        self._requests.write_bytes(array.array('d', [
            value for request in planned for value in request]).tobytes())

    def command(self, program: pathlib.Path) -> list[str]:
        """Return the command that starts it."""
        return [str(program), str(self._requests), str(self._latencies),
                str(self._threads), f'{self._start_s:.9f}', f'{PERIOD_S:g}']

    def latencies(self, now_s: float) -> list[tuple[float, float]]:
        """Return (moment, latency), in s, of all requests of the first
        period that have come.

        A request that is not served yet has waited until now.
        """
        served = array.array('d')
        if self._latencies.exists():
            served.frombytes(self._latencies.read_bytes())
        at_s = now_s - self._start_s
        return [(due_s, latency_s or at_s - due_s)
                for (due_s, _), latency_s in zip(
                    self._planned, served, strict=False) if due_s < at_s]


def percentile(values: list[float], share: float) -> float | None:
    """Return the smallest value that at least ``share`` of them do not
    exceed; ``None`` of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
