# SPDX-License-Identifier: Apache-2.0

"""Priorities and exemptions of instances, projects and aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Literal
import uuid

import sqlalchemy as sa

from scavenger_openstack.db.resources import audit
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_R = tables.rules.c

Kind = Literal['priority', 'exemption']

NOVA = 'nova'
"""The actor of what is so because Nova says it."""

OF_NOVA = 'metadata of the host aggregate in Nova'
"""The reason of a priority that Nova says; with its creator the mark."""


def page(connection: sa.Connection, kind: Kind, *, scope: str | None = None,
         target: str | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    return rows.newest(
        connection, sa.select(tables.rules), tables.rules,
        {_R.kind: kind, _R.scope: scope, _R.target: target}, after, limit)


def show(connection: sa.Connection, kind: Kind, uuid: str) -> Row | None:
    return rows.first(connection, sa.select(tables.rules).where(
        _R.kind == kind, _R.uuid == uuid))


def of(connection: sa.Connection, kind: Kind, scope: str, target: str
       ) -> Row | None:
    return rows.first(connection, sa.select(tables.rules).where(
        _R.kind == kind, _R.scope == scope, _R.target == target
    ).with_for_update())


def add(connection: sa.Connection, **values: Any) -> None:
    connection.execute(sa.insert(tables.rules).values(**values))


def change(connection: sa.Connection, id_: int, **values: Any) -> None:
    connection.execute(sa.update(tables.rules).where(_R.id == id_)
                       .values(**values))


def remove(connection: sa.Connection, id_: int) -> None:
    connection.execute(sa.delete(tables.rules).where(_R.id == id_))


def follow_priorities(connection: sa.Connection, wanted: Mapping[str, str], *,
                      now_s: float) -> int:
    """Make these the priorities that Nova says for aggregates, by their
    name, but where an operator gave one, with rows in the audit; how many
    were others."""
    stored = {row['target']: row for row in rows.rows(
        connection, sa.select(tables.rules).where(
            _R.kind == 'priority', _R.scope == 'aggregate'))}
    changed = 0
    for target in sorted(stored.keys() | wanted.keys()):
        value = wanted.get(target)
        if _stays(stored.get(target), value):
            continue
        # Again, and locked: an operator may have set it meanwhile.
        row = of(connection, 'priority', 'aggregate', target)
        if _stays(row, value):
            continue
        changed += 1
        if value is None:
            end_nova(connection, target, actor=NOVA, now_s=now_s)
            continue
        if row is None:
            add(connection, uuid=uuid.uuid4().hex, kind='priority',
                scope='aggregate', target=target, value=value,
                application='', reason=OF_NOVA, created_by=NOVA,
                created_s=now_s)
        else:
            change(connection, row['id'], value=value, created_s=now_s)
        _record(connection, NOVA, 'priority.set', target,
                None if row is None else row['value'], value, now_s)
    return changed


def _stays(row: Row | None, value: str | None) -> bool:
    """Return whether a priority is not to change when Nova says this."""
    if row is None:
        return value is None
    return not is_nova(row) or row['value'] == value


def end_nova(connection: sa.Connection, target: str, *, actor: str,
             now_s: float) -> None:
    """Remove the priority that Nova says for an aggregate, if there is
    one."""
    row = of(connection, 'priority', 'aggregate', target)
    if row is not None and is_nova(row):
        remove(connection, row['id'])
        _record(connection, actor, 'priority.delete', target, row['value'],
                None, now_s)


def is_nova(row: Row) -> bool:
    """Return whether a priority is one that Nova says, and no operator's."""
    return row['created_by'] == NOVA and row['reason'] == OF_NOVA


def _record(connection: sa.Connection, actor: str, action: str, target: str,
            before: str | None, after: str | None, now_s: float) -> None:
    audit.add(connection, time_s=now_s, actor=actor, action=action,
              target=f'aggregate/{target}',
              before=before and {'value': before},
              after=after and {'value': after}, reason=OF_NOVA)
