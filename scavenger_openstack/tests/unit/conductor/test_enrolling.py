# SPDX-License-Identifier: Apache-2.0

"""Tokens of hosts: enrolling_cases, with SQLite in memory."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import enrolling_cases


class OnSqlite(enrolling_cases.Enrolling, cloud.Sqlite):
    pass
