# SPDX-License-Identifier: Apache-2.0

"""Limits, and the overrides that operators set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.decision.orders import OWNER

_C = tables.caps.c
_O = tables.overrides.c

OverrideKey = tuple[int, str, str]
"""A host's id, a workload and a knob."""


def page(connection: sa.Connection, *, host_id: int | None = None,
         project: str | None = None, instance: str | None = None,
         knob: str | None = None, in_force: bool = True,
         after: int | None = None, limit: int) -> list[Row]:
    return rows.newest(
        connection, _caps(), tables.caps,
        {_C.instance: instance, _C.host_id: host_id, _C.project: project,
         _C.knob: knob}, after, limit,
        ended=_C.removed_s, over=not in_force)


def of_incident(connection: sa.Connection, host_id: int, incident: str,
                begun_s: float, limit: int) -> list[Row]:
    """Return the limits that answer an incident, the newest first.

    :param begun_s: when the incident began: what was removed an hour before
        is not read
    """
    query = _caps().where(
        _C.host_id == host_id, (' ' + _C.incidents + ' ').contains(
            f' {incident} ', autoescape=True)).order_by(_C.id.desc())
    there = _C.removed_s.is_(None), _C.removed_s >= begun_s - HOUR_S
    return sorted((
        row for condition in there for row in rows.rows(
            connection, query.where(condition).limit(limit))),
        key=lambda row: -row['id'])[:limit]


def limited(connection: sa.Connection, pairs: Iterable[tuple[int, str]]
            ) -> set[tuple[int, str]]:
    """Return which of these (host, workload) are limited now for what they do:
    by a detector or an operator.  What idle capacity leaves to all is no
    answer. """
    wanted = set(pairs)
    if not wanted:
        return set()
    return {(row[0], row[1]) for row in connection.execute(
        sa.select(_C.host_id, _C.workload).distinct().where(
            _C.removed_s.is_(None),
            sa.or_(_C.incidents != '', _C.owner == OWNER),
            rows.among(_C.host_id, _C.workload, wanted)))}


def count_by_owner(connection: sa.Connection) -> dict[str, int]:
    """Return how many limits are in force, by what set them; first what did so
    on most hosts."""
    return dict(connection.execute(
        sa.select(_C.owner, sa.func.count()).where(_C.removed_s.is_(None))
        .group_by(_C.owner).order_by(
            sa.func.count(_C.host_id.distinct()).desc(), _C.owner)
        ).tuples().all())


def count_overrides(connection: sa.Connection, now_s: float) -> int:
    """Return how many overrides hold now."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(
        tables.overrides).where(_O.deleted_s.is_(None),
                                _O.expires_s > now_s)).scalar() or 0)


def id_of(connection: sa.Connection, project: str, instance: str, knob: str,
          set_ms: int) -> int | None:
    """The id of a limit on an instance of a project, by when it was set."""
    return connection.scalar(sa.select(sa.func.max(_C.id)).where(
        _C.instance == instance, _C.project == project, _C.knob == knob,
        _C.set_s.between((set_ms - 1) / 1e3, (set_ms + 1) / 1e3)))


def of_instances(connection: sa.Connection, instances: Iterable[str],
                 since_s: float, now_s: float) -> dict[str, list[Row]]:
    """Instance -> its limits by knob: for how many seconds since then there
    was one (``limited_s``), and, if one is in force, its ``value`` and
    ``owner``, and when it was set (``set_s``), else ``None``."""
    wanted = sorted({instance for instance in instances if instance})
    by_instance: dict[str, list[Row]] = {}
    if not wanted:
        return by_instance
    begin = sa.case((_C.set_s < since_s, since_s), else_=_C.set_s)
    end = sa.case((_C.removed_s.is_(None), now_s), else_=_C.removed_s)
    by_knob: dict[tuple[str, str], Row] = {}
    for row in rows.rows(connection, sa.select(
            _C.instance, _C.knob, sa.func.sum(
                sa.case((end > begin, end - begin), else_=0.0)
            ).label('limited_s')).where(
                _C.instance.in_(wanted),
                sa.or_(_C.removed_s.is_(None), _C.removed_s >= since_s))
            .group_by(_C.instance, _C.knob)
            .order_by(_C.instance, _C.knob)):
        by_knob[row['instance'], row['knob']] = {
            **row, 'limited_s': min(row['limited_s'], now_s - since_s),
            'value': None, 'owner': None, 'set_s': None}
        by_instance.setdefault(row['instance'], []).append(
            by_knob[row['instance'], row['knob']])
    for row in rows.rows(connection, sa.select(
            _C.instance, _C.knob, _C.value, _C.owner, _C.set_s).where(
                _C.instance.in_(wanted), _C.removed_s.is_(None))
            .order_by(_C.id)):
        by_knob[row['instance'], row['knob']].update(row)
    return by_instance


def overrides(connection: sa.Connection, *, now_s: float,
              host_id: int | None = None, workload: str | None = None,
              after: int | None = None, limit: int) -> list[Row]:
    """Return the overrides that hold now."""
    return rows.newest(
        connection, _overrides(now_s), tables.overrides,
        {_O.host_id: host_id, _O.workload: workload}, after, limit,
        [_O.deleted_s.is_(None), _O.expires_s > now_s])


def override(connection: sa.Connection, key: OverrideKey, now_s: float
             ) -> Row | None:
    """Return the override that holds for a knob of a workload."""
    host_id, workload, knob = key
    return rows.first(connection, _overrides(now_s).where(
        _O.host_id == host_id, _O.workload == workload, _O.knob == knob)
        .order_by(_O.id.desc()))


def override_ids(connection: sa.Connection, host_ids: Iterable[int],
                 now_s: float) -> dict[OverrideKey, str]:
    """The overrides that hold on these hosts: what each is for -> its id."""
    ids = sorted(set(host_ids))
    if not ids:
        return {}
    return {(row['host_id'], row['workload'], row['knob']): row['uuid']
            for row in rows.rows(connection, _overrides(now_s).where(
                _O.host_id.in_(ids)).order_by(_O.id))}


def add_override(connection: sa.Connection, key: OverrideKey, **values: Any
                 ) -> None:
    """Set an override; the one before for the same knob holds no more."""
    host_id, workload, knob = key
    end_override(connection, key, values['created_s'])
    connection.execute(sa.insert(tables.overrides).values(
        host_id=host_id, workload=workload, knob=knob, **values))


def end_override(connection: sa.Connection, key: OverrideKey, now_s: float
                 ) -> None:
    host_id, workload, knob = key
    connection.execute(sa.update(tables.overrides).where(
        _O.host_id == host_id, _O.workload == workload, _O.knob == knob,
        _O.deleted_s.is_(None)).values(deleted_s=now_s))


def _caps() -> sa.Select:
    return sa.select(
        _C.id, _C.host_id, tables.hosts.c.name.label('host'), _C.workload,
        _C.instance, _C.project, _C.knob, _C.value, _C.original, _C.owner,
        _C.reason, _C.why, _C.incidents, _C.steps, _C.set_s, _C.removed_s
    ).join_from(tables.caps, tables.hosts)


def _overrides(now_s: float) -> sa.Select:
    return sa.select(
        _O.id, _O.uuid, _O.host_id, tables.hosts.c.name.label('host'),
        _O.workload, _O.instance, _O.project, _O.knob, _O.value, _O.reason,
        _O.created_by, _O.created_s, _O.generation, _O.expires_s
    ).join_from(tables.overrides, tables.hosts).where(
        _O.deleted_s.is_(None), _O.expires_s > now_s)
