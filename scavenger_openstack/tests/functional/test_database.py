# SPDX-License-Identifier: Apache-2.0


"""Transactions, tables and their versions, on each database."""

from __future__ import annotations

from collections.abc import Callable
import functools
import threading
import time
from typing import Any

from alembic import autogenerate
from alembic.runtime import migration
import fixtures
import sqlalchemy
from sqlalchemy import Connection
from sqlalchemy import event
from sqlalchemy import exc
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import audit
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import postgresql
from scavenger_openstack.tests.functional.servers import process

HOST = {'facts': {}, 'settings': {}, 'first_seen_s': 1.0, 'last_seen_s': 2.0}


def add_host(connection: Connection, name: str) -> None:
    connection.execute(tables.hosts.insert().values(name=name, **HOST))


def names(connection: Connection) -> list[str]:
    return sorted(connection.execute(
        sqlalchemy.select(tables.hosts.c.name)).scalars())


class Transactions(databases.Mixin):

    def stored(self) -> list[str]:
        with connect.reading(self.engine) as connection:
            return names(connection)

    def test_what_is_written_is_committed(self) -> None:
        with connect.writing(self.engine) as connection:
            add_host(connection, 'one')
        self.assertEqual(['one'], self.stored())

    def test_an_exception_rolls_back(self) -> None:
        def fail() -> None:
            with connect.writing(self.engine) as connection:
                add_host(connection, 'one')
                raise KeyError('mine')

        self.assertRaises(KeyError, fail)
        self.assertEqual([], self.stored())

    def test_reading_stores_nothing(self) -> None:
        with connect.reading(self.engine) as connection:
            add_host(connection, 'one')
        self.assertEqual([], self.stored())

    def test_names_are_compared_exactly(self) -> None:
        with connect.writing(self.engine) as connection:
            for name in ('batch', 'Batch', 'b\u00e4tch', '\U0001f600'):
                add_host(connection, name)
        self.assertEqual(4, len(self.stored()))

    def test_a_value_that_does_not_fit_is_refused(self) -> None:
        def too_long() -> None:
            with connect.writing(self.engine) as connection:
                add_host(connection, 256 * 'n')

        if self.engine.dialect.name != 'sqlite':    # which has no lengths
            self.assertRaises(exc.DBAPIError, too_long)
            self.assertEqual([], self.stored())

    def test_ids_are_not_used_again(self) -> None:
        with connect.writing(self.engine) as connection:
            add_host(connection, 'one')
            add_host(connection, 'two')
            before = connection.execute(sqlalchemy.select(
                sqlalchemy.func.max(tables.hosts.c.id))).scalar_one()
            connection.execute(tables.hosts.delete())
        with connect.writing(self.engine) as connection:
            add_host(connection, 'three')
            self.assertGreater(connection.execute(sqlalchemy.select(
                tables.hosts.c.id)).scalar_one(), before)

    def test_none_is_null(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(tables.audit.insert().values(
                time_s=1.0, actor='a', action='b', target='c', reason='d',
                before=None, after={'x': 1}))
            found = connection.execute(sqlalchemy.select(
                tables.audit.c.id).where(tables.audit.c.before.is_(None),
                                         tables.audit.c.after.is_not(None)))
            self.assertEqual(1, len(found.all()))

    def test_a_row_needs_its_host(self) -> None:
        def orphan() -> None:
            with connect.writing(self.engine) as connection:
                connection.execute(tables.runs.insert().values(
                    host_id=99, run_id='r', sequence=1, last_seen_s=1.0))

        self.assertRaises(exc.IntegrityError, orphan)

    def generation(self) -> int:
        with connect.reading(self.engine) as connection:
            return generation.current(connection)

    def test_a_wish_that_began_first_and_ends_last(self) -> None:
        """It is noticed, though another one was noticed meanwhile."""
        def record(connection: Connection) -> None:
            audit.add(connection, time_s=1.0, actor='a', project='',
                      request_id='', action='b', target='c', before=None,
                      after=None, reason='')

        other = threading.Thread(
            target=connect.retried, args=(self.engine, record))
        with connect.writing(self.engine) as connection:
            record(connection)
            other.start()
            other.join(0.5)     # as far as it gets
            before = self.generation()
        other.join()
        self.assertEqual(2, self.generation())
        self.assertLess(before, 2)

    def test_a_deadlock_is_done_again(self) -> None:
        """Two transactions want the same two rows, in opposite order."""
        with connect.writing(self.engine) as connection:
            add_host(connection, 'one')
            add_host(connection, 'two')
        both = threading.Barrier(2)
        tried: list[str] = []

        def work(first: str, second: str) -> None:
            def change(connection: Connection) -> None:
                tried.append(first)
                for name in (first, second):
                    connection.execute(
                        tables.hosts.update()
                        .where(tables.hosts.c.name == name)
                        .values(last_seen_s=tables.hosts.c.last_seen_s + 1))
                    if name == first and len(tried) <= 2 \
                            and self.engine.dialect.name != 'sqlite':
                        both.wait(10)
            connect.retried(self.engine, change, patience_s=30)

        threads = [threading.Thread(target=work, args=pair)
                   for pair in (('one', 'two'), ('two', 'one'))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        with connect.reading(self.engine) as connection:
            self.assertEqual([4.0, 4.0], list(connection.execute(
                sqlalchemy.select(tables.hosts.c.last_seen_s)).scalars()))
        if self.engine.dialect.name != 'sqlite':
            self.assertIn(len(tried), (3, 4))   # both may be sent back

    def test_a_duplicate_is_done_again_if_wished(self) -> None:
        """Two that both found no row insert it."""
        both = threading.Barrier(2)
        tried: list[int] = []

        def work() -> None:
            def add(connection: Connection) -> None:
                tried.append(1)
                if 'one' not in names(connection):
                    if len(tried) <= 2 \
                            and self.engine.dialect.name != 'sqlite':
                        both.wait(10)
                    add_host(connection, 'one')
            connect.retried(self.engine, add, on_duplicate=True)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(['one'], self.stored())

    def test_many_writers(self) -> None:
        """None of them fails because another one writes."""
        def work(number: int) -> None:
            for turn in range(5):
                connect.retried(self.engine, functools.partial(
                    add_host, name=f'{number}-{turn}'))

        threads = [threading.Thread(target=work, args=(number,))
                   for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(40, len(self.stored()))

    def test_what_does_not_pass_is_not_done_again(self) -> None:
        tried = []

        def wrong(connection: Connection) -> None:
            tried.append(1)
            add_host(connection, 'one')
            add_host(connection, 'one')

        self.assertRaises(exc.IntegrityError, connect.retried, self.engine,
                          wrong)
        self.assertEqual([1], tried)


class TransactionsOnSqlite(Transactions, databases.Sqlite):

    def test_readers_do_not_wait_for_a_writer(self) -> None:
        with connect.writing(self.engine) as connection:
            add_host(connection, 'one')
            began = time.monotonic()
            self.assertEqual([], self.stored())
            self.assertLess(time.monotonic() - began, 2.0)

    def test_a_writer_that_reads_first(self) -> None:
        """Waits before it reads, since what it has read would be old."""
        began = threading.Event()
        found: list[object] = []

        def work() -> None:
            try:
                with connect.writing(self.engine) as connection:
                    found.append(names(connection))
                    began.set()
                    add_host(connection, 'two')
            except errors.DatabaseError as error:
                found.append(error)

        thread = threading.Thread(target=work)
        with connect.writing(self.engine) as connection:
            add_host(connection, 'one')
            thread.start()
            self.assertFalse(began.wait(0.3))
        thread.join(30)
        self.assertEqual([['one']], found)
        self.assertEqual(['one', 'two'], self.stored())


class TransactionsOnMariaDb(Transactions, databases.MariaDb):
    pass


class TransactionsOnPostgreSql(Transactions, databases.PostgreSql):
    pass


class Lost(databases.Base):
    """A server of the test's own ends and begins again."""

    def start(self) -> mariadb.MariaDb | postgresql.PostgreSql:
        raise NotImplementedError

    def setUp(self) -> None:
        super().setUp()
        try:
            self.server = self.start()
        except process.Missing as exc_:
            self.skipTest(str(exc_))
        self.addCleanup(self.server.close)
        self.engine = connect.engine(self.server.new_database())
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.tried: list[str] = []

    def add(self, name: str) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            self.tried.append(name)
            if name not in names(connection):
                add_host(connection, name)
        return work

    def kill_before_the_next_commit(self) -> None:
        event.listen(self.engine, 'commit', lambda _: self.server.kill(),
                     once=True)

    def meanwhile(self, name: str, **options: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: connect.retried(
            self.engine, self.add(name), patience_s=60, **options))
        thread.start()
        return thread

    def test_a_server_that_begins_again(self) -> None:
        connect.retried(self.engine, self.add('one'))
        self.server.kill()
        self.assertRaises(errors.DatabaseError, connect.retried, self.engine,
                          self.add('two'), patience_s=0.2)
        self.tried.clear()
        thread = self.meanwhile('three')
        self.server.begin()
        thread.join(60)

        self.kill_before_the_next_commit()
        self.assertRaises(errors.CommitUncertain, connect.retried,
                          self.engine, self.add('four'))
        self.assertEqual('four', self.tried.pop())
        self.server.begin()

        self.kill_before_the_next_commit()
        thread = self.meanwhile('five', idempotent=True)
        while self.tried.count('five') == 0 or self.server.pids:
            self.assertTrue(thread.is_alive())
            time.sleep(0.01)
        self.server.begin()
        thread.join(60)
        self.assertEqual(2, self.tried.count('five'))
        with connect.reading(self.engine) as connection:
            self.assertEqual(['five', 'one', 'three'], names(connection))

    def test_an_idle_connection_that_was_lost(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.connect.IDLE_S', 0.0))
        connect.retried(self.engine, self.add('one'))
        self.server.kill()
        self.server.begin()
        with connect.reading(self.engine) as connection:
            self.assertEqual(['one'], names(connection))

    def test_an_error_before_the_connection_was_lost(self) -> None:
        """A fault of ours is no matter of the database."""
        def fail(connection: Connection) -> None:
            names(connection)
            self.server.kill()
            raise ZeroDivisionError('ours')

        def within(begin: Callable[..., Any]) -> None:
            with begin(self.engine) as connection:
                fail(connection)

        for call in (lambda: within(connect.writing),
                     lambda: within(connect.reading),
                     lambda: connect.retried(self.engine, fail),
                     lambda: connect.read(self.engine, fail)):
            self.assertRaises(ZeroDivisionError, call)
            self.server.begin()
            connect.retried(self.engine, self.add('one'))
        with connect.reading(self.engine) as connection:
            self.assertEqual(['one'], names(connection))
        pool: Any = self.engine.pool
        self.assertEqual(0, pool.checkedout())

    def test_an_upgrade_that_fails_before_the_connection_is_lost(self
                                                                  ) -> None:
        engine = connect.engine(self.server.new_database())
        self.addCleanup(engine.dispose)

        @event.listens_for(engine, 'before_cursor_execute')
        def fail(connection: Connection, cursor: Any, statement: str,
                 *more: Any) -> None:
            if 'CREATE TABLE claims' in statement:
                self.server.kill()
                raise ZeroDivisionError('ours')

        self.assertRaises(ZeroDivisionError, schema.upgrade, engine)

    def test_one_that_was_lost_while_it_was_used(self) -> None:
        connect.retried(self.engine, self.add('one'))
        self.server.kill()
        self.server.begin()
        self.assertEqual(['one'], connect.read(self.engine, names))
        self.server.kill()
        self.assertRaises(errors.DatabaseError, connect.read, self.engine,
                          names)


class LostMariaDb(Lost, testtools.TestCase):

    def start(self) -> mariadb.MariaDb:
        return mariadb.MariaDb()


class LostPostgreSql(Lost, testtools.TestCase):

    def start(self) -> postgresql.PostgreSql:
        return postgresql.PostgreSql()


class Schema(databases.Mixin):

    def test_the_migrations_make_the_tables(self) -> None:
        with self.engine.connect() as connection:
            context = migration.MigrationContext.configure(
                connection, opts={'compare_type': True,
                                  'compare_server_default': True})
            self.assertEqual([], autogenerate.compare_metadata(
                context, tables.METADATA))

    def test_upgrade_from_nothing_and_again(self) -> None:
        engine = connect.engine(self.empty_url(), statement_s=0)
        self.addCleanup(engine.dispose)
        self.assertEqual((None, schema.newest()), schema.upgrade(engine))
        self.assertEqual((schema.newest(), schema.newest()),
                         schema.upgrade(engine))
        with connect.reading(engine) as connection:
            schema.check(connection)

    def test_without_tables(self) -> None:
        engine = connect.engine(self.empty_url())
        self.addCleanup(engine.dispose)

        def look() -> None:
            with connect.reading(engine) as connection:
                schema.check(connection)

        error = self.assertRaises(errors.DatabaseError, look)
        self.assertIn('type "scavenger-manage db upgrade"', str(error))

    def set_version(self, version: str) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(schema.VERSION.update().values(
                version_num=version))

    def test_unknown_versions(self) -> None:
        self.addCleanup(self.set_version, schema.newest())
        for version, advice in (
                ('9999', 'install the newer scavenger-openstack'),
                ('0001', 'name an empty database'),
                ('0011', 'name an empty database')):
            self.set_version(version)
            error = self.assertRaises(errors.SchemaError, schema.upgrade,
                                      self.engine)
            self.assertIn(f'version {version}', str(error))
            self.assertIn(advice, str(error))
            with connect.reading(self.engine) as connection:
                again = self.assertRaises(errors.SchemaError, schema.check,
                                          connection)
            self.assertEqual(str(error), str(again))

    def test_several_upgrades_at_once(self) -> None:
        url = self.empty_url()
        done: list[object] = []

        def work() -> None:
            engine = connect.engine(url, statement_s=0)
            try:
                done.append(schema.upgrade(engine)[0])
            except Exception as error:      # shown by the assertion
                done.append(error)
            engine.dispose()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual([None, schema.newest(), schema.newest()],
                         sorted(done, key=str, reverse=True))

    def test_an_upgrade_that_was_interrupted(self) -> None:
        """On MariaDB some tables are there, not all indexes, no version."""
        engine = connect.engine(self.empty_url(), statement_s=0)
        self.addCleanup(engine.dispose)
        schema.upgrade(engine)
        with connect.writing(engine) as connection:
            tables.METADATA.drop_all(connection)
            connection.execute(schema.VERSION.delete())
            for table in (tables.hosts, tables.runs, tables.incidents):
                connection.execute(sqlalchemy.schema.CreateTable(table))
        self.assertEqual((None, schema.newest()), schema.upgrade(engine))
        with connect.reading(engine) as connection:
            self.assertIn('ix_incidents_host', [
                index['name'] for index in
                sqlalchemy.inspect(connection).get_indexes('incidents')])

    def test_tables_of_somebody_else(self) -> None:
        engine = connect.engine(self.empty_url(), statement_s=0)
        self.addCleanup(engine.dispose)
        schema.upgrade(engine)
        with connect.writing(engine) as connection:
            add_host(connection, 'one')
            connection.execute(schema.VERSION.delete())
        error = self.assertRaises(errors.SchemaError, schema.upgrade, engine)
        self.assertIn('a table "hosts" with rows and no version', str(error))
        with connect.reading(engine) as connection:
            self.assertEqual(['one'], names(connection))


class SchemaOnSqlite(Schema, databases.Sqlite):
    pass


class SchemaOnMariaDb(Schema, databases.MariaDb):
    pass


class SchemaOnPostgreSql(Schema, databases.PostgreSql):
    pass
