# SPDX-License-Identifier: Apache-2.0

"""Interference profiles of applications, flavors and images."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
import uuid

import sqlalchemy as sa

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.wire import profile

_P = tables.profiles.c


class Change(NamedTuple):
    """A profile that was stored, and the one that it replaced."""

    before: Row | None
    after: Row


def page(connection: sa.Connection, *, kind: str | None = None,
         target: str | None = None, project: str | None = None,
         reader: str | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    """Return a page of profiles, the newest first.

    :param reader: only what this project may see: its own profiles, and
        those that are for all projects
    """
    return rows.newest(
        connection, sa.select(tables.profiles), tables.profiles,
        {_P.kind: kind, _P.target: target, _P.project: project}, after,
        limit, [] if reader is None else [_P.project.in_((reader, ''))])


def show(connection: sa.Connection, uuid: str, reader: str | None = None
         ) -> Row | None:
    """Return a profile; ``reader`` as in :func:`page`."""
    query = sa.select(tables.profiles).where(_P.uuid == uuid)
    if reader is not None:
        query = query.where(_P.project.in_((reader, '')))
    return rows.first(connection, query)


def id_of(connection: sa.Connection, reader: str, uuid: str,
          created_ms: int) -> int | None:
    """Return the id of a profile that a project may see, unless another has
    replaced it since."""
    row = show(connection, uuid, reader)
    return (int(row['id']) if row is not None
            and round(1e3 * row['created_s']) == created_ms else None)


def of_target(connection: sa.Connection, kind: str, target: str,
              project: str, *, lock: bool = False) -> Row | None:
    """Return the profile of a target of a project, '' for all projects."""
    query = sa.select(tables.profiles).where(
        _P.kind == kind, _P.target == target, _P.project == project)
    return rows.first(connection, query.with_for_update() if lock else query)


def set_profile(connection: sa.Connection, document: profile.Document, *,
                created_by: str, now_s: float) -> Change | None:
    """Store a profile in place of that of the same kind, target and project.

    Nothing is stored, and ``None`` returned, where that would replace a
    measured profile with an estimate.  The caller records the change in the
    audit, which alone has the profile that was replaced.

    :param now_s: UNIX time
    :raises IntegrityError: another transaction stored one at the same time
    """
    before = of_target(connection, document.kind, document.target,
                       document.project, lock=True)
    if before is not None:
        if (document.source == profile.ESTIMATED
                and before['document']['source'] == profile.MEASURED):
            return None
        remove(connection, before['id'])
    values = {'uuid': before['uuid'] if before else uuid.uuid4().hex,
              'kind': document.kind, 'target': document.target,
              'project': document.project,
              'document': profile.as_json(document),
              'created_by': created_by, 'created_s': now_s, 'stale_s': None}
    done = connection.execute(sa.insert(tables.profiles).values(**values))
    (id_,) = done.inserted_primary_key or (None,)
    return Change(before, {'id': id_, **values})


def mark_stale(connection: sa.Connection, kind: str, target: str, project: str,
               begun_s: float, ended_s: float) -> bool:
    """Mark a measured profile as stale; false if it is not, or was already.

    :param begun_s: when an incident of a victim of the target began: only
        a profile that was stored before is stale
    """
    row = of_target(connection, kind, target, project)
    if (row is None or row['stale_s'] is not None
            or row['created_s'] >= begun_s
            or row['document']['source'] != profile.MEASURED):
        return False
    connection.execute(sa.update(tables.profiles).where(
        _P.id == row['id']).values(stale_s=ended_s))
    return True


def remove(connection: sa.Connection, id_: int) -> None:
    """Delete a profile."""
    connection.execute(sa.delete(tables.profiles).where(_P.id == id_))


def ids(connection: sa.Connection) -> list[int]:
    """Return the ids of all profiles, the oldest first; the profile of an id
    never changes."""
    return list(connection.scalars(sa.select(_P.id).order_by(_P.id)))


def of_ids(connection: sa.Connection, wanted: Collection[int]) -> list[Row]:
    """Return the profiles of these ids."""
    return [row for some in rows.batches(sorted(wanted))
            for row in rows.rows(connection, sa.select(
                _P.id, _P.kind, _P.target, _P.project, _P.document).where(
                    _P.id.in_(some)))]


def values_of(row: Row) -> tuple[dict[str, float], dict[str, float]]:
    """Return how much a profile tolerates and causes, by SoI."""
    tolerated, caused = (
        {soi: estimate['value']
         for soi, estimate in row['document'][part].items()}
        for part in ('tolerated', 'caused'))
    return tolerated, caused
