# SPDX-License-Identifier: Apache-2.0

"""Background instances that Nova takes away from their hosts.

A request is a row; a conductor carries it out, and the row says how it
went.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any
import uuid

from scavenger_openstack.algorithms import placing
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import policies
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api.resources import instance_names
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db import evictions
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.types import Knob

HOW = schemas.one_of(('live-migrate', 'pause', 'stop', 'shelve'))

FILTERS = {'instance': schemas.UUID, 'host': schemas.NAME,
           'project': schemas.SHORT,
           'state': schemas.one_of(evictions.STATES)}

HIDDEN_FILTERS = frozenset(('host', 'project'))
"""What tells readers of a project of others, or where an instance is."""

HIDDEN: Mapping[str, None] = dict.fromkeys((
    'host', 'reason', 'created_by', 'detail'))
"""Likewise, or of others: operators and Nova write the texts."""

DONE = {'pause': 'it would be paused', 'stop': 'it would be shut down',
        'shelve': 'it would be shut down, and leave its place'}
NAMED = 10
"""So many hosts a forecast names."""

FIELDS = {
    'id': described(schemas.TEXT, 'Empty for a dry run.'),
    'instance': schemas.TEXT,
    'name': schemas.TEXT,
    'host': described(schemas.MAYBE_TEXT, 'Where it was.'),
    'project': schemas.TEXT,
    'how': HOW,
    'reason': schemas.MAYBE_TEXT,
    'created_by': schemas.MAYBE_TEXT,
    'created_at': schemas.MAYBE_TIME,
    'state': described(schemas.TEXT, 'asked, sending (to Nova), doing, done, '
                                     'failed; or dry run.'),
    'detail': schemas.MAYBE_TEXT,
    'changed_at': schemas.MAYBE_TIME}

WISH = schemas.fields(
    {'instance': schemas.UUID, 'how': HOW, 'reason': schemas.REASON,
     'dry_run': described(schemas.FLAG, 'Only check, and change nothing.')},
    'dry_run')


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    reader = call.only(policies.EVICTIONS_ALL, policies.EVICTIONS_LIST,
                       HIDDEN_FILTERS, FILTERS)
    host = query.get('host')
    page = evictions.page(
        connection, instance=query.get('instance'),
        host=host and hosts.existing(connection, host, 'host')['name'],
        project=call.project, state=query.get('state'),
        after=call.after_row(connection, [str], evictions.id_of),
        limit=call.limit + 1)
    names = instance_names.of(connection, *(row['instance'] for row in page))
    return call.page(page, lambda row: {
        **_shape(row, names), **(HIDDEN if reader is not None else {})},
        own=lambda row: [row['uuid']])


def show(call: Call, connection: Any) -> dict[str, Any]:
    row = evictions.show(connection, call.path['id'])
    if row is None:
        raise faults.missing('eviction', call.path['id'])
    return {'eviction': _shape(row, instance_names.of(connection,
                                                      row['instance']))}


def create(call: Call, connection: Any) -> dict[str, Any]:
    """Ask for it, unless it is a dry run; the checks are the same."""
    instance = call.body['instance']
    workload = evictions.workload(connection, instance)
    if workload is None:
        raise faults.missing('workload that is instance', instance)
    if not evictions.is_background(workload):
        raise faults.conflict(f'{instance} is foreground, which is never '
                              'evicted.', 'instance')
    if evictions.unfinished(connection, instance):
        raise faults.conflict(f'{instance} is being evicted already.',
                              'instance')
    if not evictions.works(connection, call.now_s):
        raise faults.conflict('No conductor evicts: set [nova] enabled and '
                              'credentials in [openstack] of conductors.',
                              'instance')
    row = {'uuid': uuid.uuid4().hex, 'instance': instance,
           'host': workload['host'], 'project': workload['project'],
           'how': call.body['how'], 'reason': call.body['reason'],
           'created_by': call.caller.name, 'created_s': call.now_s,
           'state': evictions.ASKED, 'detail': '', 'changed_s': call.now_s}
    names = {instance: workload['display_name']}
    if call.body.get('dry_run', False):
        return {'eviction': {**_shape(row, names), 'id': '',
                             'state': 'dry run',
                             'detail': _forecast(call, connection, workload)}}
    evictions.add(connection, **row)
    call.record(connection, 'eviction.ask', instance, before=None,
                after=_shape(row, names), reason=row['reason'])
    return {'eviction': _shape(row, names)}


def _forecast(call: Call, connection: Any, instance: Mapping[str, Any]
              ) -> str:
    """Return what would be done, and by the rule of BackgroundFilter where
    to."""
    how, host = call.body['how'], instance['host']
    if how != 'live-migrate':
        return f'nothing was changed; {DONE[how]} on {host}'
    floor = (instance['floor'] or {}).get(Knob.MEMORY_BYTES, 0.0)
    wanted = placing.Wanted(True, math.ceil(instance['vcpus']),
                            math.ceil(floor / placing.BYTES_PER_MIB))
    takes, others = [], []
    for row in db_hosts.all_with_load(connection):
        if row['name'] == host:
            continue
        candidate = placing.of_facts(
            row, silent=call.now_s - row['last_seen_s'] > call.silent_s)
        why = placing.fits(candidate, wanted)
        if why:
            others.append(f'{row["name"]}: {why}')
        else:
            takes.append(f'{row["name"]} ({candidate.free_cores:.1f} cores '
                         'free)')
    if takes:
        return (f'nothing was changed; Nova would choose among {len(takes)} '
                f'other hosts: {_join_first(takes)}')
    return ('nothing was changed; no other host would take it where '
            'BackgroundFilter of Nova is enabled: '
            + (_join_first(others) or 'there is none'))


def _join_first(texts: list[str]) -> str:
    return ', '.join(texts[:NAMED]) + (
        f' and {len(texts) - NAMED} more' if len(texts) > NAMED else '')


def _shape(row: Mapping[str, Any], names: instance_names.Names
           ) -> dict[str, Any]:
    return schemas.shape(FIELDS, row, id=row['uuid'],
                         name=names.get(row['instance'], ''))
