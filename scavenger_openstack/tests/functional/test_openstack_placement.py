# SPDX-License-Identifier: Apache-2.0

"""Background work that is scheduled by inventory in Placement, and by our
filter, in a real OpenStack."""

from __future__ import annotations

import os
from typing import Any
import uuid

from scavenger_openstack.conductor import placement
from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests import tiers

BY_INVENTORY = {**BACKGROUND, 'resources:VCPU': '0',
                'resources:MEMORY_MB': '1',
                f'resources:{placement.MEMORY_MIB}': '96'}

NO_HOST = 'No valid host'
FILTERED = 'Filter BackgroundFilter returned 0 hosts'
MORE_THAN_THERE_ARE = (os.cpu_count() or 1) + 1


@tiers.only_in_all('one test goes through a real Nova in the gate')
class Placement(case.Case):

    def setUp(self) -> None:
        super().setUp()
        self.scheduler = self.stack.services['nova-scheduler']
        self.began = self.scheduler.log.stat().st_size

    def filtered(self) -> bool:
        """Whether our filter has left no host since the test began."""
        return FILTERED in watching.since(self.scheduler, self.began)

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

    def test_only_where_there_is_inventory(self) -> None:
        """None while limits are switched off, so none is placed, also of
        those that do not ask for it; some when they are on again."""
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
        self.assertIn(NO_HOST, self.refused(self.flavor(BY_INVENTORY)))
        self.assertFalse(self.filtered())   # Placement has said no before
        self.stack.wait_for_scheduler('no host sets limits', lambda host:
                                      not host['enforcing'])
        self.assertIn(NO_HOST, self.refused(self.flavor(BACKGROUND)))
        self.assertTrue(self.filtered())
        self.boot('web')
        self.protect(True)
        self.cloud.wait('a host offers something', lambda: any(
            self.offered().values()), SOON_S)
        self.stack.wait_for_headroom()
        self.boot('batch-2', BY_INVENTORY)
        self.cloud.delete(batch)
        self.assertEqual({}, self.cloud.placement(
            'GET', f'/allocations/{batch}')['allocations'])

    def test_less_headroom_than_it_asks_for(self) -> None:
        """To Placement it is a server without CPUs; our filter tells."""
        flavor = self.flavor({'scavenger:priority': 'background',
                              'resources:VCPU': '0'}, MORE_THAN_THERE_ARE)
        self.assertIn(NO_HOST, self.refused(flavor))
        self.assertTrue(self.filtered())

    def test_nova_compute_leaves_it_alone(self) -> None:
        host = self.stack.hypervisors[0].hostname
        self.cloud.wait('it offers something',
                        lambda: self.offered().get(host), SOON_S)
        self.stack.restart_compute(host)
        self.assertIn(host, self.offered())

    def manage(self, *words: str) -> tuple[int, str]:
        """Exit code and output of scavenger-manage."""
        return product.manage(self.site, *words)

    def test_flavors_are_made(self) -> None:
        if not product.has_novaclient():
            self.skipTest('needs python-novaclient')
        name = f'batch-{uuid.uuid4().hex[:8]}'
        command = ('flavors', 'create', '--name', name, '--disk', '1',
                   '1x96', '2x4096')
        names = [f'{name}.1x96', f'{name}.2x4096']
        self.assertEqual((0, ''.join(f'{one}: would be made\n' for one in names
                                     )), self.manage(*command, '--dry-run'))
        self.assertEqual((0, ''.join(f'{one}: made\n' for one in names)),
                         self.manage(*command))
        self.assertEqual((0, ''.join(f'{one}: it is there\n'
                                     for one in names)), self.manage(*command))
        made = {one['name']: one for one in self.cloud.compute(
            'GET', '/flavors/detail?is_public=None')['flavors']}
        for one in names:
            self.addCleanup(self.cloud.compute, 'DELETE',
                            f"/flavors/{made[one]['id']}")
        found = made[names[1]]
        self.assertEqual((2, 4096, 1, False), tuple(found[key] for key in (
            'vcpus', 'ram', 'disk', 'os-flavor-access:is_public')))
        self.assertEqual({
            'scavenger:priority': 'background', 'resources:VCPU': '0',
            'resources:MEMORY_MB': '1', 'resources:CUSTOM_BACKGROUND_VCPU':
            '2', 'resources:CUSTOM_BACKGROUND_MEMORY_MB': '4096'},
            found['extra_specs'])
        self.cloud.compute(
            'PUT', f"/flavors/{found['id']}/os-extra_specs/"
                   'resources:CUSTOM_BACKGROUND_VCPU',
            {'resources:CUSTOM_BACKGROUND_VCPU': '1'})
        code, said = self.manage(*command)
        self.assertEqual(1, code)
        self.assertIn(f'{names[1]}: it is there, and other than', said)
