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

"""Background work that is scheduled by what Placement is told, in a real
OpenStack."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.conductor import placement
from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import cloud as cloud_

BY_INVENTORY = {**BACKGROUND, 'resources:VCPU': '0',
                'resources:MEMORY_MB': '1',
                f'resources:{placement.MEMORY_MIB}': '96'}


class Placement(case.Case):

    def offered(self) -> dict[str, int]:
        """What each host may have of background memory, in MiB: a machine of
        tests seldom has CPUs that are idle."""
        return {one['name'].removesuffix(placement.SUFFIX):
                self.amount(one['uuid']) for one in self.cloud.placement(
                    'GET', '/resource_providers')['resource_providers']
                if one['name'].endswith(placement.SUFFIX)}

    def amount(self, provider: str) -> int:
        found: dict[str, Any] = self.cloud.placement(
            'GET', f'/resource_providers/{provider}/inventories'
            )['inventories'].get(placement.MEMORY_MIB,
                                {'total': 0, 'reserved': 0})
        return int(found['total'] - found['reserved'])

    def protect(self, enabled: bool) -> None:
        self.cloud.interference('PUT', '/v1/protection', {
            'scope': 'cloud', 'target': '', 'enabled': enabled,
            'reason': 'a test'})

    def test_only_where_there_is_inventory(self) -> None:
        """None while limits are switched off, so none is placed; some when
        they are on again."""
        hosts = {one.hostname for one in self.stack.hypervisors}
        self.cloud.wait('each host offers something', lambda:
                        hosts == {name for name, some
                                  in self.offered().items() if some}, SOON_S)
        batch = self.boot('batch', BY_INVENTORY)
        holds = self.cloud.placement('GET', f'/allocations/{batch}'
                                     )['allocations']
        self.assertEqual([96], [one['resources'][placement.MEMORY_MIB]
                                for one in holds.values()
                                if placement.MEMORY_MIB in one['resources']])
        self.addCleanup(self.protect, True)
        self.protect(False)
        self.cloud.wait('no host offers anything', lambda: not any(
            self.offered().values()), SOON_S)
        refused = self.assertRaises(cloud_.Refused, self.boot, 'refused',
                                    BY_INVENTORY)
        self.assertIn('No valid host', refused.text)
        self.protect(True)
        self.cloud.wait('a host offers something', lambda: any(
            self.offered().values()), SOON_S)
        self.boot('batch-2', BY_INVENTORY)
        self.cloud.delete(batch)
        self.assertEqual({}, self.cloud.placement(
            'GET', f'/allocations/{batch}')['allocations'])

    def test_nova_compute_leaves_it_alone(self) -> None:
        host = self.stack.hypervisors[0].hostname
        self.cloud.wait('it offers something',
                        lambda: self.offered().get(host), SOON_S)
        before = self.services(host)
        self.stack.restart_compute(host)
        self.cloud.wait('nova-compute has started', lambda:
                        self.services(host) > before, SOON_S)
        self.assertIn(host, self.offered())

    def services(self, host: str) -> str:
        """When the nova-compute of a host last said that it is there."""
        return max(one['updated_at'] or '' for one in self.cloud.compute(
            'GET', f'/os-services?host={host}&binary=nova-compute'
            )['services'])
