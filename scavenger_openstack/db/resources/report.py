# SPDX-License-Identifier: Apache-2.0

"""What a span of full hours was like: interference, and work that was won."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.outcomes import Outcome

_A = tables.antagonist_hours.c
_B = tables.background_hours.c
_H = tables.hosts.c
_I = tables.incidents.c
_V = tables.victim_hours.c

JUDGED = (Outcome.CONFIRMED, Outcome.REFUTED, Outcome.UNCLEAR)

_SUMS = (sa.func.sum(_V.incidents).label('incidents'),
         sa.func.sum(_V.interference_s).label('interference_s'))


def totals(connection: sa.Connection, since_s: int, until_s: int) -> Row:
    """Return ``incidents``, ``interference_s``, ``core_s`` and ``byte_s`` of
    all hosts; each 0 where there is nothing."""
    sums: Row = {}
    for columns, hour_s in (
            (_SUMS, _V.hour_s),
            ((sa.func.sum(_B.core_s).label('core_s'),
              sa.func.sum(_B.byte_s).label('byte_s')), _B.hour_s)):
        [row] = rows.rows(connection, sa.select(*columns).where(
            *_within(hour_s, since_s, until_s)))
        sums.update(row)
    return {name: value or 0 for name, value in sums.items()}


def projects(connection: sa.Connection, since_s: int, until_s: int, limit: int
             ) -> list[Row]:
    """Return projects and applications with ``workloads`` that were disturbed,
    the longest first."""
    victims = sa.select(_V.project, _V.application, *_SUMS).where(
        *_within(_V.hour_s, since_s, until_s)).group_by(
            _V.project, _V.application, _V.host_id, _V.victim).subquery().c
    seconds = sa.func.sum(victims.interference_s).label('interference_s')
    return rows.rows(connection, sa.select(
        victims.project, victims.application,
        sa.func.count().label('workloads'),
        sa.func.sum(victims.incidents).label('incidents'), seconds)
        .group_by(victims.project, victims.application)
        .order_by(seconds.desc(), victims.project, victims.application)
        .limit(limit))


def hosts(connection: sa.Connection, since_s: int, until_s: int, limit: int
          ) -> list[Row]:
    """Return hosts by name with ``incidents``, ``interference_s``, ``core_s``
    and ``byte_s``, those with the longest interference first, then those
    with the most work."""
    disturbed = sa.select(_V.host_id, *_SUMS).where(
        *_within(_V.hour_s, since_s, until_s)).group_by(
            _V.host_id).subquery()
    work = sa.select(_B.host_id, sa.func.sum(_B.core_s).label('core_s'),
                     sa.func.sum(_B.byte_s).label('byte_s')).where(
        *_within(_B.hour_s, since_s, until_s)).group_by(
            _B.host_id).subquery()
    sums = {column.name: sa.func.coalesce(column, 0) for column in (
        disturbed.c.incidents, disturbed.c.interference_s, work.c.core_s,
        work.c.byte_s)}
    return rows.rows(connection, sa.select(_H.name.label('host'), *(
        value.label(name) for name, value in sums.items()))
        .select_from(tables.hosts.outerjoin(
            disturbed, disturbed.c.host_id == _H.id).outerjoin(
                work, work.c.host_id == _H.id))
        .where(sums['incidents'] + sums['interference_s'] + sums['core_s']
               + sums['byte_s'] > 0)
        .order_by(sums['interference_s'].desc(), sums['core_s'].desc(),
                  _H.name).limit(limit))


def antagonists(connection: sa.Connection, since_s: int, until_s: int,
                limit: int) -> list[Row]:
    """Return the workloads that disturbed others longest, with ``confirmed``
    and ``refuted`` incidents."""
    seconds = sa.func.sum(_A.interference_s).label('interference_s')
    return rows.rows(connection, sa.select(
        _H.name.label('host'), _A.workload,
        sa.func.max(_A.instance).label('instance'),
        sa.func.max(_A.project).label('project'),
        sa.func.max(_A.application).label('application'),
        *(sa.func.sum(column).label(column.name) for column in (
            _A.incidents, _A.confirmed, _A.refuted)), seconds)
        .join_from(tables.antagonist_hours, tables.hosts)
        .where(*_within(_A.hour_s, since_s, until_s))
        .group_by(_H.name, _A.workload)
        .order_by(seconds.desc(), _H.name, _A.workload).limit(limit))


def precision(connection: sa.Connection, since_s: int, until_s: int,
              limit: int) -> list[Row]:
    """Return controllers, those of most hosts first, with how the limits of
    their incidents ended that began then: ``confirmed``, ``refuted`` and
    ``unclear``."""
    return rows.rows(connection, sa.select(_I.controller, *(
        sa.func.sum((_I.outcome == outcome).cast(sa.Integer)).label(outcome)
        for outcome in JUDGED))
        .where(*_within(_I.begun_s, since_s, until_s),
               _I.outcome.in_(JUDGED))
        .group_by(_I.controller).order_by(
            sa.func.count(_I.host_id.distinct()).desc(), _I.controller)
        .limit(limit))


def _within(hour_s: sa.Column[Any], since_s: int, until_s: int) -> list[Any]:
    return [hour_s >= since_s, hour_s < until_s]
