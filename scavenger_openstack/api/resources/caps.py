# SPDX-License-Identifier: Apache-2.0

"""Limits in force and past, and operators' overrides of them."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
import uuid

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import policies
from scavenger_openstack.api.resources import following
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api.resources import instance_names
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db.resources import workloads
from scavenger_openstack import knobs
from scavenger_openstack.knobs import OVERRIDABLE
from scavenger_openstack.text import iso
from scavenger_openstack.text import time_s
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.wire import fit

LONGEST_S = 366 * DAY_S
"""An override that lasts longer is a configuration."""

FILTERS = {
    'host': schemas.NAME,
    'project': schemas.SHORT,
    'instance': schemas.UUID,
    'knob': schemas.KNOBS,
    'in_force': described({**schemas.FLAG, 'default': True},
                          'false: those that were removed, the last removed '
                          'first.')}

OVERRIDE_FILTERS = {'host': schemas.NAME, 'workload': schemas.NAME}

HIDDEN_FILTERS = frozenset(('host', 'project'))
"""What tells readers of a project of others, or where an instance is."""

HIDDEN: Mapping[str, None] = dict.fromkeys((
    'id', 'host', 'reason', 'why', 'incidents', 'override'))
"""Likewise: texts name what suffers, the incidents are of others, and ids tell
how many limits there are."""

FIELDS = {
    'id': schemas.MAYBE_TEXT,
    'host': schemas.MAYBE_TEXT,
    'workload': schemas.TEXT,
    'instance': schemas.TEXT,
    'name': schemas.TEXT,
    'project': schemas.TEXT,
    'knob': schemas.TEXT,
    'value': schemas.VALUE,
    'original': described(schemas.VALUE, 'What the knob holds without it.'),
    'owner': described(schemas.TEXT, 'The controller or rule, two joined by '
                       '"+", or operator.'),
    'reason': schemas.MAYBE_TEXT,
    'why': described(schemas.MAYBE_TEXT, 'Why it was removed.'),
    'incidents': described(schemas.maybe(schemas.items(schemas.TEXT)),
                           'The ids of the incidents that it answers.'),
    'set_at': schemas.MAYBE_TIME,
    'removed_at': schemas.MAYBE_TIME,
    'override': described(schemas.MAYBE_TEXT, 'The id of the override that '
                                              'holds for this knob now.')}

STEPPED = {**FIELDS, 'steps': described(
    schemas.items(schemas.fields({'at': schemas.MAYBE_TIME,
                                  'value': schemas.VALUE})),
    'Each value that it had, the oldest first.')}

STORED = {
    'id': schemas.TEXT,
    'host': schemas.TEXT,
    'workload': schemas.TEXT,
    'instance': schemas.TEXT,
    'knob': schemas.TEXT,
    'value': schemas.VALUE,
    'reason': schemas.TEXT,
    'created_by': schemas.TEXT,
    'created_at': schemas.MAYBE_TIME,
    'expires_at': schemas.MAYBE_TIME}
OVERRIDE = {**STORED, 'name': schemas.TEXT, **following.FIELDS}

WISH = schemas.fields({
    'value': described({**schemas.VALUE, 'maxLength': 4096},
                       'The limit in the unit of its knob, or a CPU list; '
                       'null for no limit.'),
    'reason': schemas.REASON,
    'expires_at': described(schemas.TIME, 'From then it holds no more.')})


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    reader = call.only(policies.CAPS_ALL, policies.CAPS_LIST,
                       HIDDEN_FILTERS, FILTERS)
    page = caps.page(
        connection, host_id=hosts.existing_id(connection, query.get('host')),
        project=call.project, instance=query.get('instance'),
        knob=query.get('knob'), in_force=query.get('in_force', True),
        after=call.after_row(connection, [str, str, int], caps.id_of),
        limit=call.limit + 1)
    shown = iter(shapes(connection, page, call.now_s))
    return call.page(
        page, lambda row: next(shown) if reader is None else {
            **next(shown), **HIDDEN, **hidden_cpus(row['knob'])},
        own=lambda row: [row['instance'], row['knob'],
                         round(1e3 * row['set_s'])])


def hidden_cpus(knob: str) -> dict[str, None]:
    """Return what hides from readers of a project which CPUs of the host are
    chosen for an instance."""
    return dict.fromkeys(('value', 'original') if knob == Knob.CPU_SET
                         else ())


def shapes(connection: Any, rows: list[dict[str, Any]], now_s: float,
           fields: Mapping[str, schemas.Schema] = FIELDS
           ) -> list[dict[str, Any]]:
    """Limits as they are shown, in their order."""
    names = workloads.display_names(
        connection, [(row['host_id'], row['workload']) for row in rows])
    others = instance_names.of(connection, *(
        row[field] for row in rows for field in ('reason', 'why')))
    overrides = caps.override_ids(
        connection, [row['host_id'] for row in rows], now_s)
    return [schemas.shape(
        fields, row, id=str(row['id']), steps=[
            {'at': iso(at_s), 'value': value} for at_s, value in
            row['steps'] or [(row['set_s'], row['value'])]],
        incidents=row['incidents'].split(),
        reason=instance_names.beside(row['reason'], others),
        why=instance_names.beside(row['why'], others),
        name=names.get((row['host_id'], row['workload']), ''),
        override=overrides.get((row['host_id'], row['workload'],
                                row['knob']))) for row in rows]


def overrides(call: Call, connection: Any) -> dict[str, Any]:
    rows = caps.overrides(
        connection, now_s=call.now_s,
        host_id=hosts.existing_id(connection, call.query.get('host')),
        workload=call.name('workload'), after=call.after_id(),
        limit=call.limit + 1)
    by_name = {row['name']: row for row in db_hosts.by_names(
        connection, (row['host'] for row in rows))}
    names = instance_names.of(connection, *(row['instance'] for row in rows))
    return call.page(
        rows, lambda row: _shape(row, by_name[row['host']], names))


def put(call: Call, connection: Any) -> dict[str, Any]:
    """Set an override, in place of the one that holds."""
    knob = _knob(call.path['knob'])
    expires_s = _expiry(time_s(call.body['expires_at']), call.now_s)
    value = _value(knob, call.body['value'])
    host = hosts.named(connection, call.path['host'], lock=True)
    workload = _workload(connection, host['id'], call.path['workload'])
    if workload is None:
        raise faults.missing(
            f'workload on host {host["name"]} that is called',
            call.path['workload'],
            workloads.names_on(connection, host['id']))
    if workload['priority'] != Priority.BACKGROUND:
        raise faults.conflict(
            f'{workload["name"]} is foreground, which is never limited.',
            'workload')
    _check_limited(knob, host)
    _above_floor(knob, value, workload['floor'] or {})
    key = host['id'], workload['name'], str(knob)
    before = caps.override(connection, key, call.now_s)
    caps.add_override(
        connection, key, uuid=uuid.uuid4().hex, value=value,
        instance=workload['instance'], project=workload['project'],
        reason=call.body['reason'], created_by=call.caller.name,
        created_s=call.now_s, generation=generation.count(connection),
        expires_s=expires_s)
    after = caps.override(connection, key, call.now_s)
    assert after is not None
    call.record(connection, 'override.set', _target(host, key),
                before=before and _stored(before), after=_stored(after),
                reason=call.body['reason'])
    notifications.add_override(connection, host['name'], after, call.now_s,
                               is_set=True)
    return {'override': _shape(after, host, instance_names.of(
        connection, workload['instance']))}


def delete(call: Call, connection: Any) -> None:
    host = db_hosts.by_name(connection, call.path['host'], lock=True)
    for name in _spellings(call.path['workload']):
        key = host and (host['id'], name, call.path['knob'])
        before = key and caps.override(connection, key, call.now_s)
        if host and key and before:
            caps.end_override(connection, key, call.now_s)
            call.record(connection, 'override.delete', _target(host, key),
                        before=_stored(before), after=None,
                        reason=call.query.get('reason', ''))
            notifications.add_override(connection, host['name'], before,
                                       call.now_s, is_set=False)
            return
    raise faults.missing(
        f'override of {call.path["knob"]} on host {call.path["host"]} for',
        call.path['workload'])


def _workload(connection: Any, host_id: int, name: str
              ) -> dict[str, Any] | None:
    for spelling in _spellings(name):
        workload = workloads.present(connection, host_id, spelling)
        if workload is not None:
            return workload
    return None


def _spellings(name: str) -> Iterable[str]:
    """The names that may be meant: servers before us may make one slash of
    two, and the names of containers begin with one."""
    return map(fit.name, (name,) if name.startswith('/') else (
        name, f'/{name}'))


def _knob(text: str) -> Knob:
    if text not in OVERRIDABLE:
        raise faults.bad(f'{text} cannot be overridden.', 'knob',
                         [str(knob) for knob in OVERRIDABLE])
    return Knob(text)


def _expiry(expires_s: float, now_s: float) -> float:
    if not now_s < expires_s <= now_s + LONGEST_S:
        raise faults.bad(
            'expires_at is in the past, or too far away.', 'expires_at',
            f'from {iso(now_s)} to {iso(now_s + LONGEST_S)}')
    return expires_s


def _value(knob: Knob, value: Any) -> float | str | None:
    """Return the value of an override, checked by its knob.

    :raises Fault: 400, the knob cannot hold it.
    """
    if value is None:
        return None
    if mistake := knobs.mistake(knob, value):
        raise faults.bad(f'value is not {mistake}.', 'value',
                         f'{mistake}, or null')
    return value if isinstance(value, str) else float(value)


def _check_limited(knob: Knob, host: Mapping[str, Any]) -> None:
    """Refuse an override of a knob that the host does not limit.

    :raises Fault: 409, the host has reported that it does not limit that.
    """
    limited = (host['facts'] or {}).get('limited')
    if limited is not None and knob not in limited:
        raise faults.conflict(
            f'{host["name"]} does not limit {knob}, by its report of '
            f'{iso(host["last_seen_s"])}: list its resource in [agent] '
            'protect, or enforce with a controller, in the file of that '
            f'host; it limits {", ".join(limited) or "nothing"}.', 'knob')


def _above_floor(knob: Knob, value: float | str | None,
                 floors: Mapping[str, float]) -> None:
    floor = floors.get(knob)
    if floor is not None and isinstance(value, float) and value < floor:
        raise faults.bad(
            f'{value:.15g} is below the floor of {knob}, which is '
            f'{floor:.15g}.',
            'value', f'a number from {floor:.15g}, or null')


def _target(host: Mapping[str, Any], key: caps.OverrideKey) -> str:
    return f'{host["name"]}/{key[2]}/{key[1]}'


def _stored(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(STORED, row, id=row['uuid'])


def _shape(row: Mapping[str, Any], host: Mapping[str, Any],
           names: instance_names.Names) -> dict[str, Any]:
    return {**_stored(row), 'name': names.get(row['instance'], ''),
            **following.of_parts(host, 'overrides', [
                f'override {row["uuid"]}'], row['generation'], limit=True)}
