# SPDX-License-Identifier: Apache-2.0

"""Limits of a report.

A limit is known by workload, knob and when its owner set it or took it over.
A knob has one limit at a time: where a later one was set, the earlier has
ended.  The incidents that it answers stay known when they have ended before.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.conductor import clocks
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack.wire.report import Limit
from scavenger_openstack.wire.report import MAX_ANSWERED

SAME_S = 1e-3
"""Two limits of a knob are not set within so little."""

CHANGED = ('id', 'value', 'original', 'owner', 'reason', 'why', 'incidents',
           'steps', 'changed_s', 'removed_s')

MOST_STEPS = 64
"""Values of one limit that are kept: the first, and the last ones."""

REPLACED = 'another limit was set on it'


def apply(connection: reports.Connection, host_id: int,
          entries: Sequence[clocks.Timed],
          identities: Mapping[str, reports.Identity], now: float,
          newest: bool = False) -> None:
    """Insert limits that were set, and update those that have changed.

    :param entries: all are limits
    :param identities: of all workloads that the entries name
    :param newest: the entries are of the run that began last: each is
        newer than all that is stored, also where its clock was set back
    """
    if not entries:
        return
    timed = []
    for entry, time_s, moved_s in entries:
        assert isinstance(entry, Limit)
        timed.append((entry, time_s, bool(moved_s), min(
            max(0.0, entry.since_s + moved_s), time_s)))
    by_knob: dict[tuple[str, str], list[reports.Row]] = {}
    for cap in reports.caps(connection, host_id,
                            {entry.workload for entry, *_ in timed},
                            {entry.knob for entry, *_ in timed},
                            min(since_s for *_, since_s in timed) - SAME_S):
        by_knob.setdefault((cap['workload'], cap['knob']), []).append(cap)
    in_force = {row['id'] for of_knob in by_knob.values() for row in of_knob
                if row['removed_s'] is None}
    touched: dict[int, reports.Row] = {}
    for entry, time_s, moved, since_s in timed:
        of_knob = by_knob.setdefault((entry.workload, entry.knob), [])
        row = _same(of_knob, since_s, any_in_force=moved
                    and entry.what != 'set')
        if row is None:
            row = {'host_id': host_id, 'workload': entry.workload,
                   'knob': entry.knob, 'set_s': since_s, 'changed_s': 0.0,
                   'removed_s': None, 'why': '', 'incidents': '',
                   'owner': entry.owner, 'steps': None}
            _order(of_knob, row, touched, newest)
            of_knob.append(row)
        incidents = _joined(row['incidents'] if row['owner'] == entry.owner
                            else '', entry)
        if clocks.is_newer(time_s, row['changed_s'], now):
            row.update(value=entry.value, original=entry.original,
                       owner=entry.owner, reason=entry.reason,
                       incidents=incidents, changed_s=time_s,
                       steps=_steps(row, entry, time_s))
        if entry.what == 'removed':
            row.update(removed_s=time_s, why=entry.why)
        touched[id(row)] = row
    new = [{**identity_of(row['workload'], identities), **row}
           for row in touched.values() if 'id' not in row]
    notifications.add_limits(connection, notifications.Event.SET, host_id,
                             new, now)
    notifications.add_limits(
        connection, notifications.Event.REMOVED, host_id, [
            *(row for row in touched.values() if row.get('id') in in_force
              and row['removed_s'] is not None),
            *(row for row in new if row['removed_s'] is not None)], now)
    rows.insert_rows(connection, tables.caps, new)
    rows.update_rows(connection, tables.caps, [
        {name: row[name] for name in CHANGED}
        for row in touched.values() if 'id' in row])


def _steps(row: reports.Row, entry: Limit, time_s: float) -> list[Any]:
    """Return each value that a limit had, with the time of it."""
    steps = list(row['steps'] or ())
    if not steps:
        # Of its first lines one may not have arrived.
        steps.append([row['set_s'], row.get('value', entry.value)])
    if steps[-1][1] != entry.value:
        steps.append([time_s, entry.value])
    return [*steps[:1], *steps[1:][1 - MOST_STEPS:]]


def _joined(before: str, entry: Limit) -> str:
    """Return the ids of all incidents that a limit has answered, as the
    database has them; of too many the last ones."""
    ids = list(dict.fromkeys([*before.split(), *entry.incidents]))
    return ' '.join(ids[-MAX_ANSWERED:])


def identity_of(workload: str, identities: Mapping[str, reports.Identity]
                ) -> reports.Row:
    identity = identities.get(workload, reports.Identity())
    return {'instance': identity.instance, 'project': identity.project}


def _same(limits: Sequence[reports.Row], since_s: float, any_in_force: bool
          ) -> reports.Row | None:
    """The row of the limit that was set then.

    :param any_in_force: the clock was wrong: then the one in force will do
    """
    for row in limits:
        if abs(row['set_s'] - since_s) < SAME_S:
            return row
    if any_in_force:
        for row in limits:
            if row['removed_s'] is None:
                return row
    return None


def _order(limits: Sequence[reports.Row], new: reports.Row,
           touched: dict[int, reports.Row], newest: bool) -> None:
    """End the earlier of two limits on one knob."""
    for row in limits:
        first, second = (row, new) if newest else sorted(
            (row, new), key=lambda cap: cap['set_s'])
        if first['removed_s'] is None:
            first.update(removed_s=max(first['set_s'], second['set_s']),
                         why=REPLACED)
            if first is row:
                touched[id(row)] = row
