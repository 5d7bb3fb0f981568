# SPDX-License-Identifier: Apache-2.0

"""What Nova has placed on hosts a moment ago.

Headroom does not show it yet: the summary is some seconds old, and an
instance that boots uses little.  What Nova counts as used on a host grows
with what this scheduler places there at once, and with what any other does
as soon as nova-compute has begun it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import threading
import time
from typing import Any

from scavenger_openstack.algorithms import placing
from scavenger_openstack.nova import summary

PLACED_S = 120.0
"""An instance counts with all that its flavor has for so long, besides the
headroom: until it has booted, and a report of that is in the summary."""

FRESH_S = 30.0
"""What was placed within so long may not be in the summary yet: agents
report each few seconds, the API and this scheduler keep what they read."""


class Placed:
    """How much less was used on each host within :data:`PLACED_S`; for
    several threads.

    :param clock: seconds that only grow
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._vcpus: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._mib: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def lowered(self, hosts: summary.Hosts, states: Sequence[Any]
                ) -> list[placing.Host | None]:
        """The host of each HostState of Nova, with what is left of its
        headroom after what was placed there; ``None`` without one."""
        now = self._clock()
        with self._lock:
            return [self._host(hosts.of(state.host), state, now)
                    for state in states]

    def fresh(self, states: Sequence[Any]) -> list[bool]:
        """Return whether more is used on each HostState of Nova than at some
        time within :data:`FRESH_S`, as :meth:`lowered` has noted."""
        since = self._clock() - FRESH_S
        with self._lock:
            rows = [self._vcpus.get((state.host, state.nodename), [])
                    for state in states]
            # The last but one is when less was used for the last time.
            return [len(lows) > 1 and lows[-2][0] >= since for lows in rows]

    def _host(self, host: placing.Host | None, state: Any, now: float
              ) -> placing.Host | None:
        key = state.host, state.nodename
        vcpus = _growth(self._vcpus.setdefault(key, []), state.vcpus_used,
                        now)
        mib = _growth(self._mib.setdefault(key, []), -state.free_ram_mb, now)
        if host is None or not (vcpus or mib):
            return host
        return host._replace(
            free_cores=_less(host.free_cores, vcpus),
            free_bytes=_less(host.free_bytes, mib * placing.BYTES_PER_MIB))


def _growth(lows: list[tuple[float, int]], used: int, now: float) -> int:
    """Return how much more is used than at some time within the window.

    :param lows: the time at which so much was used last, for each amount
        that is less than each that came later; ``used`` is added
    """
    while lows and lows[-1][1] >= used:
        lows.pop()
    lows.append((now, used))
    while lows[0][0] < now - PLACED_S:
        lows.pop(0)
    return used - lows[0][1]


def _less(amount: float | None, by: float) -> float | None:
    return None if amount is None else max(0.0, amount - by)


_shared = Placed()


def shared() -> Placed:
    """Return the placed instances of this process, for the filter and the
    weigher."""
    return _shared
