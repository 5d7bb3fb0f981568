# SPDX-License-Identifier: Apache-2.0

"""Results of requests to measure profiles, as hosts report them."""

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
from scavenger_openstack.wire.report import Profiling

END_S = 120.0
"""So much longer than it may take a host may need to report it."""

MEASURED = ('qos', 'tolerated', 'caused', 'missing')
"""What a host says of a profile; whose it is, the request says."""


def apply(connection: connect.Connection, host_id: int, host: str,
          entries: Iterable[Profiling], now: float) -> list[Row]:
    """Note what a host says of profiles that it was asked for; rows for the
    audit."""
    audit: list[Row] = []
    for entry in entries:
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
        state = profilings.DONE if change else profilings.FAILED
        profilings.end(connection, row['id'], state, why, now, entry.seconds)
        generation.count(connection)
        audit.append({
            'time_s': now, 'actor': f'agent {host}',
            'project': row['project'], 'action': f'profiling.{state}',
            'target': entry.workload, 'reason': why, 'after': {
                'host': host, 'seconds': round(entry.seconds, 1)},
            'before': change.before and change.before['document']
            if change else None})
    return audit


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
