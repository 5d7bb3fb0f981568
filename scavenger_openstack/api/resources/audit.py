# SPDX-License-Identifier: Apache-2.0

"""The audit: who changed what, when and why."""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.api import validation
from scavenger_openstack.db.resources import audit
from scavenger_openstack.text import iso

FILTERS = {'action': schemas.SHORT, 'target': schemas.NAME,
           'actor': described(schemas.NAME, 'The name, or the id, of a user '
                                            'or of what else did it.'),
           'by_agent': described(schemas.FLAG, 'Only what agents caused, or '
                                               'only the rest.'),
           'since': schemas.TIME}

ACTIONS = (
    'agent.ended', 'agent.started', 'agent.state', 'aggregate.set',
    'aggregate.update', 'eviction.ask', 'eviction.done', 'eviction.failed',
    'eviction.recommended', 'exemption.delete', 'exemption.set',
    'governor.set', 'host.update', 'kill', 'override.delete', 'override.set',
    'priority.delete', 'priority.set', 'profile.delete', 'profile.set',
    'profiles.estimate', 'profiling.ask', 'profiling.delete',
    'profiling.done', 'profiling.failed', 'protection.set',
    'report.refused', 'specs')

_ID = re.compile('[0-9a-f]{32,64}')

FIELDS = {
    'id': schemas.TEXT,
    'at': schemas.MAYBE_TIME,
    'actor': described(schemas.TEXT, 'The id of a user, or what else did '
                                     'it.'),
    'actor_name': described(schemas.TEXT, 'What it is called.'),
    'by_agent': described(schemas.FLAG, 'Whether an agent caused it.'),
    'project': described(schemas.TEXT, 'The project of the actor.'),
    'request_id': schemas.TEXT,
    'action': schemas.TEXT,
    'target': schemas.TEXT,
    'before': {},
    'after': {},
    'reason': schemas.TEXT}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    page = audit.page(
        connection, action=query.get('action'), target=query.get('target'),
        **_of_actor(query.get('actor')), by_agent=query.get('by_agent'),
        since_s=call.time_s('since'),
        after=call.after_id(), limit=call.limit + 1)
    if not page:
        validation.check_word(
            query.get('action'), 'action', ACTIONS,
            lambda action: audit.has_action(connection, action))
    return call.page(page, _shape)


def _of_actor(text: str | None) -> dict[str, str | None]:
    """The filter by actor: ids of Keystone, and of LDAP, are hexadecimal."""
    is_id = text is not None and _ID.fullmatch(text)
    return {'actor' if is_id else 'actor_name': text}


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(FIELDS, row, id=str(row['id']),
                         actor_name=row['actor_name'] or row['actor'],
                         at=iso(row['time_s']))
