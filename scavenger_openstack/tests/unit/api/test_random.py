# SPDX-License-Identifier: Apache-2.0

"""Requests made at random."""

from __future__ import annotations

from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.random_cases import Random


class OnSqlite(Random, cloud.Api):
    pass
