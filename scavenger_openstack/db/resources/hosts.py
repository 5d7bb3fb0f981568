# SPDX-License-Identifier: Apache-2.0

"""Hosts, as their agents said and as operators set them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack import host_names

_SHOWN = (tables.hosts.c.id, tables.hosts.c.name, tables.hosts.c.version,
          tables.hosts.c.enforcing, tables.hosts.c.facts,
          tables.hosts.c.settings, tables.hosts.c.last_seen_s)


def page(connection: Connection, *, aggregate: str | None = None,
         enforcing: bool | None = None, after: int | None = None,
         limit: int) -> list[Row]:
    where = [] if aggregate is None else [
        tables.hosts.c.name.in_(aggregates.hosts_of(connection, aggregate))]
    return rows.newest(connection, select(*_SHOWN), tables.hosts,
                       {tables.hosts.c.enforcing: enforcing}, after, limit,
                       where)


def by_name(connection: Connection, name: str, *, lock: bool = False
            ) -> Row | None:
    """The host that a name means: the one that reports by it, else the one
    that does with or without a domain.

    :param lock: keep other writers of it out until the transaction ends
    """
    table = tables.hosts.c
    seen_s = dict(connection.execute(select(
        table.name, table.last_seen_s).where(
            table.short == host_names.short(name))).tuples().all())
    host = name if name in seen_s else host_names.Index(seen_s).find(name)
    if host is None:
        return None
    query = select(*_SHOWN).where(table.name == host)
    return rows.first(connection, query.with_for_update() if lock else query)


def reported(connection: Connection) -> list[Row]:
    """Name, version and time of the last report (0: none) of all hosts."""
    return rows.rows(connection, select(
        tables.hosts.c.name, tables.hosts.c.version,
        tables.hosts.c.last_seen_s).order_by(tables.hosts.c.name))


def silent(connection: Connection, before_s: float) -> list[str]:
    """The hosts whose last report came before that time."""
    seen_s = tables.hosts.c.last_seen_s
    return list(connection.scalars(select(tables.hosts.c.name).where(
        seen_s > 0, seen_s < before_s)))


def set_settings(connection: Connection, host_id: int,
                 settings: dict[str, Any]) -> None:
    connection.execute(update(tables.hosts)
                       .where(tables.hosts.c.id == host_id)
                       .values(settings=settings))


def has_aggregate(connection: Connection, aggregate: str) -> bool:
    return rows.first(connection, select(tables.aggregate_hosts.c.id).where(
        tables.aggregate_hosts.c.aggregate == aggregate)) is not None
