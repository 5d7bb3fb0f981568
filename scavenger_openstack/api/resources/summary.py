# SPDX-License-Identifier: Apache-2.0

"""``/v1/summary``: what a scheduler needs of all hosts, in one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api import cached
from scavenger_openstack.api.call import Call
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import profile

DIGITS = 4
"""Of a share in this answer, which is long."""

_SHARES = schemas.mapping({'type': 'number', 'minimum': 0, 'maximum': 1})

LEVELS = {
    'tolerated': described(_SHARES, 'Intensity of each SoI that may still be '
                                    'added before one of them breaks its '
                                    'quality of service.'),
    'caused': described(_SHARES, 'What they take of each SoI together.')}
"""Of what runs on a host; without, where nothing there has a profile."""

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
    **LEVELS}

PROFILE = {
    'kind': schemas.one_of(profile.KINDS),
    'target': schemas.TEXT,
    'project': schemas.TEXT,
    'tolerated': _SHARES,
    'caused': _SHARES}

ANSWER = schemas.fields({
    'hosts': schemas.items(schemas.fields(FIELDS, *LEVELS)),
    'profiles': schemas.items(schemas.fields(PROFILE))})


def show(call: Call, connection: Any) -> cached.Encoded:
    """Return all hosts at once: a scheduler has no use for a part of them."""
    return call.summary.get(call.now_s, lambda: _summary(call, connection))


def levels(tolerated: Mapping[str, float], caused: Mapping[str, float]
           ) -> dict[str, Any]:
    """Return what workloads tolerate and cause as the answer has it."""
    return {name: codec.encoded_part({
        soi: round(value, DIGITS) for soi, value in side.items()})
        for name, side in (('tolerated', tolerated), ('caused', caused))}


def _summary(call: Call, connection: Any) -> dict[str, Any]:
    rows = db_hosts.all_with_load(connection)
    residents = call.residents.read(connection, rows)
    return {'hosts': [{
        'name': row['name'],
        'silent': call.now_s - row['last_seen_s'] > call.silent_s,
        'enforcing': row['enforcing'],
        'headroom': hosts.amounts((row['facts'] or {}).get('headroom', {})),
        'capacity': hosts.amounts((row['facts'] or {}).get('capacity', {})),
        'incidents': row['incidents'],
        'background_vcpus': row['background_vcpus'],
        **residents.hosts.get(row['id'], {})} for row in rows],
        'profiles': [
            {'kind': kind, 'target': target, 'project': project, **shown}
            for (kind, target, project), shown in residents.profiles]}
