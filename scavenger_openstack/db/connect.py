# SPDX-License-Identifier: Apache-2.0


"""Engines and transactions.

A transaction is one ``with``: :func:`writing` commits at its end,
:func:`reading` never does.  :func:`retried` does a whole transaction again
when the database asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import os
import random
import time
from typing import Any
from typing import TypeVar

import sqlalchemy as sa

from scavenger_openstack.conf import control as conf_control
from scavenger_openstack.db import faults
from scavenger_openstack import errors

T = TypeVar('T')

Connection = sa.Connection
Engine = sa.Engine

DRIVERS = {'sqlite': 'sqlite', 'mysql': 'mysql+pymysql',
           'mariadb': 'mariadb+pymysql', 'postgresql': 'postgresql+psycopg2'}
"""What stands before :// for each database."""

STATEMENT_S = 10.0
LOCK_S = 5
"""Seconds until a statement that waits for a lock is given up."""
CONNECT_S = 10
SORTED_BYTES = 128 << 20
"""MariaDB groups on disk what needs more; a name takes 1 KiB there."""
RECYCLE_S = 3600
"""Older connections are not used again: firewalls forget them."""
IDLE_S = 5.0
"""A connection that was idle for longer is tried before it is used again."""

NOTIFIES = 'scavenger_notifies'
"""Execution option: what happens is to be sent to the message bus."""

_WRITES = 'scavenger_writes'


def engine(url: str, *, statement_s: float = STATEMENT_S,
           connections: int = 20, notifies: bool = False) -> sa.Engine:
    """Return where connections to a database come from.  Connects to nothing
    yet.

    :param url: such as ``sqlite:////var/lib/scavenger/scavenger.sqlite``,
        ``mysql+pymysql://user:password@host/scavenger`` or
        ``postgresql+psycopg2://user:password@host/scavenger``
    :param statement_s: after this a statement is given up; 0: never, and
        not for SQLite
    :param connections: open at the same time, at most
    :param notifies: see :data:`NOTIFIES`
    :raises DatabaseError: it is no such URL, or its driver is not installed.
    """
    parsed = _parsed(url)
    name = parsed.get_backend_name()
    options: dict[str, Any] = {'connect_args': _connect_args(
        parsed, name, statement_s), 'execution_options': {
            NOTIFIES: notifies}}
    if name != 'sqlite':
        options |= {'isolation_level': 'READ COMMITTED',
                    'pool_recycle': RECYCLE_S,
                    # Each transaction is ended where it was begun.
                    'pool_reset_on_return': None,
                    'pool_size': min(5, connections),
                    'max_overflow': max(0, connections - 5),
                    'pool_timeout': CONNECT_S}
    if parsed.get_dialect().driver == 'psycopg2':
        # Else what inserts or replaces waits for the server at each row.
        options['executemany_mode'] = 'values_plus_batch'
    try:
        made = sa.create_engine(parsed, **options)
    except ImportError as exc_:
        raise errors.DatabaseError(
            f'{faults.shown(parsed)}: {errors.missing_package(exc_) or exc_}'
        ) from exc_
    if name == 'sqlite':
        _listen_sqlite(made)
    else:
        _listen_server(made, name, statement_s)
        _listen_pool(made)
    _listen_moved(made)
    return made


def engine_of(conf: Any, **more: Any) -> sa.Engine:
    """Return :func:`engine` as ``[database]`` configures it.

    :param conf: of oslo.config
    :param more: in place of what is configured
    :raises ConfigError: no database is.
    """
    return engine(conf_control.database(conf), **{
        'connections': conf.database.max_connections,
        'notifies': bool(conf.notifications.topics), **more})


@contextlib.contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction, and commit it at the end; an exception rolls it
    back.

    On SQLite it has the only write lock from its beginning, so it waits here
    and never later.

    :raises DatabaseError: the database cannot be used.
    :raises CommitUncertain: the connection was lost in the commit.
    """
    with faults.translated(engine.url), _transaction(engine) as connection:
        yield connection


@contextlib.contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction that is rolled back at the end.

    :raises DatabaseError: the database cannot be used.
    """
    with faults.translated(engine.url), _connected(engine) as connection:
        yield connection


def read(engine: sa.Engine, work: Callable[[sa.Connection], T]) -> T:
    """Do ``work`` in a transaction that is rolled back at its end, and return
    what it returns; once more when the connection turns out to be lost.

    :raises DatabaseError: the database cannot be used.
    """
    with faults.translated(engine.url):
        try:
            with _connected(engine) as connection:
                return work(connection)
        except sa.exc.DBAPIError as exc_:
            if not exc_.connection_invalidated:
                raise
        with _connected(engine) as connection:
            return work(connection)


def retried(engine: sa.Engine, work: Callable[[sa.Connection], T], *,
            patience_s: float = 10.0, idempotent: bool = False,
            on_duplicate: bool = False) -> T:
    """Do ``work`` in a transaction that writes, and return what it returns.

    All of it is done again, some milliseconds to a second later, after a
    deadlock, a lost connection and what else passes by itself.

    :param patience_s: how long to try
    :param idempotent: do it again also when the connection was lost in the
        commit, so that it may have been stored
    :param on_duplicate: do it again when a row that it inserts was inserted
        by another meanwhile
    :raises DatabaseError: it did not pass in time.
    """
    until = time.monotonic() + patience_s
    pause_s = 0.02
    with faults.translated(engine.url):
        while True:
            try:
                with _transaction(engine) as connection:
                    return work(connection)
            except errors.CommitUncertain:
                if not idempotent or time.monotonic() > until:
                    raise
            except sa.exc.IntegrityError as exc_:
                if not (on_duplicate and faults.is_duplicate(exc_)
                        ) or time.monotonic() > until:
                    raise
            except sa.exc.DBAPIError as exc_:
                if not faults.passes(exc_) or time.monotonic() > until:
                    raise
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(1.0, 2 * pause_s)


