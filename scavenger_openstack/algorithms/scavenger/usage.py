# SPDX-License-Identifier: Apache-2.0

"""How much of a host is used, by what, and over which link: of one sample.

Memory is in bytes, what a link carries in bytes per second.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates
from scavenger_openstack.types import RunKey
from scavenger_openstack.types import WorkloadRates


ByLink = Mapping[str, Sequence[WorkloadRates]]
"""Workloads by the link of their traffic."""


class Direction(NamedTuple):
    """A direction of a link; each has all of the link's capacity.

    ``name`` is that of its facts, ``act`` what its workloads do; rates are in
    bytes per second.
    """

    name: str
    act: str
    knob: Knob
    of_workload: Callable[[WorkloadRates], float | None]
    of_links: Callable[[Rates], Mapping[str, float | None]]


DIRECTIONS = (
    Direction('network', 'sending', Knob.EGRESS_BYTES_PER_S,
              lambda rated: rated.net_tx_bytes_per_s,
              lambda rates: rates.link_tx_bytes_per_s),
    Direction('network_received', 'receiving', Knob.INGRESS_BYTES_PER_S,
              lambda rated: rated.net_rx_bytes_per_s,
              lambda rates: rates.link_rx_bytes_per_s))


def directions(*, received: bool) -> Sequence[Direction]:
    """Return the directions in which the background is limited."""
    return DIRECTIONS if received else DIRECTIONS[:1]


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
    one of which that is not known all that it may use: what it may free later
    is not given to others now.  Source: DESIGN 7.6; this is ours.
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


class MemoryWindow:
    """What the background may have while the foreground's use is learnt.

    Nothing is killed then, and all together may grow into half of what is
    available when the window begins.  What each used then, or later, it may
    have again.  Source: DESIGN 7.3.
    """

    __slots__ = ('_most', '_used')

    def __init__(self) -> None:
        self._most: float | None = None
        self._used: dict[RunKey, float] = {}

    def shares(self, background: Sequence[WorkloadRates],
               used: Sequence[float | None], floors: Sequence[float],
               budget: float, *, growth: bool) -> list[float]:
        """Return the most that each may have, in bytes.

        :param budget: what the foreground leaves
        :param growth: whether that is known, so that there is growth
        """
        least = [max(self._used.get(rated[0].run, 0.0), use or 0.0, low)
                 for rated, use, low in zip(background, used, floors,
                                            strict=True)]
        self._used = {rated[0].run: share for rated, share in
                      zip(background, least, strict=True)}
        if not growth:
            return least
        total = math.fsum(use or 0.0 for use in used)
        if self._most is None:
            self._most = total + max(0.0, budget - total) / 2
        if math.fsum(least) > budget:
            return memory_shares(budget, background, used, least, floors)
        return memory_shares(
            max(min(self._most, budget), math.fsum(least)), background, used,
            least, least)


def foreground_rate(carried: float | None, background: float,
                    foreground: float = 0.0) -> float | None:
    """x(t) of a link in one direction, in bytes per second.

    What one workload sends to another of the same host never leaves by the
    link, yet counts in ``background``, what that has sent in all (or has
    received).  So x is no less than what is known of the ``foreground``, as
    far as the link carried so much.  Source: Scavenger, section 4.3; DESIGN
    7.1; the second part, and what is received, is ours.
    """
    if carried is None:
        return None
    x = max(carried - background, min(carried, foreground))
    return 0.0 if -math.inf < x < 0 else x


def by_link(workloads: Iterable[WorkloadRates],
            link_of: Mapping[str, str]) -> dict[str, list[WorkloadRates]]:
    """Workloads by the link of their traffic, the first one that is known.

    :param link_of: interface -> link
    """
    groups: dict[str, list[WorkloadRates]] = {}
    for rated in workloads:
        link = sharing.link_of(rated[0], link_of)
        if link is not None:
            groups.setdefault(link, []).append(rated)
    return groups


def groups(background: Iterable[WorkloadRates]) -> list[str]:
    """The groups that ``cpu_idle`` and ``cpu_set`` are set on, each once."""
    return list(dict.fromkeys(rated[0].group_id for rated in background))
