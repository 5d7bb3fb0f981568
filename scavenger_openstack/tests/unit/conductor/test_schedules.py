# SPDX-License-Identifier: Apache-2.0

"""Random schedules of reports: what is stored is what happened, once."""

from __future__ import annotations



from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.schedules_cases import Schedules


class OnSqlite(Schedules, cloud.Sqlite):
    pass