@contextlib.contextmanager
def _transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    with _connected(engine) as connection:
        connection = connection.execution_options(**{_WRITES: True})
        transaction = connection.begin()
        yield connection
        try:
            transaction.commit()
        except sa.exc.DBAPIError as exc_:
            connection.invalidate()     # it may not be as it was
            if exc_.connection_invalidated:
                raise errors.CommitUncertain(
                    f'{faults.shown(engine.url)}: the connection was '
                    'lost while data was being stored; look whether it '
                    'is there before doing it again') from exc_
            raise


@contextlib.contextmanager
def _connected(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection, rolled back at the end; that hides no error."""
    try:
        connection = engine.connect()
    except TypeError as exc_:   # of the driver
        raise errors.DatabaseError(
            f'{faults.shown(engine.url)}: the URL has an option that does '
            f'not exist: {exc_}') from exc_
    try:
        yield connection
    except BaseException:
        try:
            connection.close()
        except sa.exc.DBAPIError:
            if not connection.closed:   # by some versions of SQLAlchemy
                connection.invalidate()
                connection.close()
        raise
    connection.close()


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
        name = parsed.get_backend_name()
        parsed.get_dialect()
    except (sa.exc.ArgumentError, ValueError, ImportError):
        name = ''
    if name not in DRIVERS:
        # Not the text itself: it may have a password.
        raise errors.DatabaseError(
            '[database] connection is not the URL of a database: write one '
            'of ' + ', '.join(
                f'{driver}://' + ('//PATH' if name == 'sqlite' else
                                  'USER:PASSWORD@HOST/DATABASE')
                for name, driver in DRIVERS.items()))
    return parsed


def _connect_args(url: sa.URL, name: str, statement_s: float
                  ) -> dict[str, Any]:
    """Return what the driver is given, but for what the URL says."""
    if name == 'sqlite':
        args: dict[str, Any] = {'timeout': LOCK_S}
    elif name == 'postgresql':
        args = {'connect_timeout': CONNECT_S, 'keepalives_idle': 30,
                'tcp_user_timeout': 30_000}
    else:
        wait_s = statement_s + LOCK_S if statement_s else None
        args = {'connect_timeout': CONNECT_S, 'read_timeout': wait_s,
                'write_timeout': wait_s, 'charset': 'utf8mb4'}
    return {key: value for key, value in args.items()
            if key not in url.query}


def _listen_sqlite(engine: sa.Engine) -> None:
    """Writers beside readers, and one at a time: the driver's own deferred
    BEGIN fails at once when a reader becomes a writer."""

    @sa.event.listens_for(engine, 'do_connect')
    def before(dialect: Any, record: Any, args: list[str], kwargs: Any
               ) -> None:
        path = engine.url.database
        if path and not path.startswith((':memory:', 'file:')) \
                and not os.path.exists(path):
            raise errors.DatabaseError(
                f'{path}: there is no database yet: type "scavenger-manage '
                'db upgrade"')

    @sa.event.listens_for(engine, 'connect')
    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None   # BEGIN is ours
        connection.execute('PRAGMA foreign_keys = ON')
        if connection.execute('PRAGMA journal_mode').fetchone()[0] != 'wal':
            connection.execute('PRAGMA journal_mode = WAL')

    @sa.event.listens_for(engine, 'begin')
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql('BEGIN IMMEDIATE' if writes else 'BEGIN')


def _listen_server(engine: sa.Engine, name: str, statement_s: float) -> None:
    """Refuse values that do not fit, and give up what takes too long."""
    if name == 'postgresql':
        statements = [f'SET lock_timeout = {LOCK_S * 1000}',
                      f'SET statement_timeout = {int(statement_s * 1000)}']
    else:   # the comments: for MariaDB only, for MySQL only
        statements = [f"SET sql_mode = 'TRADITIONAL', "
                      f'tmp_table_size = {SORTED_BYTES}, '
                      f'max_heap_table_size = {SORTED_BYTES}, '
                      f'innodb_lock_wait_timeout = {LOCK_S} '
                      f'/*M! , max_statement_time = {statement_s} */ '
                      '/*!80000 , max_execution_time = '
                      f'{int(statement_s * 1000)} */']

    @sa.event.listens_for(engine, 'connect')
    def connected(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()


def _listen_moved(engine: sa.Engine) -> None:
    """Connect again, all connections, where changes go elsewhere by now."""

    @sa.event.listens_for(engine, 'handle_error')
    def failed(context: Any) -> None:
        if faults.is_moved(context.original_exception):
            context.is_disconnect = True


def _listen_pool(engine: sa.Engine) -> None:
    """Try a connection that was idle, and not each time: that costs as much
    as another statement.  One that is lost within :data:`IDLE_S` fails its
    transaction, which :func:`read` and :func:`retried` do again."""

    @sa.event.listens_for(engine, 'checkin')
    def returned(connection: Any, record: Any) -> None:
        record.info['used_s'] = time.monotonic()

    @sa.event.listens_for(engine, 'checkout')
    def taken(connection: Any, record: Any, proxy: Any) -> None:
        used_s = record.info.get('used_s')
        if used_s is None or time.monotonic() - used_s < IDLE_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as exc_:
            raise sa.exc.InvalidatePoolError(
                'the server closed the connection') from exc_
