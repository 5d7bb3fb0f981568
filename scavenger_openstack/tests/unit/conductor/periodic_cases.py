# SPDX-License-Identifier: Apache-2.0

"""Work that one of all conductors does from time to time, on any database."""

from __future__ import annotations

from collections.abc import Generator

import sqlalchemy

from scavenger_openstack.conductor import periodic
from scavenger_openstack.conductor import upkeep
from scavenger_openstack.db import placed
from scavenger_openstack.db import purge
from scavenger_openstack.db.resources import audit
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import report as wire

DAY_S = 86400.0
MONTH_S = 30 * DAY_S


class Periodic(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.now = NOW
        self.stopped = False
        self.passed_s = 0.0

    def work(self, holder: str, *took_s: float) -> periodic.Periodic:
        """Work in steps that take so long; due again after an hour."""

        def steps(now: float) -> Generator[int, None, None]:
            for each in took_s:
                self.now += each
                yield 1

        return periodic.Periodic(
            self.engine, 'work', holder, lambda: self.now,
            lambda: self.stopped, steps, lambda now: now + 3600,
            elapsed=lambda: self.passed_s)

    def test_the_claim_is_extended(self) -> None:
        """However long the work takes; none does it again meanwhile."""
        other = self.work('other', 1.0)
        had: list[int | None] = []

        def steps(now: float) -> Generator[int, None, None]:
            for _ in range(6):
                self.passed_s += 100
                had.append(other.turn())
                yield 1

        many = periodic.Periodic(
            self.engine, 'work', 'one', lambda: self.now, lambda: False,
            steps, lambda now: now + 3600, elapsed=lambda: self.passed_s)
        self.assertEqual(6, many.turn())
        self.assertEqual([None] * 6, had)

    def test_it_is_due_again(self) -> None:
        """In whatever conductor; a clock that was ahead keeps none back."""
        work, other = self.work('one', 1.0), self.work('other', 1.0)
        for step_s in (0.0, 32 * DAY_S, -32 * DAY_S):
            self.now = NOW + step_s
            self.assertEqual(1, work.turn(), str(step_s))
            self.assertIsNone(work.turn())
            self.now += 3590
            self.assertIsNone(work.turn())
        work.release()
        self.assertIsNone(other.turn())
        self.now += 20
        self.assertEqual(1, other.turn())

    def test_it_stops_between_two_steps(self) -> None:
        """As its process ends; another conductor may go on at once."""
        self.stopped = True
        self.assertEqual(1, self.work('one', 5.0, 5.0, 5.0).turn())
        self.stopped = False
        self.assertEqual(2, self.work('other', 1.0, 1.0).turn())

    def test_a_claim_that_is_lost(self) -> None:
        """Say, after a step that took an hour."""
        other = self.work('other', 1.0)

        def steps(now: float) -> Generator[int, None, None]:
            self.assertIsNone(other.turn())
            self.passed_s += 3600
            self.assertEqual(1, other.turn())
            yield 1
            raise AssertionError('a step of the work of another one')

        self.assertEqual(1, periodic.Periodic(
            self.engine, 'work', 'one', lambda: self.now, lambda: False,
            steps, lambda now: now + 3600,
            elapsed=lambda: self.passed_s).turn())

    def test_deleting_stops(self) -> None:
        """After one of its transactions."""
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.insert(tables.audit), [
                {'time_s': NOW - 40 * DAY_S, 'actor': 'a', 'action': 'b',
                 'target': 'c', 'reason': ''}
                for _ in range(purge.BATCH + 2)])
        work = upkeep.make_purging(
            self.engine, 'one', lambda: self.now, lambda: self.stopped,
            days=0, audit_days=30, rows=0)
        self.stopped = True
        self.assertEqual(purge.BATCH, work.turn())
        self.assertEqual(2, len(self.rows(tables.audit)))
        self.stopped = False
        self.assertEqual(2, work.turn())

    def test_the_audit_is_kept_for_longer(self) -> None:
        for days in (2, 100, 400):
            self.add(tables.audit, time_s=NOW - days * DAY_S, actor='a',
                     action='b', target=f'{days}', reason='')
        upkeep.make_purging(
            self.engine, 'one', lambda: self.now, bool, days=30,
            audit_days=365, rows=0).turn()
        self.assertEqual(['2', '100'], self.rows(tables.audit, 'target'))

    def test_a_flood_of_agents_leaves_what_operators_did(self) -> None:
        def put(number: int) -> None:
            with self.engine.begin() as connection:
                audit.add(connection, time_s=NOW - 1000.0 + number,
                          actor='admin', project='', request_id='',
                          action='protection.set', target=f'host/{number}',
                          before=None, after=None, reason='')

        for number in range(5):
            put(number)
        for number in range(20):
            self.sync(report(*(
                wire.AgentEvent(sequence=500 * number + one, time_s=NOW - 500,
                                what='state') for one in range(1, 501)),
                sent_s=NOW + number), NOW + number)
        self.assertEqual(10_005, len(self.rows(tables.audit, 'id')))
        put(5)
        self.now = NOW + 60
        for rows, admins, agents in ((100, 6, 100), (4, 4, 4)):
            work = upkeep.make_purging(
                self.engine, 'one', lambda: self.now, bool, days=0,
                audit_days=0, rows=rows)
            work.turn()
            work.release()
            self.now += 7200
            with self.engine.begin() as connection:
                for by_agent, there in ((False, admins), (True, agents)):
                    self.assertEqual(there, len(audit.page(
                        connection, by_agent=by_agent, limit=20_000)))
        self.assertEqual(
            [f'host/{number}' for number in range(2, 6)],
            [target for target in self.rows(tables.audit, 'target')
             if target != cloud.HOST])

    def test_what_is_kept_of_instances_that_are_gone(self) -> None:
        """Flavors and rules of instances that no host has had for so long;
        while Nova is read it says what flavors say."""
        self.sync(report(workloads=[vm('here')], digest='1'), NOW)
        for name in ('here', 'gone'):
            self.add(tables.flavor_tags, instance=f'u-{name}', host='node-1',
                     project='p1', priority='background', source='flavor',
                     application='', floor={}, protect=True, changed_s=NOW,
                     from_broker=False)
            for kind in ('priority', 'exemption'):
                self.add(tables.rules, uuid=f'{kind}-{name}', kind=kind,
                         scope='instance', target=f'u-{name}',
                         value='background', reason='', created_by='op',
                         created_s=NOW)
        self.add(tables.rules, uuid='p', kind='priority', scope='project',
                 target='u-gone', value='background', reason='',
                 created_by='op', created_s=NOW)
        work = upkeep.make_purging(
            self.engine, 'one', lambda: self.now, bool,
            lambda: self.now, days=30,
            audit_days=365, rows=0)
        self.now = NOW + 29 * DAY_S
        self.assertEqual(0, work.turn())
        self.now = NOW + MONTH_S + 60
        with self.engine.begin() as connection:
            placed.read_now(connection, self.now + 300)
        self.assertEqual(0, work.turn())
        self.assertEqual(2, len(self.rows(tables.flavor_tags)))
        self.now += 7200
        self.assertEqual(3, work.turn())
        self.assertEqual(['u-here'], self.rows(tables.flavor_tags,
                                               'instance'))
        self.assertEqual(
            [('instance', 'u-here'), ('instance', 'u-here'),
             ('project', 'u-gone')],
            self.rows(tables.rules, 'scope', 'target'))
        self.assertEqual(
            [('exemption.delete', 'instance/u-gone'),
             ('priority.delete', 'instance/u-gone')],
            sorted(self.rows(tables.audit, 'action', 'target')))

    def test_rows_are_counted_once(self) -> None:
        """Not before each transaction: that reads all of them.  Of the audit
        those of agents and the others."""
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.insert(tables.audit), [
                {'time_s': NOW - 1, 'actor': 'a', 'action': 'b',
                 'target': 'c', 'reason': ''} for _ in range(40)])
        counted: list[str] = []

        def before(connection: object, cursor: object, statement: str,
                   *more: object) -> None:
            if 'count(' in statement and 'audit' in statement:
                counted.append(statement)

        sqlalchemy.event.listen(self.engine, 'before_cursor_execute', before)
        self.addCleanup(sqlalchemy.event.remove, self.engine,
                        'before_cursor_execute', before)
        self.assertEqual(30, sum(purge.trim(
            self.engine, now_s=NOW, rows=10, batch=3)))
        self.assertEqual(2, len(counted))
