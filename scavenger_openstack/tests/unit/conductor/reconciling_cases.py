# SPDX-License-Identifier: Apache-2.0

"""What the conductor makes of Nova's instances, and of hosts that differ."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import cast
from typing import NamedTuple

import fixtures
import sqlalchemy

from scavenger_openstack.conductor.nova import elsewhere
from scavenger_openstack.conductor.nova import reconciling
from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import placed
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.wire import report as wire
from scavenger_openstack.wire import tag

HOG = '66666666-7777-4888-8999-aaaaaaaaaaaa'
WEB = '11111111-2222-4333-8444-555555555555'
CART = '22222222-3333-4444-8555-666666666666'
BACKGROUND = {'scavenger:priority': 'background',
              'scavenger:floor_cpu_cores': '0.5'}


class Server(NamedTuple):
    id: str = HOG
    project: str = 'p1'
    host: str = HOST
    deleted: bool = False
    specs: Mapping[str, str] = BACKGROUND
    strays: tuple[str, ...] = ()
    stack: str = ''
    unknown: bool = False
    busy: bool = False
    status: str = 'ACTIVE'
    created_s: float = 0.0
    groups: tuple[str, ...] | None = None


class Page(NamedTuple):
    servers: list[Server]
    after: tuple[str, ...]


class Group(NamedTuple):
    id: str
    name: str
    members: tuple[str, ...] = ()


class Nova:
    """Nova with these servers and flavors; it keeps what was asked of it."""

    def __init__(self) -> None:
        self.found: list[Server] = []
        self.members: dict[str, str] = {}
        self.asked: list[float | None] = []
        """What lists from their beginning were asked for."""
        self.away = False
        self.there: dict[str, Server | None] = {}
        """Beside those that the list has; ``None``: its question fails."""
        self.pages: list[Callable[[], list[Server]]] = []
        """The list of all, where it has more than one page."""
        self.deleted: list[Server] = []
        self.groups_read = 0
        self.new_groups: list[Group] = []
        self.asked_alone: list[str] = []

    def page(self, after: Sequence[str] = (), *, since_s: float | None = None,
             deleted: bool = False, status: str = '') -> Page:
        if self.away:
            raise errors.Unreachable('Nova: no answer')
        found = [one for one in self.found if status in ('', one.status)]
        if deleted:
            found = self.deleted
        if since_s is None and not status and self.pages:
            number = int(after[0]) if after else 0
            if number == len(self.pages):
                return Page([], ())
            return Page(self.pages[number](), (str(number + 1),))
        if after:
            return Page([], ())
        if not status and not deleted:
            self.asked.append(since_s)
        return Page(found, ('end',)) if found else Page([], ())

    def server(self, instance: str) -> Server | None:
        self.asked_alone.append(instance)
        found = self.there.get(instance, Server(deleted=True))
        if found is None:
            raise errors.Unreachable('Nova: HTTP 500')
        return None if found.deleted else found

    def groups(self) -> Iterator[list[Group]]:
        self.groups_read += 1
        for instance, name in self.members.items():
            yield [Group(f'id-{name}', name, (instance,))]

    def group(self, id_: str) -> Group | None:
        return next((one for one in self.new_groups if one.id == id_), None)


class Case(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.nova = Nova()
        self.reconciler = self.make_reconciler()

    def make_reconciler(self) -> reconciling.Reconciler:
        return reconciling.Reconciler(self.engine, cast(Any, self.nova),
                                      lambda: self.now)

    def turn(self, *servers: Server, after_s: float = 60.0) -> int:
        self.nova.found = list(servers)
        self.now += after_s
        return self.reconciler.turn(lambda: None)

    def tags(self) -> list[tuple[str, ...]]:
        return self.rows(tables.flavor_tags, 'instance', 'host', 'priority',
                         'source', 'application')


class Tags(Case):

    def test_what_its_flavor_says(self) -> None:
        self.assertEqual(1, self.turn(Server()))
        self.assertEqual([(HOG, HOST, 'background', 'flavor', '')],
                         self.tags())
        self.assertEqual([{'cpu_cores': 0.5}],
                         self.rows(tables.flavor_tags, 'floor'))

    def test_protection(self) -> None:
        self.turn(Server(), Server(WEB, specs={
            'scavenger:protect': 'false'}))
        self.assertEqual([True, False], self.rows(
            tables.flavor_tags, 'protect'))
        self.assertEqual(0, self.turn(Server(), Server(WEB, specs={
            'scavenger:protect': 'false'})))

    def test_the_same_again_is_no_change(self) -> None:
        """Its age tells how long it has been so."""
        self.turn(Server())
        self.assertEqual(0, self.turn(Server()))
        self.assertEqual([NOW + 60], self.rows(tables.flavor_tags,
                                               'changed_s'))

    def test_another_host(self) -> None:
        self.turn(Server())
        self.assertEqual(1, self.turn(Server(host='node-2')))
        self.assertEqual([(HOG, 'node-2', 'background', 'flavor', '')],
                         self.tags())

    def test_its_server_group(self) -> None:
        self.nova.members = {HOG: 'render', WEB: 'shop'}
        self.turn(Server(), Server(WEB, specs={
            'scavenger:application': 'cart'}))
        self.assertEqual(['render', 'cart'], self.rows(
            tables.flavor_tags, 'application'))

    def test_its_stack(self) -> None:
        """After the flavor and the server group."""
        self.nova.members = {HOG: 'render', CART: 'x' * 200}
        self.turn(Server(stack='s1'), Server(WEB, stack='s1', specs={
            'scavenger:application': 'cart'}), Server(CART, stack='s1'))
        self.assertEqual(['render', 'cart', 's1'], self.rows(
            tables.flavor_tags, 'application'))

    def test_a_stack_says_no_priority(self) -> None:
        self.turn(Server(specs={}, stack='scavenger:priority=background'))
        self.assertEqual([(HOG, HOST, 'foreground', 'default',
                           'scavenger:priority=background')], self.tags())

    def test_only_what_has_changed(self) -> None:
        self.turn(Server())
        began = self.now
        self.turn()
        self.assertEqual([None, began - reconciling.OVERLAP_S],
                         self.nova.asked)
        self.assertEqual(1, len(self.tags()))

    def test_deleted(self) -> None:
        self.turn(Server(), Server(WEB))
        self.turn(Server(deleted=True), Server(WEB, host=''))
        self.assertEqual([], self.tags())

    def test_gone_unnoticed(self) -> None:
        """Nova forgets deleted instances; all are read again at times."""
        self.turn(Server(), Server(WEB))
        read_s = self.now
        self.turn(Server(), after_s=reconciling.WHOLE_S + 1)
        self.assertEqual([None, read_s - reconciling.OVERLAP_S, None],
                         self.nova.asked)
        self.assertEqual([HOG], [one[0] for one in self.tags()])

    def other(self) -> None:
        """The work of another conductor from now on."""
        self.reconciler = self.make_reconciler()

    def test_another_conductor_goes_on(self) -> None:
        """First with what has changed since."""
        self.turn(Server(), Server(WEB))
        read_s = self.now
        self.other()
        self.nova.pages = [lambda: [Server(host='node-2')],
                           lambda: self.fail('it has ended')]
        self.now += 60
        self.nova.found = [Server(WEB, deleted=True)]

        def still() -> None:
            if len(self.tags()) == 1:
                raise errors.Unreachable('it ends')

        self.assertRaises(errors.Unreachable, self.reconciler.turn, still)
        self.assertEqual([None, read_s - reconciling.OVERLAP_S],
                         self.nova.asked)
        self.assertEqual([HOST], [one[1] for one in self.tags()])

    def test_after_an_outage_of_days(self) -> None:
        """What is known counts when all is read, not before."""
        self.turn(Server())
        self.other()
        self.now += 2 * reconciling.FAR_S
        until_s = []

        def read_until() -> float:
            with connect.reading(self.engine) as connection:
                return placed.read_until(connection) or 0.0

        def page() -> list[Server]:
            self.now += 100
            until_s.append(read_until())
            return [Server()]

        self.nova.pages = [page] * 3
        self.turn()
        self.assertEqual(1, len(set(until_s)))
        self.assertGreater(read_until(), until_s[0] + reconciling.FAR_S)

    def test_changes_while_all_is_read(self) -> None:
        """That takes hours where there are many instances."""
        self.turn(Server(), Server(WEB, specs={}))
        began = self.now + reconciling.WHOLE_S
        seen = []

        def page() -> list[Server]:
            self.now += 50
            seen.append([one[:2] for one in self.tags()])
            self.nova.found = [Server(WEB, specs={}, host='node-2')]
            return [Server()]

        self.nova.pages = [page] * 5
        self.nova.asked = []
        self.turn(after_s=reconciling.WHOLE_S)
        self.assertEqual([began - reconciling.WHOLE_S, began, began + 100],
                         [since_s + reconciling.OVERLAP_S
                          for since_s in self.nova.asked if since_s])
        self.assertEqual([(HOG, HOST), (WEB, HOST)], seen[1])
        self.assertEqual([(HOG, HOST), (WEB, 'node-2')], seen[2])

    def test_all_is_read_on_after_a_fault(self) -> None:
        faults = [1]

        def second() -> list[Server]:
            if faults:
                faults.pop()
                raise errors.Unreachable('Nova: HTTP 500')
            return [Server(WEB)]

        first = [Server()]
        self.nova.pages = [lambda: [first.pop()], second]
        self.assertRaises(errors.Unreachable, self.turn)
        self.turn()
        self.assertEqual([HOG, WEB], [one[0] for one in self.tags()])

    def test_a_list_that_fails_again_and_again(self) -> None:
        """It begins again."""
        reads = []

        def first() -> list[Server]:
            reads.append(self.now)
            return [Server()]

        def second() -> list[Server]:
            raise errors.Unreachable('Nova: HTTP 500')

        self.nova.pages = [first, second]
        for _ in range(reconciling.MOST_FAULTS + 1):
            self.assertRaises(errors.Unreachable, self.turn)
        self.assertEqual(2, len(reads))

    def test_many_are_gone(self) -> None:
        """Nova is asked once, and for a few of the rest."""
        names = [f'{number:08d}{HOG[8:]}' for number in range(300)]
        self.turn(*map(Server, names))
        self.nova.deleted = [Server(name, deleted=True)
                             for name in names[:200]]
        for number, left in enumerate((50, 0, 0)):
            self.turn(after_s=0.0 if number else reconciling.WHOLE_S + 1)
            self.assertEqual(left, len(self.tags()))
            self.assertLessEqual(len(self.nova.asked_alone),
                                 reconciling.MOST_ASKED * (number + 1))
        self.assertEqual(names[200:], self.nova.asked_alone)

    def test_server_groups_are_read_once(self) -> None:
        self.nova.members = {HOG: 'render'}
        for specs in ({}, BACKGROUND, {}):
            self.turn(Server(specs=specs))
        self.assertEqual(1, self.nova.groups_read)
        self.turn(Server(), after_s=reconciling.WHOLE_S)
        self.assertEqual(2, self.nova.groups_read)

    def test_the_server_group_of_a_new_instance(self) -> None:
        """One that was there, one that is new, and none."""
        self.nova.members = {HOG: 'render'}
        self.nova.new_groups = [Group('id-shop', 'shop', (WEB,))]
        self.turn(Server())
        for instance, groups, name in (
                (CART, ('id-render',), 'render'), (WEB, ('id-shop',), 'shop'),
                ('no', (), ''), ('old', None, ''), ('gone', ('id-x',), '')):
            new = Server(instance, created_s=self.now)
            self.nova.there = {instance: new._replace(groups=groups)}
            for _ in range(2):
                self.turn(new)
            self.assertEqual([name], [one[4] for one in self.tags()
                                      if one[0] == instance])
            self.assertEqual(1, self.nova.asked_alone.count(instance))
        self.assertEqual(1, self.nova.groups_read)

    def test_many_new_instances(self) -> None:
        """Of which a few are asked for at a time."""
        self.turn()
        new = [Server(f'{number:08d}{HOG[8:]}', created_s=self.now)
               for number in range(120)]
        self.nova.there = {one.id: one._replace(groups=()) for one in new}
        for count in (50, 100, 120, 120):
            self.turn(*new)
            self.assertEqual(count, len(self.nova.asked_alone))
        self.assertEqual(120, len(self.tags()))

    def test_a_cell_that_does_not_answer(self) -> None:
        """Nova leaves its instances out of the list, without a word."""
        for away in (Server(WEB, host='', unknown=True, specs={}), None):
            self.turn(Server(), Server(WEB))
            self.nova.there = {WEB: away}
            for after_s in (reconciling.WHOLE_S + 1, reconciling.AGAIN_S):
                self.turn(Server(), after_s=after_s)
                self.assertIsNone(self.nova.asked[-1])
                self.assertEqual([HOG, WEB], [one[0] for one in self.tags()])
            self.nova.there = {}
            self.turn(Server(), after_s=reconciling.AGAIN_S)
            self.assertEqual([HOG], [one[0] for one in self.tags()])
            self.turn(Server())
            self.assertIsNotNone(self.nova.asked[-1])
        self.assertEqual(2, self.log.output.count(
            'not all instances are in the list of Nova'))

    def test_one_that_the_list_has_missed(self) -> None:
        self.turn(Server(), Server(WEB))
        self.nova.there = {WEB: Server(WEB)}
        self.turn(Server(), after_s=reconciling.WHOLE_S + 1)
        self.assertEqual([HOG, WEB], [one[0] for one in self.tags()])

    def test_no_answer(self) -> None:
        """What is known stays, and the next turn asks for what was missed."""
        self.turn(Server())
        since = self.now
        self.nova.away = True
        self.assertRaises(errors.Unreachable, self.turn)
        self.nova.away = False
        self.turn()
        self.assertEqual(since - reconciling.OVERLAP_S, self.nova.asked[-1])
        self.assertEqual(1, len(self.tags()))

    def told(self, instance: str) -> None:
        """By the broker, that it is background."""
        self.sync(report(workloads=[_vm()], digest='d'))
        self.now += 1
        with connect.writing(self.engine) as connection:
            flavor_tags.take(connection, tag.InstanceTag(
                instance=instance, host=HOST, project='p1',
                priority='background', source='flavor'), self.now)
        self.assertIn(instance, self.still_told())

    def still_told(self) -> list[str]:
        """Those that Nova was not asked for."""
        return [instance for instance, told in self.rows(
            tables.flavor_tags, 'instance', 'from_broker') if told]

    def test_what_only_the_broker_says(self) -> None:
        """Nova is asked for it."""
        self.turn(Server(WEB, specs={}))
        self.told(WEB)
        self.told(HOG)
        self.nova.there = {WEB: Server(WEB, specs={})}
        self.assertEqual(2, self.turn())
        self.assertEqual([(WEB, HOST, 'foreground', 'default', '')],
                         self.tags())
        self.assertEqual([], self.still_told())

    def test_what_nova_says_too(self) -> None:
        """It has changed, or is asked for; its age stays."""
        self.turn()
        self.told(HOG)
        told_s = self.now
        with connect.writing(self.engine) as connection:
            connection.execute(sqlalchemy.update(tables.flavor_tags).values(
                floor={'cpu_cores': 0.5}))
        self.assertEqual(0, self.turn(Server()))
        self.assertEqual([(told_s, False)], self.rows(
            tables.flavor_tags, 'changed_s', 'from_broker'))

    def test_nova_does_not_tell_of_it(self) -> None:
        """The others are asked for first at the next turn."""
        self.turn()
        for away in (None, Server(HOG, unknown=True)):
            self.told(HOG)
            self.told(WEB)
            self.nova.there = {HOG: away}
            self.turn()
            self.assertEqual([HOG, WEB], sorted(self.still_told(),
                                                reverse=True))
            self.turn()
            self.assertEqual([HOG], self.still_told())
        self.nova.there = {}
        self.turn()
        self.assertEqual([], self.tags())

    def test_more_than_it_is_asked_for(self) -> None:
        self.turn()
        for number in range(reconciling.MOST_ASKED + 2):
            self.told(f'{number:08x}-7777-4888-8999-aaaaaaaaaaaa')
        self.turn()
        self.assertEqual(2, len(self.tags()))
        self.turn()
        self.assertEqual([], self.tags())
        self.assertEqual(1, self.log.output.count('see who may write to it'))

    def test_tenants_have_no_say(self) -> None:
        self.nova.members = {WEB: 'scavenger:priority=background'}
        for _ in range(2):
            self.turn(Server(WEB, specs={}, strays=('scavenger:priority',)))
        self.assertEqual('foreground', self.tags()[0][2])
        self.assertEqual(1, self.log.output.count(
            "'scavenger:priority' in its metadata"))
        self.assertEqual(1, self.log.output.count(
            "'scavenger:priority=background' in its metadata"))

    def test_a_flavor_with_mistakes(self) -> None:
        for _ in range(2):
            self.turn(Server(specs={'scavenger:priority': 'batch'}))
        self.assertEqual(1, self.log.output.count(
            "extra spec 'scavenger:priority' = 'batch' of its flavor is "
            'ignored'))

    def test_nothing_said_is_no_tag_for_the_agent(self) -> None:
        self.sync(report(workloads=[_vm()], digest='d'))
        self.turn(Server(specs={}))
        answer = self.sync(report(digest='d'), self.now)
        assert answer.directives is not None
        self.assertEqual([], answer.directives.tags)


class Resumed(Case):

    def test_an_instance_that_was_paused(self) -> None:
        """Its project may resume it: then it counts on its host again."""
        self.add(tables.evictions, uuid='e', instance=HOG, host=HOST,
                 project='p1', how='pause', reason='', created_by='policy',
                 created_s=NOW, state='done', detail='', changed_s=NOW,
                 ended_s=NOW)
        for server, after_s, state in (
                (Server(status='PAUSED'), 900.0, 'done'),
                (Server(busy=True), 60.0, 'done'),
                (Server(id='other'), 60.0, 'done'),
                (Server(), 60.0, 'failed')):
            self.turn(server, after_s=after_s)
            self.assertEqual([state], self.rows(tables.evictions, 'state'))
        self.assertEqual(['eviction.failed'],
                         self.rows(tables.audit, 'action'))

    def test_a_list_that_is_older_than_the_pause(self) -> None:
        self.add(tables.evictions, uuid='e', instance=HOG, host=HOST,
                 project='p1', how='pause', reason='', created_by='policy',
                 created_s=NOW, state='done', detail='', changed_s=NOW,
                 ended_s=NOW)
        self.turn(Server())
        self.assertEqual(['done'], self.rows(tables.evictions, 'state'))


class Elsewhere(Case):
    """Nova has placed the instance on node-2."""

    def setUp(self) -> None:
        super().setUp()
        self.claim()
        self.turn(Server(host='node-2'))

    def claim(self, *entries: wire.AnyEntry) -> wire.Answer:
        """This host says that it has the instance."""
        return self.sync(report(*entries, workloads=[_vm()], digest='d'),
                         self.now)

    def there(self) -> list[str]:
        with connect.reading(self.engine) as connection:
            return list(connection.execute(sqlalchemy.select(
                tables.workloads.c.instance).where(
                    tables.workloads.c.until_s.is_(None))).scalars())

    def test_for_a_while(self) -> None:
        """As in a migration."""
        self.turn(Server(host='node-2'))
        self.claim(cloud.limit(1, workload=HOG))
        self.assertEqual([HOG], self.there())
        self.assertEqual([HOG], self.rows(tables.caps, 'workload'))

    def test_for_long(self) -> None:
        for _ in range(2):
            self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
            answer = self.claim(
                cloud.limit(1, workload=HOG),
                cloud.incident(2, victim=HOG, antagonists=[]),
                cloud.incident(3, number=2, victim='/batch/b',
                               antagonists=[HOG, '/batch/a'], grounds=[
                                   wire.Ground(kind='direct', workload=name)
                                   for name in (HOG, '/batch/a', '')]))
            self.assertEqual('', answer.workloads_digest)
        self.assertEqual(3, answer.acknowledged)
        self.assertEqual([], self.there())
        self.assertEqual([], self.rows(tables.caps, 'workload'))
        self.assertEqual(['/batch/b'], self.rows(tables.incidents, 'victim'))
        self.assertEqual(['/batch/a'], self.rows(tables.suspects, 'workload'))
        self.assertEqual([[{'kind': 'direct', 'workload': '/batch/a'},
                           {'kind': 'direct'}]],
                         self.rows(tables.incidents, 'grounds'))
        self.assertEqual(1, self.log.output.count(
            f'{HOST} says that it runs the instance {HOG}, and Nova that '
            'node-2 does'))
        self.assertEqual(1, self.rows(tables.audit, 'action').count(
            'report.refused'))

    def test_what_is_left_out_has_been_received(self) -> None:
        """A run that ended in a crash, and whose VM Nova rebuilt elsewhere:
        the agent goes on with what follows."""
        self.turn(Server())
        self.claim()
        self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
        self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
        for sequence in range(1, 4):
            answer = self.claim(cloud.limit(sequence, workload=HOG))
            self.assertEqual(sequence, answer.acknowledged)
        self.assertEqual([], self.rows(tables.caps, 'workload'))
        # Also the same again, and nothing at all.
        self.assertEqual(3, self.claim(cloud.limit(
            2, workload=HOG)).acknowledged)
        self.assertEqual(3, self.claim().acknowledged)

    def test_what_the_broker_says_is_no_reason(self) -> None:
        self.turn(Server())
        with connect.writing(self.engine) as connection:
            connection.execute(sqlalchemy.update(tables.flavor_tags).values(
                host='node-2', from_broker=True, changed_s=self.now))
        self.nova.there = {HOG: None}
        for _ in range(3):
            self.turn(after_s=elsewhere.GRACE_S + 1)
            self.claim()
        self.assertEqual([HOG], self.there())

    def test_a_migration_that_takes_long(self) -> None:
        """Nova says where it was until it has ended, and nothing more."""
        self.turn(Server(host='node-2', busy=True))
        for _ in range(3):
            self.turn(after_s=elsewhere.GRACE_S - 1)
            self.claim()
            self.assertEqual([HOG], self.there())
        self.assertNotIn('says that it runs', self.log.output)
        self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
        self.assertEqual([], self.there())

    def test_while_all_is_read(self) -> None:
        """It is refused all the time, though that takes long."""
        self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
        claimed = []

        def page() -> list[Server]:
            self.now += 59
            self.claim()
            claimed.append(self.there())
            return [Server(host='node-2')]

        self.nova.pages = [page] * 15
        self.turn(Server(host='node-2'), after_s=reconciling.WHOLE_S)
        # After an outage of six hours it counts with the first changes.
        self.assertEqual([[]] * 15, claimed)

    def test_a_migration_beside_another_conductor(self) -> None:
        """It has to find out that Nova is working on the instance."""
        self.reconciler = self.make_reconciler()
        moving = Server(host='node-2', busy=True, status='MIGRATING')
        self.nova.pages = [lambda: [moving]]
        self.turn(moving, after_s=elsewhere.GRACE_S + 1)
        self.claim()
        self.assertEqual([HOG], self.there())

    def test_nova_agrees_at_last(self) -> None:
        self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
        self.claim()
        self.turn(Server())
        self.claim()
        self.assertEqual([HOG], self.there())

    def test_what_has_changed_and_each_hour_everything(self) -> None:
        """A turn compares what has changed since the last one; a row that
        looks older than it is, is compared within an hour."""
        hour_s = (self.now // 3600 + 10) * 3600

        def wrong(before_s: float) -> list[str]:
            with connect.writing(self.engine) as connection:
                return [row.instance
                        for row in placed.wrong(connection, before_s)]

        def tell(changed_s: float, host: str) -> None:
            with connect.writing(self.engine) as connection:
                connection.execute(sqlalchemy.update(
                    tables.flavor_tags).values(
                        host=host, short=host, from_broker=False,
                        changed_s=changed_s))

        tell(self.now, HOST)
        self.assertEqual([], wrong(hour_s))
        tell(self.now, 'node-2')
        self.assertEqual([], wrong(hour_s + 60))
        tell(hour_s + 70, 'node-2')
        self.assertEqual([HOG], wrong(hour_s + 120))
        self.assertEqual([HOG], wrong(hour_s + 180))
        tell(self.now, 'node-2')
        self.assertEqual([], wrong(hour_s + 3590))
        self.assertEqual([HOG], wrong(hour_s + 3600))
        # The clock was set back.
        self.assertEqual([HOG], wrong(hour_s))

    def test_not_without_nova(self) -> None:
        """What was known long ago is no reason."""
        self.turn(Server(host='node-2'), after_s=elsewhere.GRACE_S + 1)
        self.now += elsewhere.GRACE_S + 1
        self.claim()
        self.assertEqual([HOG], self.there())

    def test_the_name_with_its_domain(self) -> None:
        self.turn(Server(host=f'{HOST}.example.org'))
        directives = self.claim().directives
        assert directives is not None
        self.assertEqual(1, len(directives.tags))
        self.turn(Server(host=f'{HOST}.example.org'),
                  after_s=2 * elsewhere.GRACE_S)
        self.claim()
        self.assertEqual([HOG], self.there())


def _vm() -> wire.Workload:
    return wire.Workload(id=HOG, priority='foreground', kind='instance',
                         instance=HOG, project='p1')
