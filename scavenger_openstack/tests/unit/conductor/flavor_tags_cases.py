# SPDX-License-Identifier: Apache-2.0

"""What nova-compute tells of instances, until an agent hears of it."""

from __future__ import annotations

import json
from typing import Any
import uuid

import fixtures

from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor.nova import reconciling
from scavenger_openstack.conductor import service
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor import reconciling_cases
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
        self.changed()

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

    def version(self) -> int:
        """Of what flavors say of the host's instances."""
        [host_id] = self.rows(tables.hosts, 'id')
        with self.engine.begin() as connection:
            return reports.progress(connection, host_id, HOST, 'run-1').tags

    def test_clocks_that_differ(self) -> None:
        """What was told by the clock that is behind counts as well."""
        self.tell()
        self.tell(WEB)
        self.now = NOW + 30
        self.tell(priority='foreground')
        _, holds = self.tags()
        self.now = NOW + 10
        self.tell(WEB, priority='foreground', protect=False)
        tags, holds = self.tags(holds)
        self.assertEqual({WEB: False, HOG: True}, {
            tag.instance: tag.protect for tag in tags or ()})
        for later_s in (3600.0, -3600.0):
            self.now = NOW + later_s
            self.tell(WEB, floor={'cpu_cores': later_s + 3600.0})
            tags, holds = self.tags(holds)
            self.assertEqual({'cpu_cores': later_s + 3600.0}, next(
                tag.floor for tag in tags or () if tag.instance == WEB))

    def test_nova_is_read_for_long(self) -> None:
        """Its list began before nova-compute told of another one."""
        self.tell()
        self.tell(WEB)
        self.now = NOW + 30
        self.tell(application='render')
        _, holds = self.tags()
        nova: Any = reconciling_cases.Nova()
        nova.found = [reconciling_cases.Server(WEB, specs={
            'scavenger:priority': 'foreground'})]
        self.assertEqual(1, reconciling.Reconciler(
            self.engine, nova, lambda: NOW + 10).turn(lambda: None))
        tags, _ = self.tags(holds)
        self.assertEqual('foreground', {
            tag.instance: tag.priority for tag in tags or ()}[WEB])

    def test_one_is_gone_and_another_is_new(self) -> None:
        cart = '22222222-3333-4444-8555-666666666666'
        self.sync(report(workloads=[
            wire.Workload(id=one, priority='foreground', kind='instance',
                          instance=one, project='p1')
            for one in (WEB, HOG, cart)], digest='d1-3', sent_s=NOW))
        self.tell(WEB)
        self.now = NOW + 30
        self.tell()
        version = self.version()
        self.now = NOW + 10
        self.tell(WEB, source='default', priority='foreground', floor={})
        self.tell(cart)
        self.assertEqual(2, len(self.rows(tables.flavor_tags)))
        self.assertNotEqual(version, self.version())

    def test_the_same_is_no_news(self) -> None:
        """Nor that Nova was asked, or works on the instance."""
        self.tell()
        version = self.version()
        self.now += 60
        self.tell()
        with self.engine.begin() as connection:
            flavor_tags.confirmed(connection, [HOG])
            flavor_tags.touch(connection, [HOG], self.now + 60)
        self.assertEqual([self.now + 60],
                         self.rows(tables.flavor_tags, 'changed_s'))
        self.assertEqual(version, self.version())

    def test_instances_that_only_the_broker_knows(self) -> None:
        """So many are kept of each host, and those that a host lists or Nova
        has confirmed."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.flavor_tags.MOST', 3))
        invented = [str(uuid.UUID(int=number)) for number in range(8)]
        self.sync(report(host='node-2', digest='d2', workloads=[
            cloud.batch('/batch/a')]))
        self.tell(WEB)
        for number, instance in enumerate(invented):
            self.tell(instance)
            self.tell(str(uuid.UUID(int=100)), host='node-2')
            if not number:
                with self.engine.begin() as connection:
                    flavor_tags.confirmed(connection, [instance])
        self.assertEqual(
            {WEB, invented[0], *invented[-3:], str(uuid.UUID(int=100))},
            set(self.rows(tables.flavor_tags, 'instance')))

    def test_a_host_without_an_agent(self) -> None:
        """Nothing is kept, and the log has one line of it."""
        for _ in range(3):
            self.tell(host='nowhere')
        self.assertEqual([], self.rows(tables.flavor_tags))
        self.assertEqual(1, self.log.output.count('nowhere'))

    def test_what_is_refused(self) -> None:
        for wrong in ({'instance': '../etc'}, {'instance': 7},
                      {'priority': 'batch'}, {'host': ''},
                      {'host': 'x' * 256}, {'floor': {'CPU cores': 1}},
                      {'floor': {'cpu_cores': -1}}, {'project': 'x' * 65},
                      {'protect': 'no'}, {'application': 'x' * 256},
                      {'application': 'a\0'}):
            self.assertRaises(errors.WireError, self.tell, **wrong)
        self.assertRaises(errors.WireError, self.conductor.tag, b'[]')
        self.assertEqual([], self.rows(tables.flavor_tags))
