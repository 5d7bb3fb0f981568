# SPDX-License-Identifier: Apache-2.0

"""Profiles that hosts were asked to measure: what came of each."""

from __future__ import annotations

from collections.abc import Iterable
import json
from typing import Any

from scavenger_openstack.db import connect
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.db.resources import profilings
from scavenger_openstack.db.rows import Row
from scavenger_openstack import errors
from scavenger_openstack.types import printable
from scavenger_openstack.wire import profile
from scavenger_openstack.wire.report import AgentEvent
from scavenger_openstack.wire.report import Profiling

END_S = 120.0
"""So much longer than it may take a host may need to report it."""

STARTED = 'the agent was started meanwhile'

MEASURED = ('qos', 'tolerated', 'caused', 'missing')
"""What a host says of a profile; whose it is, the request says."""


def apply(connection: connect.Connection, host_id: int, host: str,
          entries: Iterable[Profiling | AgentEvent], now: float) -> list[Row]:
    """Note what a host says of profiles that it was asked for; rows for the
    audit.

    An agent that starts goes on with none: what was measured has ended, and
    took all the time that it might.
    """
    audit: list[Row] = []
    for entry in entries:
        if isinstance(entry, AgentEvent):
            if entry.what == 'started':
                audit += [_end(connection, going, host, now, STARTED,
                               going['used_s']) for going in
                          profilings.measuring(connection, host_id)]
            continue
        row = profilings.show(connection, entry.id)
        if row is None or row['host_id'] != host_id or not row['unfinished']:
            continue
        if entry.what == 'began':
            profilings.begin(connection, host_id, entry.id, now,
                             now + row['seconds'] + END_S)
            continue
        why, change = entry.detail, None
        if entry.what == 'measured':
            why, change = _store(connection, row, entry, now)
        audit.append(_end(
            connection, row, host, now, why,
            # The sum of what hosts say has to stay a number.
            min(entry.seconds, row['seconds'] + END_S), change))
    return audit


def _end(connection: connect.Connection, row: Row, host: str, now: float,
         why: str, used_s: float, change: profiles.Change | None = None
         ) -> Row:
    """Note the end of a profile; the row for the audit."""
    state = profilings.DONE if change else profilings.FAILED
    profilings.end(connection, row['id'], state, why, now, used_s)
    generation.count(connection)
    return {
        'time_s': now, 'actor': f'agent {host}', 'project': row['project'],
        'action': f'profiling.{state}', 'target': row['workload'],
        'reason': why, 'after': {'host': host, 'seconds': round(used_s, 1)},
        'before': change.before and change.before['document']
        if change else None}


def _store(connection: connect.Connection, row: Row, entry: Profiling,
           now: float) -> tuple[str, profiles.Change | None]:
    """Store a profile; why that cannot be, and what changed."""
    try:
        document = profile.of_json({
            **_measured(entry.profile),
            **{name: row[name] for name in ('kind', 'target', 'project',
                                            'form', 'host')},
            'source': profile.MEASURED, 'measured_s': now})
    except (errors.WireError, ValueError, RecursionError) as exc:
        return ('the host reports a profile that cannot be read: '
                + printable(str(exc))[:200]), None
    return '', profiles.set_profile(
        connection, document, created_by=row['created_by'], now_s=now)


def _measured(text: str) -> dict[str, Any]:
    """
    :raises ValueError: it is no object in JSON.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError('no object')
    return {name: values[name] for name in MEASURED if name in values}
