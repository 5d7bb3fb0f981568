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

"""Antagonists that are evicted, or recommended to be, without an operator."""

from __future__ import annotations

import dataclasses
from typing import Any

import fixtures
import sqlalchemy

from scavenger_openstack.conductor.nova import eviction_policy
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW

HOG = '66666666-7777-4888-8999-aaaaaaaaaaaa'
OTHER = '77777777-7777-4888-8999-aaaaaaaaaaaa'
HOUR_S = 3600
PARAMS = eviction_policy.Params(
    policy='stop', aggregate_policies={}, confirmed=5, window_h=24.0,
    cool_down_s=3600.0, per_hour=10)


class Policy(cloud.Sqlite, cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.hosts: dict[str, int] = {}
        self.antagonist()

    def antagonist(self, instance: str = HOG, host: str = HOST,
                   confirmed: int = 5, priority: str = 'background') -> None:
        """An instance whose limits helped so often, in two hours."""
        if host not in self.hosts:
            self.hosts[host] = len(self.hosts) + 1
            self.add(tables.hosts, id=self.hosts[host], name=host,
                     version='1', enforcing=True, facts={}, settings={},
                     first_seen_s=NOW, last_seen_s=NOW)
        host_id = self.hosts[host]
        self.add(tables.workloads, host_id=host_id, name=instance,
                 kind='instance', instance=instance, project='p1',
                 priority=priority, vcpus=1.0, floor={}, since_s=NOW - 9e5)
        for hours, count in ((1, confirmed - 1), (3, 1), (25, 50)):
            self.add(tables.antagonist_hours, host_id=host_id,
                     hour_s=int(NOW // HOUR_S - hours) * HOUR_S,
                     workload=instance, instance=instance, project='p1',
                     victim='web', cause='cpu', incidents=count,
                     interference_s=60.0, confirmed=count, refuted=0)

    def turn(self, after_s: float = 60.0, **more: Any) -> list[str]:
        """One look; the instances whose eviction is asked for by now."""
        self.now += after_s
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.update(tables.hosts).values(
                last_seen_s=self.now))
        eviction_policy.Policy(
            self.engine, dataclasses.replace(PARAMS, **more),
            lambda: self.now).turn(lambda: None)
        return self.asked()

    def asked(self) -> list[str]:
        return self.rows(tables.evictions, 'instance')

    def test_asked_for_once(self) -> None:
        self.assertEqual([HOG], self.turn())
        self.assertEqual([HOG], self.turn(7200))
        [row] = self.rows(tables.evictions, 'host', 'how', 'created_by',
                          'state')
        self.assertEqual((HOST, 'stop', 'policy', 'asked'), row)
        self.assertEqual(['eviction.ask'], self.rows(tables.audit, 'action'))
        self.assertIn('disturbed others 5 times within 24 h',
                      self.log.output)

    def test_too_seldom(self) -> None:
        self.assertEqual([], self.turn(confirmed=6))

    def test_recommended(self) -> None:
        """Once a day, with what to type; nothing is asked of Nova."""
        for _ in range(2):
            self.assertEqual([], self.turn(policy='none'))
            self.assertEqual(1, self.log.output.count(
                f'openstack antagonist evict {HOG} --reason'))
        self.assertEqual(['eviction.recommended'],
                         self.rows(tables.audit, 'action'))

    def test_never_the_foreground(self) -> None:
        self.antagonist(OTHER, priority='foreground')
        self.assertEqual([HOG], self.turn())

    def test_what_is_exempt(self) -> None:
        for scope, target in (('instance', HOG), ('project', 'p1'),
                              ('aggregate', 'rack')):
            self.add(tables.aggregate_hosts, aggregate='rack', host=HOST,
                     named=True, nova=False)
            self.add(tables.rules, uuid='r', kind='exemption', scope=scope,
                     target=target, reason='', created_by='', created_s=NOW)
            self.assertEqual([], self.turn(), scope)
            self.delete(tables.rules)
            self.delete(tables.aggregate_hosts)
        self.assertEqual([HOG], self.turn())

    def test_a_host_that_sets_no_limits(self) -> None:
        """As with the kill switch."""
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.update(tables.hosts).values(
                enforcing=False))
        self.assertEqual([], self.turn())

    def test_one_host_cools_down(self) -> None:
        self.antagonist(OTHER, confirmed=9)
        self.assertEqual([OTHER], self.turn())      # the worst first
        self.assertEqual([OTHER], self.turn(3000))
        self.assertEqual([OTHER, HOG], self.turn(700))

    def test_not_too_many_in_an_hour(self) -> None:
        self.antagonist(OTHER, 'node-2', confirmed=9)
        self.assertEqual([OTHER], self.turn(per_hour=1))
        self.assertEqual([OTHER, HOG], self.turn(3700, per_hour=1))

    def test_policies_of_aggregates(self) -> None:
        self.antagonist(OTHER, 'node-2')
        self.add(tables.aggregate_hosts, aggregate='batch', host='node-2',
                 named=False, nova=True)
        self.assertEqual([OTHER], self.turn(
            policy='none', aggregate_policies={'batch': 'live-migrate'}))
        self.assertEqual(['live-migrate'], self.rows(tables.evictions, 'how'))

    def test_a_policy_that_does_not_exist(self) -> None:
        error = self.assertRaises(
            errors.ConfigError, eviction_policy.check, dataclasses.replace(
                PARAMS, aggregate_policies={'batch': 'kill'}))
        self.assertIn('batch:kill', str(error))
