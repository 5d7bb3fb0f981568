# SPDX-License-Identifier: Apache-2.0

"""``scavenger-status upgrade check``: status_cases, with SQLite."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.cmd.status_cases import Status


class OnSqlite(Status, databases.Sqlite):
    pass
