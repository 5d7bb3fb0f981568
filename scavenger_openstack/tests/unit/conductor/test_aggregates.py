# SPDX-License-Identifier: Apache-2.0

"""Host aggregates as Nova and operators say them."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import aggregates_cases
from scavenger_openstack.tests.unit.conductor import cloud


class OnSqlite(aggregates_cases.Aggregates, cloud.Sqlite):
    pass
