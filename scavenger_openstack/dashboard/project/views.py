# SPDX-License-Identifier: Apache-2.0

"""The pages of tenants: the list, and one incident."""

from __future__ import annotations

import datetime
from typing import Any

from django import urls
from django.utils.http import urlencode
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy
from openstack_dashboard import policy

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard.incident import picture
from scavenger_openstack.dashboard.project import words

PAGE = 20
BACKGROUND = 50
EVICTIONS = 20
NOTICE_S = 7 * 86400.0
"""An eviction is shown as a notice for this time."""


class Index(fragment.View):
    """The disturbances and limits of the instances of the project."""

    template_name = 'interference/project/index.html'
    part_name = 'interference/project/_index.html'
    page_title = gettext_lazy('Was my instance disturbed?')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs),
                'may_see_profiles': policy.check(
                    (('interference', 'interference:profiles:list'),),
                    self.request),
                **self.fragment(lambda: load(self.request))}


class Show(fragment.Detail):
    """One incident, as the project of the victim may see it."""

    part_name = 'interference/project/_incident.html'
    page_title = gettext_lazy('Disturbance')
    index_words = gettext_lazy('All disturbances of this project')
    missing_words = gettext_lazy(
        'There is no such disturbance of this project, or no longer: they '
        'are kept for some weeks only.')

    def index(self) -> str:
        return urls.reverse('horizon:project:disturbances:index')

    def load(self, pk: str) -> dict[str, Any]:
        return load_incident(self.request, pk)


def load(request: Any, instance: str | None = None) -> dict[str, Any]:
    """Return a page of incidents; the first page has the background
    instances and the evictions, too.

    :param instance: of this instance alone, which may be of any project
    """
    now = timezone.now()
    marker = None if instance else request.GET.get('marker')
    project = None if instance else request.user.project_id
    answer = client.get(
        request, client.path_of('incidents'), limit=PAGE, marker=marker,
        project=project, victim=instance)
    incidents = [words.row(row, now) for row in answer['incidents']]
    values = {'incidents': incidents, 'first_url': '?' if marker else '',
             'next_url': f'?{urlencode({"marker": answer["next"]})}'
             if answer.get('next') and not instance else ''}
    if marker is None:
        values.update(_background(request, project, instance, now))
    return values


def _background(request: Any, project: str | None, instance: str | None,
                now: datetime.datetime) -> dict[str, Any]:
    workloads = client.get(
        request, client.path_of('workloads'), project=project,
        instance=instance, priority='background', limits=True,
        limit=BACKGROUND)
    evictions = client.get(
        request, client.path_of('evictions'), project=project,
        instance=instance, limit=EVICTIONS)['evictions']
    notices = [words.eviction(row) for row in evictions]
    return {'background': [words.limits(row)
                           for row in workloads['workloads']],
            'more_background': bool(workloads.get('next')),
            'evictions': [row for row in notices if row['at'] is None or (
                now - row['at']).total_seconds() < NOTICE_S]}


def load_incident(request: Any, pk: str) -> dict[str, Any]:
    """Return the context of the page of an incident.

    :raises client.NotFound: there is none, or it is of another project.
    """
    fields = client.get(request, client.path_of('incidents', pk))['incident']
    project = request.user.project_id
    if not project or fields.get('project') != project:
        raise client.NotFound(gettext('There is no such disturbance.'))
    now = timezone.now()
    return {'incident': words.row(fields, now),
            'verdict': list(words.verdict(fields, project)),
            **picture(words.anonymous(fields),
                      timezone.get_current_timezone())}
