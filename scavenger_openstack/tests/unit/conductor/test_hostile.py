# SPDX-License-Identifier: Apache-2.0

"""hostile_cases, with SQLite in a file."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor import hostile_cases


class OnSqlite(hostile_cases.Hostile, databases.Sqlite):
    pass
