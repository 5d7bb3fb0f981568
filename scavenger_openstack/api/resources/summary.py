# SPDX-License-Identifier: Apache-2.0

"""``/v1/summary``: what a scheduler needs of all hosts, in one answer."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.api import cached
from scavenger_openstack.api.call import Call
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import summary

AMOUNTS = schemas.mapping(schemas.NUMBER)

FIELDS = {
    'name': schemas.TEXT,
    'silent': described(schemas.FLAG, 'It has not reported for long.'),
    'enforcing': described(schemas.FLAG, 'Whether it may set limits.'),
    'headroom': described(AMOUNTS, 'What background work could use besides '
                                   'what it has, by resource.'),
    'capacity': AMOUNTS,
    'incidents': described(schemas.COUNT, 'Incidents that are open there.'),
    'background_vcpus': described(
        schemas.NUMBER, 'Virtual CPUs of background work there.'),
}

ANSWER = schemas.fields({'hosts': schemas.items(schemas.fields(FIELDS))})


def show(call: Call, connection: Any) -> cached.Encoded:
    """All hosts at once: a scheduler has no use for a part of them."""
    return call.summary.get(call.now_s, lambda: _hosts(call, connection))


def _hosts(call: Call, connection: Any) -> dict[str, Any]:
    return {'hosts': [{
        'name': row['name'],
        'silent': call.now_s - row['last_seen_s'] > call.silent_s,
        'enforcing': row['enforcing'],
        'headroom': hosts.amounts((row['facts'] or {}).get('headroom', {})),
        'capacity': hosts.amounts((row['facts'] or {}).get('capacity', {})),
        'incidents': row['incidents'],
        'background_vcpus': row['background_vcpus']}
        for row in summary.hosts(connection)]}
