# SPDX-License-Identifier: Apache-2.0

"""Priorities and exemptions, per instance, project or aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
import uuid

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api.resources import following
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api.resources import instance_names
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db.resources import rules
from scavenger_openstack.db.resources import workloads
from scavenger_openstack.wire import fit

SCOPES = schemas.one_of(('instance', 'project', 'aggregate'))

FILTERS = {'scope': SCOPES, 'target': schemas.NAME}

EXEMPTION = {
    'id': schemas.TEXT,
    'scope': SCOPES,
    'target': described(schemas.TEXT, 'The id of the instance or project, '
                                      'or the name of the aggregate.'),
    'reason': schemas.TEXT,
    'created_by': schemas.TEXT,
    'created_at': schemas.MAYBE_TIME}

PRIORITY = {**EXEMPTION, 'value': schemas.PRIORITIES,
            'application': described(schemas.TEXT,
                                     'Empty: as it was found.')}

_STATE = {name: described(field, f'{field["description"]}  Of a rule for an '
                                 'instance; else null or empty.')
          for name, field in following.FIELDS.items()}
_STATE['name'] = described(schemas.TEXT, 'Of the instance; else empty.')
EXEMPTION_LISTED = {**EXEMPTION, **_STATE}
PRIORITY_LISTED = {**PRIORITY, **_STATE}
_FOR = {'workloads': described(
    schemas.COUNT, 'So many workloads are there now that it is for.')}
EXEMPTION_SET = {**EXEMPTION_LISTED, **_FOR}
PRIORITY_SET = {**PRIORITY_LISTED, **_FOR}

PARTS = {'priority': ('tags', ('priority', 'application', 'floor')),
         'exemption': ('exempt', ())}
"""The field of the directives that each kind is in, and what agents call each
part of it that they do not follow."""

_WISH = {'scope': SCOPES, 'target': schemas.NAME, 'reason': schemas.REASON}
EXEMPTION_WISH = schemas.fields(_WISH)
PRIORITY_WISH = schemas.fields(
    {**_WISH, 'value': described(
        schemas.PRIORITIES, 'background counts for VMs whose flavor says no '
        'priority, on hosts whose configuration allows it; not_followed of '
        'the host has the others.'),
     'application': {'type': 'string', 'maxLength': 255}}, 'application')


def priorities(call: Call, connection: Any) -> dict[str, Any]:
    return _list(call, connection, 'priority')


def set_priority(call: Call, connection: Any) -> dict[str, Any]:
    return _set(call, connection, 'priority')


def delete_priority(call: Call, connection: Any) -> None:
    _delete(call, connection, 'priority')


def exemptions(call: Call, connection: Any) -> dict[str, Any]:
    return _list(call, connection, 'exemption')


def set_exemption(call: Call, connection: Any) -> dict[str, Any]:
    return _set(call, connection, 'exemption')


def delete_exemption(call: Call, connection: Any) -> None:
    _delete(call, connection, 'exemption')


def _list(call: Call, connection: Any, kind: rules.Kind) -> dict[str, Any]:
    page = rules.page(connection, kind, scope=call.query.get('scope'),
                      target=call.query.get('target'),
                      after=call.after_id(), limit=call.limit + 1)
    instances = [row['target'] for row in page if row['scope'] == 'instance']
    hosts_of = db_hosts.of_workloads(connection, instances)
    names = instance_names.of(connection, *instances)
    return call.page(page, lambda row: _shown(
        row, hosts_of.get(row['target']), names))


def _set(call: Call, connection: Any, kind: rules.Kind) -> dict[str, Any]:
    """Make the rule for a target, or change the one that is there."""
    scope, target = call.body['scope'], call.body['target']
    _check_target(connection, scope, target)
    values = {'value': call.body.get('value', ''),
              'application': call.body.get('application', ''),
              'reason': call.body['reason'],
              'created_by': call.caller.name, 'created_s': call.now_s,
              'generation': generation.count(connection)}
    before = rules.of(connection, kind, scope, target)
    if before is None:
        rules.add(connection, uuid=uuid.uuid4().hex, kind=kind, scope=scope,
                  target=target, **values)
    else:
        rules.change(connection, before['id'], **values)
    after = rules.of(connection, kind, scope, target)
    assert after is not None
    call.record(connection, f'{kind}.set', f'{scope}/{target}',
                before=before and _shape(before), after=_shape(after),
                reason=call.body['reason'])
    instances = [target] if scope == 'instance' else []
    hosts_of = db_hosts.of_workloads(connection, instances)
    return {kind: {**_shown(after, hosts_of.get(target),
                            instance_names.of(connection, *instances)),
                   'workloads': workloads.count(connection, scope, target)}}


def _delete(call: Call, connection: Any, kind: rules.Kind) -> None:
    before = rules.show(connection, kind, call.path['id'])
    if before is None:
        raise faults.missing(kind, call.path['id'])
    rules.remove(connection, before['id'])
    call.record(connection, f'{kind}.delete',
                f'{before["scope"]}/{before["target"]}',
                before=_shape(before), after=None,
                reason=call.query.get('reason', ''))


def _check_target(connection: Any, scope: str, target: str) -> None:
    if scope == 'aggregate':
        hosts.aggregate(connection, target, 'target')
    elif scope == 'instance' and not fit.is_uuid(target):
        raise faults.bad('target is not the id of an instance.', 'target',
                         'a UUID, such as '
                         '2a1b0c9d-1111-4222-8333-444455556666')
    elif scope == 'project' and len(target) > 64:
        raise faults.bad('target is not the id of a project.', 'target',
                         'at most 64 characters')


def _shown(row: Mapping[str, Any], host: Mapping[str, Any] | None,
           names: instance_names.Names) -> dict[str, Any]:
    """Return a rule with whether its host follows it.

    :param host: the host that has the instance of a rule for one
    :param names: of that instance
    """
    state: dict[str, Any] = {'followed': None, 'why_not': ''}
    if row['scope'] == 'instance':
        field, parts = PARTS[row['kind']]
        state = following.of_parts(host, field, [
            f'{part} {row["target"]}' for part in parts], row['generation'])
    return {**_shape(row), **state, 'name': names.get(row['target'], '')}


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(PRIORITY if row['kind'] == 'priority' else EXEMPTION,
                         row, id=row['uuid'])
