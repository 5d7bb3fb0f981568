# SPDX-License-Identifier: Apache-2.0

"""What is to be sent to the message bus of the cloud.

A row is written in the transaction of its change, and is deleted once it was
sent, so that none is lost or made twice whatever process dies.
Nothing is written unless a configuration names topics.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import enum
from typing import Any
import uuid

import sqlalchemy as sa

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import incidents
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack.text import iso

VERSION = '1.0'
"""Of the payloads; the minor number grows with each field that is added."""

MOST = 100_000
"""Rows that wait, the newest; older ones are deleted unsent."""

_N = tables.notifications.c


class Event(enum.StrEnum):
    """What happened."""

    OPENED = 'interference.incident.opened'
    NAMED = 'interference.incident.named'
    CLOSED = 'interference.incident.closed'
    SET = 'interference.limit.set'
    REMOVED = 'interference.limit.removed'
    OVERRIDDEN = 'interference.limit.overridden'
    PROTECTION = 'interference.protection.changed'


INCIDENT = ('victim', 'signal', 'cause', 'controller', 'value', 'threshold',
            'outcome', 'project')
LIMIT = ('workload', 'instance', 'project', 'knob', 'value', 'original',
         'owner', 'reason', 'why')
OVERRIDE = ('workload', 'instance', 'project', 'knob', 'value', 'reason',
            'created_by')
ANTAGONIST = ('workload', 'instance', 'project', 'score', 'foreground',
              'earlier')
GROUND = ('workload', 'kind', 'share', 'waited_s', 'window_s', 'chance',
          'before', 'after')


def are_wanted(connection: sa.Connection) -> bool:
    """Return whether there is a topic to send to."""
    return bool(connection.get_execution_options().get(connect.NOTIFIES))


def add(connection: sa.Connection, event: Event, payloads: Iterable[rows.Row],
        now_s: float) -> None:
    """Store notifications, if there is a topic.

    :param payloads: each is JSON, without its version
    :param now_s: when it happened
    """
    if are_wanted(connection):
        rows.insert_rows(connection, tables.notifications, [
            {'uuid': uuid.uuid4().hex, 'event': event, 'time_s': now_s,
             'payload': {'version': VERSION, **payload}}
            for payload in payloads])


def add_incidents(connection: sa.Connection, events: Mapping[
        Event, Collection[str]], now_s: float) -> None:
    """Store what happened to incidents, as the tables are now.

    :param events: event to ids of incidents
    """
    uuids = set().union(*events.values())
    if not uuids or not are_wanted(connection):
        return
    _I = tables.incidents.c
    payloads: dict[str, rows.Row] = {}
    for some in rows.batches(sorted(uuids)):
        by_id = {row['id']: row for row in rows.rows(connection, sa.select(
            tables.incidents, tables.hosts.c.name.label('host')).join_from(
                tables.incidents, tables.hosts).where(_I.uuid.in_(some)))}
        antagonists = incidents.suspects(connection, by_id, antagonists=True)
        payloads.update({row['uuid']: _incident(row, antagonists[id_])
                         for id_, row in by_id.items()})
    for event in Event:
        add(connection, event, [
            payloads[uuid] for uuid in sorted(events.get(event, ()))
            if uuid in payloads], now_s)


def add_limits(connection: sa.Connection, event: Event, host_id: int,
               limits: Sequence[Mapping[str, Any]], now_s: float) -> None:
    """Store that limits of a host were set or removed.

    :param limits: rows of the table, as they are now
    """
    if not limits or not are_wanted(connection):
        return
    host = connection.execute(sa.select(tables.hosts.c.name).where(
        tables.hosts.c.id == host_id)).scalar()
    add(connection, event, [
        {'host': host, **{field: limit.get(field) for field in LIMIT},
         'incidents': limit['incidents'].split(),
         'set_at': iso(limit['set_s']),
         'removed_at': iso(limit['removed_s'])} for limit in limits], now_s)


def add_override(connection: sa.Connection, host: str, override: Mapping[
        str, Any], now_s: float, *, is_set: bool) -> None:
    """Store that an operator has set an override, or removed it."""
    add(connection, Event.OVERRIDDEN, [
        {'host': host, **{field: override[field] for field in OVERRIDE},
         'expires_at': iso(override['expires_s']), 'set': is_set}], now_s)


def oldest(connection: sa.Connection, limit: int) -> list[rows.Row]:
    """Return the notifications that wait for longest, in their order."""
    return rows.rows(connection, sa.select(tables.notifications).order_by(
        _N.id).limit(limit))


def remove(connection: sa.Connection, ids: Collection[int]) -> None:
    """Delete notifications that were sent."""
    connection.execute(sa.delete(tables.notifications).where(_N.id.in_(ids)))


def trim(connection: sa.Connection, most: int = MOST) -> int:
    """Delete the oldest notifications above a number; return how many."""
    newest = connection.execute(sa.select(sa.func.max(_N.id))).scalar() or 0
    return connection.execute(sa.delete(tables.notifications).where(
        _N.id <= newest - most)).rowcount


def _incident(row: Mapping[str, Any], antagonists: Iterable[
        Mapping[str, Any]]) -> rows.Row:
    return {
        'id': row['uuid'], 'host': row['host'],
        'victim_instance': row['victim_instance'],
        **{field: row[field] for field in INCIDENT},
        'begun_at': iso(row['begun_s']), 'ended_at': iso(row['ended_s']),
        'antagonists': [{field: antagonist[field] for field in ANTAGONIST}
                        for antagonist in antagonists],
        'grounds': [{field: ground.get(field) for field in GROUND}
                    for ground in row['grounds'] or ()]}
