# SPDX-License-Identifier: Apache-2.0

"""Shares of a resource's use, for where nothing tells who held it when."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.history import OP_BYTES
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.algorithms.signals import LINK_FULL
from scavenger_openstack.decision.rates import counters
from scavenger_openstack.decision.rates import grown
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST
from scavenger_openstack.types import WorkloadSample

MOST_OVER = 1.05
"""What workloads send may come to so many times what their link sends: it is
read a little later."""

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


def of_caches(first: HostSample, last: HostSample, asked: Collection[str]
              ) -> Iterator[DirectEvidence]:
    """Of the time that each of these workloads ran, the part of each that
    shares a cache or a memory bus with it is its part of their misses.

    None for one of which no misses are counted.  Of what is used by those of
    which none are, and by what is no workload, nothing is known.
    """
    window_s = last.time_s - first.time_s
    pairs = _pairs(first, last)
    for before, sample in pairs:
        ran_s = grown(before.cpu_s, sample.cpu_s)
        if (sample[0].id not in asked or not ran_s or window_s <= 0
                or counters(before, sample, window_s)[1] is None):
            continue
        missed: dict[str, float] = {}
        known_s = unknown_s = 0.0
        for start, other in pairs:
            if not sharing.share('cpi', sample[0], other[0], last.topology):
                continue
            used_s = grown(start.cpu_s, other.cpu_s) or 0.0
            misses = counters(start, other, window_s)[1]
            if misses is None:
                unknown_s += used_s
            else:
                known_s += used_s
                missed[other[0].id] = misses
        total = sum(missed.values())
        if total <= 0 or known_s <= 0:
            continue
        part = ran_s * known_s / (known_s + unknown_s)
        yield DirectEvidence(
            sample[0].id, Resource.CACHE, window_s, ran_s,
            {workload: part * misses / total
             for workload, misses in missed.items()}, shared=True)


def of_links(samples: Sequence[HostSample], asked: Collection[str]
             ) -> Iterator[DirectEvidence]:
    """For how long the link of each of these workloads was full, and whose
    the bytes are that it sent then.

    What no workload sent is the host's, if it is known of all workloads over
    which link they send how much.  Where the link does not count itself, or
    workloads send more than it does, as to one another, these are but shares
    of use.

    :param samples: of a window, one after another
    """
    for name in asked:
        full_s = unknown = 0.0
        sent: dict[str, float] = {}
        shared = False
        for first, last in itertools.pairwise(samples):
            bytes_of = _sent(first, last, name)
            if bytes_of is None:
                continue
            full_s += last.time_s - first.time_s
            for workload, count in bytes_of.by_workload.items():
                sent[workload] = sent.get(workload, 0.0) + count
            unknown += bytes_of.unknown
            shared |= bytes_of.shared
        total = sum(sent.values()) + unknown
        window_s = samples[-1].time_s - samples[0].time_s
        if full_s <= 0 or total <= 0 or full_s > window_s:
            continue
        yield DirectEvidence(
            name, Resource.NETWORK, window_s, full_s,
            {workload: full_s * count / total
             for workload, count in sent.items()}, shared=shared)


class _Sent(NamedTuple):
    """Bytes by workload, those of which nothing is known, and whether they are
    but shares of use."""

    by_workload: dict[str, float]
    unknown: float
    shared: bool


def _sent(first: HostSample, last: HostSample, name: str) -> _Sent | None:
    """Return what was sent over the link of a workload, while that was full
    and the workload sent, too."""
    passed_s = last.time_s - first.time_s
    pairs = {sample[0].id: (start, sample)
             for start, sample in _pairs(first, last)}
    if name not in pairs or passed_s <= 0:
        return None
    link = sharing.link_of(pairs[name][1][0], last.link_of)
    if link is None or link not in last.links:
        return None
    sent_bytes: dict[str, float] = {}
    all_known = len(pairs) == len(last.workloads)
    for workload, (start, sample) in pairs.items():
        over = sharing.link_of(sample[0], last.link_of)
        count = grown(start.net_tx_bytes, sample.net_tx_bytes)
        all_known &= over is not None and count is not None
        if over == link and count is not None:
            sent_bytes[workload] = count
    by_workloads = sum(sent_bytes.values())
    whole = grown(first.link_tx_bytes.get(link), last.link_tx_bytes.get(link))
    least = LINK_FULL * last.links[link] * passed_s
    if not sent_bytes.get(name) or (by_workloads if whole is None
                                    else whole) < least:
        return None
    rest = 0.0 if whole is None else max(0.0, whole - by_workloads)
    if rest and all_known:
        sent_bytes[THE_HOST], rest = rest, 0.0
    return _Sent(sent_bytes, rest, whole is None
                 or by_workloads > MOST_OVER * whole)


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
