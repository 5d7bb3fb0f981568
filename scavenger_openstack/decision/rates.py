# SPDX-License-Identifier: Apache-2.0


"""What happened per second between two looks at a host."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import math

from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Rates
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

MIN_RUNNING_SHARE = 0.05
"""Hardware counters that ran for less of the time in which they were
enabled have measured nothing worth scaling up.  Not in the papers."""

MOST_THROTTLED = 0.05
"""Part of the time that its own quota may hold a workload back while what
it waits for a CPU is still another workload's doing.  Not in the papers."""

SHORTEST_S = 1e-7
"""Two samples within less are of no two times; what is divided by it would
not be finite."""

INFINITY = math.inf


def grown(before: float | None, after: float | None) -> float | None:
    """Return how much a counter grew; ``None`` if unknown or if it went
    back."""
    if before is None or after is None:
        return None
    growth = after - before
    return growth if 0 <= growth < INFINITY else None


def run_delay(delay_s: float | None, throttled_s: float | None,
              cpu_s: float | None, interval_s: float) -> float | None:
    """Seconds waited for a CPU per second run, own throttling taken out.

    The first three are growths over one interval.  Without having run there
    is no ratio: ``None``.  Nor is there when its own quota held it back for
    more than :data:`MOST_THROTTLED` of the time: each thread waits then,
    but the kernel counts the throttled time once for all of them.  Source:
    DESIGN 5 and 7.11; the limit is ours.
    """
    if delay_s is None or throttled_s is None or not cpu_s:
        return None
    if throttled_s > MOST_THROTTLED * interval_s:
        return None
    return max(0.0, delay_s - throttled_s) / cpu_s


def counters(prev: WorkloadSample, cur: WorkloadSample, interval_s: float,
             ) -> tuple[float | None, float | None]:
    """Cycles per instruction and LLC misses per second.

    CPI is reference cycles / instructions (CPI2, section 3.1), or core
    cycles where the PMU has no others: both were counted in the same time,
    so multiplexing cancels out.  Misses are scaled up by enabled / running.
    Both are ``None`` when the counters did not run, or ran for less than
    :data:`MIN_RUNNING_SHARE` of their time.
    """
    scale = 1.0
    if cur.counter_running_s is not None:
        running = grown(prev.counter_running_s, cur.counter_running_s)
        enabled = grown(prev.counter_enabled_s, cur.counter_enabled_s)
        if not running or not enabled:
            return None, None
        if running < MIN_RUNNING_SHARE * enabled:
            return None, None
        scale = max(1.0, enabled / running)
    cycles = (grown(prev.cycles, cur.cycles) if cur.ref_cycles is None
              else grown(prev.ref_cycles, cur.ref_cycles))
    instructions = grown(prev.instructions, cur.instructions)
    misses = grown(prev.llc_misses, cur.llc_misses)
    return (cycles / instructions if cycles and instructions else None,
            misses * scale / interval_s if misses is not None else None)


def workload_rates(prev: WorkloadSample, cur: WorkloadSample,
                   interval_s: float) -> WorkloadRates:
    """The rates of one workload over ``interval_s`` > 0 seconds.

    Every field is on its own: a counter that is missing or went backwards
    makes only what depends on it ``None``.
    """
    (_, cpu_0, delay_0, throttled_0, _, _, _, _, _, _, _, wait_0, ops_0,
     bytes_0, tx_0, rx_0, _, _, _, _, _, refaults_0, _) = prev
    (workload, cpu_1, delay_1, throttled_1, _, _, _, instructions_1,
     misses_1, _, _, wait_1, ops_1, bytes_1, tx_1, rx_1, _, _, _, memory,
     cache, refaults_1, _) = cur
    cpu_s = grown(cpu_0, cpu_1)
    throttled_s = grown(throttled_0, throttled_1)
    delay = cpi = misses_per_s = wait_s_per_op = None
    if delay_1 is not None:
        delay = run_delay(grown(delay_0, delay_1), throttled_s, cpu_s,
                          interval_s)
    if instructions_1 is not None or misses_1 is not None:
        cpi, misses_per_s = counters(prev, cur, interval_s)
    ops = grown(ops_0, ops_1)
    if ops and wait_1 is not None:
        wait_s = grown(wait_0, wait_1)
        if wait_s is not None:
            wait_s_per_op = wait_s / ops
    io_bytes = grown(bytes_0, bytes_1)
    tx = grown(tx_0, tx_1)
    rx = grown(rx_0, rx_1)
    refaults = grown(refaults_0, refaults_1)
    return WorkloadRates(
        workload, interval_s,
        None if cpu_s is None else cpu_s / interval_s,
        cpi, delay,
        None if throttled_s is None else throttled_s / interval_s,
        misses_per_s, wait_s_per_op,
        None if io_bytes is None else io_bytes / interval_s,
        None if ops is None else ops / interval_s,
        None if tx is None else tx / interval_s,
        None if rx is None else rx / interval_s,
        None if refaults is None else refaults / interval_s,
        cache, memory)


