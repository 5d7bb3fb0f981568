# SPDX-License-Identifier: Apache-2.0


"""What goes wrong with a database, in a sentence for operators.

The drivers' error numbers decide; their texts are only shown.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import os
import pwd
from typing import Any

import sqlalchemy as sa

from scavenger_openstack import errors
from scavenger_openstack.types import printable

UPGRADE = 'type "scavenger-manage db upgrade"'

# Error numbers of MySQL and MariaDB.
_MYSQL_PASSES = {1020,      # the row has changed since it was read
                 1205,      # lock wait timeout
                 1213,      # deadlock
                 1317,      # an administrator interrupted the statement
                 1203, 1226,            # all connections of this user in use
                 1040, 1053, 1927, 2002, 2003, 2006, 2013}
_MYSQL_MOVED = {1047,       # a node of Galera outside of its cluster
                1290, 1792, 1836}       # read-only
_MYSQL_DATA = {1153,        # a statement that is too long
               1292, 1365, 1690, 3140, 3819, 4025}
"""What the driver takes for a fault of the database, and is one of a value."""
_MYSQL_SAYS = {1021: 'its disk is full', 1114: 'its disk is full',
               1040: 'it has no connection left for us',
               1203: 'it has no connection left for this user',
               1226: 'it has no connection left for this user',
               1129: 'it blocks this host after many failed connections; '
                     'type "FLUSH HOSTS" there',
               1044: 'it refuses this user', 1045: 'it refuses this user',
               1698: 'it refuses this user',
               1047: 'this node is not part of its cluster',
               1049: 'it has no such database',
               1142: 'this user lacks a privilege',
               1290: 'it is read-only', 1792: 'it is read-only',
               1836: 'it is read-only',
               1205: 'another transaction holds a lock',
               1213: 'transactions wait for each other',
               1317: 'the statement was interrupted there',
               1969: 'a statement took too long',
               3024: 'a statement took too long',
               2002: 'it cannot be reached', 2003: 'it cannot be reached',
               1053: 'the connection was lost',
               1927: 'the connection was lost',
               2006: 'the connection was lost',
               2013: 'the connection was lost'}
_MYSQL_DUPLICATE = {1062}
_MYSQL_SCHEMA = {1054, 1146}

# SQLSTATEs of PostgreSQL, and classes of them.
_POSTGRESQL_PASSES = {'08', '40', '53300', '55P03', '57P'}
_POSTGRESQL_MOVED = {'25006'}
_POSTGRESQL_DATA = {'54'}
_POSTGRESQL_SAYS = {'25006': 'it is read-only', '53100': 'its disk is full',
                    '53300': 'it has no connection left for us',
                    '42501': 'this user lacks a privilege',
                    '40001': 'transactions wait for each other',
                    '40P01': 'transactions wait for each other',
                    '55P03': 'another transaction holds a lock',
                    '57014': 'a statement took too long',
                    '57P01': 'the connection was lost',
                    '57P02': 'the connection was lost',
                    '57P03': 'it is starting or stopping'}
_POSTGRESQL_DUPLICATE = {'23505'}
_POSTGRESQL_SCHEMA = {'42703', '42P01'}

# Primary result codes of SQLite.
_SQLITE_PASSES = {5, 6}
_SQLITE_SAYS = {5: 'another process keeps it locked',
                6: 'another connection keeps it locked',
                8: 'it cannot be written', 10: 'its disk has errors',
                11: 'it is damaged: restore it from a backup',
                13: 'its disk is full', 14: 'it cannot be opened',
                26: 'this file is not an SQLite database'}
_SQLITE_DUPLICATE = {1555, 2067}
"""With their details: of a primary key, of another."""
_SQLITE_SCHEMA = ('no such table', 'no such column', 'has no column named')


def shown(url: sa.URL) -> str:
    """The database in a message: without its password."""
    if url.get_backend_name() == 'sqlite':
        return url.database or 'the database in memory'
    return f'database {url.render_as_string(hide_password=True)}'


def passes(error: sa.exc.DBAPIError) -> bool:
    """Return whether the same transaction may succeed a moment later."""
    number = _number(error.orig)
    return (error.connection_invalidated
            or (number in _SQLITE_PASSES if _from_sqlite(error.orig) else
                _is_of(number, _MYSQL_PASSES | _MYSQL_MOVED,
                       _POSTGRESQL_PASSES | _POSTGRESQL_MOVED))
            or number is None and _unreachable(error))


def is_duplicate(error: sa.exc.IntegrityError) -> bool:
    """Return whether a row with the same key is there."""
    details = getattr(error.orig, 'sqlite_errorcode', None)
    return (details in _SQLITE_DUPLICATE if details is not None else
            _is_of(_number(error.orig), _MYSQL_DUPLICATE,
                   _POSTGRESQL_DUPLICATE))


def is_moved(original: BaseException | None) -> bool:
    """Return whether another connection may reach a server that takes changes:
    after a failover the old one leads to a node that does not."""
    return _is_of(_number(original), _MYSQL_MOVED, _POSTGRESQL_MOVED)


@contextlib.contextmanager
def translated(url: sa.URL) -> Iterator[None]:
    """Raise each error that does not prove that a value is wrong as one of
    the database, for operators to read.

    :raises DatabaseError: the database cannot be used.
    :raises SchemaError: a table or a column is missing.
    """
    try:
        yield
    except sa.exc.DBAPIError as error:
        if _is_data(error):
            raise
        raise _as_ours(error, url) from error
    except sa.exc.TimeoutError as error:
        raise errors.DatabaseError(
            f'{shown(url)}: all connections of this process are in use; '
            'raise [database] max_connections') from error


def _is_data(error: sa.exc.DBAPIError) -> bool:
    """Return whether the database refuses a value."""
    return (isinstance(error, (sa.exc.DataError, sa.exc.IntegrityError))
            or not _from_sqlite(error.orig) and _is_of(
                _number(error.orig), _MYSQL_DATA, _POSTGRESQL_DATA))


def _is_of(number: int | str | None, mysql: Container[int],
           postgresql: Iterable[str]) -> bool:
    """Return whether an error is one of these numbers, or in one of these
    classes of SQLSTATEs."""
    if isinstance(number, str):
        return number.startswith(tuple(postgresql))
    return number in mysql


def _as_ours(error: sa.exc.DBAPIError, url: sa.URL) -> errors.DatabaseError:
    number, text = _number(error.orig), _first_line(error)
    sqlite = _from_sqlite(error.orig)
    if (any(map(text.__contains__, _SQLITE_SCHEMA)) and number == 1 if sqlite
            else _is_of(number, _MYSQL_SCHEMA, _POSTGRESQL_SCHEMA)):
        return errors.SchemaError(
            f'{shown(url)}: its tables are not those of this version '
            f'({text}): {UPGRADE}')
    if sqlite:
        says = _SQLITE_SAYS.get(number) if isinstance(number, int) else None
        if number in (8, 14):
            text = _whose(url.database or '') or text
    elif isinstance(number, int):
        says = _MYSQL_SAYS.get(number)
    elif number is None:
        says = ('the connection was lost' if error.connection_invalidated
                else 'it cannot be used')
    else:
        says = _POSTGRESQL_SAYS.get(number)
    if says is None:
        says = ('the connection was lost' if error.connection_invalidated
                else f'error {number}' if number else 'it cannot be used')
    return errors.DatabaseError(f'{shown(url)}: {says}: {text}')


def _number(original: Any) -> int | str | None:
    """The driver's number of an error; SQLite's without its details."""
    if _from_sqlite(original):
        return getattr(original, 'sqlite_errorcode', 0) & 0xff
    if hasattr(original, 'pgcode'):
        code: str | None = original.pgcode
        return code
    args = getattr(original, 'args', ())
    return args[0] if args and isinstance(args[0], int) else 0


def _from_sqlite(original: object) -> bool:
    return type(original).__module__ == 'sqlite3'


def _unreachable(error: sa.exc.DBAPIError) -> bool:
    """Nothing answers there; who is refused is refused again."""
    text = str(error.orig)
    return isinstance(error, sa.exc.OperationalError) and (
        'FATAL' not in text or 'starting up' in text
        or 'shutting down' in text or 'too many' in text
        or 'connection slots' in text or 'recovery' in text)


def _first_line(error: sa.exc.DBAPIError) -> str:
    args = getattr(error.orig, 'args', ())
    text = str(args[-1] if args else error)
    return printable(' '.join(text.split('\n')[0].split()))


def _whose(path: str) -> str:
    """Return why this process may not use a file, as far as it can see."""
    us = _user(os.geteuid())
    directory = os.path.dirname(os.path.abspath(path))
    for place in (path, directory):
        try:
            owner = _user(os.stat(place).st_uid)
        except OSError as exc_:
            return f'{exc_.strerror}'
        if not os.access(place, os.R_OK | os.W_OK):
            return (f'{place} belongs to {owner} and this process runs as '
                    f'{us}: run it as {owner}' if owner != us else
                    f'{place} has no permission to write')
    return ''


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f'user {uid}'
