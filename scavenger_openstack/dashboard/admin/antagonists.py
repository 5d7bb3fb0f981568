# SPDX-License-Identifier: Apache-2.0

"""The tab Antagonists of operators."""

from __future__ import annotations

import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import rows

ROWS = 20

SPANS = {'24h': (1, 24, _('24 hours'), _('hour')),
         '7d': (7, 28, _('7 days'), _('6 hours')),
         '30d': (30, 30, _('30 days'), _('day'))}
"""Days, parts of the history, what both are called."""

SORTS = {'interference_s': _('interference'), 'incidents': _('incidents'),
         'victims': _('victims')}


class Antagonists(tabs.Tab):
    """What disturbed most."""

    name = _('Antagonists')
    slug = 'antagonists'
    template_name = 'interference/admin/antagonists.html'
    preload = False
    policy_rules = (('interference', 'interference:antagonists:list'),)

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        return fragment.context(
            lambda: _load(request, self.get_id()),
            request=request,
            refresh_url=fragment.tab_url(request, self.get_id()))


def _load(request: Any, tab: str) -> dict[str, Any]:
    asked = request.GET
    chosen = asked.get('span') if asked.get('span') in SPANS else '24h'
    sort = asked.get('sort') if asked.get('sort') in SORTS \
        else 'interference_s'
    days, parts, title, part = SPANS[chosen]
    since = timezone.now() - datetime.timedelta(days=days)
    found = client.get(
        request, client.path_of('antagonists'), parts=parts, limit=ROWS,
        since=since.strftime('%Y-%m-%dT%H:%M:%SZ'), sort=sort,
        host=asked.get('host'), project=asked.get('project'),
        marker=asked.get('antagonists_marker'))
    return {
        'tab': tab, 'span_title': title, 'part': part,
        'spans': [(chosen == name, text, fragment.tab_url(
            request, tab, span=name, antagonists_marker=None))
            for name, (_days, _parts, text, _part) in SPANS.items()],
        'span': chosen, 'sort': sort, 'sorts': SORTS.items(),
        'host': asked.get('host', ''), 'project': asked.get('project', ''),
        'antagonists': [rows.antagonist(row, str(part))
                        for row in found['antagonists']],
        'first_url': fragment.tab_url(request, tab, antagonists_marker=None)
        if asked.get('antagonists_marker') else '',
        'next_url': found['next'] and fragment.tab_url(
            request, tab, antagonists_marker=found['next'])}
