# SPDX-License-Identifier: Apache-2.0

"""Evictions that an operator asks for."""

from __future__ import annotations

from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.evictions_cases import Evictions


class OnSqlite(Evictions, cloud.Api):
    pass
