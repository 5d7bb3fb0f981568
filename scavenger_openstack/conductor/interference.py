# SPDX-License-Identifier: Apache-2.0

"""How long an incident disturbed: its part in the sums of each hour.

An incident counts for each of its antagonists: once, with what came of it,
in the hour in which it began, and with its seconds in each hour that it
covers, up to the last that is known of it.  Sums are changed by the
difference between what an incident is now and what it was, so that they
stay those of all incidents, however often one changes.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db.reports import hour

LONGEST_S = 7 * DAY_S
"""So much of an incident, its end, is counted.  Not in the papers."""

LEAST_S = 1e-6
"""What is less is left by rounding."""

NO_INTERFERENCE = ('own_limit', 'overcommitted', 'eviction')
"""Causes that are no other workload."""

PairKey = tuple[int, str, str, str]
"""Hour, antagonist, victim, cause."""
VictimKey = tuple[int, str]
"""Hour and victim."""
Key = TypeVar('Key', PairKey, VictimKey)


class Sums(NamedTuple):
    """What is counted in one hour of one pair and cause."""

    incidents: int = 0
    interference_s: float = 0.0
    confirmed: int = 0
    refuted: int = 0

    def plus(self, other: Sums, times: int = 1) -> Sums:
        return Sums(self.incidents + times * other.incidents,
                    self.interference_s + times * other.interference_s,
                    self.confirmed + times * other.confirmed,
                    self.refuted + times * other.refuted)

    @property
    def above_zero(self) -> Sums:
        """These sums, none below 0: what was purged meanwhile must not be
        subtracted once more."""
        return Sums(max(0, self.incidents), max(0.0, self.interference_s),
                    max(0, self.confirmed), max(0, self.refuted))

    @property
    def empty(self) -> bool:
        return (abs(self.interference_s) < LEAST_S
                and not (self.incidents or self.confirmed or self.refuted))


def of_victim(row: Mapping[str, Any]) -> dict[VictimKey, Sums]:
    """Return what one incident adds to the sums of its victim, whatever is
    named for it; nothing if no other workload is the cause."""
    if row['cause'] in NO_INTERFERENCE:
        return {}
    return {(hour_s, row['victim']): sums
            for hour_s, sums in _hours(row).items()}


def of_incident(row: Mapping[str, Any]) -> dict[PairKey, Sums]:
    """Return what one incident adds to the sums.

    What came of it is that of the limits that were tried: it does not count
    for antagonists that are foreground, which are never limited.

    :param row: ``victim``, ``cause``, ``outcome``, ``begun_s``,
        ``changed_s`` and ``suspects``, each a :class:`.reports.Suspect`
    """
    antagonists = [suspect for suspect in row['suspects']
                   if suspect.antagonist]
    if not antagonists:
        return {}
    return {(at, antagonist.workload, row['victim'], row['cause']):
            sums._replace(confirmed=0, refuted=0)
            if antagonist.foreground else sums
            for antagonist in antagonists for at, sums in _hours(row).items()}


def _hours(row: Mapping[str, Any]) -> dict[int, Sums]:
    """Return the part of an incident in each hour."""
    until_s = max(row['begun_s'], row['changed_s'])
    parts = {hour(row['begun_s']): Sums(
        1, 0.0, int(row['outcome'] == 'confirmed'),
        int(row['outcome'] == 'refuted'))}
    from_s = max(row['begun_s'], until_s - LONGEST_S)
    while from_s < until_s:
        end_s = min(float(hour(from_s) + HOUR_S), until_s)
        parts[hour(from_s)] = parts.get(hour(from_s), Sums()).plus(
            Sums(interference_s=end_s - from_s))
        from_s = end_s
    return parts


def most_rows(row: Mapping[str, Any]) -> int:
    """So many sums, or one less for each antagonist and the victim, an
    incident adds to."""
    until_s = max(row['begun_s'], row['changed_s'])
    from_s = max(row['begun_s'], until_s - LONGEST_S)
    hours = (hour(until_s) - hour(from_s)) // HOUR_S + 1
    return (hours + (from_s > row['begun_s'])) * (1 + sum(
        suspect.antagonist for suspect in row['suspects']))


def difference(before: Iterable[Mapping[str, Any]],
               after: Iterable[Mapping[str, Any]],
               of: Callable[[Mapping[str, Any]], dict[Key, Sums]]
               ) -> dict[Key, Sums]:
    """Return by how much the sums change; nothing for those that stay.

    :param of: :func:`of_incident` or :func:`of_victim`
    """
    hours: dict[Key, Sums] = {}
    for rows, times in ((before, -1), (after, 1)):
        for row in rows:
            for key, sums in of(row).items():
                hours[key] = hours.get(key, Sums()).plus(sums, times)
    return {key: sums for key, sums in hours.items() if not sums.empty}
