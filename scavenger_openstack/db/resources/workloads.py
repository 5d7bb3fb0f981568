# SPDX-License-Identifier: Apache-2.0

"""Workloads: those that are there, and those that were."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from scavenger_openstack.db import newest
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_W = tables.workloads.c


def page(connection: sa.Connection, *, host_id: int | None = None,
         name: str | None = None, project: str | None = None,
         instance: str | None = None, application: str | None = None,
         priority: str | None = None,
         gone: bool = False, after: int | None = None, limit: int
         ) -> list[Row]:
    """Return workloads, each with the name of its host as ``host``.

    :param gone: those that were, in place of those that are there
    """
    query = (
        sa.select(_W.id, tables.hosts.c.name.label('host'), _W.name, _W.kind,
                  _W.instance, _W.display_name, _W.flavor, _W.project,
                  _W.application, _W.priority, _W.source, _W.vcpus, _W.floor,
                  _W.since_s, _W.until_s)
        .join_from(tables.workloads, tables.hosts))
    return rows.newest(
        connection, query, tables.workloads,
        {_W.instance: instance, _W.host_id: host_id, _W.name: name,
         _W.project: project,
         _W.application: application, _W.priority: priority}, after, limit,
        ended=_W.until_s, over=gone)


def id_of(connection: sa.Connection, project: str, instance: str, since_ms: int
          ) -> int | None:
    """The id of an instance of a project, by when it came to its host."""
    return connection.scalar(sa.select(sa.func.max(_W.id)).where(
        _W.instance == instance, _W.project == project,
        _W.since_s.between((since_ms - 1) / 1e3, (since_ms + 1) / 1e3)))


def present(connection: sa.Connection, host_id: int, name: str) -> Row | None:
    """The workload of that name that is on the host now."""
    return rows.first(connection, sa.select(
        _W.id, _W.name, _W.instance, _W.project, _W.priority, _W.floor,
        _W.application, _W.flavor).where(
            _W.host_id == host_id, _W.name == name, _W.until_s.is_(None)))


def names_on(connection: sa.Connection, host_id: int) -> list[str]:
    """Return the names of the workloads that are on a host now."""
    return list(connection.scalars(sa.select(_W.name).where(
        _W.host_id == host_id, _W.until_s.is_(None))))


def count(connection: sa.Connection, scope: str, target: str) -> int:
    """Return how many are there now: of an instance, a project, or the hosts
    of an aggregate."""
    query = sa.select(sa.func.count()).select_from(tables.workloads).where(
        _W.until_s.is_(None))
    if scope == 'aggregate':
        query = query.where(_W.instance != '', _W.host_id.in_(sa.select(
            tables.hosts.c.id).where(tables.hosts.c.name.in_(
                aggregates.hosts_of(connection, target)))))
    else:
        query = query.where((_W.instance if scope == 'instance'
                             else _W.project) == target)
    return int(connection.execute(query).scalar() or 0)


def display_names(connection: sa.Connection, pairs: Iterable[tuple[int, str]]
                  ) -> dict[tuple[int, str], str]:
    """(host's id, workload) -> the name that its project gave it."""
    return {(row.host_id, row.name): row.display_name
            for row in newest.workloads(connection, set(pairs))}


def names_of(connection: sa.Connection, instances: Iterable[str]
             ) -> dict[str, str]:
    """UUID of an instance -> the name that its project gave it last."""
    return {row.instance: row.display_name for row in newest.workloads(
        connection, {(instance,) for instance in instances}, ('instance',))}
