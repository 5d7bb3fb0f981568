# SPDX-License-Identifier: Apache-2.0

"""The hosts that have a compute service of Nova, as far as that was read."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from scavenger_openstack.db import generation
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack import host_names

_S = tables.compute_services.c


def index(connection: sa.Connection) -> host_names.Index | None:
    """Their names, ``None`` where Nova was not read."""
    names = list(connection.scalars(sa.select(_S.host)))
    return host_names.Index(dict.fromkeys(names, 0.0)) if names else None


def has(connection: sa.Connection, name: str) -> bool | None:
    """Return whether a host that is new has one, ``None`` where Nova was not
    read. One of another form of its name counts while no host has reported by
    any: a client may invent domains. """
    short = host_names.short(name)
    if name == short:
        others = _S.host.startswith(f'{short}.', autoescape=True)
    else:
        others = _S.host == short
    hosts = tables.hosts.c
    if rows.is_any(connection, sa.select(_S.id).where(_S.host == name)) or (
            rows.is_any(connection, sa.select(_S.id).where(others))
            and not rows.is_any(connection, sa.select(hosts.id).where(
                hosts.short == short, hosts.removed_s.is_(None)))):
        return True
    return False if rows.is_any(connection, sa.select(_S.id)) else None


def follow(connection: sa.Connection, names: Collection[str]) -> int:
    """Make these all that there are; how many were not, or are no more."""
    had = set(connection.scalars(sa.select(_S.host)))
    has = {name.rstrip(' ') for name in names}
    for some in rows.batches(sorted(had - has)):
        connection.execute(sa.delete(tables.compute_services).where(
            _S.host.in_(some)))
    if has - had:
        connection.execute(sa.insert(tables.compute_services), [
            {'host': name} for name in sorted(has - had)])
    if had != has:
        generation.count(connection)
    return len(had ^ has)


def without(connection: sa.Connection) -> list[str]:
    """The hosts that have reported, and have none."""
    services = index(connection)
    table = tables.hosts.c
    return [] if services is None else [
        name for name in connection.scalars(sa.select(table.name).where(
            table.removed_s.is_(None), table.last_seen_s > 0
        ).order_by(table.name)) if not services.find_all(name)]
