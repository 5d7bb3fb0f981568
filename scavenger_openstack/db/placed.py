# SPDX-License-Identifier: Apache-2.0

"""Where Nova has placed instances, beside where hosts say that they are."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db import claims
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables

_T = tables.flavor_tags.c
_W = tables.workloads.c
_C = tables.claims.c

READ = 'nova-read'
"""The claim that says until when what is known of Nova counts."""

COMPARED = 'nova-compared'
"""The claim that says up to when hosts and Nova were compared."""

WHOLE_S = 3600.0
"""All instances are compared again after that."""

OVERLAP_S = 600.0
"""So much earlier than the last time what has changed is compared again: Nova
may have been asked late for what the broker sent."""

HOSTS = 25
"""Of one statement: for more, PostgreSQL reads all of the tags each time."""


class Wrong(NamedTuple):
    """A workload of a host that Nova has placed elsewhere."""

    host_id: int
    host: str
    workload_id: int
    name: str
    instance: str
    placed_on: str


def read_now(connection: sa.Connection, until_s: float) -> None:
    """Note that Nova has been read."""
    claims.note(connection, READ, until_s)


def read_until(connection: sa.Connection) -> float | None:
    """Until when what is known of Nova counts."""
    return claims.noted(connection, READ)


def wrong(connection: sa.Connection, before_s: float,
          hosts_at_once: int = HOSTS) -> Iterator[Wrong]:
    """Return where host and Nova have differed since before then: of what has
    changed since the last call, and once an hour of everything.

    :param hosts_at_once: in a statement, when it is everything
    """
    last_s = claims.noted(connection, COMPARED)
    claims.note(connection, COMPARED, before_s)
    hosts = tables.hosts.c
    query = (
        sa.select(hosts.id, hosts.name, _W.id, _W.name, _T.instance, _T.host)
        .select_from(tables.workloads.join(
            tables.flavor_tags, _T.instance == _W.instance).join(
                tables.hosts, hosts.id == _W.host_id))
        .where(_W.until_s.is_(None), _W.since_s < before_s,
               _T.changed_s < before_s, ~_T.from_broker, ~rows.same_host(
                   _T.host, _T.short, hosts.name, hosts.short)))
    if last_s is not None and 0 <= before_s - last_s < WHOLE_S \
            and last_s // WHOLE_S == before_s // WHOLE_S:
        since_s = last_s - OVERLAP_S
        changed_rows = {row[2]: row for changed_s in (_W.since_s, _T.changed_s)
                        for row in connection.execute(query.where(
                            changed_s >= since_s))}
        yield from (Wrong(*row) for _, row in sorted(changed_rows.items()))
        return
    ids = connection.scalars(sa.select(hosts.id).order_by(hosts.id)).all()
    for first in range(0, len(ids), hosts_at_once):
        some = ids[first:first + hosts_at_once]
        yield from (Wrong(*row) for row in connection.execute(
            query.where(_W.host_id.in_(some), hosts.id.in_(some))
            .order_by(_W.id)).all())


def elsewhere(connection: sa.Connection, host_id: int, host: str,
              instances: Collection[str], before_s: float, now: float
              ) -> Iterator[tuple[str, str]]:
    """Return the instances that Nova has placed on another host and this host
    has claimed since before then, with that other host."""
    if not rows.is_any(connection, sa.select(_C.name).where(
            _C.name == READ, _C.expires_s > now)):
        return
    for some in rows.batches(sorted(instances)):
        yield from connection.execute(
            sa.select(_T.instance, _T.host)
            .select_from(tables.flavor_tags.join(
                tables.workloads, _T.instance == _W.instance))
            .where(_T.instance.in_(some),
                   ~rows.of_host(_T), _T.changed_s < before_s, ~_T.from_broker,
                   _W.host_id == host_id)
            .group_by(_T.instance, _T.host)
            .having(sa.func.max(_W.since_s) < before_s),
            rows.host_parameters(host)).tuples().all()
