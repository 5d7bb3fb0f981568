# SPDX-License-Identifier: Apache-2.0

"""Shares of a resource's use, for where nothing tells who held it when."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator

from scavenger_openstack.algorithms.attribution.history import OP_BYTES
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.decision.rates import grown
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource
from scavenger_openstack.types import WorkloadSample

Pair = tuple[WorkloadSample, WorkloadSample]


def of_cpus(first: HostSample, last: HostSample, asked: Collection[str]
            ) -> Iterator[DirectEvidence]:
    """Of what each of these workloads waited, each workload's part is its
    part of the time that the CPUs which both may use were busy.

    None for one of which it is not known how long it waited.
    """
    window_s = last.time_s - first.time_s
    pairs = _pairs(first, last)
    everywhere = frozenset(last.topology)
    for before, sample in pairs:
        waited_s = grown(before.run_delay_s, sample.run_delay_s)
        if sample[0].id not in asked or waited_s is None or window_s <= 0:
            continue
        waited_s = max(0.0, waited_s - (
            grown(before.throttled_s, sample.throttled_s) or 0.0))
        cpus = _cpus(sample, everywhere)
        used = {other[0].id: used_s for start, other in pairs
                if cpus & _cpus(other, everywhere)
                and (used_s := grown(start.cpu_s, other.cpu_s))}
        busy_s = sum(grown(first.cpu_busy_s.get(cpu),
                           last.cpu_busy_s.get(cpu)) or 0.0 for cpu in cpus)
        total_s = max(busy_s, sum(used.values()))
        yield DirectEvidence(
            sample[0].id, Resource.CPU, window_s, waited_s,
            {workload: waited_s * used_s / total_s
             for workload, used_s in used.items()}, shared=True)


def of_disks(first: HostSample, last: HostSample, asked: Collection[str]
             ) -> Iterator[DirectEvidence]:
    """Of what each of these workloads waited, the part of each that shares a
    disk with it is its part of what they moved, each operation counted as
    16 KiB more.

    None for one of which it is not known how long it waited.
    """
    window_s = last.time_s - first.time_s
    pairs = _pairs(first, last)
    for before, sample in pairs:
        waited_s = grown(before.io_wait_s, sample.io_wait_s)
        if sample[0].id not in asked or waited_s is None or window_s <= 0:
            continue
        used = {other[0].id: used_bytes for start, other in pairs
                if sharing.share('io_wait', sample[0], other[0],
                                 last.topology)
                and (used_bytes := _moved(start, other))}
        total = sum(used.values())
        yield DirectEvidence(
            sample[0].id, Resource.DISK, window_s, waited_s,
            {workload: waited_s * used_bytes / total
             for workload, used_bytes in used.items()}, shared=True)


def _pairs(first: HostSample, last: HostSample) -> list[Pair]:
    """Two samples of each workload that was there all the time."""
    earlier = {sample[0].id: sample for sample in first.workloads}
    return [(earlier[sample[0].id], sample) for sample in last.workloads
            if sample[0].id in earlier and sample[0].created_s
            == earlier[sample[0].id][0].created_s]


def _moved(before: WorkloadSample, after: WorkloadSample) -> float:
    return ((grown(before.io_bytes, after.io_bytes) or 0)
            + OP_BYTES * (grown(before.io_ops, after.io_ops) or 0))


def _cpus(sample: WorkloadSample, everywhere: frozenset[int]
          ) -> frozenset[int]:
    allowed = sample[0].allowed_cpus
    return everywhere if allowed is None else allowed
