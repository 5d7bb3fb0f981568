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
            for going in (profilings.measuring(connection, host_id)
                          if entry.what == 'started' else ()):
                audit += _end(connection, going, host, now, STARTED,
                              going['used_s'])
            continue
        row = profilings.show(connection, entry.id)
        if row is None or row['host_id'] != host_id or not row['unfinished']:
            continue
        if entry.what == 'began':
            profilings.begin(connection, host_id, entry.id, now,
                             now + row['seconds'] + END_S)
            continue
        why, document = entry.detail, None
        if entry.what == 'measured':
            why, document = _document(row, entry, now)
        audit += _end(
            connection, row, host, now, why,
            # The sum of what hosts say has to stay a number.
            min(entry.seconds, row['seconds'] + END_S), document)
    return audit


def _end(connection: connect.Connection, row: Row, host: str, now: float,
         why: str, used_s: float, document: profile.Document | None = None
         ) -> list[Row]:
    """Note the end of a profile, and store it; rows for the audit, none where
    an operator has removed it meanwhile."""
    state = profilings.DONE if document else profilings.FAILED
    if not profilings.end(connection, row['id'], state, why, now, used_s):
        return []
    change = document and profiles.set_profile(
        connection, document, created_by=row['created_by'], now_s=now)
    generation.count(connection)
    return [{
        'time_s': now, 'actor': f'agent {host}', 'project': row['project'],
        'action': f'profiling.{state}', 'target': row['workload'],
        'reason': why, 'after': {'host': host, 'seconds': round(used_s, 1)},
        'before': change.before['document']
        if change and change.before else None}]


def _document(row: Row, entry: Profiling, now: float
              ) -> tuple[str, profile.Document | None]:
    """Return the profile that a host reports, or why it is none."""
    try:
        return '', profile.of_json({
            **_measured(entry.profile),
            **{name: row[name] for name in ('kind', 'target', 'project',
                                            'form', 'host')},
            'source': profile.MEASURED, 'measured_s': now})
    except (errors.WireError, ValueError, RecursionError) as exc:
        return ('the host reports a profile that cannot be read: '
                + printable(str(exc))[:200]), None


def _measured(text: str) -> dict[str, Any]:
    """Return the parts of a profile that a host measured.

    :raises ValueError: it is no object in JSON.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError('no object')
    return {name: values[name] for name in MEASURED if name in values}
