# SPDX-License-Identifier: Apache-2.0

"""The tab Profiles of operators, and the page of one profile."""

from __future__ import annotations

from typing import Any

from django import urls
from django.utils.translation import gettext_lazy as _
from openstack_dashboard import policy

from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import profiles

TAB = 'interference__profiles'


class Profiles(fragment.Tab):
    """The interference that applications, flavors and images tolerate and
    cause."""

    name = _('Profiles')
    slug = 'profiles'
    policy_rules = (('interference', 'interference:profiles:all'),)

    def values(self, request: Any) -> dict[str, Any]:
        return _load(request, self.get_id())


def _load(request: Any, tab: str) -> dict[str, Any]:
    query = request.GET
    kind = query.get('kind') if query.get('kind') in profiles.KINDS else None
    target, project = query.get('target', ''), query.get('project', '')
    marker = query.get('profiles_marker')
    rows, next_marker = profiles.load(request, marker=marker, kind=kind,
                                      target=target, project=project)
    return {
        'tab': tab, 'kind': kind, 'kinds': profiles.KINDS.items(),
        'target': target, 'project': project,
        'filtered': bool(kind or target or project), 'profiles': rows,
        'of_profile': 'horizon:admin:interference:profile',
        'first_url': fragment.tab_url(request, tab, profiles_marker=None)
        if marker else '',
        'next_url': next_marker and fragment.tab_url(
            request, tab, profiles_marker=next_marker)}


class Show(fragment.Detail):
    """One profile."""

    part_name = 'interference/_profile.html'
    page_title = _('Interference profile')
    index_words = _('All profiles')
    missing_words = _('There is no such profile, or no longer: a profile '
                      'ends when it is replaced or deleted.')

    def index(self) -> str:
        return f'{urls.reverse("horizon:admin:interference:index")}?tab={TAB}'

    def load(self, pk: str) -> dict[str, Any]:
        return {**profiles.show(self.request, pk), 'of_operators': True,
                'may_delete': policy.check(
                    (('interference', 'interference:profiles:delete'),),
                    self.request)}
