# SPDX-License-Identifier: Apache-2.0

"""The hosts that have a compute service of Nova, as far as that was read."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection
from sqlalchemy import delete
from sqlalchemy import insert
from sqlalchemy import select

from scavenger_openstack.db import reports
from scavenger_openstack.db import tables
from scavenger_openstack.db import wishes
from scavenger_openstack import host_names

_S = tables.compute_services.c


def index(connection: Connection) -> host_names.Index | None:
    """Their names, ``None`` where Nova was not read."""
    names = list(connection.scalars(select(_S.host)))
    return host_names.Index(dict.fromkeys(names, 0.0)) if names else None


def has(connection: Connection, name: str) -> bool | None:
    """Whether a host has one, ``None`` where Nova was not read."""
    short = host_names.short(name)
    if name == short:
        others = _S.host.startswith(f'{short}.', autoescape=True)
    else:
        others = _S.host == short
    for condition in (_S.host == name, others):
        if connection.execute(select(_S.id).where(condition).limit(1)
                              ).scalar() is not None:
            return True
    return None if connection.execute(select(_S.id).limit(1)
                                      ).scalar() is None else False


def follow(connection: Connection, names: Collection[str]) -> int:
    """Make these all that there are; how many were not, or are no more."""
    had = set(connection.scalars(select(_S.host)))
    has = {name.rstrip(' ') for name in names}
    for some in reports.batches(sorted(had - has)):
        connection.execute(delete(tables.compute_services).where(
            _S.host.in_(some)))
    if has - had:
        connection.execute(insert(tables.compute_services), [
            {'host': name} for name in sorted(has - had)])
    if had != has:
        wishes.changed(connection)
    return len(had ^ has)


def without(connection: Connection) -> list[str]:
    """The hosts that have reported, and have none."""
    services = index(connection)
    table = tables.hosts.c
    return [] if services is None else [
        name for name in connection.scalars(select(table.name).where(
            table.removed_s.is_(None), table.last_seen_s > 0
        ).order_by(table.name)) if not services.find_all(name)]
