# SPDX-License-Identifier: Apache-2.0

"""Specs of applications, from what all hosts reported.

Samples of a day weigh 0.9 of those of the next.  Each time the rows of a
day and application are merged into one, so that there are few; what a host
reports late is merged into its day.  Source: CPI2, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.cpi2.specs import Statistics
from scavenger_openstack.db import directives
from scavenger_openstack.db import reports
from scavenger_openstack.db import statistics

CLAIM = 'specs'
DAY_S = 86400
DAYS = 60
"""Older samples weigh less than 0.2 %, and are left out."""

SpecKey = tuple[str, str, str, str]
"""Project, application, CPU model, signal."""
KEY = ('project', 'application', 'cpu_model', 'signal')


class Day(NamedTuple):
    """The merged samples of a day."""

    statistics: Statistics
    least: float
    most: float
    host_id: int
    ids: list[int]

    def row(self, key: SpecKey, day_s: int) -> dict[str, Any]:
        n, mean, m2 = self.statistics
        return {**dict(zip(KEY, key, strict=True)), 'hour_s': day_s,
                'host_id': self.host_id, 'n': int(n), 'mean': mean,
                'm2': m2, 'least': self.least, 'most': self.most}


Days = dict[SpecKey, dict[int, Day]]
"""By the first second of the day."""


def refresh(connection: reports.Connection, now: float) -> int:
    """Work out the specs, in the caller's transaction.

    :return: how many have changed
    """
    today_s = int(now // DAY_S) * DAY_S
    days = merged(statistics.since(connection, today_s - DAYS * DAY_S))
    many = [(key, day_s, day) for key, by_day in days.items()
            for day_s, day in by_day.items() if len(day.ids) > 1]
    statistics.replace(connection,
                       [one for _, _, day in many for one in day.ids],
                       [day.row(key, day_s) for key, day_s, day in many])
    return _write(connection, {key: spec(by_day, today_s)
                               for key, by_day in days.items()}, now)


def merged(rows: Iterable[Mapping[str, Any]]) -> Days:
    """Rows of the table, merged by day."""
    days: Days = {}
    for row in rows:
        key: SpecKey = (row['project'], row['application'], row['cpu_model'],
                        row['signal'])
        day_s = row['hour_s'] // DAY_S * DAY_S
        one = Statistics(row['n'], row['mean'], row['m2'])
        by_day = days.setdefault(key, {})
        day = by_day.get(day_s)
        if day is None:
            by_day[day_s] = Day(one, row['least'], row['most'],
                                row['host_id'], [row['id']])
            continue
        day.ids.append(row['id'])
        by_day[day_s] = Day(
            day.statistics.merge(one), min(day.least, row['least']),
            max(day.most, row['most']), day.host_id, day.ids)
    return days


def spec(by_day: Mapping[int, Day], today_s: int) -> Statistics:
    """The samples of all days, by their age."""
    total = Statistics()
    for day_s, day in sorted(by_day.items()):
        total = total.merge(day.statistics.age(
            max(0, today_s - day_s) // DAY_S))
    return total


def _write(connection: reports.Connection,
           specs: Mapping[SpecKey, Statistics], now: float) -> int:
    today_s = int(now // DAY_S) * DAY_S
    have = {tuple(row[name] for name in KEY): row
            for row in statistics.specs(connection)}
    new, changed = [], []
    for key, one in sorted(specs.items()):
        values = {'mean': one.mean, 'stddev': one.stddev or 0.0,
                  'n': round(one.n), 'day_s': today_s}
        if not all(map(math.isfinite, values.values())):
            continue
        row = have.pop(key, None)
        if row is None:
            new.append({**dict(zip(KEY, key, strict=True)), **values})
        elif any(row[name] != value for name, value in values.items()):
            changed.append({'id': row['id'], **values})
    statistics.set_specs(connection, new, changed,
                         [row['id'] for row in have.values()])
    count = len(new) + len(changed) + len(have)
    if count:
        reports.add_audit(connection, [{
            'time_s': now, 'actor': 'conductor',
            'action': directives.SPECS, 'target': '',
            'reason': f'specs: {len(new)} new, {len(changed)} changed, '
                      f'{len(have)} ended'}])
    return count
