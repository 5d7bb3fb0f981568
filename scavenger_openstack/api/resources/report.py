# SPDX-License-Identifier: Apache-2.0

"""``/v1/report``: what a span of time was like, for bills and credits."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.reports import hour
from scavenger_openstack.db.resources import report
from scavenger_openstack.text import iso

SPAN_S = 7 * DAY_S

PROJECT = {'project': schemas.TEXT, 'application': schemas.TEXT,
           'workloads': described(schemas.COUNT, 'That were disturbed.'),
           **schemas.SUMS}
HOST = {'host': schemas.TEXT, **schemas.SUMS, **schemas.WORK}
ANTAGONIST = {'host': schemas.TEXT, 'workload': schemas.TEXT,
              'instance': schemas.TEXT, 'project': schemas.TEXT,
              'application': schemas.TEXT, **schemas.SUMS,
              'confirmed': schemas.COUNT, 'refuted': schemas.COUNT}
PRECISION = {'controller': schemas.TEXT, 'confirmed': schemas.COUNT,
             'refuted': schemas.COUNT, 'unclear': schemas.COUNT}
LISTS = {'projects': PROJECT, 'hosts': HOST, 'antagonists': ANTAGONIST,
         'precision': PRECISION}

FIELDS = {
    'since_at': described(schemas.TIME, 'A full hour.'),
    'until_at': described(schemas.TIME, 'A full hour.'),
    **schemas.SUMS, **schemas.WORK,
    **{name: schemas.items(schemas.fields(fields))
       for name, fields in LISTS.items()}}

FILTERS = {
    'since': described(
        schemas.TIME, 'Default: 7 days before "until"; the hour that it is '
                      'in counts.'),
    'until': described(
        schemas.TIME, 'Default: now; the hour that it is in does not count, '
                      'as it is not over.'),
    'limit': described(schemas.PAGE['limit'], 'Rows of each list, the worst '
                                              'first; totals are of all.')}


def show(call: Call, connection: Any) -> dict[str, Any]:
    until_s = call.time_s('until')
    until_s = hour(min(call.now_s, call.now_s if until_s is None
                       else until_s))
    since_s = call.time_s('since')
    since_s = hour(until_s - SPAN_S if since_s is None
                   else max(0.0, since_s))
    if since_s >= until_s:
        raise faults.bad('since is not before until, which is the last full '
                         'hour.', 'since', 'a time before until')
    span = connection, since_s, until_s
    totals = report.totals(*span)
    return {'report': {
        'since_at': iso(since_s), 'until_at': iso(until_s),
        **_plain(totals, schemas.SUMS | schemas.WORK),
        'projects': [_plain(row, PROJECT) for row in report.projects(
            *span, call.limit)],
        'hosts': [_plain(row, HOST) for row in report.hosts(
            *span, call.limit)],
        'antagonists': [_plain(row, ANTAGONIST)
                        for row in report.antagonists(*span, call.limit)],
        'precision': [_plain(row, PRECISION)
                      for row in report.precision(*span, call.limit)]}}


def _plain(row: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return a row as an answer has it; databases return sums as decimals."""
    kinds = {'integer': int, 'number': float, 'string': str}
    return {name: kinds[fields[name]['type']](
        row[name.removeprefix('background_')]) for name in fields}
