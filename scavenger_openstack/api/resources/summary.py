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

"""``/v1/summary``: what a scheduler needs of all hosts, in one answer."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.resources import summary

AMOUNTS = schemas.mapping(schemas.NUMBER)

FIELDS = {
    'name': schemas.TEXT,
    'silent': described(schemas.FLAG, 'It has not reported for long.'),
    'enforcing': described(schemas.FLAG, 'Whether it may set limits.'),
    'headroom': described(AMOUNTS, 'What background work could use besides '
                                   'what it has, by resource.'),
    'capacity': AMOUNTS,
    'incidents': described(schemas.COUNT, 'Incidents that are open there.'),
    'background_vcpus': described(
        schemas.NUMBER, 'Virtual CPUs of background work there.'),
}

ANSWER = schemas.fields({'hosts': schemas.items(schemas.fields(FIELDS))})


def show(call: Call, connection: Any) -> dict[str, Any]:
    """All hosts at once: a scheduler has no use for a part of them."""
    return {'hosts': [{
        'name': row['name'],
        'silent': call.now_s - row['last_seen_s'] > call.silent_s,
        'enforcing': row['enforcing'],
        'headroom': (row['facts'] or {}).get('headroom', {}),
        'capacity': (row['facts'] or {}).get('capacity', {}),
        'incidents': row['incidents'],
        'background_vcpus': row['background_vcpus']}
        for row in summary.hosts(connection)]}
