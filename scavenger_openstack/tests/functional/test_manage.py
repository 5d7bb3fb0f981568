# SPDX-License-Identifier: Apache-2.0


"""``scavenger-manage`` on each database, also on those that cannot be used."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import fixtures
import sqlalchemy
from sqlalchemy import Connection
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import generation
from scavenger_openstack.db import purge
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import managing
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.wire import proof

DAY_S = 86400.0
NOW_S = 1000 * DAY_S
OLD_S = NOW_S - 40 * DAY_S


def rows(engine: sqlalchemy.Engine) -> dict[str, int]:
    """How many rows each table has that has some."""
    found = {}
    with connect.reading(engine) as connection:
        for table in tables.METADATA.sorted_tables:
            found[table.name] = connection.execute(sqlalchemy.select(
                sqlalchemy.func.count()).select_from(table)).scalar_one()
    return {name: number for name, number in found.items() if number}


def added(connection: Connection, table: sqlalchemy.Table, **values: Any
          ) -> int:
    """The id of a new row."""
    key = connection.execute(
        table.insert().values(**values)).inserted_primary_key
    assert key is not None
    return key[0]


class Manage(managing.Command):

    def fill(self, times_s: list[float]) -> None:
        """At each time one thing of each kind ended."""
        with connect.writing(self.engine) as connection:
            host = added(connection, tables.hosts, name='h', facts={},
                         settings={}, first_seen_s=0.0, last_seen_s=NOW_S)
            for number, time_s in enumerate(times_s):
                incident = {
                    'host_id': host, 'uuid': f'{number:032}', 'victim': 'v',
                    'signal': 'cpi', 'action': 'none', 'outcome': 'unclear',
                    'begun_s': time_s - 60, 'changed_s': time_s,
                    'evidence': []}
                found = added(connection, tables.incidents, ended_s=time_s,
                              **incident)
                connection.execute(tables.suspects.insert(), [
                    {'incident_id': found, 'workload': name, 'score': 0.5,
                     'antagonist': False, 'begun_s': time_s - 60}
                    for name in 'ab'])
                connection.execute(tables.caps.insert().values(
                    host_id=host, workload='w', knob='cpu_cores', owner='o',
                    reason='r', why='y', set_s=time_s, changed_s=time_s,
                    removed_s=time_s))
                connection.execute(tables.workloads.insert().values(
                    host_id=host, name='w', kind='container',
                    priority='background', vcpus=1.0, floor={},
                    since_s=time_s, until_s=time_s))
                connection.execute(tables.antagonist_hours.insert().values(
                    host_id=host, hour_s=int(time_s), workload='w',
                    victim='v', cause='c', incidents=1, interference_s=1.0,
                    confirmed=0, refuted=0))
                connection.execute(tables.victim_hours.insert().values(
                    host_id=host, hour_s=int(time_s), victim='v',
                    incidents=1, interference_s=1.0))
                connection.execute(tables.background_hours.insert().values(
                    host_id=host, hour_s=int(time_s), core_s=1.0,
                    byte_s=1.0))
                connection.execute(tables.statistics.insert().values(
                    host_id=host, hour_s=int(time_s), application='a',
                    cpu_model='m', signal='cpi', n=1, mean=1.0, m2=0.0,
                    least=1.0, most=1.0))
                connection.execute(tables.audit.insert().values(
                    time_s=time_s, actor='a', action='b', target='c',
                    reason='d'))
                connection.execute(tables.runs.insert().values(
                    host_id=host, run_id=str(number), sequence=1,
                    last_seen_s=time_s))
            # What is not over, however old.
            connection.execute(tables.incidents.insert().values(
                **incident | {'uuid': 'open'}))
            connection.execute(tables.caps.insert().values(
                host_id=host, workload='w', knob='cpu_set', owner='o',
                reason='r', why='y', set_s=1.0, changed_s=1.0))
            connection.execute(tables.workloads.insert().values(
                host_id=host, name='w', kind='container',
                priority='background', vcpus=1.0, floor={}, since_s=1.0))

    def test_purge(self) -> None:
        self.fill([OLD_S, OLD_S + 1, OLD_S + 2, NOW_S - 29 * DAY_S])
        with connect.reading(self.engine) as connection:
            counts = purge.count(connection, now_s=NOW_S,
                                 older_than_s=30 * DAY_S,
                                 audit_older_than_s=30 * DAY_S)
        told: list[tuple[str, int]] = []
        deleted = purge.run(
            self.engine, now_s=NOW_S, older_than_s=30 * DAY_S,
            audit_older_than_s=30 * DAY_S, batch=2,
            progress=lambda *what: told.append(what))
        self.assertEqual(counts, deleted)
        self.assertEqual(
            {'incidents': 3, 'suspects': 6, 'caps': 3, 'workloads': 3,
             'antagonist_hours': 3, 'victim_hours': 3,
             'background_hours': 3, 'statistics': 3, 'overrides': 0,
             'profilings': 0,
             'evictions': 0, 'audit': 3, 'runs': 3, 'flavor_tags': 0,
             'rules': 0}, deleted)
        self.assertEqual(
            {'alembic_version': 1, 'hosts': 1, 'incidents': 2, 'suspects': 2,
             'caps': 2, 'workloads': 2, 'antagonist_hours': 1,
             'victim_hours': 1, 'background_hours': 1,
             'statistics': 1, 'audit': 1, 'runs': 1},
            {'alembic_version': 1, **rows(self.engine)})
        self.assertEqual([('incidents', 2), ('incidents', 3)], told[:2])

    def test_purge_keeps_runs_for_longer(self) -> None:
        self.fill([NOW_S - 20 * DAY_S])
        deleted = purge.run(self.engine, now_s=NOW_S,
                            older_than_s=3 * DAY_S,
                            audit_older_than_s=0,
                            progress=lambda *what: None)
        self.assertEqual((1, 0, 0), (deleted['incidents'], deleted['runs'],
                                     deleted['audit']))

    def test_purge_of_tags(self) -> None:
        """Of instances that no host has: a delete may have been lost."""
        self.fill([NOW_S])
        with connect.writing(self.engine) as connection:
            connection.execute(tables.workloads.update().values(instance='a'))
            for instance, changed_s in (('a', OLD_S), ('b', OLD_S),
                                        ('c', NOW_S - 20 * DAY_S)):
                added(connection, tables.flavor_tags, instance=instance,
                      host='h', project='p', priority='background',
                      source='flavor', application='', floor={},
                      protect=True, changed_s=changed_s,
                      from_broker=True)
        deleted = purge.run(self.engine, now_s=NOW_S, older_than_s=2 * DAY_S,
                            audit_older_than_s=0,
                            progress=lambda *what: None)
        self.assertEqual(1, deleted['flavor_tags'])
        with connect.reading(self.engine) as connection:
            self.assertEqual(['a', 'c'], list(connection.scalars(
                sqlalchemy.select(tables.flavor_tags.c.instance).order_by(
                    tables.flavor_tags.c.id))))

    def test_purge_beside_writers(self) -> None:
        """Both end, and what is written meanwhile stays."""
        self.fill([OLD_S + number for number in range(40)])
        ended = threading.Event()

        def write() -> None:
            while not ended.is_set():
                written.append(str(len(written)))
                connect.retried(self.engine, add)

        def add(connection: Connection) -> None:
            connection.execute(tables.rules.insert().values(
                uuid=written[-1], kind='priority', scope='project',
                target=written[-1], reason='r', created_by='c',
                created_s=1.0))

        written: list[str] = []
        thread = threading.Thread(target=write)
        thread.start()
        try:
            purge.run(self.engine, now_s=NOW_S, older_than_s=30 * DAY_S,
                      audit_older_than_s=30 * DAY_S, batch=3,
                      progress=lambda *what: None)
        finally:
            ended.set()
            thread.join(30)
        self.assertEqual(len(written), rows(self.engine)['rules'])
        self.assertEqual(1, rows(self.engine)['incidents'])

    def test_commands(self) -> None:
        url, newest = self.empty_url(), schema.newest()
        self.assertIn('type "scavenger-manage db upgrade"',
                      self.refused(url))
        self.assertEqual(
            (0, f'the tables have version {newest}, made\n', ''),
            self.command(url, 'db', 'upgrade'))
        self.assertEqual(
            (0, f'the tables have version {newest}, nothing to do\n', ''),
            self.command(url, 'db', 'upgrade'))
        for kind in ('--expand', '--contract'):
            self.assertEqual(
                (0, f'the tables have version {newest}, nothing to do\n', ''),
                self.command(url, 'db', 'upgrade', kind))
        self.assertEqual(2, self.command(
            url, 'db', 'upgrade', '--expand', '--contract')[0])
        self.assertEqual((0, f'{newest}\n', ''),
                         self.command(url, 'db', 'version'))
        for dry in ([], ['--dry-run']):
            code, out, err = self.command(
                url, 'db', 'purge', '--older-than', '30d', *dry)
            self.assertEqual((0, ''), (code, err))
            self.assertIn('incidents: 0 rows '
                          + ('would be ' if dry else '') + 'deleted\n', out)

    def audit(self) -> list[tuple[str, str]]:
        with connect.reading(self.engine) as connection:
            return [(action, target) for action, target in connection.execute(
                sqlalchemy.select(tables.audit.c.action, tables.audit.c.target
                                  ).order_by(tables.audit.c.id))]

    def test_purge_is_audited(self) -> None:
        self.command(self.url, 'db', 'purge', '--older-than', '30d',
                     '--dry-run')
        self.assertEqual([], self.audit())
        self.command(self.url, 'db', 'purge', '--older-than', '30d')
        self.assertEqual([('db.purge', ''), ('db.purged', '')], self.audit())

    def reporting(self, *names: str, ago_s: float = 1.0) -> None:
        with connect.writing(self.engine) as connection:
            for name in names:
                added(connection, tables.hosts, name=name, facts={},
                      settings={}, first_seen_s=0.0,
                      last_seen_s=time.time() - ago_s)

    def test_enroll_many(self) -> None:
        self.reporting('h1', 'h2')
        code, out, err = self.command(
            self.url, 'host', 'enroll', '--grace', '2h', 'h1', 'h2', 'h3')
        tokens = dict(line.split() for line in out.splitlines())
        self.assertEqual((0, ['h1', 'h2', 'h3']), (code, list(tokens)))
        self.assertEqual(2, err.count('reports at present without a token'))
        with connect.reading(self.engine) as connection:
            for name, token in tokens.items():
                self.assertEqual(proof.key(token),
                                 enrollment.key(connection, name))
            self.assertEqual([True, True, False], [
                (until_s or 0.0) > time.time() + 7000 for until_s
                in connection.scalars(sqlalchemy.select(
                    tables.hosts.c.token_from_s).order_by(tables.hosts.c.id))])
        code, out, _ = self.command(self.url, 'host', 'list')
        self.assertEqual([['h1', 'from'], ['h2', 'from'], ['h3', 'yes']], [
            [line.split()[0], *(word for word in line.split()
                                if word in ('from', 'yes', 'no'))]
            for line in out.splitlines()[1:]])
        self.assertEqual(0, self.command(
            self.url, 'host', 'unenroll', 'h1', 'h3')[0])
        self.assertEqual(1, self.command(
            self.url, 'host', 'unenroll', 'h1', 'h9')[0])
        with connect.reading(self.engine) as connection:
            self.assertEqual(2, enrollment.without_token(connection))
        self.assertEqual(
            [('host.enroll', 'h1'), ('host.enroll', 'h2'),
             ('host.enroll', 'h3'), ('host.unenroll', 'h1'),
             ('host.unenroll', 'h3')], self.audit())

    def test_conductors_notice_each_command(self) -> None:
        """Those that change something."""
        self.reporting('h1', ago_s=3600.0)
        for changes, command in (
                (True, 'aggregate set racks h1'), (False, 'aggregate list'),
                (True, 'aggregate unset racks'), (True, 'host enroll h1'),
                (False, 'host list'), (True, 'host unenroll h1'),
                (False, 'host unenroll h1'), (True, 'host remove h1'),
                (True, 'db purge --older-than 30d'),
                (False, 'db purge --older-than 30d --dry-run'),
                (False, 'db version'), (False, 'db upgrade')):
            before = self.generation()
            self.assertEqual(0, self.command(
                self.url, *command.split())[0], command)
            self.assertEqual(changes, self.generation() > before, command)

    def generation(self) -> int:
        with connect.reading(self.engine) as connection:
            return generation.current(connection)

    def test_remove(self) -> None:
        self.reporting('h1')
        self.reporting('h2', 'h3', ago_s=3600.0)
        code, out, err = self.command(
            self.url, 'host', 'remove', 'h1', 'h2', 'h9')
        self.assertEqual((1, 'h2: removed\n'), (code, out))
        self.assertIn('h1 reported', err)
        self.assertIn('no host h9', err)
        self.assertEqual([('host.remove', 'h2')], self.audit())
        _, out, _ = self.command(self.url, 'host', 'list')
        self.assertEqual(['h1', 'h3'], [
            line.split()[0] for line in out.splitlines()[1:]])
        self.assertEqual(0, self.command(self.url, 'host', 'enroll', 'h2')[0])
        _, out, _ = self.command(self.url, 'host', 'list')
        self.assertIn('never', out)

    def test_enroll(self) -> None:
        code, first, err = self.command(self.url, 'host', 'enroll', 'h1')
        self.assertEqual(
            (0, 'scavenger-manage: token of h1, shown only now\n'),
            (code, err))
        code, second, err = self.command(self.url, 'host', 'enroll', 'h1')
        self.assertEqual(
            (0, 'scavenger-manage: token of h1, shown only now; the token '
                'from before is void\n'), (code, err))
        with connect.reading(self.engine) as connection:
            self.assertEqual(
                [False, True, False, False],
                [enrollment.key(connection, name) == proof.key(token)
                 for name, token in (('h1', first.strip()),
                                     ('h1', second.strip()),
                                     ('h2', second.strip()), ('h1', ''))])
            stored = connection.execute(sqlalchemy.select(
                tables.hosts.c.token_hash)).scalars().all()
        self.assertNotIn(second.strip(), stored[0])


class OnSqlite(Manage, databases.Sqlite):
    pass


class OnMariaDb(Manage, databases.MariaDb):

    def test_read_only(self) -> None:
        self.server.execute('SET GLOBAL read_only = 1')
        self.addCleanup(self.server.execute, 'SET GLOBAL read_only = 0')
        self.server.execute(
            "CREATE OR REPLACE USER 'reader'@'localhost'")
        self.server.execute(
            "GRANT ALL ON *.* TO 'reader'@'localhost'")
        self.server.execute("REVOKE READ_ONLY ADMIN ON *.* FROM "
                            "'reader'@'localhost'")
        url = self.url.replace('root@', 'reader@')
        self.assertIn('it is read-only',
                      self.refused(url, 'host', 'enroll', 'h1'))
        self.assertEqual(0, self.command(url, 'db', 'version')[0])

    def test_no_such_database_or_user(self) -> None:
        self.assertIn('it has no such database: Unknown database',
                      self.refused(self.url.replace('/test_', '/none_')))
        err = self.refused(self.url.replace('root@', 'root:secret@'))
        self.assertIn('it refuses this user', err)
        self.assertNotIn('secret', err)

    def test_not_running(self) -> None:
        self.assertIn('it cannot be reached', self.refused(
            self.url.replace('/socket', '/nothing')))

    def test_an_option_that_does_not_exist(self) -> None:
        self.assertIn('the URL has an option that does not exist',
                      self.refused(f'{self.url}&nonsense=1'))


class OnPostgreSql(Manage, databases.PostgreSql):

    def test_read_only(self) -> None:
        name = self.engine.url.database
        self.server.execute(f'ALTER DATABASE {name} SET '
                            'default_transaction_read_only = on')
        self.addCleanup(
            self.server.execute,
            f'ALTER DATABASE {name} RESET default_transaction_read_only')
        self.assertIn('it is read-only',
                      self.refused(self.url, 'host', 'enroll', 'h1'))
        self.assertEqual(0, self.command(self.url, 'db', 'version')[0])

    def test_no_such_database_or_user(self) -> None:
        for url in (self.url.replace('/test_', '/none_'),
                    self.url.replace('root@', 'nobody:secret@')):
            err = self.refused(url)
            self.assertIn('does not exist', err)
            self.assertNotIn('secret', err)

    def test_not_running(self) -> None:
        self.assertIn('it cannot be used', self.refused(
            'postgresql+psycopg2://u@127.0.0.1:'
            f'{process.free_port()}/nothing'))


class BadFiles(managing.Command, testtools.TestCase):
    """Of SQLite."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'scavenger.sqlite'
        self.url = f'sqlite:///{self.path}'

    def test_no_file(self) -> None:
        self.assertEqual(
            f'scavenger-manage: {self.path}: there is no database yet: type '
            '"scavenger-manage db upgrade"\n', self.refused(self.url))
        self.assertFalse(self.path.exists())

    def test_no_directory(self) -> None:
        self.assertIn('No such file or directory', self.refused(
            f'sqlite:///{self.directory}/none/x', 'db', 'upgrade'))

    def test_another_file(self) -> None:
        self.path.write_text('this is no database, but a text\n' * 100)
        before = self.path.read_bytes()
        for action in ('version', 'upgrade'):
            self.assertIn('this file is not an SQLite database',
                          self.refused(self.url, 'db', action))
        self.assertEqual(before, self.path.read_bytes())

    def test_a_directory(self) -> None:
        self.path.mkdir()
        self.refused(self.url, 'db', 'upgrade')
        self.refused(self.url)

    def test_only_its_owner_reads_it(self) -> None:
        self.assertEqual(0, self.command(self.url, 'db', 'upgrade')[0])
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)

    def test_a_file_of_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('only root can give a file to another user')
        self.assertEqual(0, self.command(self.url, 'db', 'upgrade')[0])
        self.directory.chmod(0o755)
        if self.as_nobody('-c', 'import scavenger_openstack').returncode:
            self.skipTest('the user nobody cannot reach this checkout')
        config = self.directory / 'x.conf'
        config.write_text(f'[database]\nconnection = {self.url}\n')
        for mode in (0o600, 0o644):
            self.path.chmod(mode)
            done = self.as_nobody(
                '-m', 'scavenger_openstack.cmd.manage',
                '--config-file', str(config), 'host', 'enroll', 'h1')
            self.assertEqual((1, 1),
                             (done.returncode, done.stderr.count('\n')),
                             done.stderr)
            self.assertIn('belongs to root and this process runs as nobody: '
                          'run it as root', done.stderr)

    def as_nobody(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ['setpriv', '--reuid', 'nobody', '--clear-groups', '--',
             sys.executable, *words], capture_output=True, text=True,
            timeout=60, stdin=subprocess.DEVNULL, cwd='/')

    def test_a_damaged_file(self) -> None:
        self.assertEqual(0, self.command(self.url, 'db', 'upgrade')[0])
        content = bytearray(self.path.read_bytes())
        content[100:] = os.urandom(len(content) - 100)
        self.path.write_bytes(content)
        self.assertIn('it is damaged: restore it from a backup',
                      self.refused(self.url))


