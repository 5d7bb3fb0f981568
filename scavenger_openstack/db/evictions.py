# SPDX-License-Identifier: Apache-2.0

"""Instances that Nova is asked to take away from their hosts.

``state`` is one of ``asked``, ``sending``, ``doing``, ``done`` and
``failed``; the last two have ``ended_s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

_E = tables.evictions.c
_W = tables.workloads.c
_C = tables.claims.c

ASKED, SENDING, DOING, DONE, FAILED = STATES = (
    'asked', 'sending', 'doing', 'done', 'failed')

CLAIM = 'evictions'
"""Of the conductor that carries them out."""


def page(connection: sa.Connection, *, instance: str | None = None,
         host: str | None = None, project: str | None = None,
         state: str | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    return rows.newest(
        connection, sa.select(tables.evictions), tables.evictions,
        {_E.instance: instance, _E.host: host, _E.project: project,
         _E.state: state}, after, limit)


def show(connection: sa.Connection, uuid: str) -> Row | None:
    return rows.first(connection, sa.select(tables.evictions).where(
        _E.uuid == uuid))


def id_of(connection: sa.Connection, project: str, uuid: str) -> int | None:
    """The id of an eviction of an instance of a project."""
    return connection.scalar(sa.select(_E.id).where(
        _E.uuid == uuid, _E.project == project))


def unfinished(connection: sa.Connection, instance: str | None = None
               ) -> list[Row]:
    """Return the evictions that have not ended, the oldest first."""
    return rows.rows(connection, rows.equal(
        sa.select(tables.evictions).where(_E.ended_s.is_(None)),
        {_E.instance: instance}).order_by(_E.id))


def paused(connection: sa.Connection, instances: Sequence[str], before_s: float
           ) -> list[Row]:
    """Return the evictions that paused one of these instances before then."""
    return rows.rows(connection, sa.select(tables.evictions).where(
        _E.instance.in_(instances), _E.how == 'pause', _E.state == DONE,
        _E.ended_s < before_s))


def since(connection: sa.Connection, since_s: float) -> list[Row]:
    """Return the evictions that were asked for since then."""
    return rows.rows(connection, sa.select(
        _E.instance, _E.host, _E.created_s).where(_E.created_s >= since_s))


def add(connection: sa.Connection, **values: Any) -> None:
    """Store an eviction that is asked for.

    :raises IntegrityError: another one of the instance has not ended
    """
    connection.execute(sa.insert(tables.evictions).values(
        **values, unfinished=values['instance']))


def move(connection: sa.Connection, id_: int, before: str, state: str,
         detail: str, now: float) -> bool:
    """Move an eviction from one state to the next; return false when it
    is in another."""
    ended: dict[str, Any] = ({'ended_s': now, 'unfinished': None}
                             if state in (DONE, FAILED) else {})
    return bool(connection.execute(sa.update(tables.evictions).where(
        _E.id == id_, _E.state == before).values(
            state=state, detail=detail, changed_s=now, **ended)).rowcount)


def workload(connection: sa.Connection, instance: str) -> Row | None:
    """Return the instance as the host has it that reported it last, but before
    all those that report it as foreground: another host, or one that takes
    the name of another without its domain, is not enough to have it evicted.
    """
    return rows.first(connection, sa.select(
        _W.name, _W.instance, _W.project, _W.display_name, _W.priority,
        _W.source, _W.vcpus, _W.floor, tables.hosts.c.name.label('host')
        ).join_from(
            tables.workloads, tables.hosts).where(
                _W.instance == instance, _W.until_s.is_(None))
        .order_by(sa.case((_W.priority == Priority.BACKGROUND, 1), else_=0),
                  _W.id.desc()))


def is_background(row: Row) -> bool:
    return bool(row['priority'] == Priority.BACKGROUND)


def works(connection: sa.Connection, now: float) -> bool:
    """Return whether a conductor carries them out."""
    return rows.is_any(connection, sa.select(_C.name).where(
        _C.name == CLAIM, _C.expires_s > now))
