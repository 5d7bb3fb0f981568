# SPDX-License-Identifier: Apache-2.0

"""What operators change, and what the audit says of it."""

from __future__ import annotations

from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.profiles_cases import Profiles
from scavenger_openstack.tests.unit.api.writes_cases import Writes


class OnSqlite(Writes, cloud.Api):
    pass


class ProfilesOnSqlite(Profiles, cloud.Api):
    pass
