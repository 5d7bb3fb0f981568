# SPDX-License-Identifier: Apache-2.0

"""The six ways to run batch work beside a service."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.types import format_cpus

WARM_UP_S = 4.0
LEARN_S = 13.0
"""Warm-up with the agent: it starts, learns for its window of
5 s, and the batch work takes the memory that it then gets."""

BATCH = stage_.BATCH
LEAVES = (stage_.CPU, stage_.MEMORY, stage_.NETWORK)

Change = Callable[[stage_.Stage], None]


def nothing(stage: stage_.Stage) -> None:
    """Leave everything as it is."""


def set_idle(stage: stage_.Stage) -> None:
    stage.tree.set_cpu_idle(BATCH, True)


def clear_idle(stage: stage_.Stage) -> None:
    # writing idle resets the weight, so the weight comes last
    stage.tree.set_cpu_idle(BATCH, False)
    stage.tree.set_cpu_weight(BATCH, stage_.BACKGROUND_WEIGHT)


def set_half(stage: stage_.Stage) -> None:
    """Half of the CPUs, of the memory and of the uplink, for good."""
    half = format_cpus(stage.cpus[len(stage.cpus) // 2:])
    for group in (*LEAVES, BATCH):
        stage.tree.set_cpus(group, half)
    stage.tree.set_memory_limit(BATCH, stage.memory_bytes // 2)
    stage.uplink.limit_background(stage.uplink.bytes_per_s / 2)


def clear_half(stage: stage_.Stage) -> None:
    for group in (BATCH, *LEAVES):
        stage.tree.set_cpus(group, None)
    stage.tree.set_memory_limit(BATCH, None)
    stage.uplink.free_background()


def set_quota(stage: stage_.Stage) -> None:
    """CPU time of half of the CPUs, on whichever CPU."""
    stage.tree.set_cpu_quota(BATCH, len(stage.cpus) / 2)


def clear_quota(stage: stage_.Stage) -> None:
    stage.tree.set_cpu_quota(BATCH, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """One way: what is set before it, and how that is undone."""

    name: str
    title: str
    begin: Change = nothing
    end: Change = nothing
    batch: bool = True
    agent: bool = False
    warm_up_s: float = WARM_UP_S


PHASES = {phase.name: phase for phase in (
    Phase('alone', 'the service alone', batch=False),
    Phase('unmanaged', 'batch work beside it, nothing managed'),
    Phase('kernel_only', 'cpu.idle=1 on the batch work, nothing else',
          set_idle, clear_idle),
    Phase('static_half', 'half of CPUs, memory and uplink for each side',
          set_half, clear_half),
    Phase('quota_only', 'CPU quota of half of the CPUs, nothing else',
          set_quota, clear_quota),
    Phase('scavenger', 'the agent regulates the batch work',
          agent=True, warm_up_s=LEARN_S),
)}


def order(names: list[str], number: int) -> list[str]:
    """The phases of round ``number`` (from 0): rotated, so that no phase
    always follows the same point of the machine's day."""
    shift = number * max(1, len(names) // 2 - 1) % len(names)
    return names[shift:] + names[:shift]
