# SPDX-License-Identifier: Apache-2.0

"""What agents report, into the tables.

Functions take a connection in a transaction and leave the commit to the
caller.  :func:`host` locks the host's row first, so that two reports of one
host are applied one after the other; all that is written here belongs to
that host.  Texts that are longer than their column are cut.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db.rows import batches
from scavenger_openstack.db.rows import count_added
from scavenger_openstack.db.rows import cut
from scavenger_openstack.db.rows import host_parameters
from scavenger_openstack.db.rows import insert_rows
from scavenger_openstack.db.rows import of_host
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db.rows import update_rows
from scavenger_openstack.db import tables
from scavenger_openstack.outcomes import OUTCOME_OF

Connection = sa.Connection

_hosts, _runs = tables.hosts.c, tables.runs.c
_tags = tables.flavor_tags.c

# Built once: a statement that is built each time costs as much as running it.
_HOST = sa.select(
    _hosts.id, _hosts.facts, _hosts.workloads_digest, _hosts.settings,
    _hosts.token_hash, _hosts.boot_id, _hosts.last_seen_s,
    _hosts.token_from_s, _hosts.background).where(
        _hosts.name == sa.bindparam('host')).with_for_update(key_share=True)
_PROGRESS = sa.select(
    sa.select(_runs.sequence).where(
        _runs.host_id == sa.bindparam('host_id'),
        _runs.run_id == sa.bindparam('run')).scalar_subquery(),
    sa.select(_runs.time_s).where(
        _runs.host_id == sa.bindparam('host_id'),
        _runs.run_id == sa.bindparam('run')).scalar_subquery(),
    sa.select(tables.claims.c.beat).where(
        tables.claims.c.name == generation.NAME).scalar_subquery(),
    sa.select(sa.func.sum(_tags.stamp)).where(
        of_host(_tags)).scalar_subquery())
_UPDATE_HOST = sa.update(tables.hosts).where(_hosts.id == sa.bindparam('row'))
_UPDATE_RUN = sa.update(tables.runs).where(
    _runs.host_id == sa.bindparam('of_host'),
    _runs.run_id == sa.bindparam('run'))

MOST_RUNS = 1000
"""Runs of a host that are remembered: the newest.  An agent may invent them,
and goes on with the next when the conductor has all of one."""


class Identity(NamedTuple):
    """What a workload is, besides its name on the host."""

    instance: str = ''
    project: str = ''
    application: str = ''
    foreground: bool = False


class Suspect(NamedTuple):
    """What may disturb the victim of an incident; ``foreground`` is its
    priority at the time of the newest entry.  ``earlier``: it was named, and
    disturbs no more."""

    workload: str
    score: float | None
    antagonist: bool
    foreground: bool = False
    earlier: bool = False


class Host(NamedTuple):
    """A host's row, as far as a report needs it."""

    id: int
    facts: Row
    workloads_digest: str
    settings: Row
    token_hash: str | None
    boot_id: str
    last_seen_s: float
    token_from_s: float | None = None
    background: Row | None = None


class Progress(NamedTuple):
    """How far a run of an agent is stored, and what tells of changes.

    ``sequence``: of its last entry, ``None`` before its first report;
    ``last_s``: when that happened.
    ``generation``: of :mod:`.generation`.  ``tags``:
    differs when what the flavors of the host's instances say has changed,
    whatever the clocks of the senders.
    """

    sequence: int | None
    last_s: float | None
    generation: int
    tags: int


