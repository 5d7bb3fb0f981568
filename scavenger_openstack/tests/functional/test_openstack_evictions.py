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

"""Evictions in a real OpenStack, by the ``openstack`` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import product

COMMAND_S = 300.0


class Evictions(case.Case):

    def setUp(self) -> None:
        super().setUp()
        if not product.has_novaclient():
            self.skipTest('needs python-novaclient')

    def evict(self, server: str, *words: str) -> tuple[int, str]:
        """Exit code and output of the command, with Keystone's admin."""
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', 'openstackclient.shell',
             'antagonist', 'evict', server, '--reason', 'it disturbs', '-f',
             'json', *words],
            capture_output=True, text=True, timeout=COMMAND_S,
            stdin=subprocess.DEVNULL,
            env={'PATH': os.environ['PATH'],
                 **configuration.variables(self.site)})
        return done.returncode, done.stdout or done.stderr

    def hog(self) -> dict[str, Any]:
        """A background server with a limit on it, as our API has it."""
        found = self.workload(self.boot('hog', BACKGROUND))
        self.assertEqual('background', found['priority'])
        self.cloud.wait('its limit', lambda: self.caps(found), SOON_S)
        return found

    def caps(self, found: dict[str, Any]) -> list[Any]:
        caps: list[Any] = self.cloud.interference(
            'GET', f"/v1/caps?instance={found['instance']}")['caps']
        return caps

    def actions(self, server: str) -> list[str]:
        return [one['action'] for one in self.cloud.interference(
            'GET', f'/v1/audit?target={server}')['audit']]

    def test_stop(self) -> None:
        hog = self.hog()
        server = hog['instance']
        code, said = self.evict(server, '--how', 'stop', '--dry-run')
        self.assertEqual((0, 'dry run'), (code, json.loads(said)['state']))
        self.assertEqual('ACTIVE', self.cloud.server(server)['status'])
        code, said = self.evict(server, '--how', 'stop')
        self.assertEqual(0, code, said)
        self.assertEqual('its status is SHUTOFF', json.loads(said)['detail'])
        self.assertEqual('SHUTOFF', self.cloud.server(server)['status'])
        self.cloud.wait('no limit', lambda: not self.caps(hog), SOON_S)
        self.assertEqual(['eviction.done', 'eviction.ask'],
                         self.actions(server))

    def test_never_the_foreground(self) -> None:
        web = self.boot('web')
        self.workload(web)
        code, said = self.evict(web, '--how', 'stop')
        self.assertEqual(1, code)
        self.assertIn('foreground, which is never evicted', said)
        self.assertEqual('ACTIVE', self.cloud.server(web)['status'])
