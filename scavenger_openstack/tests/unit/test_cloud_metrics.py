# SPDX-License-Identifier: Apache-2.0

"""cloud_metrics_cases, with SQLite."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.cloud_metrics_cases import Metrics


class OnSqlite(Metrics, databases.Sqlite):
    pass
