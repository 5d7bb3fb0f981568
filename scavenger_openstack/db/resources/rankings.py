# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Rankings that take long to sum are kept for a while.

Where there are no totals of a span, a ranking adds up the hourly sums of
every workload in it.  Those who look at the same span share one, so that
adding up takes a hundredth of the time at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
import math
import threading
import time
from typing import Any

from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources.antagonists import Place
from scavenger_openstack.db.resources.antagonists import Sort
from scavenger_openstack.db.resources.antagonists import Span

DEAR_S = 0.05
"""What is summed in less time is summed for each request."""

SHARE = 0.01
"""Of the time, for adding up one ranking."""

MOST_S = 50.0
"""After so long a ranking is added up anew, whatever it takes."""

MEANWHILE_S = 10.0
"""How long others still see the one before."""

RANKINGS = 32
PLACES = 1001
"""Of each: the longest page, and what tells that there is another."""


class _Kept:
    """The first places of one ranking."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.places: list[Place] = []
        self.until_s = -math.inf


class Rankings:
    """The rankings of one process.

    :param clock: in seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()

    def places(self, connection: Any, asked: Span, *, sort: Sort,
               host_id: int | None = None, after: Place | None = None,
               limit: int) -> list[Place]:
        """The places of a page, as :func:`.antagonists.ranking` has them or
        had them up to a minute ago."""
        if asked.total_s is None:
            places = self._first(connection, asked, sort, host_id)
            if after is None or after in places:
                first = 0 if after is None else places.index(after) + 1
                if first + limit <= PLACES or len(places) < PLACES:
                    return places[first:first + limit]
        return antagonists.ranking(connection, asked, sort=sort,
                                   host_id=host_id, after=after, limit=limit)

    def _first(self, connection: Any, asked: Span, sort: Sort,
               host_id: int | None) -> list[Place]:
        hours = (asked.since_s // antagonists.HOUR_S,
                 math.ceil(asked.until_s / antagonists.HOUR_S))
        kept = self._of((*hours, asked.project, asked.victim_project, sort,
                         host_id))
        # While one adds up anew, the others see what there was just now.
        if kept.lock.acquire(
                blocking=self._clock() >= kept.until_s + MEANWHILE_S):
            try:
                if self._clock() >= kept.until_s:
                    self._sum(kept, connection, asked, sort, host_id)
            finally:
                kept.lock.release()
        return kept.places

    def _sum(self, kept: _Kept, connection: Any, asked: Span, sort: Sort,
             host_id: int | None) -> None:
        begun_s = self._clock()
        kept.places = antagonists.ranking(
            connection, asked, sort=sort, host_id=host_id, limit=PLACES)
        ended_s = self._clock()
        took_s = ended_s - begun_s
        kept.until_s = (ended_s + min(MOST_S, took_s / SHARE)
                        if took_s >= DEAR_S else -math.inf)

    def _of(self, key: tuple[Any, ...]) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            if len(self._kept) > RANKINGS:
                self._kept.popitem(last=False)
            return kept
