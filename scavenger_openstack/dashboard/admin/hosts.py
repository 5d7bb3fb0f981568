# SPDX-License-Identifier: Apache-2.0

"""The tab Hosts of operators."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import rows

ROWS = 30


class Hosts(fragment.Tab):
    """The headroom of hosts, and what they do not measure."""

    name = _('Hosts')
    slug = 'hosts'
    policy_rules = (('interference', 'interference:hosts:list'),)

    def values(self, request: Any) -> dict[str, Any]:
        return _load(request, self.get_id())


def _load(request: Any, tab: str) -> dict[str, Any]:
    query = request.GET
    name, aggregate = query.get('host', ''), query.get('aggregate', '')
    enforcing = {'yes': True, 'no': False}.get(query.get('enforcing', ''))
    values = {'tab': tab, 'host': name, 'aggregate': aggregate,
              'enforcing': query.get('enforcing', ''), 'next_url': '',
              'filtered': bool(name or aggregate or enforcing is not None),
              'first_url': fragment.tab_url(request, tab, hosts_marker=None)
              if query.get('hosts_marker') else ''}
    if name:
        answer = client.get(request, client.path_of('hosts', name))
        return {**values, 'hosts': [rows.host(answer['host'])]}
    answer = client.get(
        request, client.path_of('hosts'), aggregate=aggregate,
        enforcing=enforcing, marker=query.get('hosts_marker'), limit=ROWS)
    return {**values, 'hosts': list(map(rows.host, answer['hosts'])),
            'next_url': answer['next'] and fragment.tab_url(
                request, tab, hosts_marker=answer['next'])}
