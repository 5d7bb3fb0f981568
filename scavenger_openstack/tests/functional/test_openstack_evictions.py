# SPDX-License-Identifier: Apache-2.0

"""Evictions in a real OpenStack, by the ``openstack`` command."""

from __future__ import annotations

from concurrent import futures
import json
import os
import statistics
import subprocess
import sys

from testtools import content

from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import guests
from scavenger_openstack.tests.functional.openstack import limited
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests import tiers

COMMAND_S = 300.0
MEASURED_S = 6.0
VCPUS = 2
LEAST = 0.75
"""Of what a foreground server does while one that works as hard rests; of
CPUs that are shared alike it has half."""


@tiers.only_in_all('one test goes through a real Nova in the gate')
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

    def evict_beside(self, server: str, source: hypervisor.Hypervisor,
                     web: str, target: hypervisor.Hypervisor) -> str:
        """Evict a busy server to the host of another busy server, which has
        to do nearly as much as when that one rests, by its own measure.

        :returns: the detail that the command prints
        """
        order = f'cpu {VCPUS}'
        with (guests.Console(target, self.domain(web)) as console,
              futures.ThreadPoolExecutor(1) as pool):
            console.tell(order)
            rates = {'alone': list(console.rates(MEASURED_S))}
            guests.tell(source, self.domain(server), order)
            evicting = pool.submit(self.evict, server)
            rates['meanwhile'] = []
            for rate in console.rates(COMMAND_S):
                rates['meanwhile'].append(rate)
                if evicting.done():
                    break
            code, said = evicting.result()
            self.assertEqual(0, code, said)
            self.cloud.wait('it is limited there', lambda: any(
                one['host'] == target.hostname for one in self.caps(server)),
                SOON_S)
            with guests.Console(target, self.domain(server)) as its:
                rates['beside it'] = list(console.rates(MEASURED_S))
                self.assertNotEqual(0.0, next(its.rates(SOON_S), 0.0))
                its.tell('rest')
                # One after the other: other programs take from both alike.
                rates['while it rests'] = list(console.rates(MEASURED_S))
            console.tell('rest')
        text = '; '.join(f'{when} {statistics.median(found):.0f} (least '
                         f'{min(found):.0f})' for when, found in rates.items())
        print(f'{self.id()}: rounds/s {text}', file=sys.stderr)
        self.addDetail('rounds/s', content.text_content(text))
        self.assertGreaterEqual(
            statistics.median(rates['beside it']),
            LEAST * statistics.median(rates['while it rests']), text)
        detail: str = json.loads(said)['detail']
        return detail

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
        server = self.hog(VCPUS)
        before = self.cloud.server(server)
        source = before['OS-EXT-SRV-ATTR:host']
        target, = {one.hostname for one in self.stack.hypervisors} - {source}
        web = self.boot('web', vcpus=VCPUS, host=target)
        self.settle(web, 'boot', application='')
        self.assertEqual(f'it is on {target} now', self.evict_beside(
            server, self.stack.host(source), web, self.stack.host(target)))
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
