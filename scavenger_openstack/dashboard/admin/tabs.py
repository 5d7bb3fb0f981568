# SPDX-License-Identifier: Apache-2.0

"""The tabs of operators: each is loaded when it is opened."""

from __future__ import annotations

from horizon import tabs

from scavenger_openstack.dashboard.admin import antagonists
from scavenger_openstack.dashboard.admin import hosts
from scavenger_openstack.dashboard.admin import incidents
from scavenger_openstack.dashboard.admin import limits
from scavenger_openstack.dashboard.admin import overview
from scavenger_openstack.dashboard.admin import profiles


class Interference(tabs.TabGroup):
    """The tabs of operators, in order."""

    slug = 'interference'
    tabs = (overview.Overview, incidents.Incidents, antagonists.Antagonists,
            limits.Limits, hosts.Hosts, profiles.Profiles)
    sticky = False
