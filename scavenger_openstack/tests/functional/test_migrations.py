# SPDX-License-Identifier: Apache-2.0

"""Migrations before a rolling upgrade only add, and those after it run when
no program of the release before is left; on each database."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import pathlib
from typing import Any

from alembic import command
from alembic import operations
from alembic.runtime import migration
import fixtures
import sqlalchemy as sa

from scavenger_openstack.db import connect
from scavenger_openstack.db.migrations import steps
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.servers import databases

Change = Callable[[operations.Operations], object]
Tables = dict[str, dict[str, Any]]


def tables_of(connection: sa.Connection) -> Tables:
    """Return all that programs of a release may rely on."""
    inspector = sa.inspect(connection)
    inspector.clear_cache()
    return {table: {
        'columns': {column['name']: column
                    for column in inspector.get_columns(table)},
        'key': tuple(inspector.get_pk_constraint(table)[
            'constrained_columns']),
        'indexes': {tuple(index['column_names'])
                    for index in inspector.get_indexes(table)},
        'unique': {
            *(tuple(unique['column_names'])
              for unique in inspector.get_unique_constraints(table)),
            *(tuple(index['column_names'])
              for index in inspector.get_indexes(table)
              if index['unique'])},
        'references': {(tuple(key['constrained_columns']),
                        key['referred_table'])
                       for key in inspector.get_foreign_keys(table)}}
        for table in inspector.get_table_names()
        if table != schema.VERSION.name}


def broken(before: Tables, after: Tables) -> list[str]:
    """Return what a change takes from programs that know only the tables
    before it."""
    problems = [f'{table} is gone' for table in before.keys() - after.keys()]
    for table in before.keys() & after.keys():
        old, new = before[table], after[table]
        added = new['columns'].keys() - old['columns'].keys()
        problems += [f'{table}.{name} is gone' for name
                     in old['columns'].keys() - new['columns'].keys()]
        problems += [
            f'{table}.{name} is another' for name, column
            in old['columns'].items() if name in new['columns']
            and not is_same(column, new['columns'][name])]
        problems += [
            f'{table}.{name} has to be inserted' for name in added
            if not new['columns'][name]['nullable']
            and new['columns'][name]['default'] is None]
        problems += [f'{table}: {part} gone: {there}'
                     for part in ('indexes', 'unique', 'references')
                     for there in old[part] - new[part]]
        problems += [
            f'{table}: {part} of old columns: {there}'
            for part in ('unique', 'references')
            for there in new[part] - old[part] if not added.intersection(
                there[0] if part == 'references' else there)]
        if old['key'] != new['key']:
            problems.append(f'{table}: another primary key')
    return sorted(problems)


def is_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether programs write and read a column as before."""
    return (old['nullable'], old['default']) == (
        new['nullable'], new['default']) and is_as_wide(
            old['type'], new['type'])


def is_as_wide(old: Any, new: Any) -> bool:
    if isinstance(old, sa.String) and isinstance(new, sa.String) and (
            old.length and new.length):
        return new.length >= old.length
    return str(old) == str(new) or (
        isinstance(old, sa.Integer) and isinstance(new, sa.BigInteger))


def altered(*words: Any, **more: Any) -> Change:
    """Return a change of a table, which SQLite makes again for it.

    :param words: a method of the batch, and what it takes
    """
    def change(op: operations.Operations) -> None:
        with op.batch_alter_table('made_up') as batch:
            getattr(batch, words[0])(*words[1:], **more)
    return change


