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



"""Balloons under way: what guests have not given back yet, or never will.

A guest gives memory back in its own time, or not at all: without a driver,
or because it needs what it has.  On the way its balloon is neither where it
was nor where it has to be, so what is read back is where it goes to; what is
missing is told apart from that.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import logging

from scavenger_openstack.drivers.domain_keeper import Snapshot

LOG = logging.getLogger(__name__)

STILL_S = 30.0
"""A balloon that has not moved for so long does not move any more."""


def with_balloon(snapshot: Snapshot, size: int) -> Snapshot:
    """The domain as it is when its balloon has this size, in bytes."""
    return snapshot._replace(domain=dataclasses.replace(
        snapshot.domain, balloon_bytes=size))


class _Way:
    """One balloon that is larger than it may be, and since when."""

    __slots__ = ('identity', 'since_s', 'size', 'told')

    def __init__(self, snapshot: Snapshot, now_s: float) -> None:
        self.identity = snapshot.identity
        self.size = snapshot.domain.balloon_bytes
        self.since_s = now_s
        self.told = False


class Balloons:
    """How long each balloon has stood still on its way."""

    def __init__(self) -> None:
        self._ways: dict[str, _Way] = {}

    def unmet(self, caps: Iterable[tuple[Snapshot, int]], now_s: float
              ) -> dict[str, int]:
        """Bytes above the cap, by domain, of those that stand still.

        Who is refused is paused, and who is paused gives nothing back: so he
        is let go for as long as he was held, and has another try.

        :param caps: domains, and the bytes that each may have
        """
        before, self._ways = self._ways, {}
        found = {}
        for snapshot, cap in caps:
            domain = snapshot.domain
            missing = domain.balloon_bytes - cap
            if missing <= 0:
                continue
            way = before.get(domain.uuid)
            if way is None or way.identity != snapshot.identity:
                way = _Way(snapshot, now_s)
            elif way.size != domain.balloon_bytes:
                way.size, way.since_s = domain.balloon_bytes, now_s
            elif snapshot.paused and now_s - way.since_s >= 2 * STILL_S:
                way.since_s = now_s
            self._ways[domain.uuid] = way
            if now_s - way.since_s < STILL_S:
                continue
            found[domain.uuid] = missing
            if not way.told:
                LOG.warning(
                    'domain %s (%s) has %d bytes more than its limit of %d, '
                    'and its balloon has not moved for %.0f s: see that its '
                    'guest has the driver (virtio_balloon) and can spare '
                    'them, or raise scavenger:floor_memory_mb of its flavor',
                    domain.name, domain.uuid, missing, cap, STILL_S)
            way.told = True
        return found
