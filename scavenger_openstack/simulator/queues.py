# SPDX-License-Identifier: Apache-2.0


"""Disks and links: where requests stand in line for a device."""

from __future__ import annotations

from collections.abc import Sequence
import math

BURST_BYTES = 65536.0
"""What a sender hands to the network card at once."""

BUSIEST = 0.98
"""No queue is computed above this share: it would have no end."""


def disk_response(service_s: float, open_rate: float,
                  closed: Sequence[tuple[float, float]]) -> float:
    """Seconds from an operation's issue to its end on one shared disk.

    ``open_rate`` operations per second come whatever happens;  each of
    ``closed`` is (operations kept in flight, highest rate allowed).  An
    arrival finds the queue of all others (mean value analysis):
    R = s (1 + N), N = open_rate R + the closed ones in flight, each of
    which has min(depth, allowed R) there.
    """
    depth = [flow for flow in closed if flow[0] > 0]
    slope = service_s * open_rate
    limited: set[int] = set()
    response = service_s
    for _ in range(len(depth) + 1):
        rate = slope + service_s * sum([depth[i][1] for i in limited])
        waiting = sum([flow[0] for i, flow in enumerate(depth)
                       if i not in limited])
        response = service_s * (1 + waiting) / max(
            1 - rate, 1 - BUSIEST)
        more = {i for i, flow in enumerate(depth)
                if flow[1] * response < flow[0]}
        if more == limited:
            break
        limited = limited | more
    return response


def closed_rate(service_s: float, response_s: float, depth: float,
                allowed: float) -> float:
    """Operations per second of one that keeps ``depth`` in flight.

    ``response_s`` is that of :func:`disk_response`.  Its own operations
    find one less in line than others do, as far as it has one there.
    """
    if allowed * response_s < depth:
        return allowed
    return min(allowed,
               depth / (response_s - service_s * min(1.0, depth)))


def fair(demands: Sequence[float], capacity: float) -> list[float]:
    """Max-min shares of a link: what flows with like round trips get."""
    left = capacity
    shares = [0.0] * len(demands)
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for position, i in enumerate(order):
        share = left / (len(order) - position)
        shares[i] = min(demands[i], share)
        left -= shares[i]
    return shares


def link_wait(load: float, capacity: float, buffer_bytes: float) -> float:
    """Seconds that a packet waits before a link.

    Packets come in bursts of a segment offload's size; up to the full
    buffer it is the mean wait at a single server with such bursts (M/M/1).
    """
    if load <= 0:
        return 0.0
    busy = min(load, 0.999)
    return min(BURST_BYTES * busy / (1 - busy), buffer_bytes) / capacity


def quantiles(mean_s: float, extra_s: float, fixed_s: float,
              ) -> tuple[tuple[float, float], ...]:
    """(share of requests, their latency in seconds), four of each.

    ``mean_s``, the service, is log-normal with a coefficient of variation
    of 0.3; ``extra_s``, the waiting, is exponential; ``fixed_s`` hits all.
    """
    return tuple((share, mean_s * service + extra_s * wait + fixed_s)
                 for share, service, wait in POINTS)


POINTS = tuple(
    (share, math.exp(0.294 * z - 0.043), -math.log(1 - q))
    for share, q, z in ((0.8, 0.45, -0.13), (0.15, 0.89, 1.23),
                        (0.045, 0.98, 2.05), (0.005, 0.998, 2.88)))
"""Share, service and wait at the middle of four parts of the distribution;
the last two reach from the 95th percentile on."""
