# SPDX-License-Identifier: Apache-2.0

"""The panel of operators."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
import horizon


class Interference(horizon.Panel):
    """Admin > Compute > Interference, where the catalogue has our API."""

    name = _('Interference')
    slug = 'interference'
    permissions = ('openstack.services.interference',)
    policy_rules = (('interference', 'interference:hosts:list'),)