class BadUrls(managing.Command, testtools.TestCase):

    def test_no_url(self) -> None:
        for url in ('nonsense', 'oracle://secret@x/y', 'mysql//secret@x/y',
                    'mysql+pymysql://u:secret@host:port/x', '/var/x.sqlite',
                    'postgresql+none://x/y'):
            err = self.refused(url)
            self.assertIn('[database] connection is not the URL of a '
                          'database: write one of sqlite:////PATH', err)
            self.assertNotIn('secret', err)

    def test_none(self) -> None:
        code, _, err = self.command('', 'db', 'version')
        self.assertEqual(2, code)
        self.assertIn('[database] connection is not set', err)

    def test_accepts_and_never_answers(self) -> None:
        """A statement or connection has a deadline."""
        with socket.create_server(('127.0.0.1', 0)) as server:
            port = server.getsockname()[1]
            for url in (f'mysql+pymysql://u@127.0.0.1:{port}/x?read_timeout=1',
                        f'postgresql+psycopg2://u@127.0.0.1:{port}/x'
                        '?connect_timeout=2'):
                began = time.monotonic()
                self.refused(url)
                self.assertLess(time.monotonic() - began, 30.0)

    def test_usage(self) -> None:
        for words in (('db',), ('db', 'nonsense'), ('host', 'enroll'),
                      ('host', 'enroll', ' a'), ('host', 'enroll', ''),
                      ('host', 'enroll', 'a\nb'), ('db', 'purge'),
                      ('aggregate', 'set', 'a'), ('aggregate', 'unset'),
                      ('aggregate', 'set', 'a\n', 'h'),
                      ('db', 'purge', '--older-than', '1d'),
                      ('db', 'purge', '--older-than', '-30d'),
                      ('db', 'purge', '--older-than', '30'),
                      ('db', 'purge', '--older-than', 'd')):
            try:
                code: object = self.command('sqlite:////nowhere/x', *words)[0]
            except SystemExit as exc:
                code = exc.code
            self.assertEqual(2, code, ' '.join(words))
