# SPDX-License-Identifier: Apache-2.0

"""The tab Limits of operators."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from horizon import tabs

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment


class Limits(tabs.Tab):
    """Limits."""

    name = _('Limits')
    slug = 'limits'
    template_name = 'interference/admin/limits.html'
    preload = False
    policy_rules = (('interference', 'interference:caps:list'),)

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        return fragment.context(lambda: _load(request))


def _load(request: Any) -> dict[str, Any]:
    return {'answer': client.get(request, client.path_of('hosts'), limit=1)}
