# SPDX-License-Identifier: Apache-2.0

"""The kill switch and the governor, of cloud, aggregates and hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db.resources import switches
from scavenger_openstack.text import iso

SCOPES = schemas.one_of(('cloud', 'aggregate', 'host'))
TARGET = described({'type': 'string', 'maxLength': 255},
                   'The name of the aggregate or host; empty for the cloud.')
BUDGET = {'type': ['integer', 'null'], 'minimum': 0, 'maximum': 1_000_000,
          'description': 'New limits of detectors per minute; null for no '
                         'number of its own.'}

PROTECTION = {
    'scope': SCOPES,
    'target': TARGET,
    'enabled': described(schemas.FLAG, 'false: every limit is removed and '
                                       'none is set.'),
    'reason': schemas.TEXT,
    'changed_by': schemas.TEXT,
    'changed_at': schemas.MAYBE_TIME}

PROTECTION_SET = {
    **PROTECTION,
    'hosts': described(schemas.COUNT, 'Hosts that it is for: each follows '
                                      'with its next report.'),
    'silent': described(schemas.COUNT, 'Those of them that do not report '
                                       'now.'),
    'last_seen_at': described(schemas.MAYBE_TIME,
                              'When one of them reported last.')}

PROTECTION_FILTERS = {'enabled': described(
    schemas.FLAG, 'false: only where protection is off.')}

GOVERNOR = {'scope': SCOPES, 'target': TARGET, 'caps_per_minute': BUDGET}

_WHERE = {'scope': SCOPES, 'target': TARGET, 'reason': schemas.REASON}
PROTECTION_WISH = schemas.fields({**_WHERE, 'enabled': schemas.FLAG},
                                 'target')
GOVERNOR_WISH = schemas.fields({**_WHERE, 'caps_per_minute': BUDGET},
                               'target')

_CLOUD = {'scope': 'cloud', 'target': '', 'protection': True, 'reason': '',
          'caps_per_minute': None, 'changed_by': '', 'changed_s': None}
"""What holds before it is set."""


def protection(call: Call, connection: Any) -> dict[str, Any]:
    return _list(call, connection, _protection, governed=False,
                 protection=call.query.get('enabled'))


def governor(call: Call, connection: Any) -> dict[str, Any]:
    return _list(call, connection, _governor, governed=True)


def set_protection(call: Call, connection: Any) -> dict[str, Any]:
    before, after = _set(call, connection, protection=call.body['enabled'],
                         reason=call.body['reason'],
                         changed_by=call.caller.name, changed_s=call.now_s)
    _record(call, connection, 'protection.set', before and
            _protection(before), _protection(after))
    if (before or _CLOUD)['protection'] != after['protection']:
        notifications.add(connection, notifications.Event.PROTECTION,
                          [_protection(after)], call.now_s)
    count = db_hosts.count(connection, after['scope'], after['target'],
                           call.now_s - call.silent_s)
    return {'protection': {
        **_protection(after), 'hosts': count.hosts, 'silent': count.silent,
        'last_seen_at': iso(count.last_seen_s)}}


def set_governor(call: Call, connection: Any) -> dict[str, Any]:
    before, after = _set(call, connection,
                         caps_per_minute=call.body['caps_per_minute'])
    _record(call, connection, 'governor.set', before and _governor(before),
            _governor(after))
    return {'governor': _governor(after)}


def _list(call: Call, connection: Any, shape: Any, *, governed: bool,
          protection: bool | None = None) -> dict[str, Any]:
    after = call.after_id()
    answer = call.page(
        switches.page(connection, governed=governed, protection=protection,
                      after=after, limit=call.limit + 1), shape)
    # The cloud's is always there, on the last page.
    if answer['next'] is None and protection is not False:
        cloud = switches.of(connection, 'cloud', '')
        if cloud is None or (governed and cloud['caps_per_minute'] is None):
            answer[call.noun].append(shape(_CLOUD))
    return answer


def _set(call: Call, connection: Any, **values: Any
         ) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what was, if anything, and what is."""
    scope, target = call.body['scope'], call.body.get('target', '')
    if scope == 'cloud':
        if target:
            raise faults.bad('The cloud has no target.', 'target', [''])
    elif not target:
        raise faults.bad('target is missing.', 'target',
                         f'the name of the {scope}')
    before = switches.of(connection, scope, target, lock=True)
    # One that is there may be of what has lost its hosts, or has another name.
    if scope == 'host' and before is None:
        target = hosts.existing(connection, target, 'target')['name']
        before = switches.of(connection, scope, target, lock=True)
    elif scope == 'aggregate' and before is None:
        hosts.aggregate(connection, target, 'target')
    switches.put(connection, scope, target, before, **values)
    after = switches.of(connection, scope, target)
    assert after is not None
    return before, after


def _record(call: Call, connection: Any, action: str, before: Any, after: Any
            ) -> None:
    call.record(connection, action,
                f'{after["scope"]}/{after["target"]}'.rstrip('/'),
                before=before, after=after, reason=call.body['reason'])


def _protection(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(PROTECTION, row, enabled=row['protection'],
                         changed_at=iso(row['changed_s'] or None))


def _governor(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(GOVERNOR, row)
