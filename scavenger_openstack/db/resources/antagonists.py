# SPDX-License-Identifier: Apache-2.0

"""Which workloads disturb most: rankings by the totals, else by the hourly
sums."""

from __future__ import annotations

from collections.abc import Iterable
import math
from typing import Any
from typing import Literal
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals

_H, _T = tables.antagonist_hours.c, tables.antagonist_totals.c

# What a ranking goes by: whole numbers, so that pages meet exactly.
_KEYS: dict[str, sa.ColumnElement[int]] = {
    'interference_s': sa.cast(
        sa.func.round(sa.func.sum(_H.interference_s) * 1000), sa.BigInteger),
    'incidents': sa.cast(sa.func.sum(_H.incidents), sa.BigInteger),
    'victims': sa.cast(sa.func.count(_H.victim.distinct()), sa.BigInteger)}
_TOTAL_KEYS: dict[str, sa.ColumnElement[int]] = {
    'interference_s': _T.interference_ms, 'incidents': _T.incidents,
    'victims': _T.victims}

Sort = Literal['interference_s', 'incidents', 'victims']


class Place(NamedTuple):
    """Where a workload stands in a ranking; the greatest comes first."""

    key: int
    host_id: int
    workload: str


class Span(NamedTuple):
    """What a ranking counts; hours that the span touches count whole.

    ``total_s`` is set where :mod:`.totals` are of this span: then nothing is
    summed.
    """

    since_s: float
    until_s: float
    project: str | None = None
    victim_project: str | None = None
    total_s: int | None = None


def span(connection: sa.Connection, *, now_s: float, since_s: float,
         until_s: float, project: str | None = None,
         victim_project: str | None = None) -> Span:
    """Return what is asked for, and whether there are totals of it.

    They are used while those of every host end in this hour or in the one
    before; then an hour that has just left the span may still be counted.
    There are none of both projects, nor of workloads that have no project.

    :param project: only antagonists of this project
    :param victim_project: only what was done to this project
    """
    asked = Span(since_s, until_s, project, victim_project)
    hour_s = reports.hour(now_s)
    total_s = hour_s - since_s // HOUR_S * HOUR_S
    if (total_s not in totals.SPANS_S or until_s < now_s
            or '' in (project, victim_project)
            or None not in (project, victim_project)):
        return asked
    hour = tables.hosts.c.totals_hour_s
    first_s, last_s = connection.execute(
        sa.select(sa.func.min(hour), sa.func.max(hour))).one()
    if first_s is None or not (
            hour_s - HOUR_S <= first_s <= last_s <= hour_s + HOUR_S):
        return asked
    return asked._replace(total_s=int(total_s))


def ranking(connection: sa.Connection, asked: Span, *, sort: Sort,
            host_id: int | None = None, after: Place | None = None,
            limit: int) -> list[Place]:
    """The places of a page."""
    if asked.total_s is not None:
        return _of_totals(connection, asked, sort, host_id, after, limit)
    key = _KEYS[sort]
    query = rows.equal(
        sa.select(key.label('place_key'), _H.host_id, _H.workload)
        .where(*_within(asked)),
        {_H.host_id: host_id, _H.project: asked.project,
         _H.victim_project: asked.victim_project})
    query = query.group_by(_H.host_id, _H.workload)
    if after is not None:
        query = query.having(_later(key, _H.host_id, _H.workload, after))
    return _places(connection, query.order_by(
        key.desc(), _H.host_id.desc(), _H.workload.desc()).limit(limit))


def disturbing(connection: sa.Connection, *, host_id: int | None = None,
               pairs: Iterable[tuple[int, str]] | None = None
               ) -> set[tuple[int, str]]:
    """Return which (host, workload) an open incident names now.

    :param pairs: only of these
    """
    incidents, suspects = tables.incidents.c, tables.suspects.c
    query = rows.equal(sa.select(
        incidents.host_id, suspects.workload).distinct().join_from(
            tables.suspects, tables.incidents).where(
                incidents.ended_s.is_(None), suspects.antagonist.is_(True),
                suspects.earlier.is_(False)), {incidents.host_id: host_id})
    if pairs is not None:
        query = query.where(rows.among(incidents.host_id, suspects.workload,
                                       pairs))
    return {(row[0], row[1]) for row in connection.execute(query)}


def ranking_now(connection: sa.Connection, asked: Span, *, sort: Sort,
                host_id: int | None = None, after: Place | None = None,
                limit: int) -> list[Place]:
    """Return the places of a page of those that disturb now, or are limited
    because they did; as :func:`ranking`."""
    caps = tables.caps.c
    pairs = disturbing(connection, host_id=host_id) | {
        (row[0], row[1]) for row in connection.execute(rows.equal(
            sa.select(caps.host_id, caps.workload).distinct().where(
                caps.removed_s.is_(None), caps.incidents != ''),
            {caps.host_id: host_id}))}
    places = [Place(
        round(1000 * row[sort]) if sort == 'interference_s' else row[sort],
        row['host_id'], row['workload'])
        for some in rows.batches(sorted(pairs))
        for row in sums(connection, [Place(0, *pair) for pair in some], asked)
        if asked.project in (None, row['project'])]
    return sorted((place for place in places if after is None
                   or place < after), reverse=True)[:limit]


def sums(connection: sa.Connection, places: Iterable[Place], asked: Span
         ) -> list[Row]:
    """Return what each of them did, in their order; ``causes`` is a list."""
    wanted = [(place.host_id, place.workload) for place in places]
    if not wanted:
        return []
    by_pair = (_summed if asked.total_s is None else _read)(
        connection, wanted, asked)
    return [by_pair[pair] for pair in wanted if pair in by_pair]


