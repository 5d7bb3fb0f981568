# SPDX-License-Identifier: Apache-2.0

"""Who changed what, when and why."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.wire import fit

_A = tables.audit.c


def page(connection: sa.Connection, *, action: str | None = None,
         target: str | None = None, actor: str | None = None,
         actor_name: str | None = None, by_agent: bool | None = None,
         since_s: float | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    return rows.newest(
        connection, sa.select(tables.audit), tables.audit,
        {_A.target: target, _A.action: action, _A.actor: actor,
         _A.actor_name: actor_name, _A.by_agent: by_agent}, after,
        limit, [] if since_s is None else [_A.time_s >= since_s])


def has_action(connection: sa.Connection, action: str) -> bool:
    """Return whether something did that."""
    return rows.is_any(connection, sa.select(_A.id).where(
        _A.action == action))


def add(connection: sa.Connection, *, time_s: float, actor: str, action: str,
        target: str, before: Any, after: Any, reason: str = '',
        actor_name: str = '', **more: str) -> None:
    """Write a row, in the transaction of what it tells of, which operators
    want, or Nova in their place.

    :param actor_name: what the actor is called, where ``actor`` is an id
    :param more: its ``project`` and ``request_id``, of one of the API
    """
    reports.add_audit(connection, [{
        'time_s': time_s, 'actor': fit.name(actor),
        'actor_name': fit.name(actor_name or actor), 'action': action,
        'target': fit.name(target), 'before': before, 'after': after,
        'reason': reason, **more}])
