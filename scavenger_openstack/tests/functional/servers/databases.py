# SPDX-License-Identifier: Apache-2.0


"""The same tests on SQLite, MariaDB and PostgreSQL.

::

    class Incidents(databases.Mixin):       # runs only as the three below
        def test_one(self) -> None:
            with connect.writing(self.engine) as connection:
                ...

    class OnSqlite(Incidents, databases.Sqlite):
        pass

    class OnMariaDb(Incidents, databases.MariaDb):
        pass

    class OnPostgreSql(Incidents, databases.PostgreSql):
        pass

Each test begins with the tables, without rows.  A server that is not
installed skips its tests.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
import functools
import os
import pathlib
import shutil
import tempfile
from typing import Any
from typing import TYPE_CHECKING

import fixtures
from sqlalchemy import Engine
from sqlalchemy import event
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import postgresql
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests import tiers

if TYPE_CHECKING:
    Base = testtools.TestCase
else:
    Base = object


class Mixin(Base):
    """``engine`` and ``url`` of a database with the tables, all empty."""

    url: str
    engine: Engine

    if TYPE_CHECKING:
        def empty_url(self) -> str:
            """The URL of another database, that has no tables."""
            return ''


class Sqlite(testtools.TestCase):
    """A file of the test's own."""

    def setUp(self) -> None:
        super().setUp()
        self._directory = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(self._directory, 'scavenger.sqlite')
        shutil.copyfile(_sqlite_template(), path)
        self.url = f'sqlite:///{path}'
        self.engine = connect.engine(self.url)
        event.listen(self.engine, 'connect', _no_sync)
        self.addCleanup(self.engine.dispose)

    def empty_url(self) -> str:
        return f'sqlite:///{self._directory}/empty.sqlite'


class _OnServer(testtools.TestCase):
    """A database that the tests of one process have one after another."""

    def prepared(self) -> tuple[Any, str, Engine]:
        raise NotImplementedError

    def setUp(self) -> None:
        super().setUp()
        try:
            self.server, self.url, self.engine = self.prepared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.addCleanup(_empty, self.engine)

    def empty_url(self) -> str:
        return self.server.new_database()


class MariaDb(_OnServer):

    def prepared(self) -> tuple[Any, str, Engine]:
        return _prepared(mariadb.shared)


@tiers.only_in_all('SQLite and MariaDB run the same tests')
class PostgreSql(_OnServer):

    def prepared(self) -> tuple[Any, str, Engine]:
        return _prepared(postgresql.shared)


@functools.cache
def _prepared(shared: Callable[[], Any]) -> tuple[Any, str, Engine]:
    server = shared()
    url = server.new_database()
    engine = connect.engine(url)
    schema.upgrade(engine)
    return server, url, engine


def _no_sync(connection: Any, record: Any) -> None:
    """Nothing here has to outlive the machine."""
    connection.execute('PRAGMA synchronous = OFF')


@functools.cache
def _sqlite_template() -> str:
    """A file with the tables, which is copied for each test."""
    handle, path = tempfile.mkstemp(prefix='scv-sqlite-')
    os.close(handle)
    atexit.register(os.unlink, path)
    engine = connect.engine(f'sqlite:///{path}')
    schema.upgrade(engine)
    engine.dispose()
    return path


def _empty(engine: Engine) -> None:
    """Delete all rows, those that others refer to last."""
    engine.dispose()
    with connect.writing(engine) as connection:
        for table in reversed(tables.METADATA.sorted_tables):
            connection.execute(table.delete())
