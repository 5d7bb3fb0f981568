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

"""Who disturbs most: rankings out of the hourly sums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal
from typing import NamedTuple

from sqlalchemy import and_
from sqlalchemy import BigInteger
from sqlalchemy import cast
from sqlalchemy import Connection
from sqlalchemy import func
from sqlalchemy import or_
from sqlalchemy import select

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_H = tables.antagonist_hours.c

HOUR_S = 3600

# What a ranking goes by: whole numbers, so that pages meet exactly.
_KEYS = {
    'interference_s': cast(func.round(func.sum(_H.interference_s) * 1000),
                           BigInteger),
    'incidents': cast(func.sum(_H.incidents), BigInteger),
    'victims': cast(func.count(_H.victim.distinct()), BigInteger)}

Sort = Literal['interference_s', 'incidents', 'victims']


class Place(NamedTuple):
    """Where a workload stands in a ranking; the greatest comes first."""

    key: int
    host_id: int
    workload: str


def ranking(connection: Connection, *, since_s: float, until_s: float,
            sort: Sort, host_id: int | None = None,
            project: str | None = None, victim_project: str | None = None,
            after: Place | None = None, limit: int) -> list[Place]:
    """The places of a page; hours that the span touches count whole."""
    key = _KEYS[sort]
    query = rows.equal(
        select(key.label('place_key'), _H.host_id, _H.workload)
        .where(*_within(since_s, until_s)),
        {_H.host_id: host_id, _H.project: project,
         _H.victim_project: victim_project})
    query = query.group_by(_H.host_id, _H.workload)
    if after is not None:
        query = query.having(or_(
            key < after.key,
            and_(key == after.key, or_(
                _H.host_id < after.host_id,
                and_(_H.host_id == after.host_id,
                     _H.workload < after.workload)))))
    query = query.order_by(key.desc(), _H.host_id.desc(),
                           _H.workload.desc()).limit(limit)
    return [Place(int(row[0]), row[1], row[2])
            for row in connection.execute(query)]


def sums(connection: Connection, places: Iterable[Place], *, since_s: float,
         until_s: float, victim_project: str | None = None) -> list[Row]:
    """What each of them did, in their order; ``causes`` is a list."""
    wanted = [(place.host_id, place.workload) for place in places]
    if not wanted:
        return []
    where = (*_within(since_s, until_s),
             rows.among(_H.host_id, _H.workload, wanted))
    found = {(row['host_id'], row['workload']): {**row, 'causes': []}
             for row in rows.rows(connection, rows.equal(select(
                 _H.host_id, tables.hosts.c.name.label('host'), _H.workload,
                 func.max(_H.instance).label('instance'),
                 func.max(_H.project).label('project'),
                 func.max(_H.application).label('application'),
                 cast(func.sum(_H.incidents), BigInteger).label('incidents'),
                 func.count(_H.victim.distinct()).label('victims'),
                 func.sum(_H.interference_s).label('interference_s'),
                 cast(func.sum(_H.confirmed), BigInteger).label('confirmed'),
                 cast(func.sum(_H.refuted), BigInteger).label('refuted'))
                 .join_from(tables.antagonist_hours, tables.hosts)
                 .where(*where)
                 .group_by(_H.host_id, tables.hosts.c.name, _H.workload),
                 {_H.victim_project: victim_project}))}
    for row in rows.rows(connection, rows.equal(
            select(_H.host_id, _H.workload, _H.cause).where(*where)
            .distinct().order_by(_H.cause),
            {_H.victim_project: victim_project})):
        found[row['host_id'], row['workload']]['causes'].append(row['cause'])
    return [found[pair] for pair in wanted if pair in found]


def _within(since_s: float, until_s: float) -> tuple:
    return (_H.hour_s >= since_s // HOUR_S * HOUR_S, _H.hour_s < until_s)
