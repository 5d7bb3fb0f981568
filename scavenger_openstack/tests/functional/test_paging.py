# SPDX-License-Identifier: Apache-2.0


"""Pages are complete, and read only what they show, on each database."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any
from typing import get_args

import sqlalchemy

from scavenger_openstack.db import connect
from scavenger_openstack.db import paging
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources import incidents
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import reads

I = tables.incidents.c      # noqa: E741
ROWS = 4000
LIMIT = 20
READ = 5 * LIMIT
"""Of fewer rows than that a database may read all and sort them: it goes by
statistics, which are drawn by lot."""


class Paging(databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        chosen = random.Random(1)
        with connect.writing(self.engine) as connection:
            for number in range(3):
                connection.execute(tables.hosts.insert().values(
                    name=f'h{number}', facts={}, settings={},
                    first_seen_s=0.0, last_seen_s=0.0))
            hosts = list(connection.scalars(sqlalchemy.select(
                tables.hosts.c.id)))
            # Hosts evenly, one cause only long ago, one project in half of
            # all; times in no order, many of them equal.
            connection.execute(tables.incidents.insert(), [
                {'host_id': hosts[number % 3], 'uuid': f'{number}',
                 'victim': f'v{number % 100}',
                 'project': 'half' if number % 2 else f'p{number % 50}',
                 'signal': 'cpi', 'action': '', 'evidence': [],
                 'cause': 'old' if number < ROWS / 5 else 'new',
                 'outcome': 'confirmed', 'changed_s': 0.0,
                 'begun_s': float(number // 7 + chosen.randrange(5))}
                for number in range(ROWS)])
            self.rows = sorted(
                (row._asdict() for row in connection.execute(
                    sqlalchemy.select(*I))),
                key=lambda row: (-row['begun_s'], -row['id']))
        if self.engine.dialect.name != 'sqlite':
            reads.analyze(self.engine, 'incidents')

    def expected(self, wanted: dict[Any, Any], since: float | None,
                 until: float | None) -> list[int]:
        return [row['id'] for row in self.rows
                if all(row[column.name] == value
                       for column, value in wanted.items())
                and (since is None or row['begun_s'] >= since)
                and (until is None or row['begun_s'] < until)]

    def wishes(self) -> list[dict[Any, Any]]:
        host = self.rows[0]['host_id']
        return [{}, {I.host_id: host}, {I.project: 'half'},
                {I.project: 'p4'}, {I.project: 'none'}, {I.cause: 'old'},
                {I.outcome: 'confirmed'}, {I.victim: 'v7'},
                {I.victim: 'v7', I.cause: 'old'},
                {I.host_id: host, I.outcome: 'confirmed'},
                {I.signal: 'cpi'}]

    def test_pages_are_complete(self) -> None:
        times = {row['id']: row['begun_s'] for row in self.rows}
        with connect.reading(self.engine) as connection:
            for wanted, (since, until) in itertools.product(
                    self.wishes(), [(None, None), (200.0, None),
                                    (None, 300.0), (100.0, 101.0)]):
                found: list[int] = []
                after = None
                while True:
                    page = paging.newest(
                        connection, tables.incidents, wanted, by=I.begun_s,
                        since=since, until=until, after=after, limit=300)
                    if not page:
                        break
                    found += page
                    after = (times[page[-1]], page[-1])
                self.assertEqual(self.expected(wanted, since, until), found,
                                 f'{wanted} {since} {until}')

    def test_by_id_alone(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(tables.audit.insert(), [
                {'time_s': 1.0, 'actor': 'a', 'action': f'do{number % 3}',
                 'target': 't', 'reason': 'r'} for number in range(30)])
            found: list[int] = []
            while page := paging.newest(
                    connection, tables.audit, {tables.audit.c.action: 'do1'},
                    where=[tables.audit.c.actor == 'a'], limit=4,
                    after=found[-1:] or None):
                found += page
            self.assertEqual(
                sorted(connection.scalars(sqlalchemy.select(
                    tables.audit.c.id).where(
                        tables.audit.c.action == 'do1')), reverse=True),
                found)

    def test_rows_that_are_deleted_while_a_page_is_read(self) -> None:
        """It is as long as it was: a shorter one would be the last."""
        if self.engine.dialect.name == 'sqlite':
            self.skipTest('a transaction of SQLite reads what was there')
        newest = [row['id'] for row in self.rows[:3]]

        def listen(*statement: Any) -> None:
            if len(statements) == 1:    # the ids are known, the rows not
                with connect.writing(self.engine) as other:
                    other.execute(tables.incidents.delete().where(
                        I.id.in_(newest)))
            statements.append(statement)

        statements: list[Any] = []
        with connect.reading(self.engine) as connection:
            sqlalchemy.event.listen(connection, 'before_cursor_execute',
                                    listen)
            page = incidents.page(connection, limit=LIMIT)
        self.assertEqual(self.expected({}, None, None)[3:3 + LIMIT],
                         [row['id'] for row in page])

    def test_those_that_are_over_and_those_that_are_not(self) -> None:
        """By id, or by when they ended."""
        chosen = random.Random(3)
        table, host = tables.workloads, self.rows[0]['host_id']
        with connect.writing(self.engine) as connection:
            connection.execute(table.insert(), [
                {'host_id': host, 'name': f'w{number}', 'kind': 'instance',
                 'priority': 'background', 'vcpus': 1.0, 'floor': {},
                 'since_s': 0.0, 'until_s': chosen.choice(
                     (None, float(chosen.randrange(9))))}
                for number in range(60)])
            for over in (False, True):
                found: list[int] = []
                while page := paging.newest(
                        connection, table, {table.c.host_id: host}, limit=7,
                        ended=table.c.until_s, over=over,
                        after=found[-1:] or None):
                    found += page
                until_s = table.c.until_s
                wanted = list(connection.scalars(sqlalchemy.select(
                    table.c.id).where(
                        until_s.is_not(None) if over else until_s.is_(None))
                    .order_by(*[until_s.desc()] * over, table.c.id.desc())))
                self.assertEqual(wanted, found)
            connection.execute(table.delete().where(
                table.c.id == wanted[10]))
            self.assertEqual([], paging.newest(
                connection, table, {}, limit=7, ended=until_s, over=True,
                after=wanted[10:11]))

    def test_what_a_page_reads(self) -> None:
        """Of each filter alone, with each part of the time, anywhere."""
        if self.engine.dialect.name == 'sqlite':
            self.skipTest('SQLite does not count what it reads')
        last_s = self.rows[0]['begun_s']
        with connect.reading(self.engine) as connection:
            for wanted, (since, until), part in itertools.product(
                    [wish for wish in self.wishes()
                     if len(wish) < 2 and I.signal not in wish],
                    [(None, None), (last_s - 1, None), (None, 100.0)],
                    (None, 0.3, 0.9)):
                after = None
                if part is not None:
                    row = self.rows[int(part * ROWS)]
                    after = (row['begun_s'], row['id'])
                self.assertLess(
                    reads.rows(connection, functools.partial(
                        paging.newest, connection, tables.incidents, wanted,
                        by=I.begun_s, since=since, until=until, after=after,
                        limit=LIMIT)),
                    READ, f'{wanted} {since} {until} {part}')

    def test_what_a_page_of_a_ranking_reads(self) -> None:
        """However many antagonists there are, by each order and filter."""
        if self.engine.dialect.name == 'sqlite':
            self.skipTest('SQLite does not count what it reads')
        hosts = sorted({row['host_id'] for row in self.rows})
        chosen = random.Random(2)
        with connect.writing(self.engine) as connection:
            connection.execute(tables.antagonist_totals.insert(), [
                {'host_id': hosts[number % 3], 'workload': f'w{number}',
                 'span_s': span_s, 'scope': scope,
                 'interference_ms': chosen.randrange(10_000),
                 'incidents': chosen.randrange(9),
                 'victims': chosen.randrange(3), 'confirmed': 0}
                for number in range(ROWS // 4) for span_s in totals.SPANS_S
                for scope in (totals.ALL, totals.by_project('p'),
                              totals.by_victims(f'p{number % 2}'))])
        reads.analyze(self.engine, 'antagonist_totals')
        with connect.reading(self.engine) as connection:
            for span_s, more, sort, part in itertools.product(
                    totals.SPANS_S, ({}, {'project': 'p'},
                                     {'victim_project': 'p1'}),
                    get_args(antagonists.Sort), (None, 0.3, 0.9)):
                page = functools.partial(
                    antagonists.ranking, connection, antagonists.Span(
                        0.0, 0.0, total_s=span_s, **more), sort=sort)
                whole = page(limit=ROWS)
                after = None if part is None else whole[
                    int(part * len(whole))]
                self.assertLess(
                    reads.rows(connection, functools.partial(
                        page, after=after, limit=LIMIT)),
                    4 * LIMIT, f'{span_s} {more} {sort} {part}')


class OnSqlite(Paging, databases.Sqlite):
    pass


class OnMariaDb(Paging, databases.MariaDb):
    pass


class OnPostgreSql(Paging, databases.PostgreSql):
    pass
