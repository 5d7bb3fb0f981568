# SPDX-License-Identifier: Apache-2.0

"""Antagonists: what disturbed most in a span of time."""

from __future__ import annotations

from collections.abc import Mapping
import functools
from typing import Any
from typing import get_args

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import markers
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db import eviction_policy
from scavenger_openstack.db import newest
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources import caps
from scavenger_openstack.text import iso
from scavenger_openstack.types import Priority

SPAN_S = DAY_S
PARTS_MOST = 60
CAUSES_MOST = 20
"""A host may invent causes."""
SORTS = get_args(antagonists.Sort)

FILTERS = {
    'since': described(
        schemas.TIME, 'Default: a day before "until"; the hour that it is in '
                      'counts whole. The order may be a minute old, but for a '
                      'ranking over the last 24 hours, 7 or 30 days.'),
    'until': described(schemas.TIME, 'Default: now.'),
    'host': schemas.NAME,
    'project': described(schemas.SHORT, 'The project of the antagonist.'),
    'victim_project': described(schemas.SHORT,
                                'Only what it did to this project.'),
    'sort': described({**schemas.one_of(SORTS), 'default': SORTS[0]},
                      'The greatest comes first.'),
    'now': described({**schemas.FLAG, 'default': False},
                     'true: only those that an open incident names now, or '
                     'that a detector limits because one did.'),
    'parts': {'type': 'integer', 'minimum': 0, 'maximum': PARTS_MOST,
              'default': 0, 'description':
              'Into how many equal parts "history" divides the span.'}}

FIELDS = {
    'workload': schemas.TEXT,
    'instance': schemas.TEXT,
    'name': schemas.TEXT,
    'host': schemas.TEXT,
    'project': schemas.TEXT,
    'application': schemas.TEXT,
    'incidents': schemas.COUNT,
    'victims': schemas.COUNT,
    'interference_s': described(
        schemas.NUMBER, 'Seconds in which a victim was disturbed, summed '
                        'over victims.'),
    'causes': schemas.items(schemas.TEXT),
    'confirmed': described(schemas.COUNT, 'Limits that helped a victim.'),
    'refuted': described(schemas.COUNT, 'Limits that did not.'),
    'limited': described(schemas.FLAG, 'Whether a detector or an operator '
                                       'limits it now.'),
    'disturbs_now': described(schemas.FLAG, 'Whether an open incident names '
                                            'it now.'),
    'foreground': described(schemas.FLAG, 'It is neither limited nor '
                                          'evicted.'),
    'eviction_recommended_at': described(
        schemas.MAYBE_TIME, 'When its eviction was recommended, if it was '
                            'within a day.'),
    'history': described(
        schemas.items(schemas.NUMBER),
        'The seconds of each part of the span, the oldest first; empty '
        'without "parts".  An hour counts in the part that it begins in.')}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    query = call.query
    until_s = call.time_s('until')
    until_s = call.now_s if until_s is None else until_s
    since_s = call.time_s('since')
    since_s = until_s - SPAN_S if since_s is None else since_s
    if since_s >= until_s:
        raise faults.bad('since is not before until.', 'since',
                         'a time before until')
    sort = query.get('sort', SORTS[0])
    asked = antagonists.span(
        connection, now_s=call.now_s, since_s=since_s, until_s=until_s,
        project=query.get('project'),
        victim_project=query.get('victim_project'))
    places = functools.partial(antagonists.ranking_now, connection) \
        if query.get('now') else functools.partial(call.rankings.places,
                                                   connection)
    ranked = places(
        asked, sort=sort,
        host_id=hosts.existing_id(connection, query.get('host')),
        after=_after(call, sort), limit=call.limit + 1)
    rows = antagonists.sums(connection, ranked, asked)
    by_pair = {(row['host_id'], row['workload']): row for row in rows}
    pairs = list(by_pair)
    newest_rows = {(row.host_id, row.name): row
                   for row in newest.workloads(connection, pairs)}
    limited = caps.limited(connection, pairs)
    disturbing = antagonists.disturbing(connection, pairs=pairs)
    recommended = eviction_policy.recommended(
        connection, [row['instance'] for row in rows if row['instance']])
    parts = query.get('parts', 0)
    by_hour = antagonists.history(connection, pairs if parts else [], asked)
    page = call.page(ranked, lambda place: place, lambda place: [sort, *place])
    # A ranking from the cache may have what was deleted since.
    page[call.noun] = [
        {**_shape(by_pair[pair], newest_rows.get(pair), pair in limited),
         'disturbs_now': pair in disturbing,
         'eviction_recommended_at': iso(
             recommended.get(by_pair[pair]['instance'])),
         'history': divided(by_hour.get(pair, {}), asked, parts)}
        for pair in (place[1:] for place in page[call.noun])
        if pair in by_pair]
    return page


def divided(by_hour: Mapping[int, float], asked: antagonists.Span,
            parts: int) -> list[float]:
    """The sum of each part of a span.

    :param by_hour: seconds of the hours that the span touches
    """
    sums = [0.0] * parts
    first_s = asked.since_s // HOUR_S * HOUR_S
    for hour_s, seconds in by_hour.items() if parts else ():
        part = int((hour_s - first_s) * parts / (asked.until_s - first_s))
        sums[min(part, parts - 1)] += seconds
    return sums


def _after(call: Call, sort: str) -> antagonists.Place | None:
    text = call.query.get('marker')
    if text is None:
        return None
    marker_sort, *place = markers.read(text, call.noun, [str, int, int, str])
    if marker_sort != sort:
        raise faults.bad(f'marker is of a ranking by {marker_sort}.', 'marker',
                         'the same "sort" as for the page before')
    return antagonists.Place(*place)


def _shape(row: Mapping[str, Any], workload: Any, limited: bool
           ) -> dict[str, Any]:
    """Return a place of the ranking as the API shows it.

    :param workload: its newest row, ``None`` when none is kept
    """
    return schemas.shape(
        FIELDS, row, limited=limited, disturbs_now=False,
        eviction_recommended_at=None, history=[],
        causes=row['causes'][:CAUSES_MOST],
        name='' if workload is None else workload.display_name,
        foreground=workload is not None
        and workload.priority == Priority.FOREGROUND)
