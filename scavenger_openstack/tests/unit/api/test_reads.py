# SPDX-License-Identifier: Apache-2.0

"""What the listings show, and how they go from page to page."""

from __future__ import annotations



from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.reads_cases import Reads


class OnSqlite(Reads, cloud.Api):
    pass
