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
from horizon.utils import http as http_utils
from horizon import views

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import incident as incident_
from scavenger_openstack.dashboard.project import words

PAGE = 20
BACKGROUND = 50
EVICTIONS = 20
NOTICE_S = 7 * 86400.0
"""Evictions that are older are no notice."""


class _View(views.HorizonTemplateView):
    """A page with a part that a script loads again by itself."""

    part_name = ''

    def get_template_names(self) -> list[str]:
        return [self.part_name if http_utils.is_ajax(self.request)
                else self.template_name]

    def render_to_response(self, context: dict[str, Any]) -> Any:
        response = super().render_to_response(context)
        if context.get('missing'):
            response.status_code = 404
        elif context.get('forbidden'):
            response.status_code = 403
        return response


class Index(_View):
    """What happened to the instances of the project."""

    template_name = 'interference/project/index.html'
    part_name = 'interference/project/_index.html'
    page_title = gettext_lazy('Was my instance disturbed?')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs),
                **fragment.context(
                    lambda: load(self.request),
                    refresh_url=self.request.get_full_path())}


class Show(_View):
    """One incident, as the project of the victim may see it."""

    template_name = 'interference/project/incident.html'
    part_name = 'interference/project/_incident.html'
    page_title = gettext_lazy('Disturbance')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        pk = self.kwargs['pk']
        return {**super().get_context_data(**kwargs),
                'index': urls.reverse('horizon:project:disturbances:index'),
                **fragment.context(
                    lambda: load_one(self.request, pk),
                    refresh_url=self.request.get_full_path())}


def load(request: Any, instance: str | None = None) -> dict[str, Any]:
    """A page of incidents; on the first page the background instances and
    the evictions, too.

    :param instance: only of this one, which may be of any project
    """
    now = timezone.now()
    marker = None if instance else request.GET.get('marker')
    project = None if instance else request.user.project_id
    answer = client.get(
        request, client.path_of('incidents'), limit=PAGE, marker=marker,
        project=project, victim=instance)
    incidents = [words.row(one, now) for one in answer['incidents']]
    found = {'incidents': incidents, 'first_url': '?' if marker else '',
             'next_url': f'?{urlencode({"marker": answer["next"]})}'
             if answer.get('next') and not instance else ''}
    if marker is None:
        found.update(_background(request, project, instance, now))
    return found


def _background(request: Any, project: str | None, instance: str | None,
                now: datetime.datetime) -> dict[str, Any]:
    workloads = client.get(
        request, client.path_of('workloads'), project=project,
        instance=instance, priority='background', limits=True,
        limit=BACKGROUND)
    evictions = client.get(
        request, client.path_of('evictions'), project=project,
        instance=instance, limit=EVICTIONS)['evictions']
    notices = [words.eviction(one) for one in evictions]
    return {'background': [words.limits(one)
                           for one in workloads['workloads']],
            'more_background': bool(workloads.get('next')),
            'evictions': [one for one in notices if one['at'] is None or (
                now - one['at']).total_seconds() < NOTICE_S]}


def load_one(request: Any, pk: str) -> dict[str, Any]:
    """What the page of an incident shows.

    :raises client.NotFound: there is none, or it is of another project.
    """
    fields = client.get(request, client.path_of('incidents', pk))['incident']
    project = request.user.project_id
    if not project or fields.get('project') != project:
        raise client.NotFound(gettext('There is no such disturbance.'))
    now = timezone.now()
    return {'incident': words.row(fields, now),
            'verdict': list(words.verdict(fields, project)),
            **incident_.picture(words.anonymous(fields),
                                timezone.get_current_timezone())}
