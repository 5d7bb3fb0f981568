# SPDX-License-Identifier: Apache-2.0

"""Evictions that Nova carries out: evicting_cases, with SQLite in memory."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.evicting_cases import Evicting


class OnSqlite(Evicting, cloud.Sqlite):
    pass
