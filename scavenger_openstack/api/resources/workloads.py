# SPDX-License-Identifier: Apache-2.0

"""Workloads: VMs and containers on the hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import workloads

FILTERS = {
    'host': schemas.NAME,
    'name': described(schemas.NAME, 'What its host calls it; with '
                                    '"host" only.'),
    'project': schemas.SHORT,
    'instance': schemas.UUID,
    'application': schemas.NAME,
    'priority': schemas.PRIORITIES,
    'gone': described({**schemas.FLAG, 'default': False},
                      'Those that were, the last that went first, in place '
                      'of those that are there.')}

FIELDS = {
    'id': described(schemas.TEXT, 'Its name on the host.'),
    'host': schemas.TEXT,
    'name': schemas.TEXT,
    'kind': schemas.one_of(('container', 'instance')),
    'instance': described(schemas.TEXT, 'Empty for a container.'),
    'display_name': schemas.TEXT,
    'flavor': schemas.TEXT,
    'project': schemas.TEXT,
    'application': schemas.TEXT,
    'priority': schemas.PRIORITIES,
    'source': described(schemas.TEXT, 'Where the priority comes from.'),
    'vcpus': schemas.NUMBER,
    'floor': described(schemas.mapping(schemas.NUMBER),
                       'Knob: the value below which no limit goes.'),
    'since_at': schemas.MAYBE_TIME,
    'until_at': schemas.MAYBE_TIME}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    if 'name' in query and 'host' not in query:
        raise faults.bad('name is of a workload on one host.', 'host',
                         'the name of a host in /v1/hosts')
    return call.page(
        workloads.page(
            connection, host_id=hosts.known(connection, query.get('host')),
            name=call.name('name'), project=query.get('project'),
            instance=query.get('instance'),
            application=call.name('application'),
            priority=query.get('priority'), gone=query.get('gone', False),
            after=call.after_id(), limit=call.limit + 1),
        _shape)


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(
        FIELDS, row, id=row['name'], name=row['display_name'] or row['name'],
        floor=row['floor'] or {})
