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

"""Host aggregates of Nova and of operators, on each database."""

from __future__ import annotations

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


class OnServers(aggregates_cases.Aggregates):

    def test_an_operator_meanwhile(self) -> None:
        """What an operator names while Nova's are written is kept, also a
        host that both have."""
        self.turn(aggregates_cases.Aggregate(hosts=('h1',)))
        done: list[str] = []

        def meanwhile(connection: Any, cursor: Any, statement: str,
                      *more: Any) -> None:
            if not done and statement.startswith(
                    ('INSERT INTO aggregate_hosts',
                     'UPDATE aggregate_hosts',
                     'DELETE FROM aggregate_hosts')):
                done.append(statement)
                self.named('rack', 'h1', 'h2')

        event.listen(self.engine, 'before_cursor_execute', meanwhile)
        self.addCleanup(event.remove, self.engine, 'before_cursor_execute',
                        meanwhile)
        self.turn(aggregates_cases.Aggregate(hosts=('h2', 'h3')))
        self.assertEqual(1, len(done))
        with connect.reading(self.engine) as connection:
            self.assertEqual(
                (frozenset(('h1', 'h2')), frozenset(('h2', 'h3'))),
                aggregates.members(connection)['rack'])


class OnMariaDb(OnServers, databases.MariaDb):
    pass


class OnPostgreSql(OnServers, databases.PostgreSql):
    pass


class Manage(managing.Command):

    def test_of_operators(self) -> None:
        self.assertEqual((0, '', ''), self.command(self.url, 'aggregate',
                                                   'list'))
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
                connection, NOW, 0.0).aggregates['h1'])
        self.assertEqual((0, 'batch: 1 hosts, before 2\n', ''), self.command(
            self.url, 'aggregate', 'set', 'batch', 'h1'))
        self.assertEqual((0, 'batch: 0 hosts, before 1\n', ''), self.command(
            self.url, 'aggregate', 'unset', 'batch'))
        self.assertEqual((0, 'a: h1\n', ''), self.command(
            self.url, 'aggregate', 'list'))
        with connect.reading(self.engine) as connection:
            said = connection.execute(sqlalchemy.select(
                tables.audit.c.target, tables.audit.c.before,
                tables.audit.c.after).order_by(tables.audit.c.id)).all()
        self.assertEqual(4, len(said))
        self.assertEqual(('batch', {'hosts': ['h1', 'h2']},
                          {'hosts': ['h1']}), tuple(said[2]))

    def test_of_nova(self) -> None:
        with connect.writing(self.engine) as connection:
            aggregates.follow(connection, {'rack': ['h1', 'h2']}, now_s=1.0)
        self.assertEqual((0, 'rack (from Nova): h1 h2\n', ''), self.command(
            self.url, 'aggregate', 'list'))
        self.assertEqual('rack: 1 hosts, before 2 (from Nova)\n',
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
