# SPDX-License-Identifier: Apache-2.0


"""From what happened to numbers: what the foreground felt, what got done.

Everything is a ratio to another run of the same seed: the foreground to
itself alone on the machine, the background to itself unmanaged.
"""

from __future__ import annotations

from typing import NamedTuple

from scavenger_openstack.laboratory.bench import Outcome
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.requests import PATIENCE_S
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import Priority

SLOWEST = 1000.0
"""A foreground batch that got nothing done is so many times slower."""

NOTHING = 1e-9
"""Work below this is none: a ratio to it would say nothing."""


class Score(NamedTuple):
    """One policy on one seed.

    ``p99_ratio``: P99 latency over that alone on the machine, mean over the
    foreground; ``p99_ratio_worst`` that of the one that fared worst;
    ``mean_ratio`` and ``mean_ratio_worst``: the same of the mean latency.
    A foreground batch counts by the time that it takes for the same work.

    ``work_ratio``: work of the background over that when unmanaged, mean
    over tenants and over what each uses.  ``None`` where there is none.

    ``violations``: times at which more memory was wanted than there was;
    ``violation_s``: for how long; ``kills``, ``writes``: by the agent.
    """

    p99_ratio: float | None
    p99_ratio_worst: float | None
    mean_ratio: float | None
    mean_ratio_worst: float | None
    work_ratio: float | None
    violations: int
    violation_s: float
    kills: int
    writes: int


def score(drawn: Drawn, outcome: Outcome, *, alone: Outcome,
          unmanaged: Outcome) -> Score:
    """Judge ``outcome`` of ``drawn`` by two others of the same seed.

    :param alone: without any background
    :param unmanaged: with all of it and no controller
    """
    p99, means, work = [], [], []
    for tenant in drawn.tenants:
        result = outcome.tenants.get(tenant.id)
        if result is None:
            continue    # it never came
        if tenant.priority is Priority.BACKGROUND:
            done = work_ratio(tenant, result, unmanaged.tenants[tenant.id])
            if done is not None:
                work.append(done)
            continue
        before = alone.tenants[tenant.id]
        if tenant.is_service:
            if before.p99_s and before.mean_s:
                p99.append((result.p99_s or PATIENCE_S) / before.p99_s)
                means.append((result.mean_s or PATIENCE_S) / before.mean_s)
        else:
            done = work_ratio(tenant, result, before)
            if done is not None:
                slower = 1 / max(done, 1 / SLOWEST)
                p99.append(slower)
                means.append(slower)
    return Score(
        _mean(p99), max(p99, default=None),
        _mean(means), max(means, default=None), _mean(work),
        outcome.violations, outcome.violation_s, outcome.kills,
        outcome.writes)


def work_ratio(tenant: Tenant, result: Result,
               base: Result) -> float | None:
    """Work over that of ``base``, mean over what the tenant works with.

    What was killed did less in all, whatever it did per second.
    ``None`` when it did nothing in ``base``.
    """
    ratios = []
    for used, amount, before in (
            (uses_cpu(tenant), result.cpu_work, base.cpu_work),
            (uses_disk(tenant), result.io_ops_per_s, base.io_ops_per_s),
            (uses_link(tenant), result.tx_bytes_per_s, base.tx_bytes_per_s),
            (uses_memory(tenant), result.memory_bytes, base.memory_bytes)):
        if used and before * base.seconds > NOTHING:
            ratios.append(amount * result.seconds / (before * base.seconds))
    return _mean(ratios)


def uses_cpu(tenant: Tenant) -> bool:
    return bool(tenant.threads or tenant.is_service)


def uses_disk(tenant: Tenant) -> bool:
    return bool(tenant.queue_depth
                or tenant.is_service and tenant.io_ops)


def uses_link(tenant: Tenant) -> bool:
    return bool(tenant.tx_bytes_per_s
                or tenant.is_service and tenant.tx_bytes)


def uses_memory(tenant: Tenant) -> bool:
    """Return whether more memory is more work: others have what they have."""
    return bool(tenant.memory_growth_bytes_per_s)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
