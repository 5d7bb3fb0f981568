# SPDX-License-Identifier: Apache-2.0

"""Hosts: what they are able to, and the settings that operators give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import parameters
from scavenger_openstack.api.resources import names as names_
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import hosts

FILTERS = {'aggregate': described(schemas.NAME, 'Hosts of this aggregate.'),
           'enforcing': described(schemas.FLAG,
                                  'Whether the host may set limits.')}

AMOUNTS = schemas.mapping(schemas.NUMBER)

FIELDS = {
    'name': schemas.TEXT,
    'version': described(schemas.TEXT, 'The version of the agent.'),
    'enforcing': described(schemas.FLAG, 'Whether it may set limits.'),
    'stopped': described(schemas.TEXT, 'Why it may not; empty if it may.'),
    'grade': described(schemas.TEXT, 'A, B or C: what can be measured.'),
    'modes': schemas.mapping(schemas.TEXT),
    'last_seen_at': schemas.MAYBE_TIME,
    'silent': described(schemas.FLAG, 'It has not reported for long.'),
    'headroom': described(AMOUNTS, 'What background work could use besides '
                                   'what it has, by resource.'),
    'capacity': AMOUNTS,
    'precision': described(
        schemas.mapping(schemas.mapping(schemas.COUNT)),
        'How trials of limits ended, by controller.'),
    'suffering': described(
        schemas.items(schemas.fields({
            'workload': schemas.TEXT, 'name': schemas.TEXT,
            'why': described(schemas.TEXT, 'How, and why nothing is named.')
        })), 'Workloads that suffer and have no incident.'),
}

SETTINGS = described(schemas.fields({
    'modes': schemas.mapping(schemas.TEXT),
    'parameters': schemas.mapping({'type': ['number', 'string']})}),
    'What operators set for this host.')

SHOWN = {**FIELDS, 'settings': SETTINGS, 'facts': described(
    {'type': 'object'}, 'All that the agent reported of itself.')}

CHANGES = schemas.fields({
    'modes': described(
        schemas.fields({name: schemas.maybe(schemas.MODES)
                        for name in parameters.CONTROLLERS},
                       *parameters.CONTROLLERS),
        'Controller: mode; null for what its own configuration says.  An '
        'agent follows a mode that is more careful than that, and no other; '
        'facts.refused of the host has the rest.'),
    'parameters': described(
        schemas.fields(parameters.SCHEMAS, *parameters.SCHEMAS),
        'section.option: value; null for what its own configuration says.  '
        'facts.refused of the host has those that it does not follow, or '
        'only from the next start of its agent on.'),
    'reason': schemas.REASON}, 'modes', 'parameters', 'reason')


def known(connection: Any, name: str | None) -> int | None:
    """The id of a host that a filter names.

    :raises Fault: 400, there is none of that name.
    """
    if name is None:
        return None
    return there(connection, name, 'host')['id']


def there(connection: Any, name: str, field: str) -> dict[str, Any]:
    """
    :raises Fault: 400, no host of that name has reported.
    """
    row = hosts.by_name(connection, name)
    if row is None:
        raise faults.bad(f'No host {name} has reported.', field,
                         'the name of a host in /v1/hosts')
    return row


def aggregate(connection: Any, name: str, field: str) -> None:
    """
    :raises Fault: 400, there is no such aggregate.
    """
    if not hosts.has_aggregate(connection, name):
        raise faults.bad(f'No host is in an aggregate {name}.', field,
                         'the name of an aggregate with hosts in /v1/hosts')


def list_(call: Call, connection: Any) -> dict[str, Any]:
    name = call.query.get('aggregate')
    if name is not None:
        aggregate(connection, name, 'aggregate')
    found = hosts.page(connection, aggregate=name,
                       enforcing=call.query.get('enforcing'),
                       after=call.after_id(), limit=call.limit + 1)
    names = _names(connection, *found)
    return call.page(found, lambda row: _shape(row, call, names))


def show(call: Call, connection: Any) -> dict[str, Any]:
    row = hosts.by_name(connection, call.path['name'])
    if row is None:
        raise faults.missing('host')
    return {'host': _shown(row, call, connection)}


def change(call: Call, connection: Any) -> dict[str, Any]:
    """Replace those settings that are given, and remove those given as
    null."""
    row = hosts.by_name(connection, call.path['name'], lock=True)
    if row is None:
        raise faults.missing('host')
    before = settings_of(row)
    after = changed(before, call.body)
    if after != before:
        hosts.set_settings(connection, row['id'], after)
        call.record(connection, 'host.update', row['name'], before=before,
                    after=after, reason=call.body.get('reason', ''))
    return {'host': _shown({**row, 'settings': after}, call, connection)}


def changed(before: Mapping[str, Any], body: Mapping[str, Any]
            ) -> dict[str, Any]:
    """The settings after a request with :data:`CHANGES`."""
    return {
        'modes': _merged(before['modes'], body.get('modes', {})),
        'parameters': _merged(before['parameters'], parameters.checked(
            body.get('parameters', {})))}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]
            ) -> dict[str, Any]:
    return {name: value for name, value in {**old, **new}.items()
            if value is not None}


def settings_of(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is set for a host or aggregate."""
    settings = row['settings'] or {} if row else {}
    return {'modes': settings.get('modes', {}),
            'parameters': settings.get('parameters', {})}


def _shown(row: Mapping[str, Any], call: Call, connection: Any
           ) -> dict[str, Any]:
    return {**_shape(row, call, _names(connection, row)),
            'settings': settings_of(row), 'facts': row['facts']}


def _names(connection: Any, *rows: Mapping[str, Any]) -> names_.Names:
    """Of what suffers on these hosts."""
    return names_.of(connection, *(name for row in rows for name in (
        row['facts'] or {}).get('suffering', {})))


def _shape(row: Mapping[str, Any], call: Call, names: names_.Names
           ) -> dict[str, Any]:
    facts = row['facts'] or {}
    return schemas.shape(
        FIELDS, row, silent=call.now_s - row['last_seen_s'] > call.silent_s,
        suffering=[{'workload': name, 'name': names.get(name, ''), 'why': why}
                   for name, why in facts.get('suffering', {}).items()],
        **{name: facts.get(name, '') for name in ('stopped', 'grade')},
        **{name: facts.get(name, {}) for name in (
            'modes', 'headroom', 'capacity', 'precision')})
