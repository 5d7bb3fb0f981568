# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: what workloads tolerate and cause.

A reader of a project sees its profiles and those for all projects, and not
where, nor of which workload, they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import policies
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import profiles
from scavenger_openstack import errors
from scavenger_openstack.wire import profile

FILTERS = {
    'kind': schemas.one_of(profile.KINDS),
    'target': schemas.NAME,
    'project': described(schemas.SHORT, 'Only those of this project, not '
                                        'those for all.')}

HIDDEN_FILTERS = frozenset(('project',))

HIDDEN: Mapping[str, None] = dict.fromkeys(('host', 'missing', 'created_by'))
"""What tells readers of a project of the hosts, or of operators."""

HIDDEN_FOR_ALL: Mapping[str, None] = dict.fromkeys(('qos', 'stale_at'))
"""What a profile for all projects tells them of the workload that it was
measured of, which may be of another project: how it is without interference,
and when it last had an incident."""

_SHARE = {'type': 'number', 'minimum': 0, 'maximum': 1}
_BY_SOI = schemas.fields(
    {soi: schemas.fields({'value': _SHARE, 'low': _SHARE, 'high': _SHARE})
     for soi in profile.SOI_NAMES}, *profile.SOI_NAMES)
_QOS = schemas.fields({'signal': schemas.NAME, 'alone': schemas.NUMBER,
                       'bound': schemas.NUMBER})
_MISSING = schemas.fields({soi: {'type': 'string', 'maxLength': 2000}
                           for soi in profile.SOI_NAMES}, *profile.SOI_NAMES)

DOCUMENT = {
    'kind': schemas.one_of(profile.KINDS),
    'target': described(schemas.NAME, 'The name of the application, the name '
                                      'or id of the flavor, or the id of the '
                                      'image.'),
    'project': described({'type': 'string', 'maxLength': 64},
                         'Whose application, flavor or image; empty for '
                         'those of all projects.'),
    'source': described(schemas.one_of(profile.SOURCES),
                        'estimated: nothing was injected.'),
    'form': schemas.one_of(profile.FORMS),
    'measured_s': described(schemas.NUMBER, 'When, in UNIX seconds.'),
    'host': described({'type': 'string', 'maxLength': 255}, 'Where; empty '
                      'for an estimate of several hosts.'),
    'qos': described(schemas.maybe(_QOS), 'The signal by which quality of '
                     'service was judged, its value alone, and the one at '
                     'which the quality breaks.'),
    'tolerated': described(_BY_SOI, 'Intensity of each SoI at which the '
                           'quality of service breaks; 1 when none does.'),
    'caused': described(_BY_SOI, 'Share of its rate that a probe of each SoI '
                        'loses beside the workload.'),
    'missing': described(_MISSING, 'Why a SoI was not measured.')}
"""A profile as :mod:`.wire.profile` has it in a file."""

FIELDS = {
    'id': schemas.TEXT,
    **DOCUMENT,
    **{name: schemas.maybe(DOCUMENT[name]) for name in ('host', 'missing')},
    'created_by': schemas.MAYBE_TEXT,
    'created_at': schemas.MAYBE_TIME,
    'stale_at': described(
        schemas.MAYBE_TIME, 'When an incident ended whose victim is of this '
        'profile, and which began after it was stored: measure it again.')}

WISH = schemas.fields({**DOCUMENT, 'reason': schemas.REASON}, 'project',
                      'form', 'host', 'qos', 'tolerated', 'caused', 'missing',
                      'reason')


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    reader = call.only(policies.PROFILES_ALL, policies.PROFILES_LIST,
                       HIDDEN_FILTERS, FILTERS)
    rows = profiles.page(
        connection, kind=query.get('kind'), target=call.name('target'),
        project=query.get('project'), reader=reader,
        after=call.after_row(connection, [str, int], profiles.id_of),
        limit=call.limit + 1)
    return call.page(rows, functools.partial(_shape, reader=reader),
                     own=lambda row: [row['uuid'],
                                      round(1e3 * row['created_s'])])


def show(call: Call, connection: Any) -> dict[str, Any]:
    reader = call.only(policies.PROFILES_ALL, policies.PROFILES_SHOW)
    row = profiles.show(connection, call.path['id'], reader)
    if row is None:
        raise faults.missing('profile', call.path['id'])
    return {'profile': _shape(row, reader)}


def create(call: Call, connection: Any) -> dict[str, Any]:
    """Store a profile, in place of the one of the same kind, target and
    project."""
    call.require(policies.PROFILES_CREATE,
                 project_id=call.body.get('project') or None)
    try:
        document = profile.of_json({name: value
                                    for name, value in call.body.items()
                                    if name != 'reason'})
    except errors.WireError as exc:
        field, _, sentence = str(exc).partition(': ')
        raise faults.bad(f'{field}: {sentence}.', None if field == 'profile'
                         else field) from exc
    change = profiles.set_profile(connection, document,
                                  created_by=call.caller.name,
                                  now_s=call.now_s)
    if change is None:
        raise faults.conflict(
            f'There is a measured profile of the {document.kind} '
            f'{document.target}, which no estimate replaces: delete it '
            'first, or measure.', 'source')
    _record(call, connection, 'profile.set', change.before, change.after,
            call.body.get('reason', ''))
    return {'profile': _shape(change.after)}


def delete(call: Call, connection: Any) -> None:
    row = profiles.show(connection, call.path['id'])
    call.require(policies.PROFILES_DELETE,
                 project_id=row and row['project'] or None)
    if row is None:
        raise faults.missing('profile', call.path['id'])
    profiles.remove(connection, row['id'])
    _record(call, connection, 'profile.delete', row, None,
            call.query.get('reason', ''))


def _record(call: Call, connection: Any, action: str,
            before: Mapping[str, Any] | None, after: Mapping[str, Any] | None,
            reason: str) -> None:
    row = after or before or {}
    call.record(connection, action, '/'.join(filter(None, (
        row['kind'], row['project'], row['target']))),
                before=before and _shape(before),
                after=after and _shape(after), reason=reason)


def _shape(row: Mapping[str, Any], reader: str | None = None
           ) -> dict[str, Any]:
    """Return a profile as it is shown.

    :param reader: the project whose reader it is for, ``None`` for one that
        sees the whole cloud
    """
    return {**schemas.shape(FIELDS, {'qos': None, **row['document'], **row},
                            id=row['uuid']),
            **(HIDDEN if reader is not None else {}),
            **(HIDDEN_FOR_ALL if reader is not None and not row['project']
               else {})}
