# SPDX-License-Identifier: Apache-2.0

"""The page of operators."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from horizon import tabs

from scavenger_openstack.dashboard.admin import tabs as admin_tabs


class Index(tabs.TabView):
    """The page with the tabs."""

    tab_group_class = admin_tabs.Interference
    template_name = 'interference/admin/index.html'
    page_title = _('Interference')
