# SPDX-License-Identifier: Apache-2.0

"""Where Nova has placed instances, beside where hosts say that they are."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy import func
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db import reports
from scavenger_openstack.db import tables

_T = tables.flavor_tags.c
_W = tables.workloads.c
_C = tables.claims.c

READ = 'nova-read'
"""The claim that says until when what is known of Nova counts."""


class Wrong(NamedTuple):
    """A workload of a host that Nova has placed elsewhere."""

    host_id: int
    host: str
    workload_id: int
    name: str
    instance: str
    placed_on: str


def read_now(connection: Connection, until_s: float) -> None:
    """Nova has been read."""
    if not connection.execute(update(tables.claims).where(
            _C.name == READ).values(expires_s=until_s)).rowcount:
        connection.execute(insert(tables.claims).values(
            name=READ, holder='', expires_s=until_s))


def wrong(connection: Connection, before_s: float) -> list[Wrong]:
    """Where host and Nova have differed since before then."""
    hosts = tables.hosts.c
    return [Wrong(*row) for row in connection.execute(
        select(hosts.id, hosts.name, _W.id, _W.name, _T.instance, _T.host)
        .select_from(tables.workloads.join(
            tables.flavor_tags, _T.instance == _W.instance).join(
                tables.hosts, hosts.id == _W.host_id))
        .where(_W.until_s.is_(None), _W.since_s < before_s,
               _T.changed_s < before_s, _T.host != hosts.name,
               ~_T.from_broker)
        .order_by(_W.id))]


def elsewhere(connection: Connection, host_id: int, host: str,
              instances: Collection[str], before_s: float, now: float
              ) -> Iterator[tuple[str, str]]:
    """Those of these instances that Nova has placed on another host, and
    this one has claimed, since before then; with that host."""
    if not connection.execute(select(_C.name).where(
            _C.name == READ, _C.expires_s > now)).first():
        return
    for some in reports.batches(sorted(instances)):
        yield from connection.execute(
            select(_T.instance, _T.host).select_from(tables.flavor_tags.join(
                tables.workloads, _T.instance == _W.instance))
            .where(_T.instance.in_(some),
                   _T.host != host, _T.changed_s < before_s,
                   ~_T.from_broker,
                   _W.host_id == host_id)
            .group_by(_T.instance, _T.host)
            .having(func.max(_W.since_s) < before_s)).tuples().all()
