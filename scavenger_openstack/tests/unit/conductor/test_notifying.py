# SPDX-License-Identifier: Apache-2.0

"""What is written down to be sent, on SQLite."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.notifying_cases import Notifying


class OnSqlite(Notifying, cloud.Sqlite):
    pass
