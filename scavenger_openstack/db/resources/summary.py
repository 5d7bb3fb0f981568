# SPDX-License-Identifier: Apache-2.0

"""All hosts at a glance, for schedulers."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy import func
from sqlalchemy import select

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

_H = tables.hosts.c
_I = tables.incidents.c
_W = tables.workloads.c


def hosts(connection: Connection) -> list[Row]:
    """Each host with its facts, how many ``incidents`` are open there, and
    the ``background_vcpus`` that it has."""
    incidents: dict[int, int] = dict(connection.execute(
        select(_I.host_id, func.count()).where(_I.ended_s.is_(None))
        .group_by(_I.host_id)).tuples().all())
    background: dict[int, float] = dict(connection.execute(
        select(_W.host_id, func.sum(_W.vcpus)).where(
            _W.until_s.is_(None), _W.priority == Priority.BACKGROUND)
        .group_by(_W.host_id)).tuples().all())
    return [{**row, 'incidents': incidents.get(row['id'], 0),
             'background_vcpus': float(background.get(row['id'], 0.0))}
            for row in rows.rows(connection, select(
                _H.id, _H.name, _H.version, _H.facts, _H.enforcing,
                _H.last_seen_s, _H.background, _H.workloads_digest
                ).where(_H.removed_s.is_(None)).order_by(_H.name))]
