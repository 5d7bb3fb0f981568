# SPDX-License-Identifier: Apache-2.0

"""Evictions, from what is asked for to what Nova made of it."""

from __future__ import annotations

from collections.abc import Mapping
import shlex
from typing import Any
from typing import cast
from typing import NamedTuple

import fixtures

from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor.nova import evicting
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.wire import report as wire

WEB = '11111111-2222-4333-8444-555555555555'
HOG = '66666666-7777-4888-8999-aaaaaaaaaaaa'


class Server(NamedTuple):
    host: str = HOST
    status: str = 'ACTIVE'
    busy: bool = False
    specs: Mapping[str, str] = {}
    unknown: bool = False
    project: str = 'p1'


class Nova:
    """One instance, and what it was asked to do."""

    def __init__(self) -> None:
        self.found: Server | None = Server()
        self.asked: list[tuple[str, str]] = []
        self.fault: BaseException | None = None
        self.away: set[str] = set()
        """Instances that Nova has a fault at."""

    def server(self, instance: str) -> Server | None:
        if instance in self.away:
            raise errors.Unreachable('Nova: HTTP 500')
        return self.found

    def act(self, instance: str, how: str) -> None:
        self.asked.append((instance, how))
        if self.fault:
            raise self.fault


class Evicting(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.nova = Nova()
        self.step_s = 0.0
        self.work = evicting.Evicting(
            self.engine, cast(Any, self.nova), lambda: self.now + self.step_s,
            lambda: self.now, lambda *moved: self.moved.append(moved))
        self.moved: list[tuple[str, str]] = []
        self.says('background', 'parent')

    def says(self, priority: str, source: str, host: str = HOST) -> None:
        """The agent, of the instance."""
        self.sync(cloud.report(
            host=host, digest=priority + source, workloads=[
                wire.Workload(
                    id='hog', priority=priority,  # type: ignore[arg-type]
                    kind='instance', instance=HOG, project='p1',
                    source=source)]),
            self.now)

    def rule(self, scope: str, target: str, value: str,
             kind: str = 'priority') -> None:
        """Of an operator."""
        self.add(tables.rules, uuid=f'{scope:0>32}', kind=kind, scope=scope,
                 target=target, value=value, application='',
                 reason='because', created_by='ann', created_s=NOW)

    def ask(self, how: str = 'stop', **more: Any) -> None:
        self.add(tables.evictions, **{
            'uuid': 'e' * 32, 'instance': HOG, 'host': HOST, 'project': 'p1',
            'how': how, 'reason': 'it disturbs', 'created_by': 'ann',
            'created_s': NOW, 'state': 'asked', 'detail': '',
            'changed_s': NOW, **more})

    def turn(self, found: Server | None = None) -> tuple[str, str]:
        """State and detail after a turn.

        :param found: how the instance is by now
        """
        if found is not None:
            self.nova.found = found
        self.now += 2.0
        self.work.turn(lambda: None)
        [row] = self.rows(tables.evictions, 'state', 'detail')
        return row

    def audit(self) -> list[str]:
        return self.rows(tables.audit, 'action')

    def test_until_it_is_done(self) -> None:
        for how, status in (('stop', 'SHUTOFF'), ('pause', 'PAUSED'),
                            ('shelve', 'SHELVED_OFFLOADED')):
            self.ask(how)
            self.assertEqual('doing', self.turn(Server())[0])
            self.assertEqual('doing', self.turn(Server(busy=True))[0])
            self.assertEqual(('done', f'its status is {status}'),
                             self.turn(Server(status=status)))
            self.assertEqual((HOG, how), self.nova.asked[-1])
            self.delete(tables.evictions)
        self.assertEqual(3, len(self.nova.asked))
        self.assertEqual(['eviction.done'] * 3, self.audit())
        self.assertEqual([(how, state) for how in ('stop', 'pause', 'shelve')
                          for state in ('sending', 'doing', 'done')],
                         self.moved)

    def test_text_of_others_in_log_and_audit(self) -> None:
        """Of Nova, of Keystone, and of a row of the database."""
        odd = 'x\nERROR\x1b[31m\u2028\u202ey'
        self.ask(created_by=odd)
        self.nova.fault = errors.Unreachable(f'Nova: {odd}')
        self.turn(Server())
        self.ask(uuid='f' * 32, instance="a'b;id", state='doing')
        self.work.turn(lambda: None)
        self.nova.found = Server(host=odd, status=odd)
        self.work.turn(lambda: None)
        details = self.rows(tables.evictions, 'detail')
        self.assertIn('x\\nERROR', details[0])
        self.assertIn(shlex.quote("a'b;id"), details[1])
        for text in (*details, *self.rows(tables.audit, 'reason'),
                     self.log.output.replace('\n', '')):
            self.assertTrue(text.isprintable(), text)
        self.assertNotIn('\nERROR', self.log.output)

    def test_a_conductor_that_ends_while_nova_answers(self) -> None:
        """Nothing has been asked for: the next conductor does it."""
        self.ask()
        looks: list[int] = []

        def still() -> None:
            looks.append(1)
            if len(looks) == 2:
                raise leader.Lost

        self.assertRaises(leader.Lost, self.work.turn, still)
        self.assertEqual([('asked', '')], self.rows(
            tables.evictions, 'state', 'detail'))
        self.assertEqual([], self.nova.asked)
        self.assertEqual('doing', self.turn()[0])

    def test_moved(self) -> None:
        self.ask('live-migrate')
        self.turn()
        self.assertEqual(('done', 'it is on node-2 now'),
                         self.turn(Server(host='node-2')))

    def test_not_moved(self) -> None:
        """Nova gave up, as where no host takes it."""
        self.ask('live-migrate')
        self.turn()
        state, detail = self.turn(Server())
        self.assertEqual('failed', state)
        self.assertIn('openstack server event list', detail)
        self.assertEqual(['eviction.failed'], self.audit())
        self.assertIn('failed', self.log.output)

    def test_not_moved_by_another_name_of_its_host(self) -> None:
        self.ask('live-migrate')
        self.turn(Server(host=f'{HOST}.example.org'))
        self.assertEqual('failed', self.turn()[0])

    def test_its_cell_does_not_answer(self) -> None:
        """Nova may go on with it."""
        self.ask()
        self.turn()
        self.assertEqual('doing', self.turn(Server(
            host='', status='UNKNOWN', unknown=True))[0])
        self.assertEqual('done', self.turn(Server(status='SHUTOFF'))[0])

    def test_its_cell_does_not_answer_yet(self) -> None:
        """Where it is is not known: Nova is asked when the cell is back."""
        self.ask()
        self.assertRaises(errors.Unreachable, self.turn, Server(
            host='', status='UNKNOWN', unknown=True))
        self.assertEqual(['asked'], self.rows(tables.evictions, 'state'))
        self.assertEqual('doing', self.turn(Server())[0])

    def test_deleted_meanwhile(self) -> None:
        self.ask()
        self.turn()
        self.nova.found = None
        self.assertEqual(('done', 'the instance was deleted'), self.turn())

    def test_nova_refuses(self) -> None:
        self.ask()
        self.nova.fault = errors.Unreachable('Nova: conflict')
        self.assertEqual(('failed', 'Nova: conflict'), self.turn())
        self.turn()
        self.assertEqual(1, len(self.nova.asked))

    def test_what_is_never_asked(self) -> None:
        """Whatever its agent says."""
        for server, why in (
                (Server(host='node-2'), f'{HOST} says that it has it'),
                (Server(specs={'scavenger:priority': 'foreground'}),
                 'its flavor says foreground'),
                (Server(busy=True), 'Nova does something else with it')):
            self.ask()
            state, detail = self.turn(server)
            self.assertEqual('failed', state)
            self.assertIn(why, detail)
            self.delete(tables.evictions)
        self.assertEqual([], self.nova.asked)

    def test_foreground_since_it_was_asked_for(self) -> None:
        background = {'scavenger:priority': 'background'}

        def of_operator() -> None:
            self.rule('instance', HOG, 'foreground')

        def of_project() -> None:
            self.rule('project', 'p1', 'foreground')

        def of_agent() -> None:
            self.says('foreground', 'default')

        def nothing() -> None:
            pass

        def gone() -> None:
            self.sync(cloud.report(digest='none', workloads=[]), self.now)

        for source, change, specs, why in (
                ('flavor', of_operator, background,
                 'the instance was given the priority foreground'),
                ('override', of_project, {},
                 'the project was given the priority foreground'),
                ('flavor', of_agent, background,
                 f'{HOST} says that it is foreground by now'),
                ('flavor', nothing, {},     # it was resized
                 'its flavor does not say any more'),
                ('override', nothing, {},   # a rule was deleted
                 'its override does not say any more'),
                ('flavor', gone, background, 'no host reports it any more')):
            self.says('background', source)
            self.ask()
            change()
            state, detail = self.turn(Server(specs=specs))
            self.assertEqual('failed', state)
            self.assertIn(why, detail)
            self.delete(tables.evictions)
            self.delete(tables.rules)
        self.assertEqual([], self.nova.asked)

    def test_another_host_says_that_it_is_background(self) -> None:
        """Later, and by another name of its host."""
        other = f'{HOST}.example.org'
        self.says('foreground', 'default')
        self.says('background', 'default', host=other)
        self.ask(host=other)
        state, detail = self.turn()
        self.assertEqual('failed', state)
        self.assertIn('says that it is foreground', detail)
        self.assertEqual([], self.nova.asked)

    def test_its_project_is_what_nova_says(self) -> None:
        self.rule('project', 'p2', 'foreground')
        self.ask()
        state, detail = self.turn(Server(project='p2'))
        self.assertEqual('failed', state)
        self.assertIn('the project was given the priority', detail)
        self.assertEqual([], self.nova.asked)

    def test_what_the_policy_does_not_want_any_more(self) -> None:
        """What an operator asked for is done all the same."""
        def exempt() -> None:
            self.rule('project', 'p1', '', kind='exemption')

        def switch_off() -> None:
            self.add(tables.switches, scope='cloud', target='',
                     protection=False, reason='an incident', changed_by='op',
                     changed_s=NOW)

        for change, why in ((exempt, 'it is exempt by now'),
                            (switch_off,
                             'switched off for the cloud: an incident')):
            self.ask(created_by='policy')
            change()
            self.assertEqual(('failed', why), self.turn())
            self.assertEqual([], self.nova.asked)
            self.delete(tables.evictions)
            self.ask()
            self.assertEqual('doing', self.turn()[0])
            self.nova.asked.clear()
            for table in (tables.evictions, tables.rules, tables.switches):
                self.delete(table)

    def test_background_as_it_was(self) -> None:
        for source, specs in (
                ('flavor', {'scavenger:priority': 'background'}),
                ('override', {}), ('parent', {})):
            self.rule('project', 'p1', 'background')
            self.says('background', source)
            self.ask()
            self.assertEqual('doing', self.turn(Server(specs=specs))[0])
            self.delete(tables.evictions)
            self.delete(tables.rules)

    def test_the_conductor_died_while_it_asked(self) -> None:
        """It is not asked twice."""
        self.ask()
        self.nova.fault = KeyboardInterrupt()
        self.assertRaises(KeyboardInterrupt, self.turn)
        self.nova.fault = None
        state, detail = self.turn()
        self.assertEqual('failed', state)
        self.assertIn('which may have done it', detail)
        self.assertEqual(1, len(self.nova.asked))

    def test_nova_hangs(self) -> None:
        self.ask()
        self.turn()
        self.now += evicting.GIVE_UP_S
        self.assertEqual('failed', self.turn(Server(busy=True))[0])

    def test_one_that_nova_has_a_fault_at(self) -> None:
        """It keeps no other one waiting, and ends."""
        self.ask(instance=WEB, uuid='f' * 32)
        self.ask()
        self.nova.away = {WEB}
        for _ in range(2):
            self.now += 2.0
            self.work.turn(lambda: None)
            self.nova.found = Server(busy=True)
        self.assertEqual(['asked', 'doing'],
                         self.rows(tables.evictions, 'state'))
        self.now += evicting.WAIT_S
        self.work.turn(lambda: None)
        self.assertIn('could not be asked in 10 minutes',
                      self.rows(tables.evictions, 'detail')[0])
        self.assertEqual([(HOG, 'stop')], self.nova.asked)

    def test_several_that_nova_has_a_fault_at(self) -> None:
        """They keep no other one waiting, in whatever order they are."""
        self.nova.away = {f'{WEB[:-1]}{number}' for number in range(
            2 * evicting.MOST_FAULTS)}
        for number, instance in enumerate(sorted(self.nova.away)):
            self.ask(uuid=f'{number:032x}', instance=instance)
        self.ask()
        for _ in range(3):
            try:
                self.work.turn(lambda: None)
            except errors.Unreachable:
                pass
        self.assertEqual([(HOG, 'stop')], self.nova.asked)

    def test_no_nova(self) -> None:
        self.ask()
        self.nova.away = {HOG}
        self.assertRaises(errors.Unreachable, self.turn)
        self.assertEqual(['asked'], self.rows(tables.evictions, 'state'))

    def test_a_clock_that_is_set(self) -> None:
        """No eviction fails because of it, in whatever state it is."""
        self.turn_none()
        for step_s in (60.0, -60.0, 3600.0, -3600.0, 32 * 86400.0,
                       -32 * 86400.0):
            self.ask(created_s=self.now, changed_s=self.now)
            self.nova.away = {HOG}
            for self.step_s in (step_s, 0.0, step_s):
                self.assertRaises(errors.Unreachable, self.turn)
            self.nova.away = set()
            self.assertEqual('doing', self.turn(Server())[0])
            for self.step_s in (0.0, step_s, 0.0):
                self.assertEqual('doing', self.turn(Server(busy=True))[0])
            self.assertEqual('done', self.turn(Server(status='SHUTOFF'))[0])
            self.delete(tables.evictions)
            self.nova.found = Server()

    def turn_none(self) -> None:
        """One turn with nothing to do."""
        self.assertEqual(0, self.work.turn(lambda: None))

    def test_too_late(self) -> None:
        """An hour without Nova, or without a conductor."""
        self.ask()
        self.now += evicting.WAIT_S
        self.assertEqual('failed', self.turn()[0])
        self.assertEqual([], self.nova.asked)

    def test_what_nova_made_of_it_is_not_known(self) -> None:
        self.ask()
        self.turn()
        self.nova.away = {HOG}
        self.assertRaises(errors.Unreachable, self.turn)
        self.now += evicting.GIVE_UP_S
        state, detail = self.turn()
        self.assertEqual('failed', state)
        self.assertIn('it does not answer', detail)