BREAKS: dict[str, Change] = {
    'made_up is gone': lambda op: op.drop_table('made_up'),
    'made_up is gone ': lambda op: op.rename_table('made_up', 'renamed'),
    'made_up.extra is gone': altered('drop_column', 'extra'),
    'made_up.extra is gone ': altered(
        'alter_column', 'extra', new_column_name='extent',
        existing_type=sa.Integer()),
    'made_up.name is another': altered(
        'alter_column', 'name', type_=sa.String(16), existing_nullable=False,
        existing_type=sa.String(64)),
    'made_up.note is another': altered(
        'alter_column', 'note', server_default=None,
        existing_type=sa.String(32), existing_nullable=False),
    'made_up.size is another': altered(
        'alter_column', 'size', nullable=False, existing_type=sa.Integer()),
    'made_up.name is another ': altered(
        'alter_column', 'name', nullable=True, existing_type=sa.String(64)),
    'made_up.size is another ': altered(
        'alter_column', 'size', type_=sa.String(32),
        existing_type=sa.Integer()),
    'made_up.weight has to be inserted': altered(
        'add_column', sa.Column('weight', sa.Integer, nullable=False)),
    "made_up: unique of old columns: ('size',)": altered(
        'create_unique_constraint', 'uq_size', ['size']),
    "made_up: unique gone: ('name',)": altered(
        'drop_constraint', 'uq_name', type_='unique'),
    "made_up: indexes gone: ('size',)": altered('drop_index', 'ix_size'),
    "made_up: references of old columns: (('size',), 'other')": altered(
        'create_foreign_key', 'fk_size', 'other', ['size'], ['id'])}
"""What is broken (a blank at the end makes it another key) -> the change."""

ADDS: tuple[Change, ...] = (
    lambda op: op.create_table('more', sa.Column('id', sa.Integer,
                                                 primary_key=True)),
    altered('add_column', sa.Column('weight', sa.Integer)),
    altered('add_column', sa.Column('weight', sa.Integer, nullable=False,
                                    server_default='0')),
    altered('create_index', 'ix_name_size', ['name', 'size']),
    altered('alter_column', 'name', type_=sa.String(128),
            existing_nullable=False, existing_type=sa.String(64)))

FILE = '''
from alembic import op
import sqlalchemy as sa

revision, down_revision, kind = {!r}, {!r}, {!r}

def upgrade():
    {}
'''
"""A migration."""

FIRST = "op.create_table('a', sa.Column('id', sa.Integer, primary_key=True), "\
    "sa.Column('old', sa.Integer))"
RELEASES = (('0012', 'expand', FIRST),
            ('0013_0012', 'expand', "op.add_column('a', sa.Column('new', "
                                    'sa.Integer))'),
            ('0014_0013', 'contract', "op.drop_column('a', 'old')"),
            ('0015_0013', 'expand', "op.add_column('a', sa.Column('newer', "
                                    'sa.Integer))'))


