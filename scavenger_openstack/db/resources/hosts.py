# SPDX-License-Identifier: Apache-2.0

"""Hosts, as their agents report and as operators set them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources import audit
from scavenger_openstack.db.resources import hours
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack import host_names
from scavenger_openstack.types import Priority

REMOVED = 'an operator removed the host'

_H, _I, _W = tables.hosts.c, tables.incidents.c, tables.workloads.c

_SHOWN = (_H.id, _H.name, _H.version, _H.enforcing, _H.facts, _H.settings,
          _H.last_seen_s)


def page(connection: sa.Connection, *, aggregate: str | None = None,
         enforcing: bool | None = None, after: int | None = None,
         limit: int) -> list[Row]:
    where = [_H.removed_s.is_(None)]
    if aggregate is not None:
        where.append(_H.name.in_(aggregates.hosts_of(connection, aggregate)))
    return rows.newest(connection, sa.select(*_SHOWN), tables.hosts,
                       {_H.enforcing: enforcing}, after, limit, where)


def all_with_load(connection: sa.Connection) -> list[Row]:
    """Return each host with its facts, how many ``incidents`` are open there,
    and the ``background_vcpus`` that it has."""
    incidents: dict[int, int] = dict(connection.execute(
        sa.select(_I.host_id, sa.func.count()).where(_I.ended_s.is_(None))
        .group_by(_I.host_id)).tuples().all())
    background: dict[int, float] = dict(connection.execute(
        sa.select(_W.host_id, sa.func.sum(_W.vcpus)).where(
            _W.until_s.is_(None), _W.priority == Priority.BACKGROUND)
        .group_by(_W.host_id)).tuples().all())
    return [{**row, 'incidents': incidents.get(row['id'], 0),
             'background_vcpus': float(background.get(row['id'], 0.0))}
            for row in rows.rows(connection, sa.select(
                _H.id, _H.name, _H.version, _H.facts, _H.enforcing,
                _H.last_seen_s, _H.background, _H.workloads_digest
                ).where(_H.removed_s.is_(None)).order_by(_H.name))]


def by_name(connection: sa.Connection, name: str, *, lock: bool = False
            ) -> Row | None:
    """The host that a name means: the one that reports by it, else the one
    that does with or without a domain.

    :param lock: keep other writers of it out until the transaction ends
    """
    table = tables.hosts.c
    seen_s = dict(connection.execute(sa.select(
        table.name, table.last_seen_s).where(
            table.short == host_names.short(name),
            table.removed_s.is_(None))).tuples().all())
    host = name if name in seen_s else host_names.Index(seen_s).find(name)
    if host is None:
        return None
    query = sa.select(*_SHOWN).where(table.name == host)
    return rows.first(connection, query.with_for_update() if lock else query)


def names(connection: sa.Connection) -> list[str]:
    """Return the names of all hosts that are listed."""
    table = tables.hosts.c
    return list(connection.scalars(sa.select(table.name).where(
        table.removed_s.is_(None))))


def by_names(connection: sa.Connection, names: Iterable[str]) -> list[Row]:
    """The hosts of these names, those that are there, in order."""
    hosts: list[Row] = []
    for some in rows.batches(sorted(set(names))):
        hosts += rows.rows(connection, sa.select(*_SHOWN).where(
            tables.hosts.c.name.in_(some)))
    return hosts


def of_workloads(connection: sa.Connection, instances: Iterable[str]
                 ) -> dict[str, Row]:
    """Return the host that has each of these instances now, the last that
    reported it."""
    table = tables.workloads.c
    by_instance: dict[str, Row] = {}
    for some in rows.batches(sorted(set(instances))):
        for row in rows.rows(connection, sa.select(
                table.instance, *_SHOWN).join_from(
                    tables.workloads, tables.hosts).where(
                        table.instance.in_(some), table.until_s.is_(None))
                .order_by(table.id)):
            by_instance[row['instance']] = row
    return by_instance


class Count(NamedTuple):
    """How many hosts there are, how many of them are silent, and when one
    of them reported last."""

    hosts: int
    silent: int
    last_seen_s: float | None


def count(connection: sa.Connection, scope: str, target: str, before_s: float
          ) -> Count:
    """The hosts of the cloud, of an aggregate, or one.

    :param before_s: those that have reported last before that are silent
    """
    seen_s, name = tables.hosts.c.last_seen_s, tables.hosts.c.name
    query = sa.select(
        sa.func.count(), sa.func.sum(sa.case((seen_s < before_s, 1), else_=0)),
        sa.func.max(seen_s)).where(tables.hosts.c.removed_s.is_(None))
    if scope == 'aggregate':
        query = query.where(name.in_(aggregates.hosts_of(connection, target)))
    elif scope == 'host':
        row = by_name(connection, target)
        query = query.where(name == (row['name'] if row else target))
    total, silent, newest_s = connection.execute(query).one()
    return Count(total, int(silent or 0), newest_s or None)


def reported(connection: sa.Connection) -> list[Row]:
    """Name, version, time of the last report (0: none), whether it has a
    token and since when (NULL: always) it needs it, of all hosts."""
    table = tables.hosts.c
    return rows.rows(connection, sa.select(
        table.name, table.version, table.last_seen_s,
        table.token_hash.is_not(None).label('token'), table.token_from_s
    ).where(table.removed_s.is_(None)).order_by(table.name))


def silent(connection: sa.Connection, before_s: float) -> list[str]:
    """The hosts whose last report came before that time."""
    seen_s = tables.hosts.c.last_seen_s
    return list(connection.scalars(sa.select(tables.hosts.c.name).where(
        seen_s > 0, seen_s < before_s,
        tables.hosts.c.removed_s.is_(None))))


def remove(connection: sa.Connection, name: str, *, actor: str, now_s: float
           ) -> bool:
    """Take a host out of all lists, with a row in the audit; whether there
    was one.

    Its workloads, limits and incidents end, its token is void, what operators
    set for it is gone.  What was is kept until it is purged.  A host that
    reports again is there again.
    """
    table = tables.hosts.c
    row = connection.execute(sa.select(
        table.id, table.settings, table.background).where(
            table.name == name, table.removed_s.is_(None)).with_for_update()
    ).first()
    if row is None:
        return False
    if row.background:
        hours.store(connection, row.id, row.background)
    reports.end_workloads(connection, row.id, {
        workload: there['id'] for workload, there
        in reports.workloads(connection, row.id).items()}, now_s, REMOVED)
    reports.end_caps(connection, row.id, now_s, REMOVED, ever=True)
    reports.end_incidents(connection, row.id, now_s, ever=True)
    overrides, switches = tables.overrides.c, tables.switches.c
    connection.execute(sa.update(tables.overrides).where(
        overrides.host_id == row.id, overrides.deleted_s.is_(None),
        overrides.expires_s > now_s).values(deleted_s=now_s))
    connection.execute(sa.update(tables.hosts).where(
        table.id == row.id).values(
        removed_s=now_s, token_hash=None, token_from_s=None, settings={},
        facts={}, enforcing=False, workloads_digest=''))
    for target in connection.scalars(sa.select(switches.target).where(
            switches.scope == 'host', switches.target.startswith(
                host_names.short(name), autoescape=True))).all():
        # It may hold for the same host by the name that this one has now.
        if host_names.same(target, name) and by_name(
                connection, target) is None:
            connection.execute(sa.delete(tables.switches).where(
                switches.scope == 'host', switches.target == target))
    audit.add(connection, time_s=now_s, actor=actor, action='host.remove',
              target=name, before={'settings': row.settings}, after=None)
    return True


def set_settings(connection: sa.Connection, host_id: int,
                 settings: dict[str, Any]) -> None:
    connection.execute(sa.update(tables.hosts)
                       .where(tables.hosts.c.id == host_id)
                       .values(settings=settings))


def has_aggregate(connection: sa.Connection, aggregate: str) -> bool:
    return rows.is_any(connection, sa.select(
        tables.aggregate_hosts.c.id).where(
            tables.aggregate_hosts.c.aggregate == aggregate))
