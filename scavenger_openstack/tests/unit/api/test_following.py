# SPDX-License-Identifier: Apache-2.0

"""What is asked for and not followed."""

from __future__ import annotations

from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.following_cases import Following


class OnSqlite(Following, cloud.Api):
    pass
