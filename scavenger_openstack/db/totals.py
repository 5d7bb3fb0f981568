# SPDX-License-Identifier: Apache-2.0

"""Totals of antagonists over the spans that are asked for most.

A total is the sum of a workload's rows of ``antagonist_hours`` that are in
the span: those of the hour ``hosts.totals_hour_s`` less the span, and later.
It is changed in the transaction that changes these rows, so what happened is
in it at once.  Only what leaves the span does so later, when a conductor
advances the hour of the host.

All functions that write are called with the host's row locked, or lock it.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db.reports import Row
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables

SPANS_S = (DAY_S, 7 * DAY_S, 30 * DAY_S)
"""Spans up to now, besides the hour that is not over."""

MOST_PARTS = 1000
"""Pairs of victim and cause in one total.  More are not counted, so that no
agent can make the reports of its host slow."""

HOSTS = 50
"""Hosts whose reports wait for one transaction here."""

MOST_HOURS = 24
"""Totals that lag behind for more are made again out of the hourly sums."""

ALL = ''
"""The scope of a total that counts every project."""

Key = tuple[int, int, str]
"""Host, span and workload of a total."""

Part = tuple[str, ...]
"""Victim, its project, cause; project, instance and application of the
antagonist."""

Parts = dict[Part, list[float]]
"""What a total is made of: how many hours, and the sums over them."""

_PART = ('victim', 'victim_project', 'cause', 'project', 'instance',
         'application')
_SUMS = ('incidents', 'interference_s', 'confirmed', 'refuted')
_KEY = ('host_id', 'workload', 'span_s', 'scope')
_VALUES = ('interference_ms', 'incidents', 'victims', 'confirmed', 'parts')

_part_of = itemgetter(*_PART)
_sums_of = itemgetter(*_SUMS)

_H, _T = tables.antagonist_hours.c, tables.antagonist_totals.c
_HOST = tables.hosts.c

_OF_HOST = (
    sa.select(_HOST.totals_hour_s, _T.span_s, _T.workload, _T.parts)
    .select_from(tables.hosts.outerjoin(tables.antagonist_totals, sa.and_(
        _T.host_id == _HOST.id, _T.scope == ALL, _T.workload.in_(
            sa.bindparam('names', expanding=True)))))
    .where(_HOST.id == sa.bindparam('host_id')))


def by_project(project: str) -> str:
    """The scope of what antagonists of this project did."""
    return f'antagonist:{project}'


def by_victims(project: str) -> str:
    """The scope of what was done to this project."""
    return f'victim:{project}'


def change(connection: sa.Connection, host_id: int,
           changes: Collection[tuple[Row | None, Row | None]]) -> None:
    """Count changes of hourly sums of one host.

    :param changes: each row before and after, ``None`` where there was or is
        none
    """
    names = {row['workload'] for pair in changes for row in pair if row}
    hour_s, before = 0, {}
    for some in rows.batches(sorted(names)):
        for end_s, span_s, workload, parts in connection.execute(
                _OF_HOST, {'host_id': host_id, 'names': some}):
            hour_s = end_s
            if span_s is not None:
                before[host_id, span_s, workload] = _read(parts)
    after = {key: dict(parts) for key, parts in before.items()}
    for old, new in changes:
        for row, sign in ((old, -1), (new, 1)):
            for span_s in SPANS_S:
                if row is not None and row['hour_s'] >= hour_s - span_s:
                    _add(after, span_s, row, sign)
    _store(connection, before, after)


def remove(connection: sa.Connection, ids: Collection[int]) -> list[int]:
    """Take hourly sums that are about to be deleted out of the totals.

    :param ids: of the rows of ``antagonist_hours``
    :return: those to delete now: the others are of too many hosts at once
    """
    counted = sa.select(tables.antagonist_hours).join(tables.hosts).where(
        _H.id.in_(ids), _H.hour_s >= _HOST.totals_hour_s - SPANS_S[-1])
    hosts = {row.id: row.host_id for row in connection.execute(counted)}
    locked = set(sorted(set(hosts.values()))[:HOSTS])
    if not locked:
        return list(ids)
    connection.execute(sa.select(_HOST.id).where(_HOST.id.in_(locked)).order_by(
        _HOST.id).with_for_update(key_share=True))
    by_host: dict[int, list[tuple[Row | None, Row | None]]] = {}
    for row in connection.execute(counted.where(
            _H.host_id.in_(locked))).mappings():
        by_host.setdefault(row['host_id'], []).append((dict(row), None))
    for host_id, changes in sorted(by_host.items()):
        change(connection, host_id, changes)
    return [row_id for row_id in ids
            if row_id not in hosts or hosts[row_id] in locked]


def advance(connection: sa.Connection, hour_s: int) -> int:
    """Let the totals of some hosts end at this hour.

    :param hour_s: a full hour, UNIX time in seconds
    :return: how many hosts were due, of which some may be still; 0 when all
        end at this hour
    """
    due = sa.select(_HOST.id, _HOST.totals_hour_s).where(
        _HOST.totals_hour_s < hour_s)
    due_rows = connection.execute(due.order_by(
        _HOST.totals_hour_s, _HOST.id).limit(HOSTS)).all()
    if not due_rows:
        return 0
    # Those that are made again take long, and come first: one by one.
    late = [row.id for row in due_rows
            if row.totals_hour_s < hour_s - MOST_HOURS * HOUR_S][:1]
    hosts: dict[int, int] = dict(connection.execute(due.where(
        _HOST.id.in_(late or [row.id for row in due_rows])).order_by(
            _HOST.id).with_for_update(key_share=True)).tuples().all())
    if late:
        for host_id in hosts:
            _make(connection, host_id, hour_s)
    elif hosts:
        _leave(connection, hosts, hour_s)
    connection.execute(sa.update(tables.hosts).where(_HOST.id.in_(hosts)).values(
        totals_hour_s=hour_s))
    return len(due_rows)


def span_of(since_s: float, now: float) -> int:
    """The shortest span that has all since then, or the longest one."""
    return next((span_s for span_s in SPANS_S if since_s >= now - span_s),
                SPANS_S[-1])


def figures(parts: Iterable[list[Any]], victim_project: str | None
            ) -> Row | None:
    """Return what a total says of its workload; ``causes`` is a list.

    :param parts: as they are stored
    :param victim_project: only what was done to this project
    :return: ``None`` if there is nothing
    """
    wanted = [(dict(zip(_PART, part, strict=True)), sums)
              for part, (_, *sums) in _read(parts).items()]
    if victim_project is not None:
        wanted = [(part, sums) for part, sums in wanted
                  if part['victim_project'] == victim_project]
    if not wanted:
        return None
    return {
        **{name: max(part[name] for part, _ in wanted)
           for name in ('instance', 'project', 'application')},
        'victims': len({part['victim'] for part, _ in wanted}),
        'causes': sorted({part['cause'] for part, _ in wanted}),
        **{name: sum(sums[place] for _, sums in wanted)
           for place, name in enumerate(_SUMS)}}


def _make(connection: sa.Connection, host_id: int, hour_s: int) -> None:
    """Make the totals of a host out of its hourly sums."""
    connection.execute(sa.delete(tables.antagonist_totals).where(
        _T.host_id == host_id))
    after: dict[Key, Parts] = {}
    for row in connection.execute(sa.select(tables.antagonist_hours).where(
            _H.host_id == host_id, _H.hour_s >= hour_s - SPANS_S[-1])
            .order_by(_H.id)).mappings():
        for span_s in SPANS_S:
            if row['hour_s'] >= hour_s - span_s:
                _add(after, span_s, dict(row), 1)
    _store(connection, {}, after)


def _leave(connection: sa.Connection, hosts: Mapping[int, int], hour_s: int
           ) -> None:
    """Take what has left a span out of the totals.

    :param hosts: id -> the hour at which the totals of that host end so far
    :param hour_s: the hour at which they are to end
    """
    hours_s = {old_hour_s for span_s in SPANS_S for old_hour_s in range(
        min(hosts.values()) - span_s, hour_s - span_s, HOUR_S)}
    leaving = [dict(row) for row in connection.execute(
        sa.select(tables.antagonist_hours).where(
            _H.host_id.in_(hosts), _H.hour_s.in_(hours_s))).mappings()]
    before: dict[Key, Parts] = {}
    for some in rows.batches(sorted({(row['host_id'], row['workload'])
                                     for row in leaving})):
        for host_id, span_s, workload, parts in connection.execute(
                sa.select(_T.host_id, _T.span_s, _T.workload, _T.parts).where(
                    _T.scope == ALL,
                    sa.tuple_(_T.host_id, _T.workload).in_(some))):
            before[host_id, span_s, workload] = _read(parts)
    after = {key: dict(parts) for key, parts in before.items()}
    for row in leaving:
        for span_s in SPANS_S:
            if hosts[row['host_id']] - span_s <= row['hour_s'] \
                    < hour_s - span_s:
                _add(after, span_s, row, -1)
    _store(connection, before, after)


def _add(totals: dict[Key, Parts], span_s: int, row: Row, sign: int
         ) -> None:
    """Add an hourly sum to the totals of a span (``sign`` 1), or take it out
    (-1)."""
    parts = totals.setdefault((row['host_id'], span_s, row['workload']), {})
    part: Part = _part_of(row)
    if part not in parts and len(parts) >= MOST_PARTS:
        return
    hours, *sums = parts.get(part, [0, 0, 0.0, 0, 0])
    hours += sign
    if hours > 0:
        parts[part] = [hours, *[
            max(0, value + sign * more)
            for value, more in zip(sums, _sums_of(row), strict=True)]]
    else:
        parts.pop(part, None)


def _ranks(parts: Parts) -> dict[str, Row]:
    """Return what a total is ranked and searched by, in each scope."""
    by_scope: dict[str, list[tuple[str, list[float]]]] = {}
    for (victim, victim_project, _, project, *_), sums in parts.items():
        by_scope.setdefault(ALL, []).append((victim, sums))
        if project:
            by_scope.setdefault(by_project(project), []).append((victim, sums))
        if victim_project:
            by_scope.setdefault(by_victims(victim_project), []).append(
                (victim, sums))
    return {scope: {
        'interference_ms': round(1000 * sum(sums[2] for _, sums in some)),
        'incidents': sum(int(sums[1]) for _, sums in some),
        'confirmed': sum(int(sums[3]) for _, sums in some),
        'victims': len({victim for victim, _ in some})}
        for scope, some in by_scope.items()}


def _store(connection: sa.Connection, before: Mapping[Key, Parts],
           after: Mapping[Key, Parts]) -> None:
    """Write what differs."""
    changed: list[Row] = []
    gone: list[tuple[Any, ...]] = []
    for key, parts in sorted(after.items()):
        had = before.get(key, {})
        if parts == had:
            continue
        host_id, span_s, workload = key
        ranks, were = _ranks(parts), _ranks(had)
        for scope in sorted(ranks.keys() | were.keys()):
            if scope not in ranks:
                gone.append((host_id, workload, span_s, scope))
            elif scope == ALL or ranks[scope] != were.get(scope):
                changed.append({
                    'host_id': host_id, 'workload': workload,
                    'span_s': span_s, 'scope': scope, **ranks[scope],
                    'parts': [[*part, *sums] for part, sums in parts.items()]
                    if scope == ALL else None})
    rows.put(connection, tables.antagonist_totals, _KEY, _VALUES, changed)
    for keys in rows.batches(gone):
        connection.execute(sa.delete(tables.antagonist_totals).where(sa.tuple_(
            *(_T[name] for name in _KEY)).in_(keys)))


def _read(parts: Iterable[list[Any]]) -> Parts:
    return {tuple(part[:len(_PART)]): part[len(_PART):] for part in parts}
