# SPDX-License-Identifier: Apache-2.0

"""From pairs of threads to workloads that waited and that held the CPUs."""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Set
import heapq

from scavenger_openstack.drivers.kernel.cpu_waits import Waits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

SHOWN_THREADS = 5
"""Names of threads of the host in an answer, those that ran for longest."""

IDLE = 0
"""What runs on a CPU that is idle: to wake up took the time, no neighbour."""


def runners(waits: Waits, waiters: Set[int]) -> dict[int, float]:
    """The threads that ran while some of ``waiters`` waited, and for how many
    seconds."""
    seconds: dict[int, float] = collections.defaultdict(float)
    for (waiter, runner), waited_s in waits.behind.items():
        if waiter in waiters and runner != IDLE:
            seconds[runner] += waited_s
    return seconds


def evidence(asked: Collection[str], waits: Waits, window_s: float, *,
             victims: Mapping[int, str], owners: Mapping[int, str],
             names: Mapping[int, str]) -> tuple[DirectEvidence, ...]:
    """What is known of each workload that is asked about.

    Of what the kernel's table had no room for each has its part of what had
    room.

    :param victims: whose the threads are that waited
    :param owners: whose those are that ran, where it is known
    :param names: of those of the host
    """
    waited, idle = dict.fromkeys(asked, 0.0), dict.fromkeys(asked, 0.0)
    held, shown = ({victim: collections.defaultdict[str, float](float)
                    for victim in asked} for _ in range(2))
    for (waiter, runner), seconds in waits.behind.items():
        victim = victims.get(waiter)
        if victim is None:
            continue
        waited[victim] += seconds
        if runner == IDLE:
            idle[victim] += seconds
        owner = owners.get(runner)
        if owner is not None:
            held[victim][owner] += seconds
            name = names.get(runner)
            if owner == THE_HOST and name:
                shown[victim][name] += seconds
    total_s = sum(waits.behind.values())
    for victim in waited if total_s else ():
        waited[victim] *= 1 + waits.lost_s / total_s
    for waiter, seconds in waits.lasting.items():
        if waiter in victims:
            waited[victims[waiter]] += seconds
    return tuple(DirectEvidence(
        victim, Resource.CPU, window_s, waited[victim], dict(held[victim]),
        {name: shown[victim][name] for name in heapq.nlargest(
            SHOWN_THREADS, shown[victim], key=shown[victim].__getitem__)},
        idle[victim]) for victim in asked)
