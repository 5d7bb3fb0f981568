# SPDX-License-Identifier: Apache-2.0

"""Rows that do not change any more, a day at a time, for the archive."""

from __future__ import annotations

import math
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

SETTLED_S = 2 * DAY_S
"""A younger day may still change: agents report hours late."""

AT_ONCE = 10_000
"""Rows of one page."""

NUMBERS = ('id', 'host_id', 'incident_id')
"""Columns that are numbers of rows, and mean nothing outside."""

KINDS: tuple[tuple[type, type], ...] = (
    (sa.Integer, int), (sa.Double, float),
    (sa.Boolean, bool), (sa.JSON, dict),
    (sa.String, str))


class Part(NamedTuple):
    """A table of the archive, whose rows belong to the day of ``time_s``: a
    column of ``table``, or of the incidents that it refers to."""

    name: str
    table: sa.Table
    time_s: sa.Column[Any]

    @property
    def columns(self) -> dict[str, type]:
        """The columns of the archive, and what is in them: ``dict`` is any
        JSON."""
        return {'host': str, **{
            column.name: next(kind for type_, kind in KINDS
                              if isinstance(column.type, type_))
            for column in _columns(self)}, **(
                {'incident': str} if self.of_incidents else {})}

    @property
    def of_incidents(self) -> bool:
        return 'incident_id' in self.table.c


PARTS = (
    Part('incidents', tables.incidents, tables.incidents.c.ended_s),
    Part('suspects', tables.suspects, tables.incidents.c.ended_s),
    Part('limits', tables.caps, tables.caps.c.removed_s),
    *(Part(table.name, table, table.c.hour_s) for table in (
        tables.antagonist_hours, tables.victim_hours,
        tables.background_hours)))
"""What is open or in force has no day yet."""


def days(connection: sa.Connection, part: Part, now_s: float) -> range:
    """Return when each day begins, from the first that has rows to the last
    that is settled."""
    first_s = connection.execute(sa.select(sa.func.min(part.time_s))).scalar()
    last_s = math.floor((now_s - SETTLED_S) / DAY_S) * DAY_S
    begin_s = last_s if first_s is None else math.floor(
        first_s / DAY_S) * DAY_S
    return range(begin_s, last_s, DAY_S)


def page(connection: sa.Connection, part: Part, day_s: int,
         after: Row | None = None) -> list[Row]:
    """Return rows of a day in the order of their time, each with the columns
    of its part besides ``after_s`` and ``after_id``.

    :param after: the last row of the page before
    """
    id_ = part.table.c.id
    query = sa.select(part.time_s.label('after_s'), id_.label('after_id'),
                      tables.hosts.c.name.label('host'), *_columns(part))
    if part.of_incidents:
        query = query.add_columns(tables.incidents.c.uuid.label('incident')
                                  ).join_from(tables.incidents, part.table)
    where = [part.time_s >= day_s, part.time_s < day_s + DAY_S]
    if after is not None:
        where += [part.time_s >= after['after_s'], sa.or_(
            part.time_s > after['after_s'], id_ > after['after_id'])]
    host_id = (tables.incidents if part.of_incidents else part.table).c.host_id
    return [dict(row) for row in connection.execute(
        query.join(tables.hosts, tables.hosts.c.id == host_id).where(*where)
        .order_by(part.time_s, id_).limit(AT_ONCE)).mappings()]


def _columns(part: Part) -> list[sa.Column[Any]]:
    return [column for column in part.table.c if column.name not in NUMBERS]
