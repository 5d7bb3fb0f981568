# SPDX-License-Identifier: Apache-2.0

"""Profiles that an operator has measured on a host."""

from __future__ import annotations

from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.profilings_cases import Profilings


class OnSqlite(Profilings, cloud.Api):
    pass
