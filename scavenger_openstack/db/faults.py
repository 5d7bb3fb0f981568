# SPDX-License-Identifier: Apache-2.0


"""What goes wrong with a database, in a sentence for operators.

The drivers' error numbers decide; their texts are only shown.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os
import pwd
from typing import Any

from sqlalchemy import exc
from sqlalchemy import URL

from scavenger_openstack import errors

UPGRADE = 'type "scavenger-manage db upgrade"'

# Error numbers of MySQL and MariaDB.
_MYSQL_PASSES = {1020,      # the row has changed since it was read
                 1205,      # lock wait timeout
                 1213,      # deadlock
                 1040, 1053, 1927, 2002, 2003, 2006, 2013}
_MYSQL_SAYS = {1021: 'its disk is full', 1114: 'its disk is full',
               1040: 'it has no connection left for us',
               1044: 'it refuses this user', 1045: 'it refuses this user',
               1698: 'it refuses this user',
               1049: 'it has no such database',
               1142: 'this user lacks a privilege',
               1290: 'it is read-only', 1792: 'it is read-only',
               1836: 'it is read-only',
               1205: 'another transaction holds a lock',
               1213: 'transactions wait for each other',
               1969: 'a statement took too long',
               3024: 'a statement took too long',
               2002: 'it cannot be reached', 2003: 'it cannot be reached',
               1053: 'the connection was lost',
               1927: 'the connection was lost',
               2006: 'the connection was lost',
               2013: 'the connection was lost'}
_MYSQL_NO_TABLE = {1146}

# SQLSTATEs of PostgreSQL.
_POSTGRESQL_PASSES = {'40001', '40P01', '53300', '55P03', '57P01', '57P02',
                      '57P03'}
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
_POSTGRESQL_NO_TABLE = {'42P01'}

# Primary result codes of SQLite.
_SQLITE_PASSES = {5, 6}
_SQLITE_SAYS = {5: 'another process keeps it locked',
                6: 'another connection keeps it locked',
                8: 'it cannot be written', 10: 'its disk has errors',
                11: 'it is damaged: restore it from a backup',
                13: 'its disk is full', 14: 'it cannot be opened',
                26: 'this file is not an SQLite database'}


def shown(url: URL) -> str:
    """The database in a message: without its password."""
    if url.get_backend_name() == 'sqlite':
        return url.database or 'the database in memory'
    return f'database {url.render_as_string(hide_password=True)}'


def passes(error: exc.DBAPIError) -> bool:
    """Whether the same transaction may succeed a moment later."""
    number = _number(error)
    return (error.connection_invalidated
            or number in _MYSQL_PASSES | _POSTGRESQL_PASSES
            or isinstance(number, int) and _from_sqlite(error)
            and number in _SQLITE_PASSES
            or number is None and _unreachable(error))


@contextlib.contextmanager
def translated(url: URL) -> Iterator[None]:
    """Raise what is a matter for operators as what they can read.

    :raises DatabaseError: the database cannot be used.
    :raises SchemaError: a table is missing.
    """
    try:
        yield
    except exc.DBAPIError as error:
        raised = _as_ours(error, url)
        if raised is None:
            raise
        raise raised from error
    except exc.TimeoutError as error:
        raise errors.DatabaseError(
            f'{shown(url)}: all connections of this process are in use; '
            'raise [database] max_connections') from error


def _as_ours(error: exc.DBAPIError, url: URL) -> errors.DatabaseError | None:
    number, text = _number(error), _first_line(error)
    sqlite = _from_sqlite(error)
    if (number in _MYSQL_NO_TABLE | _POSTGRESQL_NO_TABLE
            or sqlite and number == 1 and 'no such table' in text):
        return errors.SchemaError(
            f'{shown(url)}: it lacks tables ({text}): {UPGRADE}')
    if sqlite:
        says = _SQLITE_SAYS.get(number) if isinstance(number, int) else None
        if number in (8, 14):
            text = _whose(url.database or '') or text
    elif isinstance(number, int):
        says = _MYSQL_SAYS.get(number)
    elif number is None:
        says = ('the connection was lost' if error.connection_invalidated
                else 'it cannot be used' if _connecting(error) else None)
    else:
        says = _POSTGRESQL_SAYS.get(number)
    if says is None and error.connection_invalidated:
        says = 'the connection was lost'
    if says is None:
        return None
    return errors.DatabaseError(f'{shown(url)}: {says}: {text}')


def _number(error: exc.DBAPIError) -> int | str | None:
    """The driver's number of an error; SQLite's without its details."""
    original: Any = error.orig
    if _from_sqlite(error):
        return getattr(original, 'sqlite_errorcode', 0) & 0xff
    if hasattr(original, 'pgcode'):
        code: str | None = original.pgcode
        return code
    args = getattr(original, 'args', ())
    return args[0] if args and isinstance(args[0], int) else 0


def _from_sqlite(error: exc.DBAPIError) -> bool:
    return type(error.orig).__module__ == 'sqlite3'


def _connecting(error: exc.DBAPIError) -> bool:
    """PostgreSQL says so by a text only."""
    return isinstance(error, exc.OperationalError)


def _unreachable(error: exc.DBAPIError) -> bool:
    """Nothing answers there; who is refused is refused again."""
    text = str(error.orig)
    return _connecting(error) and (
        'FATAL' not in text or 'starting up' in text
        or 'shutting down' in text or 'too many' in text
        or 'recovery' in text)


def _first_line(error: exc.DBAPIError) -> str:
    args = getattr(error.orig, 'args', ())
    text = str(args[-1] if args else error)
    return ' '.join(text.split('\n')[0].split())


def _whose(path: str) -> str:
    """Why this process may not use a file, as far as it can see."""
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
