# SPDX-License-Identifier: Apache-2.0

"""The tab Antagonists of operators."""

from __future__ import annotations

import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from openstack_dashboard import policy

from scavenger_openstack.dashboard.admin import coverage
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import rows
from scavenger_openstack.text import iso

ROWS = 20

SPANS = {'24h': (1, 24, _('24 hours'), _('hour')),
         '7d': (7, 28, _('7 days'), _('6 hours')),
         '30d': (30, 30, _('30 days'), _('day'))}
"""Days, parts of the history, what both are called."""

SORTS = {'interference_s': _('interference'), 'incidents': _('incidents'),
         'victims': _('victims')}


class Antagonists(fragment.Tab):
    """The workloads that disturbed most."""

    name = _('Antagonists')
    slug = 'antagonists'
    policy_rules = (('interference', 'interference:antagonists:list'),)

    def values(self, request: Any) -> dict[str, Any]:
        return _load(request, self.get_id())


def _load(request: Any, tab: str) -> dict[str, Any]:
    query = request.GET
    chosen = query.get('span') if query.get('span') in SPANS else '24h'
    sort = query.get('sort') if query.get('sort') in SORTS \
        else 'interference_s'
    days, parts, title, part = SPANS[chosen]
    since = timezone.now() - datetime.timedelta(days=days)
    answer = client.get(
        request, client.path_of('antagonists'), parts=parts, limit=ROWS,
        since=iso(since.timestamp()), sort=sort,
        host=query.get('host'), project=query.get('project'),
        marker=query.get('antagonists_marker'))
    return {
        'may_evict': policy.check(
            (('interference', 'interference:evictions:create'),), request),
        'tab': tab, 'span_title': title, 'part': part,
        'spans': [(chosen == name, text, fragment.tab_url(
            request, tab, span=name, antagonists_marker=None))
            for name, (_days, _parts, text, _part) in SPANS.items()],
        'span': chosen, 'sort': sort, 'sorts': SORTS.items(),
        'host': query.get('host', ''), 'project': query.get('project', ''),
        'antagonists': [rows.antagonist(row, str(part))
                        for row in answer['antagonists']],
        'coverage': '' if answer['antagonists'] else coverage.sentence(
            request),
        'first_url': fragment.tab_url(request, tab, antagonists_marker=None)
        if query.get('antagonists_marker') else '',
        'next_url': answer['next'] and fragment.tab_url(
            request, tab, antagonists_marker=answer['next'])}