def hour(time_s: float) -> int:
    """The full hour that a time is in."""
    return int(time_s // HOUR_S) * HOUR_S


def host(connection: sa.Connection, name: str) -> Host | None:
    """The host of that name, locked until the transaction ends."""
    row = connection.execute(_HOST, {'host': name}).first()
    return None if row is None else Host(*row)


def add_host(connection: sa.Connection, name: str, now: float) -> Host:
    """A host that reports for the first time."""
    row: Row = {'name': name, 'facts': {}, 'settings': {},
                'first_seen_s': now, 'last_seen_s': now,
                'totals_hour_s': hour(now)}
    done = connection.execute(sa.insert(tables.hosts), row)
    assert done.inserted_primary_key is not None
    return Host(done.inserted_primary_key[0], {}, '', {}, None, '', now)


def update_host(connection: sa.Connection, host_id: int, row: Row) -> None:
    connection.execute(_UPDATE_HOST, {**cut(tables.hosts, row),
                                      'row': host_id})


def progress(connection: sa.Connection, host_id: int, host: str, run: str
             ) -> Progress:
    """See :class:`Progress`.

    :param host: its name
    """
    sequence, last_s, generation, tags = connection.execute(_PROGRESS, {
        'host_id': host_id, 'run': run, **host_parameters(host)}).one()
    return Progress(sequence, last_s, generation or 0, int(tags or 0))


def newest_run(connection: sa.Connection, host_id: int) -> str | None:
    """Return the run of a host whose first report came last."""
    run_id: str | None = connection.execute(
        sa.select(_runs.run_id).where(_runs.host_id == host_id).order_by(
            _runs.id.desc()).limit(1)).scalar()
    return run_id


def last_entry_s(connection: sa.Connection, host_id: int) -> float:
    """Return when the last entry of all runs of a host happened, 0 before the
    first."""
    return connection.execute(sa.select(sa.func.max(_runs.time_s)).where(
        _runs.host_id == host_id)).scalar() or 0.0


def set_progress(connection: sa.Connection, host_id: int, run: str,
                 sequence: int, last_s: float, now: float, new: bool
                 ) -> None:
    """Store how far a run of an agent is stored.

    :param last_s: when the last entry happened
    """
    row: Row = {'sequence': sequence, 'time_s': last_s, 'last_seen_s': now}
    if not new:
        connection.execute(_UPDATE_RUN, {
            **row, 'of_host': host_id, 'run': run})
        return
    connection.execute(sa.insert(tables.runs), {
        **row, 'host_id': host_id, 'run_id': run})
    count_added(connection, tables.runs, 1)
    oldest = connection.execute(
        sa.select(_runs.id).where(_runs.host_id == host_id).order_by(
            _runs.id.desc()).limit(1).offset(MOST_RUNS)).scalar()
    if oldest is not None:
        connection.execute(sa.delete(tables.runs).where(
            _runs.host_id == host_id, _runs.id <= oldest))


def workloads(connection: sa.Connection, host_id: int) -> dict[str, Row]:
    """The rows of the workloads that are on a host, by name."""
    table = tables.workloads
    rows = connection.execute(sa.select(table).where(
        table.c.host_id == host_id, table.c.until_s.is_(None)))
    return {row['name']: dict(row) for row in rows.mappings()}


def end_workloads(connection: sa.Connection, host_id: int,
                  gone: Mapping[str, int], now: float, why: str) -> None:
    """Note that workloads have ended, and with them their limits.

    :param gone: name to id of the row
    """
    for ids in batches(sorted(gone.values())):
        connection.execute(sa.update(tables.workloads).where(
            tables.workloads.c.id.in_(ids)).values(until_s=now))
    for names in batches(sorted(gone)):
        end_caps(connection, host_id, now, why, names)


def incidents(connection: sa.Connection, uuids: Collection[str]
              ) -> dict[str, Row]:
    """The rows of these incidents, of whatever host, each with its suspects
    as ``suspects``: a list of :class:`Suspect`."""
    table, suspects = tables.incidents, tables.suspects.c
    by_uuid: dict[str, Row] = {}
    for some in batches(sorted(uuids)):
        rows = connection.execute(sa.select(table).where(
            table.c.uuid.in_(some))).mappings()
        by_id = {row['id']: {**row, 'suspects': []} for row in rows}
        for incident_id, *suspect in connection.execute(
                sa.select(suspects.incident_id, suspects.workload,
                          suspects.score, suspects.antagonist,
                          suspects.foreground, suspects.earlier).where(
                              suspects.incident_id.in_(sorted(by_id)))
                .order_by(suspects.id)):
            by_id[incident_id]['suspects'].append(Suspect(*suspect))
        by_uuid.update({row['uuid']: row for row in by_id.values()})
    return by_uuid


def add_incidents(connection: sa.Connection, rows: Sequence[Row]
                  ) -> dict[str, int]:
    """Insert incidents; uuid to id."""
    insert_rows(connection, tables.incidents, rows)
    table = tables.incidents.c
    ids: dict[str, int] = {}
    for some in batches(sorted(row['uuid'] for row in rows)):
        for uuid, number in connection.execute(sa.select(
                table.uuid, table.id).where(table.uuid.in_(some))):
            ids[uuid] = number
    return ids


def end_incidents(connection: sa.Connection, host_id: int, now: float,
                  ever: bool = False) -> None:
    """End the incidents of a host that last changed before ``now``.
    What they add to the hourly sums ends with what was known of them.

    :param ever: as of :func:`end_caps`
    """
    table = tables.incidents.c
    which = [table.host_id == host_id, table.ended_s.is_(None)]
    if not ever:
        which.append(table.changed_s < now)
    uuids = (connection.scalars(sa.select(table.uuid).where(*which)).all()
             if notifications.are_wanted(connection) else ())
    connection.execute(sa.update(tables.incidents).where(*which).values(
        ended_s=_later(table.changed_s, now), outcome=sa.case(
            OUTCOME_OF[True], value=table.outcome, else_=table.outcome)))
    notifications.add_incidents(
        connection, {notifications.Event.CLOSED: uuids}, now)


def set_suspects(connection: sa.Connection, had: Collection[int],
                 rows: Sequence[Row]) -> None:
    """Replace the suspects of incidents.

    :param had: ids of the incidents that have some
    :param rows: all that there are now
    """
    for some in batches(sorted(had)):
        count_added(connection, tables.suspects, -connection.execute(sa.delete(
            tables.suspects).where(tables.suspects.c.incident_id.in_(some))
            ).rowcount)
    insert_rows(connection, tables.suspects, rows)


def caps(connection: sa.Connection, host_id: int, names: Collection[str],
         knobs: Collection[str], since_s: float) -> list[Row]:
    """The limits of these workloads and knobs in force, or set since then."""
    table = tables.caps
    by_id: dict[int, Row] = {}
    for some in batches(sorted(set(names))):
        query = sa.select(table).where(
            table.c.host_id == host_id, table.c.workload.in_(some),
            table.c.knob.in_(sorted(set(knobs))))
        # One statement with an OR would read all that there ever were.
        for condition in (table.c.removed_s.is_(None),
                          table.c.set_s >= since_s):
            by_id.update((row['id'], dict(row)) for row in connection.execute(
                query.where(condition)).mappings())
    return [row for _, row in sorted(by_id.items())]


def end_caps(connection: sa.Connection, host_id: int, now: float, why: str,
             names: Collection[str] | None = None, ever: bool = False
             ) -> None:
    """The limits of a host that were set until now, of these workloads or all,
    are in force no more.

    :param ever: those too that were set later, by a clock that was set back
        since; they end when they last changed
    """
    table = tables.caps.c
    which = [table.host_id == host_id, table.removed_s.is_(None)]
    if not ever:
        which.append(table.changed_s <= now)
    if names is not None:
        which.append(table.workload.in_(names))
    if notifications.are_wanted(connection):
        notifications.add_limits(
            connection, notifications.Event.REMOVED, host_id, [
                {**row, 'removed_s': max(row['changed_s'], now), 'why': why}
                for row in connection.execute(sa.select(tables.caps).where(
                    *which)).mappings()], now)
    connection.execute(sa.update(tables.caps).where(*which).values(
        removed_s=_later(table.changed_s, now), why=why))


def _later(column: Any, time_s: float) -> Any:
    """The later of both."""
    return sa.case((column > time_s, column), else_=time_s)


def hours(connection: sa.Connection, host_id: int, hours_s: Collection[int],
          workloads: Collection[str]) -> dict[tuple[int, str, str, str], Row]:
    """The hourly sums, by hour, antagonist, victim and cause."""
    table = tables.antagonist_hours
    sums: dict[tuple[int, str, str, str], Row] = {}
    for some in batches(sorted(hours_s)):
        for names in batches(sorted(workloads)):
            for row in connection.execute(sa.select(table).where(
                    table.c.hour_s.in_(some), table.c.host_id == host_id,
                    table.c.workload.in_(names))).mappings():
                sums[row['hour_s'], row['workload'], row['victim'],
                     row['cause']] = dict(row)
    return sums


def set_hours(connection: sa.Connection, new: Sequence[Row],
              changed: Sequence[Row], empty: Collection[int]) -> None:
    """Write hourly sums.

    :param empty: ids of those that nothing is left of
    """
    insert_rows(connection, tables.antagonist_hours, new)
    update_rows(connection, tables.antagonist_hours, changed)
    for some in batches(sorted(empty)):
        connection.execute(sa.delete(tables.antagonist_hours).where(
            tables.antagonist_hours.c.id.in_(some)))


def add_audit(connection: sa.Connection, rows: Sequence[Row], *,
              by_agent: bool = False) -> None:
    """Append to the audit; ``time_s``, ``actor``, ``action``, ``target`` and
    ``reason`` are needed, the rest is empty where it is missing.

    :param by_agent: an agent is the cause, and nothing else is wanted
    """
    insert_rows(connection, tables.audit, [
        {'project': '', 'request_id': '', 'before': None, 'after': None,
         'actor_name': row['actor'], 'by_agent': by_agent, **row}
        for row in rows])
    if rows and not by_agent:
        generation.count(connection)
