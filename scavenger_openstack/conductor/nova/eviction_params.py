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

"""The options of section ``[eviction]``, and what they hold back."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from scavenger_openstack.db.rows import Row
from scavenger_openstack import errors

HOUR_S = 3600.0

NONE = 'none'
POLICIES = (NONE, 'pause', 'stop', 'shelve', 'live-migrate')


@dataclasses.dataclass(frozen=True)
class Params:
    """The options of section ``[eviction]``.

    :param policy: where no aggregate of a host has another
    :param aggregate_policies: by the name of the aggregate; the first by
        name counts
    :param confirmed: so often within ``window_h`` hours
    :param cool_down_s: between two from one host
    :param per_hour: in the whole cloud, those of operators too
    :param shortage_s: so long a host has to be short of CPU; 0: no matter
    """

    policy: str
    aggregate_policies: Mapping[str, str]
    confirmed: int
    window_h: float
    cool_down_s: float
    per_hour: int
    shortage_s: float

    def of(self, aggregates: Sequence[str]) -> str:
        """The policy of a host in these aggregates."""
        for name in sorted(aggregates):
            if name in self.aggregate_policies:
                return self.aggregate_policies[name]
        return self.policy


def check(params: Params) -> None:
    """
    :raises ConfigError: a policy does not exist.
    """
    for name, policy in params.aggregate_policies.items():
        if policy not in POLICIES:
            raise errors.ConfigError(
                f'[eviction] aggregate_policies: {name}:{policy}: it has to '
                f'be one of {", ".join(POLICIES)}')


def hold(one: Row, recent: Sequence[Row], params: Params, now: float) -> str:
    """Why an instance stays for now, '' when nothing speaks for it.

    :param recent: evictions of the last hours
    """
    if any(row['instance'] == one['instance'] for row in recent):
        return 'it was evicted, or tried to be, a short time ago'
    if any(row['host'] == one['host']
           and now - row['created_s'] < params.cool_down_s for row in recent):
        return 'another one of this host was a short time ago'
    if sum(now - row['created_s'] < HOUR_S for row in recent
           ) >= params.per_hour:
        return 'enough were in this hour'
    return ''
