# SPDX-License-Identifier: Apache-2.0

"""How much of a host is used, by what, and over which link: of one sample.

Memory is in bytes, what a link carries in bytes per second.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math

from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.types import WorkloadRates


def foreground_memory(total: float | None, available: float | None,
                      background: float) -> float | None:
    """x(t) of memory in bytes: all that is used and is not background's.

    Daemons and unknown cgroups are foreground.  Source: Scavenger, section
    4.2; DESIGN 7.1.
    """
    if total is None or available is None:
        return None
    x = total - available - background
    return 0.0 if -math.inf < x < 0 else x


def binds(limit: float, rated: WorkloadRates, floor: float) -> bool:
    """Whether a limit of memory in bytes is tighter than the workload's own.

    A VM cannot use more than its RAM, a container no more than its own
    limit, so a limit from there on is none.  A container that uses more than
    that has another limit by now, which the original of the knob tells; of a
    VM it is what QEMU needs itself.  Ours.
    """
    own = rated[0].memory_allotment_bytes
    if own is None or limit < own:
        return True
    if rated[0].instance:
        return False
    used = rated.memory_bytes
    return floor < own and (used is None or used > own)


def memory_shares(budget: float, background: Sequence[WorkloadRates],
                  used: Sequence[float | None], demands: Sequence[float],
                  floors: Sequence[float]) -> list[float]:
    """Share out a budget of memory in bytes.

    Of a workload whose memory follows no limit, what it uses is gone, and of
    one of which that is not known all that it may use: nothing is given to
    others that it is to give back.  Source: DESIGN 7.6; this is ours.
    """
    weights = [rated[0].vcpus for rated in background]
    shares = split(budget, demands, weights, floors)
    kept = [low if not rated[0].memory_kept else max(
        low, (rated[0].memory_allotment_bytes or 0.0) if use is None else use)
        for rated, use, low in zip(background, used, floors, strict=True)]
    if kept == list(floors):
        return shares
    return [share if rated[0].memory_kept else rest
            for rated, share, rest in zip(
                background, shares, split(budget, demands, weights, kept),
                strict=True)]


def foreground_rate(sent: float | None, background: float,
                    foreground: float = 0.0) -> float | None:
    """x(t) of a link in bytes per second.

    What one workload sends to another of the same host never leaves by the
    link, yet counts in ``background``, what that has sent in all.  So x is
    no less than what is known of the ``foreground``, as far as the link
    carried so much.  Source: Scavenger, section 4.3; DESIGN 7.1; the second
    part is ours.
    """
    if sent is None:
        return None
    x = max(sent - background, min(sent, foreground))
    return 0.0 if -math.inf < x < 0 else x


def known(values: Iterable[float | None]) -> list[float | None]:
    """``None`` for what is not a number from 0 up."""
    return [value if value is not None and 0 <= value < math.inf else None
            for value in values]


def by_link(workloads: Iterable[WorkloadRates],
            link_of: Mapping[str, str]) -> dict[str, list[WorkloadRates]]:
    """Workloads by the link that they send over, the first one that is known.

    :param link_of: interface -> link
    """
    groups: dict[str, list[WorkloadRates]] = {}
    for rated in workloads:
        link = sharing.link_of(rated[0], link_of)
        if link is not None:
            groups.setdefault(link, []).append(rated)
    return groups
