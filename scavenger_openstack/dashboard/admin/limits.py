# SPDX-License-Identifier: Apache-2.0

"""The tab Limits of operators."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from openstack_dashboard import policy

from scavenger_openstack.dashboard.admin import coverage
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import rows
from scavenger_openstack.knobs import OVERRIDABLE
from scavenger_openstack.types import Knob

ROWS = 50

NOT_SETTABLE = tuple(knob for knob in Knob if knob not in OVERRIDABLE)
"""On these agents follow no override."""


class Limits(fragment.Tab):
    """Limits in force and past, and overrides."""

    name = _('Limits')
    slug = 'limits'
    policy_rules = (('interference', 'interference:caps:all'),)

    def values(self, request: Any) -> dict[str, Any]:
        return _load(request, self.get_id())


def _load(request: Any, tab: str) -> dict[str, Any]:
    query, past = request.GET, request.GET.get('limits') == 'past'
    knob = query.get('knob') if query.get('knob') in set(Knob) else None
    limits = client.get(
        request, client.path_of('caps'), host=query.get('host'),
        project=query.get('project'), knob=knob, in_force=not past,
        marker=query.get('limits_marker'), limit=ROWS)
    overrides = client.get(
        request, client.path_of('caps', 'overrides'),
        host=query.get('host'), limit=ROWS,
        marker=query.get('overrides_marker'))
    return {
        'tab': tab, 'past': past, 'knob': knob,
        'knobs': [str(name) for name in Knob],
        'host': query.get('host', ''), 'project': query.get('project', ''),
        'filtered': any(query.get(name) for name in (
            'host', 'project', 'knob')),
        'limits': [{**rows.limit(row), 'settable':
                    row['knob'] not in NOT_SETTABLE}
                   for row in limits['caps']],
        'coverage': '' if limits['caps'] or past else coverage.sentence(
            request),
        'limits_next': limits['next'] and fragment.tab_url(
            request, tab, limits_marker=limits['next']),
        'overrides': list(map(rows.limit, overrides['overrides'])),
        'overrides_next': overrides['next'] and fragment.tab_url(
            request, tab, overrides_marker=overrides['next']),
        'first_url': fragment.tab_url(
            request, tab, limits_marker=None, overrides_marker=None)
        if query.get('limits_marker') or query.get('overrides_marker')
        else '',
        'may_set': policy.check(
            (('interference', 'interference:overrides:set'),), request),
        'may_unset': policy.check(
            (('interference', 'interference:overrides:delete'),), request)}