def history(connection: sa.Connection, pairs: Iterable[tuple[int, str]],
            asked: Span) -> dict[tuple[int, str], dict[int, float]]:
    """Return how long each of these disturbed, by hour."""
    wanted = list(pairs)
    by_pair: dict[tuple[int, str], dict[int, float]] = {
        pair: {} for pair in wanted}
    if not wanted:
        return by_pair
    names: dict[int, list[str]] = {}
    for host_id, workload in wanted:
        names.setdefault(host_id, []).append(workload)
    # Ranges of one index, which a list of tuples is not to each database.
    among = sa.or_(*(sa.and_(_H.host_id == host_id, _H.workload.in_(some))
                     for host_id, some in names.items()))
    for host_id, workload, hour_s, seconds in connection.execute(rows.equal(
            sa.select(_H.host_id, _H.workload, _H.hour_s,
                      sa.func.sum(_H.interference_s))
            .where(*_within(asked), among)
            .group_by(_H.host_id, _H.workload, _H.hour_s),
            {_H.victim_project: asked.victim_project})):
        by_pair[host_id, workload][hour_s] = float(seconds)
    return by_pair


def _of_totals(connection: sa.Connection, asked: Span, sort: Sort,
               host_id: int | None, after: Place | None, limit: int
               ) -> list[Place]:
    """A page out of one index, which has the places in their order."""
    scope = totals.ALL
    if asked.project is not None:
        scope = totals.by_project(asked.project)
    elif asked.victim_project is not None:
        scope = totals.by_victims(asked.victim_project)
    key = _TOTAL_KEYS[sort]
    query = rows.equal(sa.select(key, _T.host_id, _T.workload).where(
        _T.span_s == asked.total_s, _T.scope == scope),
        {_T.host_id: host_id})
    if after is not None:
        # The same twice: a range of the index to PostgreSQL is the first, to
        # MariaDB the second.
        query = query.where(
            sa.tuple_(key, _T.host_id, _T.workload) < sa.tuple_(*after),
            _later(key, _T.host_id, _T.workload, after))
    return _places(connection, query.order_by(
        key.desc(), _T.host_id.desc(), _T.workload.desc()).limit(limit))


def _later(key: sa.ColumnElement[int], host_id: sa.ColumnElement[int],
           workload: sa.ColumnElement[str], after: Place
           ) -> sa.ColumnElement[bool]:
    """Return what comes after a place: all three fall along a ranking."""
    return sa.or_(key < after.key, sa.and_(key == after.key, sa.or_(
        host_id < after.host_id,
        sa.and_(host_id == after.host_id, workload < after.workload))))


def _places(connection: sa.Connection, query: Any) -> list[Place]:
    return [Place(int(row[0]), row[1], row[2])
            for row in connection.execute(query)]


def _read(connection: sa.Connection, wanted: list[tuple[int, str]],
          asked: Span) -> dict[tuple[int, str], Row]:
    """Sums out of the totals."""
    by_pair: dict[tuple[int, str], Row] = {}
    for host_id, host, workload, parts in connection.execute(
            sa.select(_T.host_id, tables.hosts.c.name, _T.workload, _T.parts)
            .join_from(tables.antagonist_totals, tables.hosts)
            .where(_T.span_s == asked.total_s, _T.scope == totals.ALL,
                   rows.among(_T.host_id, _T.workload, wanted))):
        row = totals.figures(parts, asked.victim_project)
        if row is not None:
            by_pair[host_id, workload] = {
                'host_id': host_id, 'host': host, 'workload': workload, **row}
    return by_pair


def _summed(connection: sa.Connection, wanted: list[tuple[int, str]],
            asked: Span) -> dict[tuple[int, str], Row]:
    """Sums out of the hourly ones."""
    where = (*_within(asked), rows.among(_H.host_id, _H.workload, wanted))
    summed: dict[tuple[int, str], Row] = {
        (row['host_id'], row['workload']): {**row, 'causes': []}
        for row in rows.rows(connection, rows.equal(sa.select(
            _H.host_id, tables.hosts.c.name.label('host'), _H.workload,
            sa.func.max(_H.instance).label('instance'),
            sa.func.max(_H.project).label('project'),
            sa.func.max(_H.application).label('application'),
            sa.cast(sa.func.sum(_H.incidents), sa.BigInteger).label(
                'incidents'),
            sa.func.count(_H.victim.distinct()).label('victims'),
            sa.func.sum(_H.interference_s).label('interference_s'),
            sa.cast(sa.func.sum(_H.confirmed), sa.BigInteger).label(
                'confirmed'),
            sa.cast(sa.func.sum(_H.refuted), sa.BigInteger).label('refuted'))
            .join_from(tables.antagonist_hours, tables.hosts)
            .where(*where)
            .group_by(_H.host_id, tables.hosts.c.name, _H.workload),
            {_H.victim_project: asked.victim_project}))}
    for row in rows.rows(connection, rows.equal(
            sa.select(_H.host_id, _H.workload, _H.cause).where(*where)
            .distinct().order_by(_H.cause),
            {_H.victim_project: asked.victim_project})):
        summed[row['host_id'], row['workload']]['causes'].append(row['cause'])
    return summed


def _within(asked: Span) -> tuple[sa.ColumnElement[bool], ...]:
    # Whole numbers: for a fraction PostgreSQL uses no index.
    return (_H.hour_s >= int(asked.since_s // HOUR_S) * HOUR_S,
            _H.hour_s < math.ceil(asked.until_s))
