# SPDX-License-Identifier: Apache-2.0

"""Workloads: VMs and containers on the hosts.

A reader of a project sees its instances, and not where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import policies
from scavenger_openstack.api.resources import caps as api_caps
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import workloads

LIMITS_S = 30 * DAY_S
LIMITS_MOST = 100

HIDDEN_FILTERS = frozenset(('host', 'name', 'project'))

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
                      'of those that are there.'),
    'limits': described({**schemas.FLAG, 'default': False},
                        'With what limited each instance in the last 30 '
                        f'days; for pages of at most {LIMITS_MOST}.')}

LIMIT = {
    'knob': schemas.TEXT,
    'limited_s': described(schemas.NUMBER, 'Of the last 30 days.'),
    'in_force': schemas.FLAG,
    'value': described(schemas.VALUE, 'Of the limit in force.'),
    'owner': described(schemas.MAYBE_TEXT, 'What set it.'),
    'set_at': schemas.MAYBE_TIME}

FIELDS = {
    'id': described(schemas.TEXT, 'Its name on the host.'),
    'host': schemas.MAYBE_TEXT,
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
    'until_at': schemas.MAYBE_TIME,
    'limits': described(schemas.maybe(schemas.items(schemas.fields(LIMIT))),
                        'null, unless they are asked for.')}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    project = call.only(policies.WORKLOADS_ALL, policies.WORKLOADS_LIST,
                        HIDDEN_FILTERS, FILTERS)
    if 'name' in query and 'host' not in query:
        raise faults.bad('name is of a workload on one host.', 'host',
                         'the name of a host in /v1/hosts')
    with_limits = query.get('limits', False)
    if with_limits and call.limit > LIMITS_MOST:
        raise faults.bad('limit is too large for a page with limits.',
                         'limit', f'from 1 to {LIMITS_MOST}')
    page = workloads.page(
        connection, host_id=hosts.existing_id(connection, query.get('host')),
        project=call.project, name=call.name('name'),
        instance=query.get('instance'),
        application=call.name('application'),
        priority=query.get('priority'), gone=query.get('gone', False),
        after=call.after_row(connection, [str, int], workloads.id_of),
        limit=call.limit + 1)
    limits = caps.of_instances(
        connection, [row['instance'] for row in page],
        call.now_s - LIMITS_S, call.now_s) if with_limits else None
    return call.page(
        page, lambda row: _shape(row, limits, project),
        own=lambda row: [row['instance'], round(1e3 * row['since_s'])])


def _shape(row: Mapping[str, Any],
           limits: Mapping[str, list[dict[str, Any]]] | None,
           project: str | None) -> dict[str, Any]:
    return schemas.shape(
        FIELDS, row, id=row['name'], name=row['display_name'] or row['name'],
        host=row['host'] if project is None else None,
        floor=row['floor'] or {}, limits=None if limits is None else [
            schemas.shape(LIMIT, {**limit, **(
                api_caps.hidden_cpus(limit['knob']) if project is not None
                else {})}, in_force=limit['set_s'] is not None)
            for limit in limits.get(row['instance'], ())])
