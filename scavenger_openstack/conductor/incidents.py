# SPDX-License-Identifier: Apache-2.0

"""Incidents of a report, and the hourly sums that follow from them.

An incident is what its newest entry says; one that ended keeps the action
that limited.  Entries of one run of an agent come in order; those of an
earlier run may come late, and then add nothing but the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.conductor import clocks
from scavenger_openstack.conductor import interference
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import hours
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack import errors
from scavenger_openstack import grounds
from scavenger_openstack.outcomes import outcome_of
from scavenger_openstack.types import more_done
from scavenger_openstack.wire import codec
from scavenger_openstack.wire.report import Incident

STATE = ('cause', 'controller', 'value', 'threshold', 'action', 'outcome',
         'grounds', 'evidence_kind', 'begun_s', 'changed_s', 'ended_s')
"""What a later entry may change, besides suspects and evidence."""

MOST_SERIES = 16
MOST_SAMPLES = 120

MOST_SUMS = 25_000
"""Hourly sums that the incidents of one report change: always enough for the
longest entry."""


def apply(connection: reports.Connection, host_id: int,
          entries: Sequence[clocks.Timed],
          identities: Mapping[str, reports.Identity], now: float
          ) -> list[str]:
    """Insert and update incidents.

    :param entries: all are incidents
    :param identities: of all workloads that the entries name
    :return: ids that belong to incidents of another host: nothing is done
        about these
    :raises WireError: they last so long that the sums would be too many
    """
    incidents = reports.incidents(connection, {
        timed.entry.id for timed in entries
        if isinstance(timed.entry, Incident)})
    before = {uuid: row for uuid, row in incidents.items()
              if row['host_id'] == host_id}
    after: dict[str, reports.Row] = {}
    for entry, time_s, moved_s in entries:
        assert isinstance(entry, Incident)
        if entry.id in before or entry.id not in incidents:
            after[entry.id] = merged(
                after.get(entry.id) or before.get(entry.id), entry, time_s,
                moved_s, now, identities)
    sums = sum(map(interference.most_rows, (
        *(before[uuid] for uuid in after if uuid in before),
        *after.values())))
    if sums > MOST_SUMS:
        raise errors.WireError(
            f'incidents with {sums} hours of antagonists in one report: '
            f'refused; at most {MOST_SUMS} are taken, send fewer entries')
    new = [uuid for uuid in after if uuid not in before]
    ids = reports.add_incidents(connection, [
        _new(host_id, uuid, after[uuid], identities)
        for uuid in sorted(new)]) if new else {}
    rows.update_rows(connection, tables.incidents, [
        {'id': before[uuid]['id'], **{name: row[name] for name in STATE}}
        for uuid, row in after.items() if uuid in before])
    rows.update_rows(connection, tables.incidents, [
        {'id': before[uuid]['id'], 'evidence': row['evidence']}
        for uuid, row in after.items()
        if uuid in before and 'evidence' in row])
    ids |= {uuid: row['id'] for uuid, row in before.items()}
    other = [uuid for uuid, row in after.items() if uuid in new
             or any(row[name] != before[uuid][name]
                    for name in ('begun_s', 'suspects'))]
    reports.set_suspects(
        connection, [ids[uuid] for uuid in other if uuid in before],
        [_suspect(ids[uuid], after[uuid]['begun_s'], suspect, identities)
         for uuid in sorted(other) for suspect in after[uuid]['suspects']])
    changed = [before[uuid] for uuid in after if uuid in before]
    _sum(connection, host_id, interference.difference(
        changed, after.values(), interference.of_incident), identities)
    hours.change_victims(connection, host_id, {
        key: (sums.incidents, sums.interference_s)
        for key, sums in interference.difference(
            changed, after.values(), interference.of_victim).items()},
        identities)
    notifications.add_incidents(connection, _events(before, after), now)
    return sorted(incidents.keys() - before.keys())


def _events(before: Mapping[str, reports.Row],
            after: Mapping[str, reports.Row]
            ) -> dict[notifications.Event, list[str]]:
    """Return what has happened to which incidents."""
    return {
        notifications.Event.OPENED: [
            uuid for uuid in after if uuid not in before],
        notifications.Event.NAMED: [
            uuid for uuid, row in after.items() if _antagonists(row)
            - _antagonists(before.get(uuid))],
        notifications.Event.CLOSED: [
            uuid for uuid, row in after.items()
            if row['ended_s'] is not None and (
                uuid not in before or before[uuid]['ended_s'] is None)]}


def _antagonists(row: reports.Row | None) -> set[str]:
    return {suspect.workload for suspect in row['suspects']
            if suspect.antagonist} if row else set()


def merged(row: reports.Row | None, entry: Incident, time_s: float,
           moved_s: float, now: float,
           identities: Mapping[str, reports.Identity]) -> reports.Row:
    """Return what an incident is with one more entry.

    :param row: what it was, ``None`` before its first entry
    :param time_s: and ``moved_s``: see :class:`.clocks.Timed`
    :param identities: of its suspects
    """
    if row is None:
        row = {'victim': entry.victim, 'signal': entry.signal,
               'begun_s': min(max(0.0, entry.begun_s + moved_s), time_s),
               'changed_s': 0.0, 'evidence': [], 'grounds': None,
               'evidence_kind': ''}
    row = dict(row)
    if clocks.is_newer(time_s, row['changed_s'], now):
        row.update(
            cause=entry.cause, controller=entry.controller,
            value=entry.value, threshold=entry.threshold,
            action=entry.action if entry.what != 'ended' else more_done(
                row.get('action') or '', entry.action),
            outcome=outcome_of(entry.outcome, ended=entry.what == 'ended'),
            # That was by a clock which was ahead.
            begun_s=min(row['begun_s'], time_s), changed_s=time_s,
            ended_s=time_s if entry.what == 'ended' else None,
            suspects=list({suspect.workload: reports.Suspect(
                suspect.workload, suspect.score, suspect.antagonist,
                identities.get(suspect.workload,
                               reports.Identity()).foreground,
                suspect.earlier)
                for suspect in entry.suspects}.values()))
        if entry.grounds or entry.what != 'ended':
            row['grounds'] = [codec.plain(ground) for ground
                              in entry.grounds] or None
            row['evidence_kind'] = grounds.strongest(
                ground.kind for ground in entry.grounds)
    if entry.evidence:
        row['evidence'] = joined(row.get('evidence') or (), [
            {'workload': series.workload, 'signal': series.signal,
             'times_s': [time + moved_s for time in series.times_s],
             'values': series.values} for series in entry.evidence])
    return rows.cut(tables.incidents, row)


def joined(before: Sequence[Mapping[str, Any]],
           after: Sequence[Mapping[str, Any]]) -> list[reports.Row]:
    """Return the series of an incident with some more: how it began, and how
    it went last.

    Of more than fits what is between is left out: a series has its first and
    its last measurements, :data:`MOST_SAMPLES` of each.
    """
    series: dict[tuple[str, str], dict[float, float | None]] = {}
    for part in (*before, *after):
        series.setdefault((part['workload'], part['signal']), {}).update(
            zip(part['times_s'], part['values'], strict=False))
    merged = []
    for (workload, signal), points in list(series.items())[:MOST_SERIES]:
        kept = sorted(points.items(), key=lambda point: point[0])
        if len(kept) > 2 * MOST_SAMPLES:
            kept = kept[:MOST_SAMPLES] + kept[-MOST_SAMPLES:]
        merged.append({'workload': workload, 'signal': signal,
                      'times_s': [time_s for time_s, _ in kept],
                      'values': [value for _, value in kept]})
    return merged


def _new(host_id: int, uuid: str, row: Mapping[str, Any],
         identities: Mapping[str, reports.Identity]) -> reports.Row:
    victim = identities.get(row['victim'], reports.Identity())
    return {'host_id': host_id, 'uuid': uuid,
            'victim_instance': victim.instance, 'project': victim.project,
            **{name: value for name, value in row.items()
               if name != 'suspects'}}


def _suspect(incident_id: int, begun_s: float, suspect: reports.Suspect,
             identities: Mapping[str, reports.Identity]) -> reports.Row:
    identity = identities.get(suspect.workload, reports.Identity())
    return {'incident_id': incident_id, **suspect._asdict(),
            'instance': identity.instance, 'project': identity.project,
            'begun_s': begun_s}


def _sum(connection: reports.Connection, host_id: int,
         changes: Mapping[interference.PairKey, interference.Sums],
         identities: Mapping[str, reports.Identity]) -> None:
    """Add changes to the hourly sums, and to the totals of these."""
    if not changes:
        return
    hours = reports.hours(connection, host_id, {key[0] for key in changes},
                          {key[1] for key in changes})
    new, changed, empty = [], [], []
    counted: list[tuple[reports.Row | None, reports.Row | None]] = []
    for key, sums in sorted(changes.items()):
        row = hours.get(key)
        if row is not None:
            sums = interference.Sums(**{
                name: row[name] for name in interference.Sums._fields
            }).plus(sums).above_zero
            if sums.empty:
                empty.append(row['id'])
                counted.append((row, None))
            else:
                changed.append({'id': row['id'], **sums._asdict()})
                counted.append((row, {**row, **sums._asdict()}))
            continue
        sums = sums.above_zero
        if sums.empty:      # its row was purged
            continue
        hour_s, workload, victim, cause = key
        identity = identities.get(workload, reports.Identity())
        new.append(rows.cut(tables.antagonist_hours, {
            'host_id': host_id, 'hour_s': hour_s, 'workload': workload,
            'instance': identity.instance, 'project': identity.project,
            'application': identity.application, 'victim': victim,
            'cause': cause,
            'victim_project': identities.get(
                victim, reports.Identity()).project, **sums._asdict()}))
        counted.append((None, new[-1]))
    reports.set_hours(connection, new, changed, empty)
    totals.change(connection, host_id, counted)
