# SPDX-License-Identifier: Apache-2.0

"""The tab Hosts of operators."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from horizon import tabs

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import rows

ROWS = 30


class Hosts(tabs.Tab):
    """What hosts have left, and what they lack."""

    name = _('Hosts')
    slug = 'hosts'
    template_name = 'interference/admin/hosts.html'
    preload = False
    policy_rules = (('interference', 'interference:hosts:list'),)

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        return fragment.context(
            lambda: _load(request, self.get_id()),
            request=request,
            refresh_url=fragment.tab_url(request, self.get_id()))


def _load(request: Any, tab: str) -> dict[str, Any]:
    asked = request.GET
    name, aggregate = asked.get('host', ''), asked.get('aggregate', '')
    enforcing = {'yes': True, 'no': False}.get(asked.get('enforcing', ''))
    values = {'tab': tab, 'host': name, 'aggregate': aggregate,
              'enforcing': asked.get('enforcing', ''), 'next_url': '',
              'filtered': bool(name or aggregate or enforcing is not None),
              'first_url': fragment.tab_url(request, tab, hosts_marker=None)
              if asked.get('hosts_marker') else ''}
    if name:
        found = client.get(request, client.path_of('hosts', name))
        return {**values, 'hosts': [rows.host(found['host'])]}
    found = client.get(
        request, client.path_of('hosts'), aggregate=aggregate,
        enforcing=enforcing, marker=asked.get('hosts_marker'), limit=ROWS)
    return {**values, 'hosts': list(map(rows.host, found['hosts'])),
            'next_url': found['next'] and fragment.tab_url(
                request, tab, hosts_marker=found['next'])}
