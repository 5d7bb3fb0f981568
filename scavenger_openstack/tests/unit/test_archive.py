# SPDX-License-Identifier: Apache-2.0

"""The archive, and the questions that its SQL files ask."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import fixtures
import fsspec
import sqlalchemy

from scavenger_openstack.archive import files
from scavenger_openstack.db.resources import archive as rows
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests import file_size
from scavenger_openstack.tests.unit.conductor import cloud

DAY_S = rows.DAY_S
DAY = 1_750_032_000.0 // DAY_S * DAY_S
"""2025-06-16."""

NOW = DAY + 4 * DAY_S

QUERIES = pathlib.Path(files.__file__).parents[2].joinpath(
    'etc', 'scavenger', 'archive')


class ArchiveCase(cloud.Mixin, cloud.Sqlite):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.add(tables.hosts, name='host-1', facts={}, settings={},
                 first_seen_s=DAY, last_seen_s=DAY)

    def add_day(self, day_s: float = DAY, number: int = 1,
                incidents: int = 1) -> None:
        """An incident of shop with an antagonist, and its sums."""
        for place in range(incidents):
            id_ = number * 1000 + place
            self.add(tables.incidents, id=id_, host_id=1,
                     uuid=f'{id_:032x}', victim='web', project='p1',
                     signal='cpi', cause='cache', controller='cpi2',
                     value=2.0, threshold=1.5, action='', outcome='confirmed',
                     begun_s=day_s + 60, changed_s=day_s + 660,
                     ended_s=day_s + 660, evidence=[{
                         'workload': 'web', 'signal': 'cpi',
                         'times_s': [1.0], 'values': [None]}])
            for workload, score in (('batch', 0.4), ('other', 0.3)):
                self.add(tables.suspects, incident_id=id_, workload=workload,
                         score=score, antagonist=workload == 'batch',
                         begun_s=day_s + 60)
        self.add(tables.antagonist_hours, host_id=1, hour_s=day_s,
                 workload='batch', application='render', victim='web',
                 victim_project='p1', cause='cache', incidents=incidents,
                 interference_s=600.0, confirmed=1, refuted=0)
        self.add(tables.victim_hours, host_id=1, hour_s=day_s, victim='web',
                 project='p1', application='shop', incidents=incidents,
                 interference_s=600.0)
        self.add(tables.background_hours, host_id=1, hour_s=day_s,
                 core_s=7200.0, byte_s=3600.0 * 2 ** 30)
        self.add(tables.caps, host_id=1, workload='batch', knob='cpu_cores',
                 value=0.5, original=None, owner='cpi2', reason='', why='',
                 set_s=day_s + 60, changed_s=day_s + 60,
                 removed_s=day_s + 360)

    def write(self, url: str = '', now_s: float = NOW
              ) -> list[files.Written]:
        return list(files.write(self.engine, url or str(self.top), now_s))

    def ask(self, name: str) -> list[tuple[Any, ...]]:
        """What DuckDB answers to a file."""
        import duckdb
        with duckdb.connect() as connection:
            for part in rows.PARTS:
                connection.execute(
                    f'CREATE VIEW {part.name} AS SELECT * FROM read_parquet('
                    f"'{self.top}/{part.name}/*/rows.parquet', "
                    'hive_partitioning = true)')
            return connection.execute(
                (QUERIES / f'{name}.sql').read_text()).fetchall()


class Writing(ArchiveCase):

    def test_days(self) -> None:
        """Each once, when it is settled."""
        self.add_day()
        self.add_day(DAY + DAY_S, 2)
        self.add_day(DAY + 2 * DAY_S, 3)
        first = self.write()
        self.assertEqual({'2025-06-16', '2025-06-17'},
                         {written.day for written in first})
        self.assertEqual(2 * len(rows.PARTS), len(first))
        self.assertEqual({1, 2}, {written.rows for written in first})
        self.assertEqual([], self.write())
        self.assertEqual({'2025-06-18'}, {
            written.day for written in self.write(now_s=NOW + DAY_S)})

    def test_what_goes_on(self) -> None:
        """Is not written."""
        self.add_day()
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.update(tables.incidents).values(
                ended_s=None))
            connection.execute(sqlalchemy.update(tables.caps).values(
                removed_s=None))
        self.assertEqual(
            {'antagonist_hours', 'victim_hours', 'background_hours'},
            {written.name for written in self.write()})

    def test_pages(self) -> None:
        """All rows of a day, each once, however many have one time."""
        self.add_day(incidents=25)
        self.patch(rows, 'AT_ONCE', 4)
        self.assertEqual({'incidents': 25, 'suspects': 50}, {
            written.name: written.rows for written in self.write()
            if written.name in ('incidents', 'suspects')
            and written.day == '2025-06-16'})
        self.assertEqual([(0.25, 25, 50), (0.35, 25, 25)], [
            (float(row[0]), *row[1:3]) for row in self.ask(
                'other_threshold')])

    def test_a_day_is_on_the_disk_before_it_has_its_name(self) -> None:
        """And so are the names of its directories, in the end."""
        done: list[tuple[str, str]] = []
        sync, replace = os.fsync, os.replace

        def fsync(fd: int) -> None:
            done.append(('sync', os.readlink(f'/proc/self/fd/{fd}')))
            sync(fd)

        def renamed(source: str, target: str, **more: Any) -> None:
            done.append(('rename', str(source)))
            replace(source, target, **more)

        self.patch(os, 'fsync', fsync)
        self.patch(os, 'replace', renamed)
        self.add_day()
        written = self.write()
        self.assertNotEqual([], written)
        for one in written:
            directory = self.top / one.name / f'day={one.day}'
            draft = f'{directory / files.ROWS}{files.UNFINISHED}'
            order = [done.index(step) for step in (
                ('sync', draft), ('rename', draft),
                ('sync', str(directory)))]
            self.assertEqual(sorted(order), order)
            for above in (directory.parent, self.top):
                self.assertIn(('sync', str(above)), done[order[-1]:])

    def test_another_file_system(self) -> None:
        self.add_day()
        written = self.write('memory://archive')
        memory = fsspec.filesystem('memory')
        self.addCleanup(memory.rm, '/archive', recursive=True)
        self.assertEqual(len(written), len(memory.find('/archive')))

    def test_a_directory_that_cannot_be_written(self) -> None:
        self.add_day()
        self.top.joinpath('file').touch()
        self.assertRaises(errors.ConfigError, self.write,
                          str(self.top / 'file'))
        self.assertRaises(errors.ConfigError, self.write, 'nosuch://place')

    def test_secrets_are_not_shown(self) -> None:
        for url in ('ftp://user:k/e@y@127.0.0.1:1/place',
                    'nosuch://user:k/e@y@host/place',
                    'nosuch://host/place?sig=k/e@y&more=1',
                    'nosuch::ftp://user:k/e@y@127.0.0.1:1/place'):
            exc = self.assertRaises(errors.ConfigError, self.write, url)
            self.assertIn('://***: the archive', str(exc))
            for secret in ('k/e', '@y', 'e@y'):
                self.assertNotIn(secret, str(exc))
            self.assertTrue(exc.__suppress_context__)

    def test_a_disk_that_is_full(self) -> None:
        """Leaves nothing that looks like a day; later it is written whole."""
        self.add_day(incidents=200)
        full = self.useFixture(file_size.FileSize(512))
        self.assertRaises(errors.ConfigError, self.write)
        full.end()
        self.assertEqual([], [path for path in self.top.rglob('*')
                              if path.is_file()])
        self.assertEqual(200, self.write()[0].rows)


class Asking(ArchiveCase):

    def test_each_question(self) -> None:
        self.add_day()
        self.add_day(DAY + DAY_S, 2)
        self.write()
        self.assertEqual(
            [('batch', '', '', 'render', 20.0, 2, 2, 0)],
            self.ask('aggressive_antagonists'))
        self.assertEqual([(0.25, 2, 4, 2, 0), (0.35, 2, 2, 2, 0)], [
            (float(row[0]), *row[1:]) for row in self.ask('other_threshold')])
        self.assertEqual([('p1', 'shop', 1, 1, 10.0)] * 2, [
            row[1:] for row in self.ask('interference_by_project')])
        self.assertEqual([(1, 2.0, 1.0)] * 2, [
            row[1:] for row in self.ask('background_work')])
        self.assertEqual(
            [('render', 'shop', 'cache', 1, 2, 2, 0, 1 / 3)],
            self.ask('disturbing_pairs'))
        [limits] = self.ask('limits')
        self.assertEqual(('cpu_cores', 'cpi2', 2, 1), limits[:4])
        self.assertAlmostEqual(1 / 6, limits[4])

    def test_all_files_are_asked(self) -> None:
        self.assertEqual(
            {'aggressive_antagonists', 'other_threshold', 'limits',
             'interference_by_project', 'background_work',
             'disturbing_pairs'}, {path.stem for path in QUERIES.iterdir()})
