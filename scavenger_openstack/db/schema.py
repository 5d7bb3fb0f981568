# SPDX-License-Identifier: Apache-2.0


"""The version of the tables: which one is there, and how to get the newest.

Versions are numbers that only grow; alembic keeps the one that is there in the
table ``alembic_version``.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import os
import pathlib

from alembic import command
import sqlalchemy as sa

from scavenger_openstack.db import connect
from scavenger_openstack.db import faults
from scavenger_openstack.db.migrations import steps
from scavenger_openstack.db import tables
from scavenger_openstack import errors

LOCK = 'scavenger-schema'
LOCK_ID = 0x5ca7e6e2
"""PostgreSQL names a lock by a number."""
LOCK_S = 60

VERSION = sa.table('alembic_version',
                   sa.column('version_num'))


@functools.cache
def _steps(versions: pathlib.Path = steps.VERSIONS) -> list[steps.Step]:
    return steps.steps(versions)


def newest() -> str:
    """The last version that this program makes."""
    return _steps()[-1].revision


def current(connection: sa.Connection) -> str | None:
    """The version that is there; None where there is none."""
    if not sa.inspect(connection).has_table(VERSION.name):
        return None
    return connection.execute(sa.select(
        VERSION.c.version_num)).scalar_one_or_none()


def check(connection: sa.Connection,
          versions: pathlib.Path = steps.VERSIONS) -> None:
    """Do nothing if this program works with the tables: those of this release,
    also before their contract step, and those of a later one before its.

    :param versions: the directory of the migrations
    :raises SchemaError: they are older, newer, of an unknown version or not
        there.
    """
    known, there = _steps(versions), current(connection)
    if there is not None and steps.is_later(there, known):
        return
    there = _checked_version(connection, known)
    needed = steps.needed(known)
    if there is None or needed in steps.pending(there, known):
        raise errors.SchemaError(
            f'{faults.shown(connection.engine.url)}: its tables have '
            + ('no version' if there is None else f'version {there}')
            + f' and this program needs version {needed.revision}: '
            + (faults.UPGRADE if there is None else steps.COMMANDS['expand']))


def due(connection: sa.Connection,
        versions: pathlib.Path = steps.VERSIONS) -> str:
    """Return what has to be done after an upgrade, a sentence; '' for
    nothing.

    :raises SchemaError: as :func:`check`
    """
    check(connection, versions)
    known, there = _steps(versions), str(current(connection))
    if steps.is_later(there, known):
        return (f'The tables have version {there}, of a later release: '
                'upgrade this program.')
    rest = steps.pending(there, known)
    return '' if not rest else (
        f'The tables have version {there}, and {rest[0].revision} removes '
        'what only the release before needs. When no API and no conductor of '
        f'that runs, {steps.COMMANDS["contract"]}.')


def check_writable(connection: sa.Connection) -> None:
    """Do nothing, and that by a statement that a read-only database refuses.

    :raises DBAPIError: the database takes no changes.
    """
    connection.execute(sa.update(tables.claims).where(
        sa.false()).values(expires_s=0.0))


def upgrade(engine: sa.Engine, kind: steps.Kind | None = None,
            versions: pathlib.Path = steps.VERSIONS
            ) -> tuple[str | None, str]:
    """Bring the tables to the newest version, and return the version before
    and after.  Two of these at once wait for each other.

    :param kind: see :func:`.steps.target`
    :param versions: the directory of the migrations

    On SQLite and PostgreSQL it is one transaction.  MariaDB stores each
    change of a table at once: what a first upgrade that was interrupted has
    left there, empty tables, is made again.

    :raises SchemaError: the tables are of an unknown version, or not from
        here, or migrations of the other kind have to be before.
    """
    known = _steps(versions)
    _create_file(engine)
    with _lock(engine), connect.writing(engine) as connection:
        before = _checked_version(connection, known)
        if before is None:
            _clear_remains(connection)
        after = steps.target(before, known, kind)
        config = steps.configuration(versions)
        config.attributes['connection'] = connection
        command.upgrade(config, after)
    return before, after


def _checked_version(connection: sa.Connection,
                     known: Sequence[steps.Step]) -> str | None:
    """The version that is there; None where there is none.

    :raises SchemaError: this program does not know that version.
    """
    there, revisions = current(connection), [step.revision for step in known]
    if there is None or there in revisions:
        return there
    text = (f'{faults.shown(connection.engine.url)}: its tables have version '
            f'{there} and this program knows versions ')
    if there > revisions[-1]:
        raise errors.SchemaError(
            f'{text}to {revisions[-1]}: install the newer scavenger-openstack '
            'here, or restore the backup from before the upgrade')
    raise errors.SchemaError(
        f'{text}from {revisions[0]} on: tables from before the first '
        'release cannot be upgraded; name an empty database in [database] '
        f'connection, and {faults.UPGRADE}')


def _create_file(engine: sa.Engine) -> None:
    """An SQLite file that only its owner reads: it has hashes of tokens."""
    path = engine.url.database
    if engine.dialect.name == 'sqlite' and path and path != ':memory:':
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC,
                             0o600))
        except OSError as exc:
            raise errors.DatabaseError(
                f'{path}: it cannot be opened: {exc.strerror}') from exc


@contextlib.contextmanager
def _lock(engine: sa.Engine) -> Iterator[None]:
    """One upgrade at a time, on a connection of its own, since it has to end
    after the commit.  SQLite's writers have a lock anyway."""
    name = engine.dialect.name
    with connect.reading(engine) as connection:
        if name == 'postgresql':
            connection.execute(sa.text(
                f"SET LOCAL lock_timeout = '{LOCK_S}s'"))
            connection.execute(sa.select(
                sa.func.pg_advisory_xact_lock(LOCK_ID)))
        elif name != 'sqlite' and connection.execute(sa.select(
                sa.func.get_lock(LOCK, LOCK_S))).scalar() != 1:
            raise errors.SchemaError(
                f'{faults.shown(engine.url)}: another "scavenger-manage db '
                f'upgrade" has been running for {LOCK_S} s; try again when '
                'it has ended')
        try:
            yield
        finally:
            if name not in ('sqlite', 'postgresql'):
                # A connection that is lost has no lock any more.
                with contextlib.suppress(sa.exc.DBAPIError):
                    connection.execute(sa.select(
                        sa.func.release_lock(LOCK)))


def _clear_remains(connection: sa.Connection) -> None:
    """Drop the empty tables of a first upgrade that was interrupted.

    :raises SchemaError: one is not empty.
    """
    there = set(sa.inspect(connection).get_table_names())
    remains = [table for table in reversed(tables.METADATA.sorted_tables)
               if table.name in there]
    for table in remains:
        if connection.execute(sa.select(
                sa.exists().select_from(table))).scalar():
            raise errors.SchemaError(
                f'{faults.shown(connection.engine.url)}: it has a table '
                f'"{table.name}" with rows and no version: give '
                'scavenger-openstack a database of its own')
    for table in remains:
        table.drop(connection)
