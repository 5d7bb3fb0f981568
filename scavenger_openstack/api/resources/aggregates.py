# SPDX-License-Identifier: Apache-2.0

"""Aggregates: hosts that operators set modes and parameters for together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api.resources import following
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources import hosts as db_hosts

ALLOWED = described(schemas.FLAG, 'Whether load may be injected on its hosts '
                    'to measure the profile of a workload that an '
                    'administrator names.')

SETTINGS = schemas.fields({**hosts.SETTINGS['properties'],
                           'profiling': ALLOWED})

CHANGES = schemas.fields(
    {'profiling': schemas.maybe(ALLOWED), **hosts.CHANGES['properties']},
    'profiling', 'modes', 'parameters')

FIELDS = {
    'name': schemas.TEXT,
    'hosts': described({'type': 'array', 'items': schemas.TEXT},
                       'The names of its hosts.'),
    'settings': {**SETTINGS, 'description':
                 'What operators set for its hosts.  What is set for a host '
                 'itself is above that; of several aggregates of a host the '
                 'first by name counts.'},
    'not_followed': {**hosts.NOT_FOLLOWED, 'description':
                     'Of these settings those that hosts do not follow, by '
                     'their last reports: how many, and why.'},
}


def show(call: Call, connection: Any) -> dict[str, Any]:
    name = call.path['aggregate']
    row = aggregates.settings(connection, name)
    return _shown(connection, name, row, settings_of(row))


def settings_of(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is set for an aggregate."""
    settings = row['settings'] or {} if row else {}
    return {**hosts.settings_of(row),
            'profiling': settings.get('profiling', False)}


def change(call: Call, connection: Any) -> dict[str, Any]:
    """Replace those settings that are given, and remove those given as
    null."""
    name = call.path['aggregate']
    row = aggregates.settings(connection, name, lock=True)
    before = settings_of(row)
    allowed = call.body.get('profiling', before['profiling'])
    after = {**hosts.changed(before, call.body), 'profiling': bool(allowed)}
    shown = _shown(connection, name, row, after)
    if after != before:
        aggregates.set_settings(connection, name, after, new=row is None)
        call.record(connection, 'aggregate.update', name, before=before,
                    after=after, reason=call.body['reason'])
    return shown


def _shown(connection: Any, name: str, row: Mapping[str, Any] | None,
           settings: dict[str, Any]) -> dict[str, Any]:
    """Return an aggregate as the API shows it.

    :param row: what was set for it, perhaps when it had hosts
    :raises Fault: 404, no host is in it, and nothing is set.
    """
    there = aggregates.hosts(connection, name).get(name, [])
    if not there and row is None:
        raise faults.missing('aggregate', name, aggregates.names(connection))
    return {'aggregate': {
        'name': name, 'hosts': there, 'settings': settings,
        'not_followed': following.of_hosts(
            db_hosts.by_names(connection, there),
            {name: value for name, value in settings.items()
             if name != 'profiling'})
        if any(settings.values()) else {}}}
