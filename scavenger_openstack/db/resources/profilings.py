# SPDX-License-Identifier: Apache-2.0

"""Requests to measure the profile of a workload by injection."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

STATES = ASKED, MEASURING, DONE, FAILED = (
    'asked', 'measuring', 'done', 'failed')
LOST = 'the host has not reported what came of it'

_P = tables.profilings.c
_SHOWN = sa.select(*tables.profilings.c, tables.hosts.c.name.label('host')
                   ).join_from(tables.profilings, tables.hosts)


def page(connection: sa.Connection, *, host_id: int | None = None,
         state: str | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    """Return a page of requests, the newest first."""
    return rows.newest(connection, _SHOWN, tables.profilings,
                       {_P.host_id: host_id, _P.state: state}, after, limit)


def show(connection: sa.Connection, uuid: str) -> Row | None:
    """Return a request."""
    return rows.first(connection, _SHOWN.where(_P.uuid == uuid))


def unfinished(connection: sa.Connection, now_s: float) -> list[Row]:
    """Return the requests that are measured, or are to be."""
    return rows.rows(connection, _SHOWN.where(
        _P.unfinished.is_not(None), _P.until_s > now_s).order_by(_P.id))


def measuring(connection: sa.Connection, host_id: int) -> list[Row]:
    """Return what is being measured on a host."""
    return rows.rows(connection, _SHOWN.where(
        _P.unfinished == host_id, _P.state == MEASURING))


def used_s(connection: sa.Connection, host_id: int, now_s: float) -> float:
    """Return how long load was injected on a host within a day; a request
    that goes on counts with all that it may take."""
    seconds = connection.execute(sa.select(
        sa.func.sum(_P.used_s)).where(
            _P.host_id == host_id, _P.created_s > now_s - DAY_S)).scalar()
    return float(seconds or 0.0)


def add(connection: sa.Connection, **values: Any) -> None:
    """Store a request.

    :raises IntegrityError: another request of the host goes on
    """
    connection.execute(sa.insert(tables.profilings).values(
        **values, unfinished=values['host_id']))


def begin(connection: sa.Connection, host_id: int, uuid: str, now_s: float,
          until_s: float) -> None:
    """Note that a host measures a request."""
    connection.execute(sa.update(tables.profilings).where(
        _P.uuid == uuid, _P.host_id == host_id, _P.state == ASKED).values(
            state=MEASURING, changed_s=now_s, until_s=until_s))


def end(connection: sa.Connection, id_: int, state: str, detail: str,
        now_s: float, used_s: float | None = None) -> bool:
    """End a request; false if it has ended already.

    :param used_s: how long was injected, if that is known
    """
    values: Row = {'state': state, 'detail': detail, 'changed_s': now_s,
                   'ended_s': now_s, 'unfinished': None}
    if used_s is not None:
        values['used_s'] = used_s
    return bool(connection.execute(sa.update(tables.profilings).where(
        _P.id == id_, _P.unfinished.is_not(None)).values(values)).rowcount)


def give_up(connection: sa.Connection, now_s: float) -> None:
    """End requests whose host has not reported in time."""
    connection.execute(sa.update(tables.profilings).where(
        _P.unfinished.is_not(None), _P.until_s <= now_s).values(
            state=FAILED, detail=LOST, changed_s=now_s, ended_s=now_s,
            unfinished=None))
