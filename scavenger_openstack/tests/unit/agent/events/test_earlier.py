# SPDX-License-Identifier: Apache-2.0

"""A host on which an agent of a release before has run."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3

import fixtures
import testtools

from scavenger_openstack.agent.events import earlier


class Earlier(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.sync_dir = self.top / 'sync'
        self.sync_dir.mkdir()
        self.spool = self.sync_dir / 'spool.sqlite'
        self.history = self.top / 'history.jsonl'

    def warnings(self) -> str:
        log = self.useFixture(fixtures.FakeLogger())
        earlier.warn(self.top / 'history', self.sync_dir)
        return log.output

    def write_spool(self, entries: int) -> None:
        with contextlib.closing(sqlite3.connect(self.spool)) as database:
            database.execute('PRAGMA journal_mode = WAL')
            database.execute('CREATE TABLE entries (id INTEGER PRIMARY KEY, '
                             'entry BLOB)')
            database.executemany('INSERT INTO entries (entry) VALUES (?)',
                                 entries * [(b'{}',)])
            database.commit()
        self.spool.chmod(0o600)

    def test_without(self) -> None:
        self.assertEqual('', self.warnings())
        self.sync_dir.rmdir()
        self.assertEqual('', self.warnings())

    def test_what_is_lost(self) -> None:
        self.write_spool(3)
        self.history.write_text('{}\n')
        for _ in range(2):      # it changes nothing
            lines = self.warnings().splitlines()
            self.assertEqual(2, len(lines), str(lines))
            self.assertIn(f'{self.history}: a history', lines[0])
            self.assertIn(f'{self.spool}: written by', lines[1])
            self.assertIn('lacks: 3.', lines[1])
        self.assertEqual('{}\n', self.history.read_text())

    def test_nothing_waits(self) -> None:
        self.write_spool(0)
        self.assertIn('lacks: 0.', self.warnings())

    def test_what_cannot_be_read(self) -> None:
        for data in (b'', b'SQLite format 3\0' + b'\xff' * 5000, b'x' * 100):
            self.spool.write_bytes(data)
            self.assertIn('lacks: unknown.', self.warnings())
        self.spool.unlink()
        self.spool.mkdir()
        self.assertIn('lacks: unknown.', self.warnings())

    def test_what_others_may_have_written(self) -> None:
        self.write_spool(3)
        self.spool.chmod(0o666)
        self.assertIn('lacks: unknown.', self.warnings())

    def test_a_loop_of_links(self) -> None:
        self.spool.symlink_to(self.spool)
        self.history.symlink_to(self.history)
        self.assertEqual('', self.warnings())
