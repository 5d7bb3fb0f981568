# SPDX-License-Identifier: Apache-2.0

"""The tab Incidents of operators, and the page of one incident."""

from __future__ import annotations

from collections.abc import Mapping
import datetime
from typing import Any

from django import urls
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from openstack_dashboard import policy

from scavenger_openstack.command_line import duration_s
from scavenger_openstack.dashboard.admin import coverage
from scavenger_openstack.dashboard.admin.limits import NOT_SETTABLE
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import incident as incident_page
from scavenger_openstack.dashboard import names
from scavenger_openstack import grounds
from scavenger_openstack.text import iso

PAGE = 50

TAB = 'interference__incidents'

FILTERS = ('host', 'project', 'victim', 'antagonist', 'cause', 'outcome',
           'evidence_kind', 'since', 'until')
"""Filters in the URL and in requests to the API."""

TIMES = ('since', 'until')


class Incidents(fragment.Tab):
    """Incidents, with filters in the URL."""

    name = gettext_lazy('Incidents')
    slug = 'incidents'
    policy_rules = (('interference', 'interference:incidents:all'),)

    def values(self, request: Any) -> dict[str, Any]:
        return load(request, filters(request.GET))

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        chosen = filters(request.GET)
        return {**super().get_context_data(request, **kwargs),
                'chosen': chosen, 'tab': self.get_id(),
                'filtered': bool(chosen),
                'causes': (*grounds.CAUSES, grounds.EVICTION),
                'outcomes': incident_page.OUTCOMES.items(),
                'kinds': [(str(kind), title) for kind, (title, _words)
                          in incident_page.KINDS.items()],
                'inputs': INPUTS}


ACTIONS = {'may_set': 'interference:overrides:set',
           'may_unset': 'interference:overrides:delete',
           'may_exempt': 'interference:exemptions:set',
           'may_evict': 'interference:evictions:create'}
"""The policy rule of each button of the page."""

INPUTS = (
    ('host', gettext_lazy('Host'), ''),
    ('victim', gettext_lazy('Victim'),
     gettext_lazy('UUID or name on the host')),
    ('antagonist', gettext_lazy('Antagonist'),
     gettext_lazy('UUID or name on the host')),
    ('project', gettext_lazy('Project'), gettext_lazy('ID')),
    ('since', gettext_lazy('Since'), gettext_lazy('2h, 7d or a time')),
    ('until', gettext_lazy('Until'), gettext_lazy('2h, 7d or a time')))
"""Name, label and what may be typed."""


class Show(fragment.Detail):
    """One incident."""

    part_name = 'interference/admin/_incident.html'
    page_title = gettext_lazy('Incident')
    index_words = gettext_lazy('All incidents that are kept')
    missing_words = gettext_lazy(
        'There is no such incident, or no longer: incidents are kept for the '
        'days that [database] keep_days says, 30 by default.')

    def index(self) -> str:
        return f'{urls.reverse("horizon:admin:interference:index")}?tab={TAB}'

    def load(self, pk: str) -> dict[str, Any]:
        return load_incident(self.request, pk)


def filters(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters in a URL, without those that are empty."""
    values = {name: query.get(name, '').strip() for name in FILTERS}
    return {name: value[:255] for name, value in values.items() if value}


def load(request: Any, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of the list: incidents, and the URL of the next page."""
    now = timezone.now()
    marker = request.GET.get('marker')
    answer = client.get(
        request, client.path_of('incidents'), limit=PAGE, marker=marker,
        **{name: moment(value, now) if name in TIMES else value
           for name, value in chosen.items()})
    return {'incidents': [incident_page.row(row, now)
                          for row in answer['incidents']],
            'coverage': '' if answer['incidents'] else coverage.sentence(
                request),
            'first_url': fragment.tab_url(request, TAB, marker=None)
            if marker else '',
            'next_url': fragment.tab_url(
                request, TAB, marker=answer['next'])
            if answer.get('next') else ''}


def moment(text: str, now: datetime.datetime) -> str:
    """Return a time as the API takes it, from a duration, which is that long
    ago, or from a time, in the user's zone unless it has another.

    :raises client.Refused: it is neither.
    """
    try:
        seconds = duration_s(text)
        if seconds is not None:
            at = now - datetime.timedelta(seconds=seconds)
        else:
            at = datetime.datetime.fromisoformat(text)
            if at.tzinfo is None:
                at = at.replace(tzinfo=timezone.get_current_timezone())
        return iso(at.astimezone(datetime.UTC).timestamp())
    except (ValueError, OverflowError):
        raise client.Refused(_(
            '"%(text)s" is neither a duration such as 30m, 2h or 7d nor a '
            'time such as 2026-11-23 10:00.') % {
                'text': names.shown(text)}) from None


def load_incident(request: Any, pk: str) -> dict[str, Any]:
    """Return the context of the page of an incident."""
    fields = client.get(request, client.path_of('incidents', pk))['incident']
    now = timezone.now()
    return {'incident': incident_page.row(fields, now),
            'verdict': list(incident_page.verdict(fields, now)),
            'evidence': incident_page.evidence(fields),
            'steps': incident_page.steps(fields),
            'suspects': [{**row, 'shown': names.of_workload(row),
                          'project_shown': names.shown(
                              row.get('project') or '')}
                         for row in fields.get('suspects') or ()],
            'limits': [{**row, 'shown': names.of_workload(row)}
                       for row in fields.get('caps') or ()
                       if not row.get('removed_at')
                       and row.get('knob') not in NOT_SETTABLE],
            'background': [{**row, 'shown': names.of_workload(row)}
                           for row in fields.get('suspects') or ()
                           if row.get('antagonist') and row.get('instance')
                           and not row.get('foreground')],
            **{name: policy.check((('interference', rule),), request)
               for name, rule in ACTIONS.items()},
            **incident_page.picture(fields, timezone.get_current_timezone())}