class Migrations(databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.empty = connect.engine(self.empty_url(), statement_s=0)
        self.addCleanup(self.empty.dispose)
        if self.empty.dialect.name == 'sqlite':
            pathlib.Path(str(self.empty.url.database)).touch(mode=0o600)

    def changed(self, change: Change) -> list[str]:
        """Return what a change of a made-up table breaks."""
        with self.empty.begin() as connection:
            made = sa.MetaData()
            made.reflect(connection)
            made.drop_all(connection)
            made = sa.MetaData()
            sa.Table('other', made, sa.Column('id', sa.Integer,
                                              primary_key=True))
            sa.Table('made_up', made,
                     sa.Column('id', sa.Integer, primary_key=True),
                     sa.Column('name', sa.String(64), nullable=False),
                     sa.Column('note', sa.String(32), nullable=False,
                               server_default='none'),
                     sa.Column('size', sa.Integer),
                     sa.Column('extra', sa.Integer),
                     sa.UniqueConstraint('name', name='uq_name'),
                     sa.Index('ix_size', 'size'))
            made.create_all(connection)
            before = tables_of(connection)
            change(operations.Operations(
                migration.MigrationContext.configure(connection)))
            return broken(before, tables_of(connection))

    def test_what_breaks_a_program(self) -> None:
        for problem, change in BREAKS.items():
            self.assertIn(problem.strip(), self.changed(change))

    def test_what_only_adds(self) -> None:
        for change in ADDS:
            self.assertEqual([], self.changed(change))

    def broken_by(self, versions: pathlib.Path) -> list[str]:
        """Return what is wrong with the migrations in a directory."""
        problems = []
        known = steps.steps(versions)
        config = steps.configuration(versions)
        first, expanded = steps.numbers(known[0].revision) or (0, 0)
        oldest = expanded
        for step in known:
            with connect.writing(self.empty) as connection:
                before = tables_of(connection)
                config.attributes['connection'] = connection
                command.upgrade(config, step.revision)
                after = tables_of(connection)
            number, works_with = steps.numbers(step.revision) or (0, 0)
            if step.kind == 'expand':
                expanded = number
                if number != first:
                    problems += broken(before, after)
            else:
                oldest = expanded
            if works_with != oldest:
                problems.append(f'{step.revision} has to end with {oldest}')
        return problems

    def versions(self, *files: tuple[str, str, str]) -> pathlib.Path:
        """Return a directory with migrations: revision, kind and what each
        does."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        down = None
        for revision, kind, text in files:
            (directory / f'r{revision}.py').write_text(
                FILE.format(revision, down, kind, text))
            down = revision
        return directory

    def test_migrations(self) -> None:
        self.assertEqual([], self.broken_by(steps.VERSIONS))

    def test_migrations_that_break_the_rules(self) -> None:
        for files, problems in (
                (RELEASES, []),
                ((RELEASES[0], ('0013_0012', 'expand',
                                "op.drop_column('a', 'old')")),
                 ['a.old is gone']),
                ((*RELEASES[:2], ('0014_0012', *RELEASES[2][1:])),
                 ['0014_0012 has to end with 13']),
                ((*RELEASES[:3], ('0015_0014', *RELEASES[3][1:])),
                 ['0015_0014 has to end with 13'])):
            with self.empty.begin() as connection:
                made = sa.MetaData()
                made.reflect(connection)
                made.drop_all(connection)
            self.assertEqual(problems, self.broken_by(self.versions(*files)))

    def check(self, versions: pathlib.Path) -> str:
        """Return why a program does not work with the tables, else what is
        due."""
        with connect.reading(self.empty) as connection:
            try:
                return schema.due(connection, versions)
            except errors.SchemaError as exc:
                return f'refused: {exc}'

    def test_a_rolling_upgrade(self) -> None:
        before, here, after = (self.versions(*RELEASES[:count])
                               for count in (1, 3, 4))

        def upgrade(kind: steps.Kind | None, versions: pathlib.Path
                    ) -> tuple[str | None, str]:
            return schema.upgrade(self.empty, kind, versions)

        def refused(kind: steps.Kind | None, versions: pathlib.Path) -> str:
            return str(self.assertRaises(errors.SchemaError, upgrade, kind,
                                         versions))

        self.assertEqual((None, '0012'), upgrade(None, before))
        self.assertEqual('', self.check(before))
        self.assertIn('upgrade --expand', self.check(here))
        self.assertIn('upgrade --expand', refused('contract', here))
        self.assertEqual(('0012', '0013_0012'), upgrade('expand', here))
        self.assertEqual(('0013_0012', '0013_0012'), upgrade('expand', here))
        self.assertIn('of a later release', self.check(before))
        self.assertIn('upgrade --contract', self.check(here))
        # It was never contracted before the release after.
        self.assertIn('refused', self.check(after))
        self.assertIn('upgrade --contract', refused('expand', after))
        self.assertEqual(('0013_0012', '0014_0013'),
                         upgrade('contract', after))
        self.assertIn('refused', self.check(before))
        self.assertIn('install the newer', refused('expand', before))
        self.assertEqual('', self.check(here))
        self.assertEqual(('0014_0013', '0015_0013'), upgrade('expand', after))
        self.assertEqual('', self.check(after))
        self.assertIn('of a later release', self.check(here))
        self.assertIn('refused', self.check(before))
        self.assertEqual(('0015_0013', '0015_0013'), upgrade(None, after))

    def test_an_empty_database_gets_all(self) -> None:
        versions = self.versions(*RELEASES)
        self.assertEqual((None, '0015_0013'),
                         schema.upgrade(self.empty, 'expand', versions))
        self.assertEqual('', self.check(versions))


class OnSqlite(Migrations, databases.Sqlite):
    pass


class OnMariaDb(Migrations, databases.MariaDb):
    pass


class OnPostgreSql(Migrations, databases.PostgreSql):
    pass
