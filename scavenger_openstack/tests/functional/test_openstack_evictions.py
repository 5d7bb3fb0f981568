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

from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import limited
from scavenger_openstack.tests.functional.openstack import product

COMMAND_S = 300.0


class Evictions(limited.LimitedCase):

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

    def actions(self, server: str) -> list[str]:
        return [one['action'] for one in self.cloud.interference(
            'GET', f'/v1/audit?target={server}')['audit']]

    def test_stop(self) -> None:
        server = self.hog()
        code, said = self.evict(server, '--how', 'stop', '--dry-run')
        self.assertEqual((0, 'dry run'), (code, json.loads(said)['state']))
        self.assertEqual('ACTIVE', self.cloud.server(server)['status'])
        code, said = self.evict(server, '--how', 'stop')
        self.assertEqual(0, code, said)
        self.assertEqual('its status is SHUTOFF', json.loads(said)['detail'])
        self.assertEqual('SHUTOFF', self.cloud.server(server)['status'])
        self.cloud.wait('no limit', lambda: not self.caps(server), SOON_S)
        self.assertEqual(['eviction.done', 'eviction.ask'],
                         self.actions(server))

    def test_live_migrate(self) -> None:
        """The limits stay behind; the other host sets its own, and its
        other guests have none."""
        server = self.hog()
        before = self.cloud.server(server)
        source = before['OS-EXT-SRV-ATTR:host']
        target, = {one.hostname for one in self.stack.hypervisors} - {source}
        web = self.boot('web', host=target)
        self.settle(web, 'boot', application='')
        code, said = self.evict(server)
        self.assertEqual(0, code, said)
        self.assertEqual(f'it is on {target} now',
                         json.loads(said)['detail'])
        now = self.cloud.server(server)
        self.assertEqual(
            (target, 'ACTIVE', before['OS-EXT-SRV-ATTR:instance_name']),
            (now['OS-EXT-SRV-ATTR:host'], now['status'],
             now['OS-EXT-SRV-ATTR:instance_name']))
        self.cloud.wait('it is in the list of migrations', lambda: [
            ('live-migration', source, target, 'completed')] == [
                (one['migration_type'], one['source_compute'],
                 one['dest_compute'], one['status'])
                for one in self.cloud.compute(
                    'GET', f'/os-migrations?instance_uuid={server}'
                    )['migrations']], SOON_S)
        self.assertIn('live-migration', [
            one['action'] for one in self.cloud.compute(
                'GET', f'/servers/{server}/os-instance-actions'
                )['instanceActions']])
        self.assertEqual(['eviction.done', 'eviction.ask'],
                         self.actions(server))
        self.settle(server, 'eviction')
        gone = self.cloud.interference(
            'GET', f'/v1/caps?instance={server}&host={source}&in_force=false'
            )['caps']
        self.assertNotEqual([], gone)
        self.assertNotIn(None, [one['removed_at'] for one in gone])
        self.settle(web, 'another came', application='')
        self.assertEqual([], self.cloud.interference(
            'GET', f'/v1/incidents?victim={web}')['incidents'])
        self.nothing_stays(server)
        self.no_errors()

    def test_never_the_foreground(self) -> None:
        web = self.boot('web')
        self.workload(web)
        code, said = self.evict(web, '--how', 'stop')
        self.assertEqual(1, code)
        self.assertIn('foreground, which is never evicted', said)
        self.assertEqual('ACTIVE', self.cloud.server(web)['status'])
