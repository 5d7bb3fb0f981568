# SPDX-License-Identifier: Apache-2.0

"""The Django application, and its rules for Horizon's policy engine."""

from __future__ import annotations

import pathlib

from django import apps
from django.conf import settings

SERVICE = 'interference'
POLICIES = pathlib.Path(__file__).parent / 'policies'


class Dashboard(apps.AppConfig):
    """The application; ``POLICY_FILES`` of the settings go before its own."""

    name = 'scavenger_openstack.dashboard'
    label = SERVICE
    verbose_name = 'Interference'

    def ready(self) -> None:
        # Horizon joins these to POLICY_FILES_PATH, which an absolute path
        # replaces; an operator's own files are kept.
        settings.POLICY_FILES.setdefault(
            SERVICE, str(POLICIES / 'interference_policy.yaml'))
        settings.DEFAULT_POLICY_FILES.setdefault(
            SERVICE, str(POLICIES / 'defaults.yaml'))
