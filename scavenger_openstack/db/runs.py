# SPDX-License-Identifier: Apache-2.0

"""How far each run of an agent is stored."""

from __future__ import annotations

import sqlalchemy as sa

from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables

MOST = 1000
"""Runs of a host that are remembered: the newest.  An agent may invent them,
and goes on with the next when the conductor has all of one."""

_R = tables.runs.c
_UPDATE = sa.update(tables.runs).where(
    _R.host_id == sa.bindparam('of_host'), _R.run_id == sa.bindparam('run'))


def newest(connection: sa.Connection, host_id: int) -> str | None:
    """The run of a host whose first report came last."""
    run_id: str | None = connection.execute(
        sa.select(_R.run_id).where(_R.host_id == host_id).order_by(
            _R.id.desc()).limit(1)).scalar()
    return run_id


def last_entry_s(connection: sa.Connection, host_id: int) -> float:
    """Return when the last entry of all runs of a host happened, 0 before the
    first."""
    return connection.execute(sa.select(sa.func.max(_R.time_s)).where(
        _R.host_id == host_id)).scalar() or 0.0


def set_progress(connection: sa.Connection, host_id: int, run: str,
                 sequence: int, last_s: float, now: float, new: bool
                 ) -> None:
    """Store how far a run of an agent is stored.

    :param last_s: when the last entry happened
    """
    row: reports.Row = {'sequence': sequence, 'time_s': last_s,
                        'last_seen_s': now}
    if not new:
        connection.execute(_UPDATE, {**row, 'of_host': host_id, 'run': run})
        return
    connection.execute(sa.insert(tables.runs), {
        **row, 'host_id': host_id, 'run_id': run})
    rows.count_added(connection, tables.runs, 1)
    oldest = connection.execute(
        sa.select(_R.id).where(_R.host_id == host_id).order_by(
            _R.id.desc()).limit(1).offset(MOST)).scalar()
    if oldest is not None:
        connection.execute(sa.delete(tables.runs).where(
            _R.host_id == host_id, _R.id <= oldest))
