# SPDX-License-Identifier: Apache-2.0

"""Tables of older versions become those of this one, on each database."""

from __future__ import annotations

import pathlib

from alembic import autogenerate
from alembic import command
from alembic import config as config_
from alembic.runtime import migration
import sqlalchemy
from sqlalchemy import Connection
from sqlalchemy import Engine

from scavenger_openstack.db import connect
from scavenger_openstack.db import migrations
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources import incidents
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.functional.servers import databases

FIRST, BEFORE = '0001', '0004'


class Upgrades(databases.Mixin):

    def older(self, version: str) -> Engine:
        """A database with the tables of an older version."""
        engine = connect.engine(self.empty_url(), statement_s=0)
        self.addCleanup(engine.dispose)
        if engine.dialect.name == 'sqlite':
            pathlib.Path(str(engine.url.database)).touch()
        config = config_.Config()
        config.set_main_option('script_location',
                               str(pathlib.Path(migrations.__file__).parent))
        config.set_main_option('path_separator', 'os')
        with connect.writing(engine) as connection:
            config.attributes['connection'] = connection
            command.upgrade(config, version)
        return engine

    def upgraded(self, engine: Engine, version: str) -> None:
        self.assertEqual((version, schema.newest()), schema.upgrade(engine))
        with engine.connect() as connection:
            self.assertEqual([], autogenerate.compare_metadata(
                migration.MigrationContext.configure(
                    connection, opts={'compare_type': True}),
                tables.METADATA))

    def set_version(self, connection: Connection, version: str) -> None:
        connection.execute(schema.VERSION.update().values(
            version_num=version))

    def test_from_the_first(self) -> None:
        engine = self.older(FIRST)
        with connect.writing(engine) as connection:
            connection.execute(tables.hosts.insert().values(
                name='one', facts={}, settings={}, first_seen_s=1.0,
                last_seen_s=2.0))
        self.upgraded(engine, FIRST)
        with connect.writing(engine) as connection:
            self.assertEqual(['one'], list(connection.execute(
                sqlalchemy.select(tables.hosts.c.name)).scalars()))
            aggregates.set_settings(connection, 'a', {}, new=True)

    def test_where_one_has_died(self) -> None:
        """It has made what is new, but for the version."""
        engine = self.older(FIRST)
        schema.upgrade(engine)
        with connect.writing(engine) as connection:
            self.set_version(connection, FIRST)
        self.upgraded(engine, FIRST)

    def test_where_one_has_died_between_two_columns(self) -> None:
        engine = self.older(BEFORE)
        schema.upgrade(engine)
        with connect.writing(engine) as connection:
            connection.execute(sqlalchemy.text(
                'ALTER TABLE aggregate_hosts DROP COLUMN nova'))
            self.set_version(connection, BEFORE)
        self.upgraded(engine, BEFORE)

    def test_aggregates_that_operators_named(self) -> None:
        """They stay so, and Nova's come beside them."""
        engine = self.older(BEFORE)
        with connect.writing(engine) as connection:
            for host in ('h1', 'h2'):
                connection.execute(sqlalchemy.text(
                    'INSERT INTO aggregate_hosts (aggregate, host) '
                    f"VALUES ('rack', '{host}')"))
        self.upgraded(engine, BEFORE)
        with connect.writing(engine) as connection:
            aggregates.follow(connection, {'rack': ['h2', 'h3']}, now_s=1.0)
            self.assertEqual(
                {'rack': (frozenset(('h1', 'h2')), frozenset(('h2', 'h3')))},
                aggregates.members(connection))

    def test_totals_are_made_of_hours_from_before(self) -> None:
        engine = self.older('0005')
        now = 1_750_000_000.0
        with connect.writing(engine) as connection:
            connection.execute(tables.hosts.insert().values(
                name='one', facts={}, settings={}, first_seen_s=1.0,
                last_seen_s=2.0))
            host_id = connection.scalar(sqlalchemy.select(tables.hosts.c.id))
            connection.execute(tables.antagonist_hours.insert(), [
                {'host_id': host_id, 'workload': 'a', 'victim': f'v{hours}',
                 'cause': 'cpu', 'hour_s': reports.hour(now - hours * 3600),
                 'incidents': 1, 'interference_s': 9.5, 'confirmed': 0,
                 'refuted': 0} for hours in range(30)])
        self.upgraded(engine, '0005')
        while connect.retried(engine, lambda connection: totals.advance(
                connection, reports.hour(now))):
            pass
        with connect.reading(engine) as connection:
            asked = antagonists.span(connection, now_s=now, until_s=now,
                                     since_s=now - 86400)
            self.assertEqual(86400, asked.total_s)
            self.assertEqual(
                [(25 * 9500, host_id, 'a')],
                antagonists.ranking(connection, asked, limit=9,
                                    sort='interference_s'))

    def test_suspects_from_before(self) -> None:
        """They have the time of their incident, and are listed by it."""
        engine = self.older('0006')
        with connect.writing(engine) as connection:
            connection.execute(tables.hosts.insert().values(
                id=1, name='one', facts={}, settings={}, first_seen_s=1.0,
                last_seen_s=2.0))
            connection.execute(tables.incidents.insert(), [
                {'id': number, 'host_id': 1, 'uuid': f'{number}',
                 'victim': 'v', 'signal': 'cpi', 'action': '',
                 'outcome': 'open', 'evidence': [], 'changed_s': 0.0,
                 'begun_s': 1_750_000_000.1 + number} for number in (1, 2)])
            old = sqlalchemy.table('suspects', *map(sqlalchemy.column, (
                'id', 'incident_id', 'workload', 'antagonist', 'instance',
                'project')))
            # The last is not in the first batch.
            connection.execute(old.insert(), [
                {'id': id_, 'incident_id': incident, 'workload': workload,
                 'antagonist': True, 'instance': '', 'project': ''}
                for id_, incident, workload in (
                    (7, 1, 'a'), (8, 2, 'a'), (25_000, 1, 'b'))])
        self.upgraded(engine, '0006')
        with connect.writing(engine) as connection:
            # Where one has died before it was done.
            connection.execute(tables.suspects.update().where(
                tables.suspects.c.id > 7).values(begun_s=0.0))
            self.set_version(connection, '0006')
        self.upgraded(engine, '0006')
        with connect.reading(engine) as connection:
            for workload, expected in (('a', [2, 1]), ('b', [1])):
                self.assertEqual(expected, [
                    row['id'] for row in incidents.page(
                        connection, antagonist=workload, limit=9)])
            self.assertEqual([], list(connection.execute(sqlalchemy.select(
                tables.suspects.c.id).join_from(
                    tables.suspects, tables.incidents).where(
                        tables.suspects.c.begun_s
                        != tables.incidents.c.begun_s))))


class OnSqlite(Upgrades, databases.Sqlite):
    pass


class OnMariaDb(Upgrades, databases.MariaDb):
    pass


class OnPostgreSql(Upgrades, databases.PostgreSql):
    pass
