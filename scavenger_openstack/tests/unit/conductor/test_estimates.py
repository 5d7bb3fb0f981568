# SPDX-License-Identifier: Apache-2.0

"""Profiles that are estimated from incidents; other databases are in
functional tests."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.estimates_cases import Estimates


class OnSqlite(Estimates, cloud.Sqlite):
    pass
