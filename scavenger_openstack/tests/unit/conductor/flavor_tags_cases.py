# SPDX-License-Identifier: Apache-2.0

"""What nova-compute tells of instances, until an agent hears of it."""

from __future__ import annotations

import json
from typing import Any

import fixtures

from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import service
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.wire import report as wire

WEB = '11111111-2222-4333-8444-555555555555'
FLOOR: dict[str, float] = {'cpu_cores': 0.5, 'memory_bytes': 2.0 ** 29}
HOG = '66666666-7777-4888-8999-aaaaaaaaaaaa'


class FlavorTags(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.conductor = service.Conductor(self.engine, lambda: self.now)
        self.wishes = directives.Wishes()
        self.sync(report(workloads=[
            wire.Workload(id=one, priority='foreground', kind='instance',
                          instance=one, project='p1')
            for one in (WEB, HOG)], digest='d1'))

    def tell(self, instance: str = HOG, **more: Any) -> None:
        """As nova-compute does."""
        self.conductor.tag(json.dumps({
            'instance': instance, 'host': HOST, 'project': 'p1',
            'priority': 'background', 'source': 'flavor',
            'application': '', 'floor': FLOOR, **more}).encode())

    def tags(self, holds: str = '', host: str = HOST
             ) -> tuple[list[wire.Tag] | None, str]:
        """The tags that the agent gets, ``None`` for those that it has, and
        the digest."""
        answer = self.sync(report(digest='d1', holds=holds, host=host,
                                  sent_s=self.now), self.now,
                           wishes=self.wishes).directives
        return (None, holds) if answer is None else (answer.tags,
                                                     answer.digest)

    def rule(self, scope: str, target: str, value: str) -> None:
        self.add(tables.rules, uuid=f'{scope:0>32}', kind='priority',
                 scope=scope, target=target, value=value, application='',
                 reason='because', created_by='admin', created_s=NOW)
        self.add(tables.audit, time_s=NOW, actor='admin', action='x',
                 target='', reason='')

    def test_it_reaches_the_agent(self) -> None:
        _, holds = self.tags()
        self.assertEqual((None, holds), self.tags(holds))
        self.now += 1
        self.tell(application='render')
        self.assertEqual([wire.Tag(
            instance=HOG, priority='background', application='render',
            source='flavor', floor=FLOOR)], self.tags(holds)[0])

    def test_by_another_name_of_the_host(self) -> None:
        _, holds = self.tags()
        self.tell(host=f'{HOST}.example.org', application='render')
        found, holds = self.tags(holds)
        self.assertEqual(['render'], [tag.application for tag in found or ()])
        self.sync(report(host='node-2.example.org', digest='d2', workloads=[
            wire.Workload(id=WEB, priority='foreground', kind='instance',
                          instance=WEB, project='p1')]))
        self.tell(WEB, host='node-2')
        self.assertEqual([WEB], [tag.instance for tag in self.tags(
            host='node-2.example.org')[0] or ()])
        self.assertEqual('', self.log.output)

    def test_told_again(self) -> None:
        self.tell()
        found, holds = self.tags()
        self.now += 1
        self.tell()
        self.assertEqual((None, holds), self.tags(holds))
        self.assertEqual(1, len(self.rows(tables.flavor_tags)))
        self.now += 1
        self.tell(priority='foreground')        # a resize
        [tag] = self.tags(holds)[0] or []
        self.assertEqual('foreground', tag.priority)

    def test_a_flavor_that_says_nothing(self) -> None:
        self.tell()
        _, holds = self.tags()
        self.now += 1
        self.tell(source='default', priority='foreground', floor={})
        self.assertEqual([], self.rows(tables.flavor_tags))
        self.assertEqual([], self.tags(holds)[0])

    def test_an_instance_that_moves(self) -> None:
        self.sync(report(host='other', digest='d1', workloads=[
            wire.Workload(id=HOG, priority='foreground', kind='instance',
                          instance=HOG, project='p1')]))
        self.tell()
        _, holds = self.tags()
        self.now += 1
        self.tell(host='other')
        self.assertEqual([], self.tags(holds)[0])
        [tag] = self.tags(host='other')[0] or []
        self.assertEqual(HOG, tag.instance)

    def test_what_goes_before(self) -> None:
        """The instance's own rule, the flavor, the project's rule."""
        self.rule('project', 'p1', 'foreground')
        self.tell()
        found = {tag.instance: (tag.priority, tag.source)
                 for tag in self.tags()[0] or ()}
        self.assertEqual({WEB: ('foreground', 'project'),
                          HOG: ('background', 'flavor')}, found)
        self.rule('instance', HOG, 'foreground')
        found = {tag.instance: (tag.priority, tag.source)
                 for tag in self.tags()[0] or ()}
        self.assertEqual(('foreground', 'instance'), found[HOG])

    def test_an_application_alone(self) -> None:
        """The priority is then that of a rule."""
        self.tell(source='default', priority='foreground',
                  application='render')
        self.rule('project', 'p1', 'background')
        found = {tag.instance: (tag.priority, tag.application)
                 for tag in self.tags()[0] or ()}
        self.assertEqual({WEB: ('background', ''),
                          HOG: ('background', 'render')}, found)

    def test_a_floor_alone(self) -> None:
        """It counts when a rule makes the instance background."""
        self.tell(source='default', priority='foreground')
        self.assertEqual([], self.tags()[0])
        self.rule('project', 'p1', 'background')
        found = {tag.instance: (tag.priority, tag.floor)
                 for tag in self.tags()[0] or ()}
        self.assertEqual({WEB: ('background', {}),
                          HOG: ('background', FLOOR)}, found)

    def test_what_nothing_is_limited_for(self) -> None:
        """Whatever its priority is from, or without any."""
        others: list[dict[str, Any]] = [{}, {
            'source': 'default', 'priority': 'foreground', 'floor': {}}]
        for more in others:
            self.tell(protect=False, **more)
            [tag] = self.tags()[0] or []
            self.assertIs(False, tag.protect)
        self.rule('instance', HOG, 'foreground')
        [tag] = self.tags()[0] or []
        self.assertEqual(('instance', False), (tag.source, tag.protect))
        self.tell(source='default', priority='foreground', floor={})
        self.assertEqual([], self.rows(tables.flavor_tags))

    def test_another_floor(self) -> None:
        self.tell()
        _, holds = self.tags()
        self.now += 1
        self.tell(floor={'cpu_cores': 1.0})
        [tag] = self.tags(holds)[0] or []
        self.assertEqual({'cpu_cores': 1.0}, tag.floor)

    def test_a_host_without_an_agent(self) -> None:
        """Nothing is kept, and the log has one line of it."""
        for _ in range(3):
            self.tell(host='nowhere')
        self.assertEqual([], self.rows(tables.flavor_tags))
        self.assertEqual(1, self.log.output.count('nowhere'))

    def test_what_is_refused(self) -> None:
        for wrong in ({'instance': '../etc'}, {'instance': 7},
                      {'priority': 'batch'}, {'host': ''},
                      {'host': 'x' * 256}, {'floor': {'cpu': 1}},
                      {'floor': {'cpu_cores': -1}}, {'project': 'x' * 65},
                      {'protect': 'no'}, {'application': 'x' * 256},
                      {'application': 'a\0'}):
            self.assertRaises(errors.WireError, self.tell, **wrong)
        self.assertRaises(errors.WireError, self.conductor.tag, b'[]')
        self.assertEqual([], self.rows(tables.flavor_tags))
