# SPDX-License-Identifier: Apache-2.0

"""Hourly sums of hosts and of victims: what background work used, and how
long instances were disturbed.

They are kept as reports arrive, with the host's row locked.  What a report
says of its host is the mean since the report before; a gap between two
reports counts for :data:`MOST_S` at most, so that nothing is made up for an
agent that was away.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db import reports
from scavenger_openstack.db.reports import Row
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables

MOST_S = 60.0
CLOCKS_S = 60.0
"""So far the clocks of two conductors may be apart."""
LEAST_S = 1e-6
"""What is less is left by rounding."""

VictimKey = tuple[int, str]
"""An hour and a victim."""

_B, _V = tables.background_hours.c, tables.victim_hours.c


def background(connection: sa.Connection, host: reports.Host, now_s: float,
               sent_s: float, used: Mapping[str, float]) -> Row:
    """Return what background work has used in this hour, with this report;
    the hour before is stored when it is over.

    :param sent_s: the time of the report by the clock of the host, which is
        one, while conductors have several
    :param used: cores by ``cpu`` and bytes by ``memory``; what is missing is
        not known, and adds nothing
    """
    hour_s, so_far = reports.hour(now_s), host.background or {}
    if 0 < so_far.get('hour_s', 0) - now_s < CLOCKS_S:
        hour_s = so_far['hour_s']   # the hour before is stored already
    if so_far and so_far['hour_s'] != hour_s:
        store(connection, host.id, so_far)
        so_far = {}
    passed_s = min(max(0.0, sent_s - host.facts.get('sent_s', sent_s)), MOST_S)
    return {'hour_s': hour_s, **{
        name: round(so_far.get(name, 0.0)
                    + passed_s * used.get(resource, 0.0), 3)
        for name, resource in (('core_s', 'cpu'), ('byte_s', 'memory'))}}


def store(connection: sa.Connection, host_id: int, background: Row) -> None:
    """Store what background work used in an hour of which no more comes."""
    rows.put(connection, tables.background_hours, ('hour_s', 'host_id'),
             ('core_s', 'byte_s'), [{'host_id': host_id, **background}])


def change_victims(connection: sa.Connection, host_id: int,
                   changes: Mapping[VictimKey, tuple[int, float]],
                   identities: Mapping[str, reports.Identity]) -> None:
    """Add to the sums of victims.

    :param changes: hour and victim -> incidents and seconds
    """
    if not changes:
        return
    there = _victims(connection, host_id, changes)
    changed, gone = [], []
    for (hour_s, victim), (incidents, seconds) in sorted(changes.items()):
        row = there.get((hour_s, victim))
        identity = identities.get(victim, reports.Identity())
        sums = {'incidents': max(0, incidents),
                'interference_s': max(0.0, seconds)}
        if row is not None:
            sums = {'incidents': max(0, row['incidents'] + incidents),
                    'interference_s': max(
                        0.0, row['interference_s'] + seconds)}
        if sums['incidents'] or sums['interference_s'] > LEAST_S:
            changed.append(rows.cut(tables.victim_hours, {
                'host_id': host_id, 'hour_s': hour_s, 'victim': victim,
                'instance': identity.instance, 'project': identity.project,
                'application': identity.application, **sums}))
        elif row is not None:
            gone.append(row['id'])
    rows.put(connection, tables.victim_hours, ('hour_s', 'host_id', 'victim'),
             ('incidents', 'interference_s'), changed)
    rows.count_added(connection, tables.victim_hours,
                        sum((row['hour_s'], row['victim']) not in there
                            for row in changed))
    for ids in rows.batches(gone):
        connection.execute(sa.delete(tables.victim_hours).where(_V.id.in_(ids)))


def _victims(connection: sa.Connection, host_id: int,
             keys: Mapping[VictimKey, object]) -> dict[VictimKey, Row]:
    there: dict[VictimKey, Row] = {}
    hours = sorted({hour_s for hour_s, _ in keys})
    for names in rows.batches(sorted({victim for _, victim in keys})):
        for row in connection.execute(sa.select(
                _V.id, _V.hour_s, _V.victim, _V.incidents, _V.interference_s
                ).where(_V.hour_s.in_(hours), _V.host_id == host_id,
                        _V.victim.in_(names))).mappings():
            there[row['hour_s'], row['victim']] = dict(row)
    return there


def sums(connection: sa.Connection, since_s: int, until_s: int
         ) -> dict[int, Row]:
    """Return the sums of all hosts by hour: ``incidents``,
    ``interference_s``, ``core_s`` and ``byte_s``.

    What hosts add up in an hour that is not over is not in it.

    :param since_s: and ``until_s``: full hours
    """
    by_hour: dict[int, Row] = {
        hour_s: {'incidents': 0, 'interference_s': 0.0, 'core_s': 0.0,
                 'byte_s': 0.0}
        for hour_s in range(since_s, until_s, HOUR_S)}
    for columns, key in (((_V.incidents, _V.interference_s), _V.hour_s),
                         ((_B.core_s, _B.byte_s), _B.hour_s)):
        for hour_s, *values in connection.execute(
                sa.select(key, *map(sa.func.sum, columns)).where(
                    key >= since_s, key < until_s).group_by(key)):
            for column, value in zip(columns, values, strict=True):
                kind = type(by_hour[hour_s][column.name])
                by_hour[hour_s][column.name] = kind(value)
    return by_hour


def worst_victims(connection: sa.Connection, since_s: int, limit: int
                  ) -> list[Row]:
    """Return the workloads that were disturbed longest since then."""
    seconds = sa.func.sum(_V.interference_s)
    return rows.rows(connection, sa.select(
        _V.host_id, tables.hosts.c.name.label('host'),
        _V.victim.label('workload'),
        sa.func.max(_V.instance).label('instance'),
        sa.func.max(_V.project).label('project'),
        sa.func.sum(_V.incidents).label('incidents'),
        seconds.label('interference_s'))
        .join_from(tables.victim_hours, tables.hosts)
        .where(_V.hour_s >= since_s)
        .group_by(_V.host_id, tables.hosts.c.name, _V.victim)
        .order_by(seconds.desc(), _V.host_id, _V.victim).limit(limit))
