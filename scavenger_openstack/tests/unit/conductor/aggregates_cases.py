# SPDX-License-Identifier: Apache-2.0

"""Host aggregates as Nova and operators say them, on each database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import cast
from typing import NamedTuple

import fixtures

from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor.nova import aggregates as following
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db.resources import rules
from scavenger_openstack.db.resources import services
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report

WEB = '11111111-2222-4333-8444-555555555555'
HOG = '66666666-7777-4888-8999-aaaaaaaaaaaa'
BACKGROUND = {'scavenger:priority': 'background'}
FOREGROUND = {'scavenger:priority': 'foreground'}


class Aggregate(NamedTuple):
    name: str = 'rack'
    hosts: tuple[str, ...] = (HOST,)
    metadata: Mapping[str, str] = {}


class Nova:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.found: list[Aggregate] = []
        self.away = False
        self.compute: list[str] | None = []

    def aggregates(self) -> list[Aggregate]:
        if self.away:
            raise errors.Unreachable('Nova: no answer')
        return self.found

    def services(self) -> list[str]:
        if self.compute is None:
            raise errors.Unreachable('Nova: HTTP 403 req-' + '1' * 36)
        return self.compute


class Aggregates(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.nova = Nova()
        self.follower = following.Follower(self.engine, cast(Any, self.nova),
                                           lambda: self.now)
        self.wishes = directives.Wishes()

    def turn(self, *found: Aggregate) -> int:
        self.nova.found = list(found)
        self.now += 60
        return self.follower.turn(lambda: None)

    def named(self, name: str, *names: str) -> None:
        """As ``scavenger-manage aggregate set``, or ``unset``."""
        self.now += 1
        connect.retried(self.engine, lambda connection: aggregates.put(
            connection, name, names, now_s=self.now), on_duplicate=True)

    def rule(self, scope: str, target: str, value: str) -> None:
        """As the API makes and changes one."""
        self.now += 1
        with connect.writing(self.engine) as connection:
            row = rules.of(connection, 'priority', scope, target)
            values = {'value': value, 'reason': 'because',
                      'created_by': 'admin', 'created_s': self.now}
            if row is None:
                rules.add(connection, uuid=f'{scope:0>32}', kind='priority',
                          scope=scope, target=target, application='',
                          **values)
            else:
                rules.change(connection, row['id'], **values)

    def hosts(self) -> dict[str, list[str]]:
        with connect.reading(self.engine) as connection:
            return aggregates.hosts(connection)

    def priorities(self) -> dict[str, tuple[str, str]]:
        return {target: (value, who) for target, value, who in self.rows(
            tables.rules, 'target', 'value', 'created_by')}

    def audit(self) -> list[tuple[Any, ...]]:
        return [(who, what, target, before, after)
                for who, what, target, before, after in self.rows(
                    tables.audit, 'actor', 'action', 'target', 'before',
                    'after')]

    def tags(self) -> dict[str, tuple[str, str]]:
        """What the agent of the host gets, of its two instances."""
        self.now += 1
        answer = self.sync(report(digest='d1', sent_s=self.now, workloads=[
            cloud.wire.Workload(id=one, priority='foreground',
                                kind='instance', instance=one, project='p1')
            for one in (WEB, HOG)]), self.now, wishes=self.wishes).directives
        assert answer is not None
        return {tag.instance: (tag.priority, tag.source)
                for tag in answer.tags}

    # --- hosts

    def test_hosts(self) -> None:
        self.assertEqual(2, self.turn(Aggregate('b', (HOST, 'node-2')),
                                      Aggregate('a'), Aggregate('c', ())))
        self.assertEqual({'a': [HOST], 'b': [HOST, 'node-2']}, self.hosts())
        with connect.reading(self.engine) as connection:
            by_host = aggregates.by_host(connection)
        self.assertEqual([('a', 'b'), ('b',), ()], [
            by_host.of(name) for name in (HOST, 'node-2', 'node-3')])
        self.assertEqual(
            [('nova', 'aggregate.set', 'a', {'hosts': 0},
              {'hosts': 1, 'added': [HOST]}),
             ('nova', 'aggregate.set', 'b', {'hosts': 0},
              {'hosts': 2, 'added': [HOST, 'node-2']})], self.audit())

    def test_the_same_again_is_no_change(self) -> None:
        for _ in range(2):
            changed = self.turn(Aggregate(metadata=BACKGROUND))
        self.assertEqual(0, changed)
        self.assertEqual(2, len(self.audit()))

    def test_hosts_come_and_go(self) -> None:
        self.turn(Aggregate(hosts=('h1', 'h2')), Aggregate('gone'))
        self.turn(Aggregate(hosts=('h2', 'h3')))
        self.assertEqual({'rack': ['h2', 'h3']}, self.hosts())
        self.assertEqual(
            [('gone', {'hosts': 1}, {'hosts': 0, 'removed': [HOST]}),
             ('rack', {'hosts': 2},
              {'hosts': 2, 'added': ['h3'], 'removed': ['h1']})],
            [one[2:] for one in self.audit()[2:]])

    def test_no_answer(self) -> None:
        self.turn(Aggregate(metadata=BACKGROUND))
        self.nova.away = True
        self.assertRaises(errors.Unreachable, self.turn)
        self.assertEqual({'rack': [HOST]}, self.hosts())
        self.assertEqual({'rack': ('background', 'nova')}, self.priorities())

    def test_what_an_operator_named(self) -> None:
        """It counts until it is taken away; then Nova's does, at once."""
        self.named('rack', 'h1', 'h2')
        self.named('mine', 'h3')
        self.turn(Aggregate(hosts=('h2', 'h9')))
        self.assertEqual({'mine': ['h3'], 'rack': ['h1', 'h2']}, self.hosts())
        self.assertEqual([], [one for one in self.audit()
                              if one[0] == 'nova'])
        self.named('rack', 'h1')
        self.turn(Aggregate(hosts=('h2', 'h8')))
        self.assertEqual({'mine': ['h3'], 'rack': ['h1']}, self.hosts())
        self.named('rack')
        self.named('mine')
        self.assertEqual({'rack': ['h2', 'h8']}, self.hosts())
        self.assertEqual(
            ('scavenger-manage', 'aggregate.set', 'rack', {'hosts': 1},
             {'hosts': 2, 'added': ['h2', 'h8'], 'removed': ['h1']}),
            self.audit()[-2])

    def test_listings_of_hosts(self) -> None:
        for name in (HOST, 'h2', 'h3'):
            self.sync(report(host=name))
        self.named('batch', 'h2')
        self.turn(Aggregate(hosts=(HOST, 'h3')),
                  Aggregate('batch', (HOST, 'h2')))
        with connect.reading(self.engine) as connection:
            for name, there in (('rack', ['h3', HOST]), ('batch', ['h2'])):
                self.assertEqual(there, sorted(row['name'] for row in (
                    hosts.page(connection, aggregate=name, limit=9))))
            self.assertTrue(hosts.has_aggregate(connection, 'rack'))

    def test_listings_of_hosts_by_another_name(self) -> None:
        for name in ('h1', 'h2.example.org'):
            self.sync(report(host=name))
        self.turn(Aggregate(hosts=('h1.example.org', 'h2', 'h3')))
        with connect.reading(self.engine) as connection:
            self.assertEqual(['h1', 'h2.example.org'], sorted(
                row['name'] for row in hosts.page(
                    connection, aggregate='rack', limit=9)))
            self.assertEqual(['h3'], aggregates.unknown(
                connection, ['h1.example.org', 'h2', 'h3']))

    # --- compute services

    def notice(self, host: str) -> str:
        """What the agent of that host gets."""
        self.now += 1
        answer = self.sync(report(host=host, holds='x', sent_s=self.now),
                           self.now, wishes=self.wishes).directives
        assert answer is not None
        return answer.notice

    def test_a_host_that_nova_does_not_have(self) -> None:
        self.turn()
        self.assertEqual('', self.notice(HOST))     # Nova may have none
        self.nova.compute = ['node-2', 'node-3.example.org', 'node-4']
        self.turn()
        self.assertEqual(['node-2', 'node-3.example.org', 'node-4'],
                         self.services(after_s=following.SERVICES_S))
        for name in ('node-2.example.org', 'node-3'):
            self.assertEqual('', self.notice(name))
        self.assertIn('openstack compute service list', self.notice(HOST))
        with connect.reading(self.engine) as connection:
            self.assertEqual([HOST], services.without(connection))
        self.nova.compute = ['node-2', HOST]
        self.assertEqual([HOST, 'node-2'],
                         self.services(after_s=following.SERVICES_S))
        self.assertEqual('', self.notice(HOST))

    def services(self, after_s: float) -> list[str]:
        self.now += after_s
        self.turn()
        return sorted(self.rows(tables.compute_services, 'host'))

    def test_compute_services_that_are_not_shown(self) -> None:
        """The rest goes on, and that is said once."""
        self.nova.compute = None
        for _ in range(2):
            self.now += following.SERVICES_S
            self.turn(Aggregate())
        self.assertEqual({'rack': [HOST]}, self.hosts())
        self.assertEqual(1, self.log.output.count('compute services'))

    # --- priorities

    def test_a_priority(self) -> None:
        self.turn(Aggregate(metadata=BACKGROUND))
        self.assertEqual(
            ('nova', 'priority.set', 'aggregate/rack', None,
             {'value': 'background'}), self.audit()[-1])
        self.assertEqual(dict.fromkeys(
            (WEB, HOG), ('background', 'aggregate')), self.tags())
        self.turn(Aggregate(metadata=FOREGROUND))
        self.assertEqual(dict.fromkeys(
            (WEB, HOG), ('foreground', 'aggregate')), self.tags())
        self.turn(Aggregate())
        self.assertEqual({}, self.tags())
        self.assertEqual(
            ('nova', 'priority.delete', 'aggregate/rack',
             {'value': 'foreground'}, None), self.audit()[-1])

    def test_the_flavor_wins(self) -> None:
        self.turn(Aggregate(metadata=BACKGROUND))
        self.add(tables.flavor_tags, instance=WEB, host=HOST, project='p1',
                 priority='foreground', source='flavor', application='',
                 floor={}, protect=True, changed_s=NOW, from_broker=False)
        self.assertEqual({WEB: ('foreground', 'flavor'),
                          HOG: ('background', 'aggregate')}, self.tags())

    def test_of_several_the_first_by_name(self) -> None:
        self.turn(Aggregate('c', metadata=BACKGROUND), Aggregate('a'),
                  Aggregate('b', metadata=FOREGROUND))
        self.assertEqual(dict.fromkeys(
            (WEB, HOG), ('foreground', 'aggregate')), self.tags())

    def test_the_rule_of_an_operator(self) -> None:
        """It is above the metadata, and these come back after it."""
        self.turn(Aggregate(metadata=BACKGROUND))
        self.rule('aggregate', 'rack', 'foreground')
        self.assertEqual(0, self.turn(Aggregate(metadata=BACKGROUND)))
        self.assertEqual({'rack': ('foreground', 'admin')},
                         self.priorities())
        self.assertEqual(0, self.turn(Aggregate()))
        self.assertEqual({'rack': ('foreground', 'admin')},
                         self.priorities())
        self.delete(tables.rules)
        self.turn(Aggregate(metadata=BACKGROUND))
        self.assertEqual({'rack': ('background', 'nova')}, self.priorities())

    def test_of_an_aggregate_that_an_operator_named(self) -> None:
        """Its hosts are others: nothing of Nova's counts."""
        self.turn(Aggregate(metadata=BACKGROUND))
        self.named('rack', 'h2')
        self.assertEqual({}, self.priorities())
        self.assertEqual('scavenger-manage', self.audit()[-1][0])
        self.turn(Aggregate(metadata=BACKGROUND))
        self.assertEqual({}, self.priorities())
        self.named('rack')
        self.turn(Aggregate(metadata=BACKGROUND))
        self.assertEqual({'rack': ('background', 'nova')}, self.priorities())

    def test_without_hosts(self) -> None:
        self.turn(Aggregate(metadata=BACKGROUND))
        self.turn(Aggregate(hosts=(), metadata=BACKGROUND))
        self.assertEqual({}, self.priorities())

    def test_mistakes(self) -> None:
        """Each is said once, and none changes anything."""
        for _ in range(2):
            self.turn(Aggregate(metadata={
                'scavenger:priority': 'batch', 'scavenger:application': 'x',
                'availability_zone': 'nova'}))
        self.assertEqual({}, self.priorities())
        for text in ("'scavenger:priority' = 'batch' in its metadata is "
                     'ignored: it has to be foreground or background',
                     "'scavenger:application' = 'x' in its metadata is "
                     'ignored: of an aggregate only scavenger:priority '
                     'counts'):
            self.assertEqual(1, self.log.output.count(text), text)
        self.assertNotIn('availability_zone', self.log.output)
