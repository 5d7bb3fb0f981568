# SPDX-License-Identifier: Apache-2.0

"""How much of a knob a workload uses, and can use under a cap.

CPU is in cores, disks and links are in bytes per second.  None of it is in a
paper.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.signals import disk_limits
from scavenger_openstack.algorithms.signals import (
    KNOB_TO_LIMIT as KNOB_TO_LIMIT)
from scavenger_openstack.algorithms.signals import OBEYED as OBEYED
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Workload

USES: Mapping[Knob, Callable[[Point], float | None]] = {
    Knob.CPU_CORES: lambda point: point.cores,
    Knob.IO_BYTES_PER_S: lambda point: point.io_bytes_per_s,
    Knob.EGRESS_BYTES_PER_S: lambda point: point.tx_bytes_per_s}
"""Knob of an antagonist -> its use, in the unit of the knob."""

WORKING = 0.5
"""Part of what it uses when it works, or of its limit, from which an
antagonist is at work.  What is suffered while it rests is attributed to
nothing."""


def use_of(knob: Knob, point: Point) -> float | None:
    """Return what a workload uses, in the unit of the knob; ``None`` is
    unknown.

    :raises KeyError: of this knob nothing is measured
    """
    return USES[knob](point)


def limits_of(knob: Knob, workload: Workload) -> int:
    """Return how many times a cap a workload can use at most under it."""
    return disk_limits(workload) if knob is Knob.IO_BYTES_PER_S else 1


def at_work(samples: Sequence[Points], names: Iterable[str], knob: Knob
            ) -> list[bool]:
    """Whether one of these antagonists works, sample by sample; as for
    :func:`working`."""
    works = [False] * len(samples)
    for name in names:
        uses = [use_of(knob, sample[name]) if name in sample else None
                for sample in samples]
        measured = [use for use in uses if use is not None]
        least = (WORKING * evidence.low_and_high(measured)[1]
                 if measured else 0.0)
        works = [busy or (use is not None and use > 0 and use >= least)
                 for busy, use in zip(works, uses, strict=True)]
    return works


def working(samples: Sequence[Points], name: str, knob: Knob
            ) -> float | None:
    """What an antagonist uses now, in the unit of the knob; ``None`` while it
    does not work.

    :param samples: the newest last
    """
    uses = [used for sample in samples if name in sample
            and (used := use_of(knob, sample[name])) is not None]
    point = samples[-1].get(name)
    use = None if point is None else use_of(knob, point)
    if (use is None or use <= 0
            or use < WORKING * evidence.low_and_high(uses)[1]):
        return None
    return use
