# SPDX-License-Identifier: Apache-2.0

"""What a workload is due of a disk, and how its weight makes up for it.

One function per equation; the letters are explained in ``io_shares``.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

MOST_PRIORITY = 2.0
"""A deficit changes a weight by this factor at the most, either way."""


def fair_part(parts: Sequence[float], curr: Sequence[float]) -> float:
    """D_i: what a workload is due of what was done.

    ``parts`` are w_i / sum_j w_j and ``curr`` the operations per second of
    all, one per tick of delta.  Source: PerfIso, section 4.1; the mean is
    ours.
    """
    return math.fsum(part * ops for part, ops in
                     zip(parts, curr, strict=True)) / len(curr)


def deficit(curr_i: float, lim_i: float, D_i: float) -> float | None:
    """Def_i, from -1 up; ``None`` if nothing is due.

    Source: PerfIso, section 4.1.
    """
    due = min(lim_i, D_i)
    return (curr_i - due) / due if due > 0 else None


def priority(deficit: float | None) -> float:
    """Return what a weight is multiplied by: due over done, within bounds.

    Not in the paper.
    """
    if deficit is None:
        return 1.0
    return 1 / min(MOST_PRIORITY, max(1 / MOST_PRIORITY, 1 + deficit))


def parts_of(weights: Sequence[float]) -> list[float]:
    """w_i / sum_j w_j.  A weight that is not above 0 has no part; if none
    is, all have the same."""
    sound = [weight if 0 < weight < math.inf else 0.0 for weight in weights]
    total = math.fsum(sound)
    if not 0 < total < math.inf:
        return [1 / max(1, len(sound))] * len(sound)
    return [weight / total for weight in sound]
