# SPDX-License-Identifier: Apache-2.0

"""What nova-compute tells: flavor_tags_cases, with SQLite in memory."""

from __future__ import annotations

from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.flavor_tags_cases import (
    FlavorTags)


class OnSqlite(FlavorTags, cloud.Sqlite):
    pass
