# SPDX-License-Identifier: Apache-2.0

"""Workloads whose interference profile is measured on their hosts.

A request is a row; it goes to the agent of the host with its directives, and
the row says what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
import uuid

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db import directives
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import profilings
from scavenger_openstack.db.resources import workloads
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import profile

BEGIN_S = 300.0
"""A host that has not begun by then does not."""

FILTERS = {'host': schemas.NAME, 'state': schemas.one_of(profilings.STATES)}

_SECONDS = {'type': 'number', 'exclusiveMinimum': 0, 'maximum': 3600}

FIELDS = {
    'id': schemas.TEXT,
    'host': schemas.TEXT,
    'workload': described(schemas.TEXT, 'As its host calls it.'),
    'kind': described(schemas.one_of(profile.KINDS),
                      'What the profile is of.'),
    'target': schemas.TEXT,
    'project': schemas.TEXT,
    'form': schemas.one_of(profile.FORMS),
    'seconds': described(schemas.NUMBER, 'So long it may take.'),
    'used_s': described(schemas.NUMBER, 'So long it took; as long as it goes '
                                        'on, what it may take.'),
    'reason': schemas.TEXT,
    'created_by': schemas.TEXT,
    'created_at': schemas.MAYBE_TIME,
    'state': schemas.one_of(profilings.STATES),
    'detail': described(schemas.TEXT, 'Why it failed.'),
    'changed_at': schemas.MAYBE_TIME}

WISH = schemas.fields(
    {'host': schemas.NAME,
     'workload': described(schemas.NAME, 'Its name on the host, as in '
                           '/v1/workloads, or the UUID of an instance.'),
     'form': described(schemas.one_of(profile.FORMS), 'Default: short.'),
     'seconds': described(_SECONDS, 'It ends after so long at the latest.  '
                                    'Default: 120 of a short one, 900 of '
                                    'a long one.'),
     'kind': described(schemas.one_of(profile.KINDS), 'What the profile is '
                       'of.  Default: the application of the workload, '
                       'else its flavor.'),
     'target': schemas.NAME,
     'reason': schemas.REASON}, 'form', 'seconds', 'kind', 'target')

DEFAULT_SECONDS = {'short': 120.0, 'long': 900.0}
"""By form: both are over much earlier where nothing varies."""


def list_(call: Call, connection: Any) -> dict[str, Any]:
    host_id = hosts.existing_id(connection, call.query.get('host'))
    return call.page(profilings.page(
        connection, host_id=host_id, state=call.query.get('state'),
        after=call.after_id(), limit=call.limit + 1), _shape)


def show(call: Call, connection: Any) -> dict[str, Any]:
    return {'profiling': _shape(_row(call, connection))}


def create(call: Call, connection: Any) -> dict[str, Any]:
    """Request a profile, where an aggregate of the host allows that and the
    budget of the host lasts."""
    # First: what two ask for at once is looked at one after the other.
    generation.count(connection)
    host = hosts.existing(connection, call.body['host'], 'host')
    _check_host(call, connection, host)
    workload = _workload(connection, host, call.body['workload'])
    kind, target = _target(call.body, workload)
    form = call.body.get('form', 'short')
    seconds = min(call.body.get('seconds', DEFAULT_SECONDS[form]),
                  _left_s(call, connection, host))
    row = {'uuid': uuid.uuid4().hex, 'host_id': host['id'],
           'workload': workload['name'], 'instance': workload['instance'],
           'kind': kind, 'target': target,
           'project': workload['project'] if kind == 'application' else '',
           'form': form, 'seconds': seconds,
           'used_s': seconds, 'reason': call.body['reason'],
           'created_by': call.caller.name, 'created_s': call.now_s,
           'state': profilings.ASKED, 'detail': '',
           'changed_s': call.now_s, 'until_s': call.now_s + BEGIN_S}
    profilings.add(connection, **row)
    shown = _shape({**row, 'host': host['name']})
    call.record(connection, 'profiling.ask', workload['name'], before=None,
                after=shown, reason=row['reason'])
    return {'profiling': shown}


def _left_s(call: Call, connection: Any, host: Mapping[str, Any]) -> float:
    """Return how long load may still be injected on a host today.

    :raises Fault: 409, no longer, or hosts are being measured.
    """
    profilings.give_up(connection, call.now_s)
    going = profilings.unfinished(connection, call.now_s)
    for row in going:
        if row['host_id'] == host['id']:
            raise faults.conflict(
                f'The profile of {row["workload"]} is measured on '
                f'{host["name"]} now; wait until it ends, or remove '
                f'{row["uuid"]}.', 'host')
    if len(going) >= call.profile_hosts:
        raise faults.conflict(
            f'Profiles are measured on {len(going)} hosts now, and [api] '
            f'profile_hosts allows {call.profile_hosts}; wait until one '
            'ends.', 'host')
    left_s = call.profile_seconds_per_day - profilings.used_s(
        connection, host['id'], call.now_s)
    if left_s <= 0:
        raise faults.conflict(
            f'{host["name"]} has used its {call.profile_seconds_per_day:g} '
            's of a day ([api] profile_seconds_per_day).', 'host')
    return left_s


def delete(call: Call, connection: Any) -> None:
    """End a request."""
    row = _row(call, connection)
    if not profilings.end(connection, row['id'], profilings.FAILED,
                          f'removed by {call.caller.name}', call.now_s):
        raise faults.conflict('It has ended already.')
    generation.count(connection)
    call.record(connection, 'profiling.delete', row['workload'],
                before=_shape(row), after=None,
                reason=call.query.get('reason', ''))


def _check_host(call: Call, connection: Any, host: Mapping[str, Any]
                ) -> None:
    """Refuse a host on which load may not be injected.

    :raises Fault: 409, nothing may be injected there now.
    """
    wanted = directives.of_host(connection, host['name'])
    if not wanted.allows_profiling(host['name']):
        raise faults.conflict(
            f'No aggregate of {host["name"]} allows it: "openstack '
            'interference aggregate set --profiling" does.', 'host')
    protection, why = wanted.protection(host['name'])
    if not protection:
        raise faults.conflict(f'{host["name"]}: {why}.', 'host')
    if call.now_s - host['last_seen_s'] > call.silent_s:
        raise faults.conflict(f'{host["name"]} does not report now.', 'host')
    if not host['enforcing']:
        raise faults.conflict(
            f'{host["name"]} only observes: a profile is measured where '
            'limits are enforced.', 'host')


def _workload(connection: Any, host: Mapping[str, Any], name: str
              ) -> Mapping[str, Any]:
    """Return the workload of a host by its name or UUID.

    :raises Fault: 400, it is not on the host.
    """
    row = workloads.present(connection, host['id'], name)
    if row is not None:
        return row
    for row in workloads.page(connection, host_id=host['id'], instance=name,
                              limit=1):
        return row
    raise faults.bad(
        f'No such workload is on {host["name"]}'
        f'{faults.proposal(name, workloads.names_on(connection, host["id"]))}'
        '.', 'workload', 'the name or UUID of a workload of this host in '
        '/v1/workloads')


def _target(body: Mapping[str, Any], workload: Mapping[str, Any]
            ) -> tuple[str, str]:
    """Return the kind and the target that a profile is of.

    :raises Fault: 400, nothing says what the profile is of.
    """
    if ('kind' in body) != ('target' in body):
        raise faults.bad('kind and target go together.', 'target')
    if 'kind' in body:
        if fit.name(body['target']) != body['target']:
            # It is refused in a profile, which is then measured for nothing.
            raise faults.bad('target is not a name without a blank at its '
                             'end, of printable characters.', 'target')
        return body['kind'], body['target']
    for kind in ('application', 'flavor'):
        if workload[kind]:
            return kind, workload[kind]
    raise faults.bad('The workload has neither an application nor a flavor.',
                     'target', 'the application that the profile is of')


def _row(call: Call, connection: Any) -> dict[str, Any]:
    row = profilings.show(connection, call.path['id'])
    if row is None:
        raise faults.missing('profiling', call.path['id'])
    return row


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(FIELDS, row, id=row['uuid'])
