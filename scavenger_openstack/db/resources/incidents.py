# SPDX-License-Identifier: Apache-2.0

"""Incidents, their suspects and their evidence."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import functools
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import paging
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_I = tables.incidents.c
_S = tables.suspects.c

_SHOWN = (_I.id, _I.host_id, tables.hosts.c.name.label('host'), _I.uuid,
          _I.victim, _I.victim_instance, _I.project, _I.signal, _I.value,
          _I.threshold, _I.cause, _I.controller, _I.action, _I.outcome,
          _I.evidence_kind, _I.begun_s, _I.changed_s, _I.ended_s)


def has_cause(connection: sa.Connection, cause: str) -> bool:
    """Return whether there is an incident with that cause."""
    return rows.is_any(connection, sa.select(_I.id).where(_I.cause == cause))


def page(connection: sa.Connection, *, host_id: int | None = None,
         project: str | None = None, victim: str | None = None,
         victim_instance: str | None = None, antagonist: str | None = None,
         antagonist_instance: str | None = None, cause: str | None = None,
         outcome: str | None = None, evidence_kind: str | None = None,
         since_s: float | None = None, until_s: float | None = None,
         after: tuple[float, int] | None = None, limit: int) -> list[Row]:
    """Return incidents, those that began last first; without grounds and
    evidence, which are long.

    :param antagonist: a workload that was named, not only suspected
    :param since_s: those that began then or later
    :param until_s: those that began before
    :param after: when the last of the page before began, and its id
    """
    wanted = {_I.victim: victim, _I.victim_instance: victim_instance,
              _I.project: project, _I.host_id: host_id, _I.cause: cause,
              _I.outcome: outcome, _I.evidence_kind: evidence_kind}
    named = {_S.workload: antagonist, _S.instance: antagonist_instance}
    newest = functools.partial(paging.newest, connection, since=since_s,
                               until=until_s, after=after, limit=limit)
    if any(value is not None for value in named.values()):
        find = functools.partial(
            newest, tables.suspects, {**named, _S.antagonist: True},
            by=_S.begun_s, id_=_S.incident_id, where=_of_incident(wanted))
    else:
        find = functools.partial(newest, tables.incidents, wanted,
                                 by=_I.begun_s)
    return rows.of_ids(
        connection,
        sa.select(*_SHOWN).join_from(tables.incidents, tables.hosts), _I.id,
        find)


def _of_incident(wanted: Mapping[sa.Column, Any]
                 ) -> list[sa.ColumnElement[bool]]:
    """The condition that the incident of a suspect has these values.

    A subquery by the key that gives one value is asked row by row, and no
    further than the page goes.  Of a join, or of EXISTS, a database may read
    the incidents first, and all of them; where the value is compared outside,
    PostgreSQL expects one in 200 and reads all suspects first.
    """
    equal = [column == value for column, value in wanted.items()
             if value is not None]
    return [sa.select(sa.and_(*equal)).where(_I.id == _S.incident_id)
            .scalar_subquery()] if equal else []


def show(connection: sa.Connection, uuid: str, project: str | None = None
         ) -> Row | None:
    """Return an incident with its grounds and its evidence.

    :param project: only if the victim belongs to it
    """
    return rows.first(connection, rows.equal(
        sa.select(*_SHOWN, _I.grounds, _I.evidence)
        .join_from(tables.incidents, tables.hosts)
        .where(_I.uuid == uuid), {_I.project: project}))


def place(connection: sa.Connection, uuid: str, project: str | None
          ) -> tuple[float, int] | None:
    """Return where an incident is in a listing: ``after`` of :func:`page`.

    :param project: as for :func:`show`
    """
    return connection.execute(rows.equal(
        sa.select(_I.begun_s, _I.id).where(_I.uuid == uuid),
        {_I.project: project})).tuples().first()


def with_evidence(connection: sa.Connection, *, causes: Collection[str],
                  kinds: Collection[str], without: str, since_s: float,
                  after: tuple[float, int] | None, limit: int) -> list[Row]:
    """Return incidents with their grounds and evidence, and the facts of
    their hosts; those that began last come first.

    :param kinds: of their strongest evidence
    :param without: an outcome that they do not have
    :param since_s: and ``after``: as for :func:`page`
    """
    find = functools.partial(
        paging.newest, connection, tables.incidents, {}, by=_I.begun_s,
        since=since_s, after=after, limit=limit, where=[
            _I.cause.in_(sorted(causes)),
            _I.evidence_kind.in_(sorted(kinds)), _I.outcome != without])
    return rows.of_ids(
        connection, sa.select(*_SHOWN, _I.grounds, _I.evidence,
                              tables.hosts.c.facts)
        .join_from(tables.incidents, tables.hosts), _I.id, find)


def suspects(connection: sa.Connection, incident_ids: Iterable[int], *,
             antagonists: bool = False) -> dict[int, list[Row]]:
    """Incident's id -> its suspects, those with the highest score first;
    ``earlier``: named, and disturbs no more although the incident goes on.

    :param antagonists: only those that were named
    """
    ids = sorted(incident_ids)
    by_incident: dict[int, list[Row]] = {id_: [] for id_ in ids}
    if not ids:
        return by_incident
    query = sa.select(_S.incident_id, _S.workload, _S.instance, _S.project,
                      _S.score, _S.antagonist, _S.foreground, _S.earlier,
                      _I.ended_s).join_from(
                          tables.suspects, tables.incidents).where(
                              _S.incident_id.in_(ids))
    if antagonists:
        query = query.where(_S.antagonist.is_(True))
    for row in rows.rows(connection, query.order_by(_S.id)):
        # When an incident is over nothing disturbs its victim any more.
        by_incident[row['incident_id']].append({
            **row, 'earlier': row['earlier'] and row['ended_s'] is None})
    for some in by_incident.values():
        some.sort(key=lambda row: (not row['antagonist'], row['earlier'],
                                   row['score'] is None,
                                   -(row['score'] or 0.0)))
    return by_incident
