# SPDX-License-Identifier: Apache-2.0

"""Specs from what all hosts reported; see also the random schedules."""

from __future__ import annotations



from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.specs_cases import Specs


class OnSqlite(Specs, cloud.Sqlite):
    pass
