# SPDX-License-Identifier: Apache-2.0

"""Totals of antagonists, on SQLite."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.db import totals_cases


class OnSqlite(totals_cases.Totals, cloud.Sqlite):
    pass
