# SPDX-License-Identifier: Apache-2.0

"""A cache of the rankings that take long to sum.

Where there are no totals of a span, a ranking adds up the hourly sums of
every workload in it.  All requests for the same hours share the result for a
while.
"""

from __future__ import annotations

from collections.abc import Callable
from collections import OrderedDict
import dataclasses
import math
import threading
import time
from typing import Any

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources.antagonists import Place
from scavenger_openstack.db.resources.antagonists import Sort
from scavenger_openstack.db.resources.antagonists import Span

SLOW_S = 0.05
"""What is summed in less time is not cached."""

FACTOR = 100.0
"""A result is cached for so many times as long as it took."""

MOST_S = 50.0
"""The same, at most."""

STALE_S = 10.0
"""For how long it is given out beyond that while it is summed again."""

RESULTS = 32
PLACES = 1001
"""Of each result: the longest page, and what tells that there is another."""


@dataclasses.dataclass(slots=True)
class _Result:
    """The first places of a ranking; ``until_s`` by the clock."""

    places: list[Place]
    until_s: float
    again: bool = False
    """Whether it is being summed again."""

    def usable(self, now_s: float) -> bool:
        return now_s < self.until_s + STALE_S * self.again


class Rankings:
    """The rankings of one process, for any number of threads.

    :param clock: in seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._results: OrderedDict[tuple[Any, ...], _Result] = OrderedDict()

    def places(self, connection: Any, asked: Span, *, sort: Sort,
               host_id: int | None = None, after: Place | None = None,
               limit: int) -> list[Place]:
        """The places of a page, as :func:`.antagonists.ranking` has them now
        or had them a minute ago."""
        if asked.total_s is None:
            ranked = self._first_places(connection, asked, sort, host_id,
                                        after)
            if after is None or after in ranked:
                first = 0 if after is None else ranked.index(after) + 1
                if first + limit <= PLACES or len(ranked) < PLACES:
                    return ranked[first:first + limit]
        return antagonists.ranking(connection, asked, sort=sort,
                                   host_id=host_id, after=after, limit=limit)

    def _first_places(self, connection: Any, asked: Span, sort: Sort,
                      host_id: int | None, after: Place | None) -> list[Place]:
        """The first places; none if the page is another and they are not
        cached."""
        key = (asked.since_s // HOUR_S,
               math.ceil(asked.until_s / HOUR_S), asked.project,
               asked.victim_project, sort, host_id)
        with self._lock:
            result = self._results.get(key)
            if result is not None:
                self._results.move_to_end(key)
                if result.usable(self._clock()):
                    return result.places
                result.again |= after is None
        if after is not None:
            return []
        return self._sum(key, connection, asked, sort, host_id)

    def _sum(self, key: tuple[Any, ...], connection: Any, asked: Span,
             sort: Sort, host_id: int | None) -> list[Place]:
        begun_s = self._clock()
        places = antagonists.ranking(
            connection, asked, sort=sort, host_id=host_id, limit=PLACES)
        ended_s = self._clock()
        took_s = ended_s - begun_s
        with self._lock:
            self._results.pop(key, None)
            if took_s >= SLOW_S:
                self._results[key] = _Result(
                    places, ended_s + min(MOST_S, FACTOR * took_s))
            if len(self._results) > RESULTS:
                self._results.popitem(last=False)
        return places
