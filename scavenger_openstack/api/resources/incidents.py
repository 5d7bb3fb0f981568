# SPDX-License-Identifier: Apache-2.0

"""Incidents: who suffered, who is suspected, and why, what was done.

A reader of a project sees those of its own instances, and nothing of the
other side: no host, no text that could name a tenant, no number of suspects.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import math
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import markers
from scavenger_openstack.api import policies
from scavenger_openstack.api.resources import caps
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api.resources import instance_names
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.api import validation
from scavenger_openstack.db.resources import caps as db_caps
from scavenger_openstack.db.resources import incidents
from scavenger_openstack.db.resources import workloads
from scavenger_openstack import grounds
from scavenger_openstack.text import iso
from scavenger_openstack.wire import fit

CAPS_MOST = 100

FILTERS = {
    'host': schemas.NAME,
    'project': described(schemas.SHORT, 'The project of the victim.'),
    'victim': described(schemas.NAME, 'A workload or an instance.'),
    'antagonist': described(schemas.NAME, 'A workload or an instance.'),
    'cause': schemas.SHORT,
    'outcome': schemas.OUTCOMES,
    'evidence_kind': described(
        schemas.one_of(grounds.GroundKind),
        'The strongest kind of evidence: see grounds.'),
    'since': described(schemas.TIME, 'Begun then or later.'),
    'until': described(schemas.TIME, 'Begun before.')}

HIDDEN_FILTERS = frozenset(('host', 'antagonist', 'project'))
"""What tells of others, or of where an instance is."""

ANTAGONIST = {'workload': schemas.MAYBE_TEXT, 'instance': schemas.MAYBE_TEXT,
              'name': schemas.MAYBE_TEXT, 'project': schemas.MAYBE_TEXT,
              'score': schemas.MAYBE_NUMBER,
              'foreground': described(
                  schemas.maybe(schemas.FLAG), 'It is never limited.'),
              'earlier': described(
                  schemas.maybe(schemas.FLAG), 'It disturbs no more, although '
                                               'the incident goes on.')}
SUSPECT = {**ANTAGONIST, 'antagonist': schemas.FLAG}
GROUND_NUMBERS = {
    'share': described(
        schemas.MAYBE_NUMBER, 'direct, share: of the wait, from 0 to 1; '
                              'timing: the correlation.'),
    'waited_s': described(schemas.MAYBE_NUMBER, 'How long the victim waited.'),
    'window_s': described(schemas.MAYBE_NUMBER, 'Within so many seconds.'),
    'chance': described(
        schemas.MAYBE_NUMBER, 'timing: that an innocent workload correlates '
                              'as much.'),
    'before': described(
        schemas.MAYBE_NUMBER, 'experiment: the signal before the workload '
                              'was limited.'),
    'after': described(
        schemas.MAYBE_NUMBER, 'experiment: while it was limited.')}
GROUND = {
    'workload': described(schemas.MAYBE_TEXT, 'Empty: the host itself.'),
    'instance': schemas.MAYBE_TEXT,
    'name': schemas.MAYBE_TEXT,
    'project': schemas.MAYBE_TEXT,
    'kind': schemas.one_of(grounds.GroundKind),
    'threads': described(schemas.items(schemas.TEXT), 'Of the host itself.'),
    **GROUND_NUMBERS}
SERIES = {'workload': schemas.TEXT, 'signal': schemas.TEXT,
          'times_at': schemas.items(schemas.MAYBE_TIME),
          'values': schemas.items(schemas.MAYBE_NUMBER)}

FIELDS = {
    'id': schemas.TEXT,
    'host': schemas.MAYBE_TEXT,
    'victim': schemas.TEXT,
    'victim_instance': schemas.TEXT,
    'victim_name': schemas.TEXT,
    'project': schemas.TEXT,
    'signal': schemas.TEXT,
    'value': schemas.MAYBE_NUMBER,
    'threshold': schemas.MAYBE_NUMBER,
    'cause': schemas.TEXT,
    'controller': described(schemas.TEXT, 'What detected it.'),
    'antagonists': schemas.items(schemas.fields(ANTAGONIST)),
    'action': schemas.MAYBE_TEXT,
    'outcome': schemas.TEXT,
    'evidence_kind': described(schemas.TEXT, 'The strongest kind of its '
                                             'grounds; empty for none.'),
    'begun_at': schemas.MAYBE_TIME,
    'changed_at': schemas.MAYBE_TIME,
    'ended_at': schemas.MAYBE_TIME}

SHOWN = {**FIELDS,
         'suspects': schemas.items(schemas.fields(SUSPECT)),
         'grounds': schemas.items(schemas.fields(GROUND)),
         'evidence': schemas.items(schemas.fields(SERIES)),
         'caps': schemas.items(schemas.fields(caps.STEPPED)),
         'missing': described(
             schemas.items(schemas.TEXT),
             'What its host does not measure or limit now, and the cure.')}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    project = call.only(policies.INCIDENTS_ALL, policies.INCIDENTS_LIST,
                        HIDDEN_FILTERS, FILTERS)
    page = incidents.page(
        connection, host_id=hosts.existing_id(connection, query.get('host')),
        project=call.project, **_either('victim', call.name('victim')),
        **_either('antagonist', call.name('antagonist')),
        cause=query.get('cause'), outcome=query.get('outcome'),
        evidence_kind=query.get('evidence_kind'),
        since_s=call.time_s('since'), until_s=call.time_s('until'),
        after=_after(call, connection, project), limit=call.limit + 1)
    if not page:
        validation.check_word(
            query.get('cause'), 'cause',
            (*grounds.CAUSES, grounds.EVICTION), lambda cause: (
                project is None and incidents.has_cause(connection, cause)))
    shown = page[:call.limit]
    suspects = incidents.suspects(
        connection, [row['id'] for row in shown], antagonists=True)
    names = _names(connection, shown, suspects)
    return call.page(
        page, lambda row: _shape(row, suspects[row['id']], names, project),
        lambda row: [row['uuid'], math.ceil(1e6 * row['begun_s'])])


def show(call: Call, connection: Any) -> dict[str, Any]:
    """Return an incident; one of another project is missing like none."""
    project = call.only(policies.INCIDENTS_ALL, policies.INCIDENTS_LIST)
    row = incidents.show(connection, call.path['id'], project)
    if row is None or not call.may(policies.INCIDENTS_SHOW,
                                   project_id=row['project']):
        raise faults.missing('incident', call.path['id'])
    suspects = incidents.suspects(connection, [row['id']])
    names = _names(connection, [row], suspects)
    all_suspects = suspects[row['id']]
    limits = caps.shapes(connection, db_caps.of_incident(
        connection, row['host_id'], row['uuid'], row['begun_s'], CAPS_MOST),
        call.now_s, caps.STEPPED)
    own = {row['victim'], *(suspect['workload'] for suspect in all_suspects
                            if suspect['project'] == project)}
    visible = [suspect for suspect in all_suspects
               if project is None or suspect['workload'] in own]
    shown = [{**_suspect(suspect, row['host_id'], names),
              'antagonist': suspect['antagonist']} for suspect in visible]
    if len(visible) < len(all_suspects):
        # The others count as one.
        shown.append({**_anonymous(all_suspects, own), 'antagonist': any(
            suspect['antagonist'] for suspect in all_suspects
            if suspect['workload'] not in own)})
    return {'incident': {
        **_shape(row, [suspect for suspect in all_suspects
                       if suspect['antagonist']], names, project),
        'suspects': shown,
        'grounds': _grounds(row, all_suspects, names,
                            own if project is not None else None),
        'evidence': [_series(series) for series in row['evidence'] or ()
                     if project is None or series['workload'] in own],
        'caps': [cap for cap in limits if project is None],
        'missing': hosts.missing(connection, row['host'])
        if project is None else []}}


def _either(name: str, text: str | None) -> dict[str, Any]:
    """A filter for a workload, or for an instance if it is a UUID."""
    if text is not None and fit.is_uuid(text):
        return {f'{name}_instance': text}
    return {name: text}


def _after(call: Call, connection: Any, project: str | None
           ) -> tuple[float, int] | None:
    text = call.query.get('marker')
    if text is None:
        return None
    # Not the id of the row, which would tell how many there are.
    uuid, begun_us = markers.read(text, call.noun, [str, int])
    # One may be gone: then those that began with it come again.
    return (incidents.place(connection, uuid, project)
            or (begun_us / 1e6, markers.MOST))


def _names(connection: Any, rows: Iterable[Mapping[str, Any]],
           suspects: Mapping[int, list[dict[str, Any]]]
           ) -> dict[tuple[int, str], str]:
    pairs = set()
    for row in rows:
        pairs.add((row['host_id'], row['victim']))
        pairs |= {(row['host_id'], suspect['workload'])
                  for suspect in suspects[row['id']]}
    return workloads.display_names(connection, pairs)


def _suspect(suspect: Mapping[str, Any], host_id: int,
             names: Mapping[tuple[int, str], str]) -> dict[str, Any]:
    return schemas.shape(ANTAGONIST, suspect, name=names.get(
        (host_id, suspect['workload']), ''))


def _anonymous(suspects: Iterable[Mapping[str, Any]], own: set[str]
               ) -> dict[str, Any]:
    """All others as one: the highest score, and nothing else."""
    scores = [suspect['score'] for suspect in suspects
              if suspect['workload'] not in own
              and suspect['score'] is not None]
    return {**dict.fromkeys(ANTAGONIST), 'score': max(scores, default=None)}


def _shape(row: Mapping[str, Any], antagonists: list[dict[str, Any]],
           names: Mapping[tuple[int, str], str], project: str | None
           ) -> dict[str, Any]:
    visible = [antagonist for antagonist in antagonists
               if project is None or antagonist['project'] == project]
    shown = [_suspect(antagonist, row['host_id'], names)
             for antagonist in visible]
    if len(visible) < len(antagonists):
        shown.append(_anonymous(antagonists, {
            antagonist['workload'] for antagonist in visible}))
    return schemas.shape(
        FIELDS, row, id=row['uuid'], antagonists=shown,
        host=row['host'] if project is None else None,
        victim_name=names.get((row['host_id'], row['victim']), ''),
        action=instance_names.beside(row['action'], {
            workload: name for (_, workload), name in names.items()})
        if project is None else None)


def _grounds(row: Mapping[str, Any], suspects: Iterable[Mapping[str, Any]],
             names: Mapping[tuple[int, str], str], own: set[str] | None
             ) -> list[dict[str, Any]]:
    """Return why workloads are named.

    :param own: the workloads that the caller may see, ``None`` for all
    """
    by_name: dict[str, Mapping[str, Any]] = {row['victim']: {
        'instance': row['victim_instance'], 'project': row['project']}}
    by_name |= {suspect['workload']: suspect for suspect in suspects}
    shown = []
    others = []
    for ground in row['grounds'] or ():
        workload = ground.get('workload', '')
        numbers = {name: ground.get(name) for name in GROUND_NUMBERS}
        if own is not None and workload not in own:
            others.append({**numbers, 'kind': ground['kind']})
            continue
        identity = by_name.get(workload, {})
        shown.append({
            'workload': workload, 'kind': ground['kind'], **numbers,
            'instance': identity.get('instance', ''),
            'project': identity.get('project', ''),
            'name': names.get((row['host_id'], workload), ''),
            'threads': ground.get('threads', [])})
    return shown + ([_anonymous_ground(others)] if others else [])


def _anonymous_ground(others: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All others, and the host itself, as one: the strongest ground.  A
    correlation would be the score of one of them."""
    ranks = {str(kind): rank for rank, kind in enumerate(grounds.GroundKind)}
    strongest = min(others, key=lambda ground: (
        ranks.get(ground['kind'], len(ranks)), -(ground['share'] or 0.0)))
    merged = {**dict.fromkeys(GROUND), **strongest, 'threads': []}
    if merged['kind'] == grounds.GroundKind.TIMING:
        merged.update(share=None, chance=None)
    elif merged['share'] is not None:    # not how much another tenant used
        merged['share'] = round(merged['share'], 1)
    return merged


def _series(series: Mapping[str, Any]) -> dict[str, Any]:
    return {'workload': series['workload'], 'signal': series['signal'],
            'times_at': [iso(time_s) for time_s in series['times_s']],
            'values': series['values']}
