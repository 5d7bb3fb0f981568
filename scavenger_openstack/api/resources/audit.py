# SPDX-License-Identifier: Apache-2.0

"""The audit: who changed what, when and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.api import times
from scavenger_openstack.db.resources import audit

FILTERS = {'action': schemas.SHORT, 'target': schemas.NAME,
           'actor': schemas.NAME, 'since': schemas.TIME}

FIELDS = {
    'id': schemas.TEXT,
    'at': schemas.MAYBE_TIME,
    'actor': schemas.TEXT,
    'project': described(schemas.TEXT, 'The project of the actor.'),
    'request_id': schemas.TEXT,
    'action': schemas.TEXT,
    'target': schemas.TEXT,
    'before': {},
    'after': {},
    'reason': schemas.TEXT}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    return call.page(
        audit.page(connection, action=query.get('action'),
                   target=query.get('target'), actor=query.get('actor'),
                   since_s=call.time_s('since'), after=call.after_id(),
                   limit=call.limit + 1),
        _shape)


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(FIELDS, row, id=str(row['id']),
                         at=times.iso(row['time_s']))
