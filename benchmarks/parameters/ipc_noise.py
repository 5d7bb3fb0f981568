# SPDX-License-Identifier: Apache-2.0


"""How often noise in the foreground's IPC costs the background its CPU.

The quota rule of the agent on made-up IPC: Gaussian noise around a constant,
AR(1) from second to second, so nobody disturbs anybody and each shrinking
and each new phase is a mistake.  The rule judges every foreground workload
each tick and the tightest vote wins, so mistakes add up over workloads.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math
import random
import statistics
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.scavenger.quota import deviation
from scavenger_openstack.algorithms.scavenger.quota import judge
from scavenger_openstack.algorithms.scavenger.quota import Quota
from scavenger_openstack.algorithms.scavenger.quota import QUIET_TICKS
from scavenger_openstack.algorithms.scavenger.quota import Verdict
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.algorithms.scavenger.scavenger import samples
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

HOST_CORES = 32.0
FLOOR_CORES = 0.4
"""The floors of four background workloads."""


class Case(NamedTuple):
    """``noise``: deviation of the IPC as a share of its mean.  ``rho``: its
    correlation from one second to the next.  ``smoothing``: how many
    samples the agent's rule judges together; with 0 it is the paper's rule,
    and ``run`` and ``shrink_run`` say how many samples in a row beyond mu
    +/- 2 c sigma make a phase, below mu - c sigma a decrease."""

    workloads: int
    noise: float
    rho: float
    c: float
    window_s: int
    smoothing: int = Params().ipc_smoothing
    run: int = 1
    shrink_run: int = 1


class Quiet(NamedTuple):
    """What happened while nothing happened.

    ``phases_per_h``: workloads' IPC taken for a new phase.
    ``at_minimum``, ``shrinking``: shares of the time.  ``afforded``: mean
    quota as a share of the host.
    """

    phases_per_h: float
    at_minimum: float
    shrinking: float
    afforded: float


class Paper(Quota):
    """The rule as the paper has it for one workload, applied to many: each
    sample by itself, each workload by c alone.

    What if: a phase, or a decrease, needs several samples in a row.  Until
    then a sample beyond the phase limits counts as low (shrink) or high
    (hold), and a low one holds.  An experiment, not the agent's rule.
    """

    def __init__(self, params: Params, size: int, *, run: int,
                 shrink_run: int) -> None:
        super().__init__(dataclasses.replace(
            params, ipc_smoothing=1, ipc_min_deviation=0.0, ipc_strict=True),
            size)
        self._needed = run, shrink_run
        self._runs: dict[int, tuple[int, int]] = {}

    def _vote(self, baseline: Any, cores: float | None,
              cpi: float | None) -> Verdict | None:
        if baseline.mu is None or not cpi:
            self._runs.pop(id(baseline), None)
            return super()._vote(baseline, cores, cpi)
        vote = judge(1 / cpi, baseline.mu, deviation(
            baseline.mu, baseline.sigma, c=self.params.ipc_c,
            min_deviation=0.0))
        beyond, low = self._runs.get(id(baseline), (0, 0))
        is_low = 1 / cpi < baseline.mu and vote < Verdict.GROW
        beyond = beyond + 1 if vote is Verdict.MINIMUM else 0
        low = low + 1 if is_low else 0
        self._runs[id(baseline)] = beyond, low
        if beyond >= self._needed[0]:
            return super()._vote(baseline, cores, cpi)
        if is_low:
            return (Verdict.SHRINK if low >= self._needed[1]
                    else Verdict.HOLD)
        return Verdict.HOLD if beyond else vote


def noise(rng: random.Random, case: Case, seconds: int,
          ) -> Iterator[list[float]]:
    """Each second the IPC of each workload, 1 on average."""
    fresh = case.noise * math.sqrt(1 - case.rho ** 2)
    state = [rng.gauss(0, case.noise) for _ in range(case.workloads)]
    for _ in range(seconds):
        yield [max(0.01, 1 + one) for one in state]
        state = [case.rho * one + fresh * rng.gauss(0, 1) for one in state]


def of_case(case: Case) -> Quota:
    """The agent's rule, or the paper's."""
    params = Params(ipc_c=case.c, ipc_smoothing=max(1, case.smoothing))
    size = samples(case.window_s, 1.0)
    if case.smoothing:
        return Quota(params, size)
    return Paper(params, size, run=case.run, shrink_run=case.shrink_run)


def watch(quota: Quota, ipcs: Iterable[Sequence[float]]) -> Iterator[float]:
    """The quota in cores after each second."""
    who: list[Workload] = []
    for now in ipcs:
        who = who or [Workload(f'vm{number}', Priority.FOREGROUND)
                      for number in range(len(now))]
        quota.observe(
            [WorkloadRates(one, 1.0, cpu_cores=1.0, cpi=1 / ipc)
             for one, ipc in zip(who, now, strict=True)],
            minimum=FLOOR_CORES, maximum=HOST_CORES)
        yield quota.cores or 0.0


def undisturbed(case: Case, *, seconds: int, seed: int) -> Quiet:
    """Noise alone.  The first window, which is learnt, does not count."""
    rng = random.Random(f'{seed} {case.workloads} {case.noise} {case.rho}')
    quota = of_case(case)
    learnt_s = case.window_s + QUIET_TICKS
    minimum = shrinking = phases = 0
    cores = 0.0
    for second, now in enumerate(
            watch(quota, noise(rng, case, learnt_s + seconds))):
        if second < learnt_s:
            phases = quota.phases
            continue
        cores += now
        minimum += quota.verdict is Verdict.MINIMUM
        shrinking += quota.verdict is Verdict.SHRINK
    return Quiet((quota.phases - phases) * 3600 / seconds,
                 minimum / seconds, shrinking / seconds,
                 cores / seconds / HOST_CORES)


RUNS = {1: 8, 5: 4, 20: 3, 60: 2}
"""How often each case runs: what was learnt at the start matters, so few
workloads need more runs."""


@functools.cache
def quiet(case: Case, seconds: int) -> Quiet:
    """The mean of some runs of :func:`undisturbed`."""
    runs = [undisturbed(case, seconds=seconds, seed=seed)
            for seed in range(RUNS.get(case.workloads, 3))]
    return Quiet(*map(statistics.fmean, zip(*runs, strict=True)))


def answer_s(case: Case, *, loss: float, seed: int,
             limit_s: int = 60) -> float:
    """Seconds until a quarter of the quota is left when one workload
    suddenly loses a share ``loss`` of its IPC; ``limit_s`` if never.

    The quota is full before, whatever noise made of it.
    """
    rng = random.Random(seed)
    quota = of_case(case)
    settled = 4 * case.window_s
    for second, now in enumerate(watch(quota, _loss(
            noise(rng, case, settled + limit_s), settled, loss))):
        if second == settled - 1:
            quota.cores = HOST_CORES
        elif second >= settled and now <= HOST_CORES / 4:
            return second - settled + 1.0
    return float(limit_s)


def _loss(ipcs: Iterable[list[float]], begin_s: int,
          loss: float) -> Iterator[list[float]]:
    for second, now in enumerate(ipcs):
        if second >= begin_s:
            now[0] *= 1 - loss
        yield now
