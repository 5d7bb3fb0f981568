# SPDX-License-Identifier: Apache-2.0

"""The tab of an instance's details: whether it was disturbed or limited."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from horizon import tabs
from openstack_dashboard.api import base

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard.project import views


class Disturbed(tabs.Tab):
    """The disturbances and limits of the instance."""

    name = _('Disturbances')
    slug = 'disturbances'
    template_name = 'interference/project/instance.html'
    preload = False
    policy_rules = (('interference', 'interference:incidents:list'),)
    of_incident = 'horizon:project:disturbances:incident'

    def allowed(self, request: Any) -> bool:
        return bool(super().allowed(request) and base.is_service_enabled(
            request, client.SERVICE_TYPE))

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        instance = self.tab_group.kwargs['instance'].id
        return {**fragment.context(
                    lambda: views.load(request, instance), request=request),
                'of_incident': self.of_incident}


class DisturbedOfAll(Disturbed):
    """The same for operators, with their page of each incident."""

    policy_rules = (('interference', 'interference:incidents:all'),)
    of_incident = 'horizon:admin:interference:incident'
