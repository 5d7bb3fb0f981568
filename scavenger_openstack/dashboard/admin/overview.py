# SPDX-License-Identifier: Apache-2.0

"""The tab Overview of operators."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from openstack_dashboard import policy

from scavenger_openstack import amounts
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import plots
from scavenger_openstack.dashboard import rows

WORST = 5
SWITCHES = 20
"""Number of listed kill switches that are off."""
DAYS = {86400: 1, 7 * 86400: 7}

GRADES = {
    'A': _('A: all that is needed is measured'),
    'B': _('B: some is not measured'),
    'C': _('C: most is not measured'),
    '': _('not known')}


class Overview(fragment.Tab):
    """The state of the cloud at a glance."""

    name = _('Overview')
    slug = 'overview'
    policy_rules = (('interference', 'interference:summary:show'),)

    def values(self, request: Any) -> dict[str, Any]:
        return _load(request)


def _load(request: Any) -> dict[str, Any]:
    overview = client.get(request, client.path_of('overview'))['overview']
    off = client.get(request, client.path_of('protection'), enabled=False,
                     limit=SWITCHES)
    worst = client.get(request, client.path_of('antagonists'), limit=WORST)
    hosts = overview['hosts']
    return {
        'off': [rows.protection(row) for row in off['protection']],
        'more_off': off['next'] is not None,
        'may_switch': policy.check(
            (('interference', 'interference:protection:set'),), request),
        'hosts': hosts,
        'reporting': hosts['all'] - hosts['silent'],
        'observed_only': hosts['all'] and not hosts['enforcing'],
        'grades': [(title, hosts['grades'][grade])
                   for grade, title in GRADES.items()
                   if hosts['grades'].get(grade)],
        'missing': sorted(hosts.get('missing', {}).items()),
        'modes': [(name, sorted(counts.items()))
                  for name, counts in sorted(hosts['modes'].items())],
        'versions': sorted(hosts['versions'].items()),
        'incidents_open': overview['incidents_open'],
        'limits': sorted(overview['limits'].items()),
        'limits_count': sum(overview['limits'].values()),
        'overrides': overview['overrides'],
        'background_cores': None if overview['background_cores'] is None
        else amounts.of_number(round(overview['background_cores'], 2)),
        'spans': [_span(span) for span in overview['spans']],
        'charts': _charts(overview['hours']),
        'precision': rows.precision(overview['precision']),
        'antagonists': [rows.antagonist(row, '')
                        for row in worst['antagonists']],
        'victims': [rows.victim(row) for row in overview['victims']]}


def _span(span: dict[str, Any]) -> dict[str, Any]:
    days = DAYS.get(span['span_s'], 1)
    return {
        'title': gettext('24 hours') if days == 1 else gettext('7 days'),
        'incidents': span['incidents'],
        'minutes': rows.minutes(span['interference_s'] / days),
        'core_hours': rows.hours(span['background_core_s'] / days),
        'gib_hours': rows.hours(span['background_byte_s'] / days / 2 ** 30)}


def _charts(hours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    charts = []
    for title, name, unit_s in (
            (gettext('Interference-minutes'), 'interference_s', 60),
            (gettext('Core-hours of background work'), 'background_core_s',
             3600)):
        values = [hour[name] / unit_s for hour in hours]
        words = gettext('%(title)s by hour, the latest last: %(values)s') % {
            'title': title,
            'values': ', '.join(map(amounts.of_number, values))}
        charts.append({'title': title, 'svg': plots.sparkline(values, words),
                      'highest': amounts.of_number(max(values, default=0.0))})
    return charts
