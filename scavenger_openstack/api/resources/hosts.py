# SPDX-License-Identifier: Apache-2.0

"""Hosts: what they are able to, and the settings that operators give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import parameters
from scavenger_openstack.api.resources import following
from scavenger_openstack.api.resources import instance_names
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db import directives
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.text import iso

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
    'used': described(AMOUNTS, 'What background work uses now.'),
    'capacity': AMOUNTS,
    'precision': described(
        schemas.mapping(schemas.mapping(schemas.COUNT)),
        'How trials of limits ended, by controller.'),
    'missing': described(
        schemas.items(schemas.TEXT),
        'What measuring or protecting a resource lacks there, and what to '
        'do.'),
    'suffering': described(
        schemas.items(schemas.fields({
            'workload': schemas.TEXT, 'name': schemas.TEXT,
            'why': described(schemas.TEXT, 'How, and why nothing is named.')
        })), 'Workloads that suffer and have no incident.'),
    'remembered': described(
        schemas.items(schemas.fields({
            'workload': schemas.TEXT, 'name': schemas.TEXT,
            'age_s': described(schemas.NUMBER,
                               'Since its last limit was removed.')})),
        'Antagonists that disturb nothing now: their last limits are '
        'remembered for when they come back.'),
}

SETTINGS = described(schemas.fields({
    'modes': schemas.mapping(schemas.TEXT),
    'parameters': schemas.mapping({'type': ['number', 'string']})}),
    'What operators set for this host.')

NOT_FOLLOWED = described(
    schemas.mapping(schemas.TEXT),
    'What is asked for and not followed, by the last report: why.')

SHOWN = {**FIELDS, 'settings': SETTINGS, 'not_followed': NOT_FOLLOWED,
         'followed_at': described(
             schemas.MAYBE_TIME, 'It has got what was asked for up to then; '
                                 'null: nothing yet.'),
         'facts': described({'type': 'object'},
                            'All else that the agent reported of itself.')}

UNITS = {'cpu': 'cpu_cores', 'memory': 'memory_bytes',
         'network': 'network_bytes_per_s', 'disk': 'disk_bytes_per_s'}
"""What the amounts of resources are called."""

TIMES_S = ('sent_s', 'followed_s', 'two_machines_s')
"""Facts that are times."""

CHANGES = schemas.fields({
    'modes': described(
        schemas.fields({name: schemas.maybe(schemas.MODES)
                        for name in parameters.CONTROLLERS},
                       *parameters.CONTROLLERS),
        'Controller: mode; null for what its own configuration says.  An '
        'agent follows a mode that is more careful than that, and no other; '
        'not_followed has the rest.'),
    'parameters': described(
        schemas.fields(parameters.SCHEMAS, *parameters.SCHEMAS),
        'section.option: value; null for what its own configuration says.  '
        'not_followed has those that it does not follow, or only from the '
        'next start of its agent on.'),
    'reason': schemas.REASON}, 'modes', 'parameters')


def existing_id(connection: Any, name: str | None) -> int | None:
    """Return the id of the host that a filter names.

    :raises Fault: 400, there is none of that name.
    """
    if name is None:
        return None
    return existing(connection, name, 'host')['id']


def existing(connection: Any, name: str, field: str) -> dict[str, Any]:
    """Return the host that a filter or a field names.

    :raises Fault: 400, no host of that name has reported.
    """
    row = hosts.by_name(connection, name)
    if row is None:
        raise faults.bad(
            f'No host {faults.shown(name)} has reported'
            f'{faults.proposal(name, hosts.names(connection))}.', field,
            'the name of a host in /v1/hosts')
    return row


def named(connection: Any, name: str, *, lock: bool = False
          ) -> dict[str, Any]:
    """The host that a URL names.

    :raises Fault: 404, there is none of that name.
    """
    row = hosts.by_name(connection, name, lock=lock)
    if row is None:
        raise faults.missing('host', name, hosts.names(connection))
    return row


def aggregate(connection: Any, name: str, field: str) -> None:
    """Refuse the name of an aggregate without hosts.

    :raises Fault: 400, there is no such aggregate.
    """
    if not hosts.has_aggregate(connection, name):
        raise faults.bad(
            f'No host is in an aggregate {faults.shown(name)}'
            f'{faults.proposal(name, aggregates.names(connection))}.', field,
            'the name of an aggregate that has hosts')


def list_(call: Call, connection: Any) -> dict[str, Any]:
    name = call.query.get('aggregate')
    if name is not None:
        aggregate(connection, name, 'aggregate')
    page = hosts.page(connection, aggregate=name,
                      enforcing=call.query.get('enforcing'),
                      after=call.after_id(), limit=call.limit + 1)
    names = _names(connection, *page)
    return call.page(page, lambda row: _shape(row, call, names))


def show(call: Call, connection: Any) -> dict[str, Any]:
    row = named(connection, call.path['name'])
    return {'host': _shown(row, call, connection)}


def change(call: Call, connection: Any) -> dict[str, Any]:
    """Replace those settings that are given, and remove those given as
    null."""
    row = named(connection, call.path['name'], lock=True)
    before = settings_of(row)
    after = changed(before, call.body)
    if after != before:
        hosts.set_settings(connection, row['id'], after)
        call.record(connection, 'host.update', row['name'], before=before,
                    after=after, reason=call.body['reason'])
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
    """Return what is set for a host or aggregate."""
    settings = row['settings'] or {} if row else {}
    return {'modes': settings.get('modes', {}),
            'parameters': settings.get('parameters', {})}


def _shown(row: Mapping[str, Any], call: Call, connection: Any
           ) -> dict[str, Any]:
    facts, settings = dict(row['facts'] or {}), settings_of(row)
    wanted = directives.of_host(connection, row['name'])
    return {
        **_shape(row, call, _names(connection, row)),
        'settings': settings,
        'not_followed': following.of_host(row, {
            kind: wanted.setting(row['name'], kind, own)
            for kind, own in settings.items()},
            wanted.protection(row['name'])),
        'followed_at': iso(facts.get('followed_s') or None),
        'facts': {
            **{name: value for name, value in facts.items()
               if name not in TIMES_S and name not in FIELDS
               and name not in ('refused', 'followed')},
            **{f'{name.removesuffix("_s")}_at': iso(facts[name])
               for name in TIMES_S if name in facts
               and name != 'followed_s'}}}


def amounts(by_resource: Mapping[str, float]) -> dict[str, float]:
    """Amounts by resource, with their units in the names."""
    return {UNITS.get(name, name): value
            for name, value in by_resource.items()}


def _names(connection: Any, *rows: Mapping[str, Any]) -> instance_names.Names:
    """Return the names of what suffers on these hosts or is remembered."""
    return instance_names.of(connection, *(
        name for row in rows for fact in ('suffering', 'remembered')
        for name in (row['facts'] or {}).get(fact, {})))


def _shape(row: Mapping[str, Any], call: Call, names: instance_names.Names
           ) -> dict[str, Any]:
    facts = row['facts'] or {}
    return schemas.shape(
        FIELDS, row, silent=call.now_s - row['last_seen_s'] > call.silent_s,
        suffering=[{'workload': name, 'name': names.get(name, ''), 'why': why}
                   for name, why in facts.get('suffering', {}).items()],
        remembered=[{'workload': name, 'name': names.get(name, ''),
                     'age_s': age_s}
                    for name, age_s in facts.get('remembered', {}).items()],
        **{name: facts.get(name, '') for name in ('stopped', 'grade')},
        missing=facts.get('missing', []),
        **{name: facts.get(name, {}) for name in ('modes', 'precision')},
        **{name: amounts(facts.get(name, {}))
           for name in ('headroom', 'used', 'capacity')})
