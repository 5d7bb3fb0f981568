# SPDX-License-Identifier: Apache-2.0

"""Kill switch and governor: of the cloud, of aggregates, of hosts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_S = tables.switches.c


def page(connection: sa.Connection, *, governed: bool = False,
         protection: bool | None = None,
         after: int | None = None, limit: int) -> list[Row]:
    """The switches that were set.

    :param governed: only those with a number of limits per minute
    :param protection: only those that are on, or off
    """
    return rows.newest(
        connection, sa.select(tables.switches), tables.switches,
        {_S.protection: protection}, after, limit,
        [_S.caps_per_minute.is_not(None)] if governed else [])


def of(connection: sa.Connection, scope: str, target: str, *,
       lock: bool = False) -> Row | None:
    """Return the switch of a scope and target.

    :param lock: keep other writers of it out until the transaction ends
    """
    query = sa.select(tables.switches).where(_S.scope == scope,
                                             _S.target == target)
    return rows.first(connection, query.with_for_update() if lock else query)


def put(connection: sa.Connection, scope: str, target: str,
        before: Row | None, **values: Any) -> None:
    """Change what ``before`` was; without one, make it."""
    if before is None:
        connection.execute(sa.insert(tables.switches).values(
            **{'protection': True, 'reason': '', 'changed_by': '',
               'changed_s': 0.0, 'scope': scope, 'target': target, **values}))
    else:
        connection.execute(sa.update(tables.switches)
                           .where(_S.id == before['id']).values(**values))
