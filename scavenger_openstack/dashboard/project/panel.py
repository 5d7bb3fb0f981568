# SPDX-License-Identifier: Apache-2.0

"""The panel of tenants."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
import horizon


class Disturbances(horizon.Panel):
    """Project > Compute > Was my instance disturbed?, where the catalogue
    has our API."""

    name = _('Was my instance disturbed?')
    slug = 'disturbances'
    permissions = ('openstack.services.interference',)
    policy_rules = (('interference', 'interference:incidents:list'),)
