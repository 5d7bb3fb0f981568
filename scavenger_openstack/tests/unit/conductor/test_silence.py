# SPDX-License-Identifier: Apache-2.0

"""Hosts that fall silent."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.silence_cases import Silence


class OnSqlite(Silence, cloud.Sqlite):
    pass
