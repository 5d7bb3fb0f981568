# SPDX-License-Identifier: Apache-2.0

"""Each route with each role."""

from __future__ import annotations

from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.policies_cases import Policies


class OnSqlite(Policies, cloud.Api):
    pass
