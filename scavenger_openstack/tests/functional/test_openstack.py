# SPDX-License-Identifier: Apache-2.0

"""The project in a real OpenStack: see :mod:`.openstack`."""

from __future__ import annotations

import json
import subprocess

from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack import cloud as cloud_
from scavenger_openstack.tests.functional.openstack import command
from scavenger_openstack.tests import tiers

COMMAND_S = 120.0


@tiers.only_in_all('one test goes through a real Nova in the gate')
class OpenStack(case.Case):

    def test_the_flavor_alone_decides(self) -> None:
        """Not the tenant's metadata, and not its name."""
        tenant = self.cloud.as_user('demo', 'demo')
        web = self.boot('scavenger:priority=background', cloud=tenant,
                        metadata={'scavenger:priority': 'background'})
        hog = self.boot('hog', BACKGROUND, metadata={
            'scavenger:priority': 'foreground'})
        project = self.cloud.server(hog)['tenant_id']
        found = self.workload(hog)
        self.assertEqual(('background', f'{project}/render'),
                         (found['priority'], found['application']))
        found = self.workload(web)
        self.assertEqual('foreground', found['priority'])
        # Nothing names it but its flavor and image.
        server = self.cloud.server(web)
        self.assertEqual(
            f'{server["tenant_id"]}/{found["flavor"]}'
            f'@{server["image"]["id"]}', found['application'])

    def test_extra_specs_that_are_wrong(self) -> None:
        """Nova refuses them, from microversion 2.86 on."""
        flavor = self.flavor()
        path = f'/flavors/{flavor.id}/os-extra_specs'
        for key, value in (('scavenger:priority', 'batch'),
                           ('scavenger:floor_cpu_cores', '0'),
                           ('scavenger:protect', 'no'),
                           ('scavenger:min_cpu', '1')):
            refused = self.assertRaises(
                cloud_.Refused, self.cloud.compute, 'POST', path,
                {'extra_specs': {key: value}})
            self.assertEqual(400, refused.status)
            self.assertIn('Validation failed', refused.text)
        self.cloud.compute('POST', path, {'extra_specs': BACKGROUND})
        self.cloud.compute('POST', path, {'extra_specs': {
            'scavenger:priority': 'batch'}}, version='2.85')

    def test_our_api_takes_keystones_users(self) -> None:
        names = {one['name'] for one in self.cloud.interference(
            'GET', '/v1/summary')['hosts']}
        self.assertLessEqual(
            {one.hostname for one in self.stack.hypervisors}, names)
        tenant = self.cloud.as_user('demo', 'demo')
        refused = self.assertRaises(cloud_.Refused, tenant.interference,
                                    'GET', '/v1/summary')
        self.assertEqual(403, refused.status)

    def test_the_shell_of_a_stack_that_is_kept(self) -> None:
        """What ``tools/openstack.sh env`` prints is all that it takes."""
        text = command.shell(self.site.top, self.site.environment)
        done = subprocess.run(
            ['bash', '-c', f'{text}\nopenstack antagonist list -f json'],
            capture_output=True, text=True, timeout=COMMAND_S, cwd='/',
            stdin=subprocess.DEVNULL, env={'PATH': '/usr/bin:/bin'})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIsInstance(json.loads(done.stdout), list)
