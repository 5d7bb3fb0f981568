# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Specs: what the signals of applications usually are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.api import times
from scavenger_openstack.db.resources import specs

FILTERS = {'project': schemas.SHORT, 'application': schemas.NAME,
           'cpu_model': schemas.NAME, 'signal': schemas.SHORT}

FIELDS = {
    'project': schemas.TEXT,
    'application': schemas.TEXT,
    'cpu_model': schemas.TEXT,
    'signal': schemas.TEXT,
    'mean': schemas.NUMBER,
    'stddev': schemas.NUMBER,
    'n': schemas.COUNT,
    'day': schemas.TEXT}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    return call.page(
        specs.page(connection,
                   **{name: call.query.get(name) for name in FILTERS},
                   after=call.after_id(), limit=call.limit + 1),
        _shape)


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(FIELDS, row,
                         day=(times.iso(row['day_s']) or '')[:10])
