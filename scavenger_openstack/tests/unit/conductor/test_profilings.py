# SPDX-License-Identifier: Apache-2.0

"""Profiles that hosts are asked to measure; other databases are in
functional tests."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.profilings_cases import (
    Profilings)


class OnSqlite(Profilings, cloud.Sqlite):
    pass