def _before(prev: HostSample, cur: HostSample
            ) -> Sequence[WorkloadSample | None]:
    """The sample before of each workload of now, if there is one."""
    if ([sample[0] for sample in prev.workloads]
            == [sample[0] for sample in cur.workloads]):
        return prev.workloads       # as in nearly all ticks
    before = {sample[0].id: sample for sample in prev.workloads}
    return [before.get(sample[0].id) for sample in cur.workloads]


def _link_rates(prev: Mapping[str, int], cur: Mapping[str, int],
                interval_s: float) -> dict[str, float | None]:
    """Bytes per second over each link; ``None`` without a total before.

    :param prev: total bytes by link, of the sample before
    """
    growths = {link: grown(prev.get(link), total)
               for link, total in cur.items()}
    return {link: None if growth is None else growth / interval_s
            for link, growth in growths.items()}


def rates(prev: HostSample | None, cur: HostSample) -> Rates:
    """Return what happened on a host between ``prev`` and ``cur``.

    Without a ``prev`` of the same boot and of an earlier time there are
    gauges but no rates, and ``complete`` is false.  A workload that was not
    there before, or was made again under its id (``created_s`` differs),
    has gauges but no rates.  Nothing here is ever negative, and what is
    unknown is ``None``.
    """
    interval_s = 0.0
    refaults: float | None = None
    before: Sequence[WorkloadSample | None] = [None] * len(cur.workloads)
    tx_before: Mapping[str, int] = {}
    rx_before: Mapping[str, int] = {}
    if prev is not None and prev.boot_id == cur.boot_id:
        passed = cur.time_s - prev.time_s
        if SHORTEST_S <= passed < INFINITY:
            interval_s = passed
            before = _before(prev, cur)
            refaults = grown(prev.refault_bytes, cur.refault_bytes)
            tx_before, rx_before = prev.link_tx_bytes, prev.link_rx_bytes
    workloads = []
    for old, sample in zip(before, cur.workloads, strict=True):
        workload = sample[0]
        if old is None or old[0].created_s != workload.created_s:
            workloads.append(WorkloadRates(
                workload, interval_s,
                page_cache_bytes=sample.page_cache_bytes,
                memory_bytes=sample.memory_bytes))
        else:
            workloads.append(workload_rates(old, sample, interval_s))
    return Rates(
        time_s=cur.time_s,
        interval_s=interval_s,
        workloads=tuple(workloads),
        topology=cur.topology, cpu_busy_s=cur.cpu_busy_s,
        memory_total_bytes=cur.memory_total_bytes,
        memory_available_bytes=cur.memory_available_bytes,
        links=cur.links,
        link_tx_bytes_per_s=_link_rates(tx_before, cur.link_tx_bytes,
                                        interval_s),
        link_rx_bytes_per_s=_link_rates(rx_before, cur.link_rx_bytes,
                                        interval_s),
        link_of=cur.link_of,
        complete=interval_s > 0,
        cpu_model=cur.cpu_model, direct=cur.direct, llc_ways=cur.llc_ways,
        memory_free_bytes=cur.memory_free_bytes,
        memory_limit_ends=cur.memory_limit_ends,
        refault_bytes_per_s=(None if refaults is None
                             else refaults / interval_s))
