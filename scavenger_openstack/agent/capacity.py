# SPDX-License-Identifier: Apache-2.0

"""Capacity, use by the background, and headroom of a host, by resource, for
reports and metrics.

``cpu`` in cores, ``memory`` in bytes, ``network`` in bytes per second; a
resource that is missing is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource
from scavenger_openstack.types import WorkloadRates

Amounts = dict[Resource, float]


def capacity(sample: HostSample | None) -> Amounts:
    """Return the capacity of the host."""
    if sample is None:
        return {}
    return _without_unknown({
        Resource.CPU: float(len(sample.cpu_busy_s)) or None,
        Resource.MEMORY: sample.memory_total_bytes,
        Resource.NETWORK: sum(sample.links.values()) or None})


def used(rates: Rates | None) -> Amounts:
    """Return the use of all background work; nothing where that of a workload
    is not known."""
    if rates is None or not rates.complete:
        return {}
    workloads = background(rates)
    return _without_unknown({
        Resource.CPU: total(workload.cpu_cores for workload in workloads),
        Resource.MEMORY: total(workload.memory_bytes
                               for workload in workloads)})


def headroom(controllers: Mapping[str, Any], rates: Rates | None,
             idle_cores: float | None) -> Amounts:
    """Return the part of the budgets that the background does not use.

    :param controllers: with their ``facts``, as in the status
    :param idle_cores: CPU time per second that was not used
    """
    if rates is None or not rates.complete:
        return {}
    budgets = controllers.get(scavenger.NAME, {}).get('facts', {})
    free: dict[Resource, float | None] = {Resource.CPU: idle_cores}
    workloads = background(rates)
    memory = budgets.get('memory', {}).get('budget')
    in_use = total(workload.memory_bytes for workload in workloads)
    if memory is not None and in_use is not None:
        free[Resource.MEMORY] = max(0.0, memory - in_use)
    links = [budget['budget'] for budget in budgets.get('network', {}).values()
             if isinstance(budget, dict) and budget.get('budget') is not None]
    sent = total(workload.net_tx_bytes_per_s for workload in workloads)
    if links and sent is not None:
        free[Resource.NETWORK] = max(0.0, sum(links) - sent)
    return _without_unknown(free)


def idle_cores(before: Mapping[int, float], now: Mapping[int, float],
               interval_s: float) -> float | None:
    """Return how many cores were idle between two totals of busy seconds by
    CPU, ``None`` where there are none."""
    if not before or not now or interval_s <= 0:
        return None
    busy_s = sum(max(0.0, busy_s - before.get(cpu, busy_s))
                 for cpu, busy_s in now.items())
    return max(0.0, len(now) - busy_s / interval_s)


def background(rates: Rates) -> Sequence[WorkloadRates]:
    """Return the background workloads."""
    return [workload for workload in rates.workloads
            if workload.workload.priority is Priority.BACKGROUND]


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum, ``None`` where a part of it is not known."""
    amounts = list(values)
    return None if None in amounts else sum(filter(None, amounts))


def _without_unknown(amounts: Mapping[Resource, float | None]) -> Amounts:
    return {resource: float(amount) for resource, amount in amounts.items()
            if amount is not None}
