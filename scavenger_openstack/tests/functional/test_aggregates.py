# SPDX-License-Identifier: Apache-2.0

"""Host aggregates of Nova and of operators, on each database."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import re
import threading
from typing import Any

import sqlalchemy
from sqlalchemy import event

from scavenger_openstack.db import connect
from scavenger_openstack.db import directives
from scavenger_openstack.db import enrollment
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import managing
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor import aggregates_cases
from scavenger_openstack.tests.unit.conductor.cloud import NOW

WAITS_S = 1.0
"""After it what has not ended is taken to wait for a lock."""


class OnServers(aggregates_cases.Aggregates):
    """What an operator changes while what Nova has is written, and the other
    way round.  On SQLite no two transactions write at the same time."""

    @contextlib.contextmanager
    def meanwhile(self, table: str, work: Callable[[], object], *,
                  locked: bool) -> Iterator[None]:
        """Begin ``work`` elsewhere before the first statement that writes to
        a table, or before the first that locks rows of it; it may have to
        wait for the end of the transaction."""
        first = rf'^(INSERT INTO|UPDATE|DELETE FROM) {table}\b'
        if not locked:
            first += rf'|\b{table}\b.* FOR UPDATE'
        thread = threading.Thread(target=work)

        def begin(connection: Any, cursor: Any, statement: str, *more: Any
                  ) -> None:
            if thread.ident is None and re.search(first, statement, re.S):
                thread.start()
                thread.join(WAITS_S)

        event.listen(self.engine, 'before_cursor_execute', begin)
        try:
            yield
        finally:
            event.remove(self.engine, 'before_cursor_execute', begin)
        thread.join()

    def test_an_operator_meanwhile(self) -> None:
        """What an operator names is kept, also a host that both have."""
        for locked in (False, True):
            name = f'rack-{locked}'
            self.turn(aggregates_cases.Aggregate(name, ('h1',)))
            with self.meanwhile('aggregate_hosts', functools.partial(
                    self.named, name, 'h1', 'h2'), locked=locked):
                self.turn(aggregates_cases.Aggregate(name, ('h2', 'h3')))
            self.assertEqual(
                (frozenset(('h1', 'h2')), frozenset(('h2', 'h3'))),
                self.members(name))

    def test_nova_meanwhile(self) -> None:
        """A host that an operator names leaves the aggregate in Nova."""
        for locked in (False, True):
            name = f'rack-{locked}'
            self.turn(aggregates_cases.Aggregate(name, ('h1',)))
            with self.meanwhile('aggregate_hosts', functools.partial(
                    self.turn, aggregates_cases.Aggregate(name, ('h2',))),
                    locked=locked):
                self.named(name, 'h1')
            self.assertEqual((frozenset(('h1',)), frozenset(('h2',))),
                             self.members(name))

    def test_an_operator_unsets_meanwhile(self) -> None:
        """A host that an operator no longer names comes into the aggregate
        in Nova."""
        for locked in (False, True):
            name = f'rack-{locked}'
            self.named(name, 'h1')
            with self.meanwhile('aggregate_hosts', functools.partial(
                    self.named, name), locked=locked):
                self.turn(aggregates_cases.Aggregate(name, ('h1',)))
            self.assertEqual((frozenset(), frozenset(('h1',))),
                             self.members(name))

    def test_the_rule_of_an_operator_meanwhile(self) -> None:
        """It stays what the operator set, whatever becomes of Nova's."""
        for wanted in (aggregates_cases.BACKGROUND, {}):
            for locked in (False, True):
                self.turn(aggregates_cases.Aggregate(
                    metadata=aggregates_cases.FOREGROUND))
                with self.meanwhile('rules', functools.partial(
                        self.rule, 'aggregate', 'rack', 'foreground'),
                        locked=locked):
                    self.turn(aggregates_cases.Aggregate(metadata=wanted))
                self.assertEqual({'rack': ('foreground', 'admin')},
                                 self.priorities())
                self.delete(tables.rules)

    def members(self, name: str) -> aggregates.Members:
        with connect.reading(self.engine) as connection:
            return aggregates.members(connection)[name]


class OnMariaDb(OnServers, databases.MariaDb):
    pass


class OnPostgreSql(OnServers, databases.PostgreSql):
    pass


class Manage(managing.Command):

    def test_of_operators(self) -> None:
        code, out, err = self.command(self.url, 'aggregate', 'list')
        self.assertEqual((0, ''), (code, out))
        self.assertIn('no aggregate has a host', err)
        with connect.writing(self.engine) as connection:
            enrollment.enroll(connection, 'h1', now_s=NOW)
        code, out, err = self.command(self.url, 'aggregate', 'set', 'batch',
                                      'h2', 'h1', 'h2')
        self.assertEqual((0, 'batch: 2 hosts, before 0\n'), (code, out))
        self.assertIn('has not reported yet: h2\n', err)
        self.command(self.url, 'aggregate', 'set', 'a', 'h1')
        self.assertEqual((0, 'a: h1\nbatch: h1 h2\n', ''), self.command(
            self.url, 'aggregate', 'list'))
        with connect.reading(self.engine) as connection:
            self.assertEqual(('a', 'batch'), directives.wanted(
                connection, NOW).aggregates.of('h1'))
        self.assertEqual((0, 'batch: 1 host, before 2\n', ''), self.command(
            self.url, 'aggregate', 'set', 'batch', 'h1'))
        self.assertEqual((0, 'batch: 0 hosts, before 1\n', ''), self.command(
            self.url, 'aggregate', 'unset', 'batch'))
        self.assertEqual((0, 'a: h1\n', ''), self.command(
            self.url, 'aggregate', 'list'))
        with connect.reading(self.engine) as connection:
            said = connection.execute(sqlalchemy.select(
                tables.audit.c.target, tables.audit.c.before,
                tables.audit.c.after).where(
                    tables.audit.c.action == 'aggregate.set').order_by(
                        tables.audit.c.id)).all()
        self.assertEqual(4, len(said))
        self.assertEqual(('batch', {'hosts': 2},
                          {'hosts': 1, 'removed': ['h2']}), tuple(said[2]))

    def test_of_nova(self) -> None:
        with connect.writing(self.engine) as connection:
            aggregates.follow(connection, {'rack': ['h1', 'h2']}, now_s=1.0)
        self.assertEqual((0, 'rack (from Nova): h1 h2\n', ''), self.command(
            self.url, 'aggregate', 'list'))
        self.assertEqual('rack: 1 host, before 2 (from Nova)\n',
                         self.command(self.url, 'aggregate', 'set', 'rack',
                                      'h3')[1])
        self.assertEqual((0, 'rack: h3\n', ''), self.command(
            self.url, 'aggregate', 'list'))
        self.assertEqual((0, 'rack: 2 hosts (from Nova), before 1\n', ''),
                         self.command(self.url, 'aggregate', 'unset',
                                      'rack'))


class ManageOnSqlite(Manage, databases.Sqlite):
    pass


class ManageOnMariaDb(Manage, databases.MariaDb):
    pass


class ManageOnPostgreSql(Manage, databases.PostgreSql):
    pass
