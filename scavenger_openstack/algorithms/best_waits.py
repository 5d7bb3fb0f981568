# SPDX-License-Identifier: Apache-2.0

"""What a disk operation of each application took at its best, of the day.

Others' best on the same disk tells nothing: a read takes hundreds of times
as long as a write that the disk's own memory takes.  It outlives a restart of
the agent, after which every antagonist was there first.  None of the
constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.types import Workload

SIGNAL = 'io_wait'

HOUR_S = 3600.0
HOURS = 24

MOST = 500
"""Applications, each with its disks; those not measured for longest are
forgotten."""


class BestWaits:
    """The least ``io_wait`` of each of the last 24 hours, by application and
    disks; a workload without an application is one by itself."""

    def __init__(self) -> None:
        self._hours: dict[str, dict[int, float]] = {}

    def learn(self, now: float, workload: Workload, low: float) -> None:
        """Take the best of some minutes: what was low, not one lucky sample.

        :param low: ``io_wait`` in seconds per operation
        """
        hour, key = int(now // HOUR_S), _key(workload)
        hours = self._hours.pop(key, {})
        hours[hour] = min(low, hours.get(hour, math.inf))
        self._hours[key] = {at: least for at, least in hours.items()
                            if at > hour - HOURS}
        if len(self._hours) > MOST:
            del self._hours[next(iter(self._hours))]

    def of(self, workload: Workload) -> float | None:
        """Return the best of the day; ``None`` where nothing is known."""
        hours = self._hours.get(_key(workload))
        return min(hours.values()) if hours else None

    def state(self) -> dict[str, Any]:
        """Return what was learnt, as plain JSON values."""
        return {key: {str(hour): least for hour, least in hours.items()}
                for key, hours in self._hours.items()}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from that, as far as it is no older than a day.

        :raises ValueError: it is damaged.
        """
        newest = int(now // HOUR_S)
        for key, hours in list(state.items())[-MOST:]:
            by_hour = {int(hour): float(least)
                       for hour, least in hours.items()
                       if newest - HOURS < int(hour) <= newest}
            if not all(0 < least < math.inf for least in by_hour.values()):
                raise ValueError(f'{key}: not seconds per operation')
            if by_hour:
                self._hours[key] = by_hour


def _key(workload: Workload) -> str:
    application = workload.application
    name = (f'{workload.project or ""}/{application}'
            if application and not flavor.is_made_of_image(application)
            else workload.id)
    return ' '.join((name, *sorted(workload.disks or ())))
