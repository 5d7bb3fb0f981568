# SPDX-License-Identifier: Apache-2.0

"""Work that one of all conductors does from time to time."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.periodic_cases import Periodic


class OnSqlite(Periodic, cloud.Sqlite):
    pass
