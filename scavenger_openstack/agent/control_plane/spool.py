# SPDX-License-Identifier: Apache-2.0

"""What waits for the conductor: entries on disk until it has them.

A SQLite database in a directory of its own.  One thread uses it, never the
one of the tick.  What cannot be written waits in memory; a file that cannot be
used is moved aside, and a new one is begun.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import os
import pathlib
import re
import sqlite3
from typing import TypeVar
import uuid
import zlib

from oslo_log import log

from scavenger_openstack.agent.control_plane import spool_files
from scavenger_openstack.agent.control_plane.spool_files import Unusable
from scavenger_openstack.agent.control_plane import waiting
from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

T = TypeVar('T')

FILE = 'spool.sqlite'
SCHEMA = 1
ROW_BYTES = 100
"""What an entry takes besides its JSON."""
BUSY_S = 1.0

PASSING = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
                     sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
                     sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL,
                     sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
                     sqlite3.SQLITE_AUTH))
"""Errors that are not the file's fault: what is in there is still good."""
TORN = frozenset((sqlite3.SQLITE_IOERR_SHORT_READ,
                  sqlite3.SQLITE_IOERR_CORRUPTFS))

_RUN = re.compile('[0-9a-f]{32}')

_TABLE = '''CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    statistics INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    entry BLOB NOT NULL)'''
_TABLES = f'''
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN IMMEDIATE;
{_TABLE};
PRAGMA user_version = {SCHEMA};
COMMIT;
'''


class Spool:
    """The spool of one run of an agent; its entries have the numbers 1, 2, ...

    Above ``most_bytes`` the oldest statistics go, then the evidence of new
    incidents is left out; incidents, limits and kills are always kept, but
    for what :mod:`.waiting` has no room for while the disk takes nothing.

    :param directory: made if it is missing; only its owner may use it
    """

    def __init__(self, directory: pathlib.Path, most_bytes: int,
                 warn: Callable[[str], None] = LOG.warning) -> None:
        self.path = directory / FILE
        self.run_id = uuid.uuid4().hex
        self.dropped = 0
        """Entries that there was no room for."""
        self.fault = ''
        """Why nothing is written at present, '' while it is."""
        self._most = most_bytes
        self._warn = warn
        self._sequence = 0
        self._db: sqlite3.Connection | None = None
        self._bytes = 0
        self._waiting = waiting.Queue(most_bytes)
        self._lost = 0

    @property
    def bytes(self) -> int:
        """What all entries take, those in memory too."""
        return self._bytes + self._waiting.bytes

    def add(self, entries: Iterable[report.AnyEntry]) -> None:
        """Keep entries, numbered in this order; their ``sequence`` does not
        count.  One that no conductor would take is logged and left out."""
        for entry in entries:
            entry = codec.replace(entry, sequence=self._sequence + 1)
            full = (self.bytes > self._most or self._waiting.bytes
                    > self._waiting.most_bytes / 2)
            if full and isinstance(entry, report.Incident):
                entry = codec.replace(entry, evidence=[])
            try:
                data = codec.checked(entry, report.AnyEntry,
                                     report.MAX_ENTRY_BYTES)
            except errors.WireError as exc:
                self._warn(f'not reported to the conductor: {exc}; please '
                           'report this')
                continue
            self._sequence += 1
            self._waiting.add(entry, data)
            if self._waiting.full:
                self._make_room()
        self._guard(self._write, None)

    def batch(self, most: int, most_bytes: int
              ) -> tuple[str, list[report.AnyEntry]]:
        """The oldest entries of the oldest run, and the run's id.

        :param most: so many at most, of ``most_bytes`` in all, but at least
            one if there is any
        """
        batch = self._guard(
            lambda db: self._batch(db, most, most_bytes), None)
        if batch is not None:
            return batch
        if self.fault and self._bytes:      # those on disk come first
            return self.run_id, []
        entries: list[report.AnyEntry] = []
        for one in self._waiting:
            most_bytes -= len(one.data)
            if len(entries) == most or (entries and most_bytes < 0):
                break
            entries.append(_entry(one.data))
        return self.run_id, entries

    def acknowledged(self, run_id: str, sequence: int) -> None:
        """Forget the entries of a run up to that one."""
        if run_id == self.run_id:
            self._waiting.acknowledged(sequence)
        self._guard(lambda db: self._delete(db, run_id, sequence), None)

    def close(self) -> None:
        """Write what waits, as far as possible."""
        self._guard(self._write, None)
        self._close()

    def _make_room(self) -> None:
        """Put what waits in memory on the disk; what it does not take is lost
        as far as there is no room for it."""
        if not self.fault:
            self._guard(self._write, None)
        if not self._waiting.full:
            return
        statistics, lost = self._waiting.make_room()
        self.dropped += statistics + lost
        if lost and not self._lost:
            self._warn(f'{self.path}: nothing is written, and the memory for '
                       'what is to be reported is full: the oldest incidents '
                       'and limits are lost; make it writable, with free '
                       'space')
        self._lost += lost

    def _guard(self, do: Callable[[sqlite3.Connection], T], failed: T) -> T:
        """Do something with the open database.

        A fault of the disk is logged once, and waited for; a file that is not
        usable is moved aside, and the same is done with a new one.
        """
        for again in (True, False):
            try:
                if self._db is None:
                    self._open()
                assert self._db is not None
                return do(self._db)
            except Unusable as exc:
                self._move_aside(str(exc))
            except UnicodeDecodeError:  # in what an error quotes
                self._move_aside('damaged: no text of an error')
            except sqlite3.Error as exc:
                code = getattr(exc, 'sqlite_errorcode', 0)
                if code & 0xff in PASSING and code not in TORN:
                    self._say(str(exc))
                    self._close()
                    return failed
                self._move_aside(str(exc))
            except OSError as exc:
                self._say(exc.strerror or str(exc))
                self._close()
                return failed
            if not again:
                self._say('it cannot be used')
        return failed

    def _say(self, why: str) -> None:
        if why and not self.fault:
            self._warn(f'{self.path}: {why}: what is to be reported waits in '
                       'memory and is lost if the agent ends; make it '
                       'writable, with free space')
        elif self.fault and not why:
            LOG.info('%s: written again; incidents and limits lost: %d',
                     self.path, self._lost)
            self._lost = 0
        self.fault = why

    def _open(self) -> None:
        """Open the file or make it.

        :raises OSError: the directory cannot be made or used.
        :raises sqlite3.Error: the file cannot be used.
        :raises Unusable: it is not ours, or not of this version.
        """
        directory = self.path.parent
        why = spool_files.make_directory(directory)
        if why:
            self._rename(directory, why)
            directory.mkdir(mode=0o700)
        fresh = spool_files.make(self.path)
        db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        db.text_factory = _text
        try:
            if not fresh:
                [version] = db.execute('PRAGMA user_version').fetchone()
                tables = db.execute('SELECT count(*) FROM sqlite_master'
                                    ).fetchone()
                if version != SCHEMA and tables != (0,):
                    raise Unusable(f'of another version ({version}, this is '
                                    f'{SCHEMA})')
                [word] = db.execute('PRAGMA quick_check(1)').fetchone()
                if word != 'ok':
                    raise Unusable(f'damaged: {word}')
                fresh = tables == (0,)
                # A damaged name is another name to SQLite.
                if not fresh and [(_TABLE,)] != db.execute(
                        'SELECT sql FROM sqlite_master WHERE sql LIKE '
                        "'CREATE TABLE entries%'").fetchall():
                    raise Unusable('damaged: another table of entries')
            if fresh:
                db.executescript(_TABLES)
            db.execute('PRAGMA journal_mode = WAL')
            db.execute('PRAGMA synchronous = NORMAL')
            db.execute('PRAGMA wal_autocheckpoint = 64')
            db.execute('PRAGMA journal_size_limit = 1048576')
            db.execute('PRAGMA cache_size = -512')
            [size] = db.execute(
                'SELECT coalesce(sum(length(entry) + ?), 0) FROM entries',
                (ROW_BYTES,)).fetchone()
        except BaseException:
            db.close()
            raise
        self._db, self._bytes = db, int(size)

    def _move_aside(self, why: str) -> None:
        """Begin a new file; the old one stays, to be looked at."""
        self._close()
        self._bytes = 0
        try:
            self._rename(self.path, why)
            for path in spool_files.of(self.path)[1:]:
                path.unlink(missing_ok=True)
        except OSError as exc:
            self._say(f'{why}; and it cannot be moved: {exc.strerror}')

    def _rename(self, path: pathlib.Path, why: str) -> None:
        aside = path.with_name(path.name + '.unusable')
        with contextlib.suppress(FileNotFoundError):
            if aside.is_dir() and not aside.is_symlink() and path.is_dir():
                aside = path.with_name(f'{aside.name}.{uuid.uuid4().hex}')
            os.rename(path, aside)
        self._warn(f'{path}: {why}. It is now {aside.name}, and a new one is '
                   'begun; what it held is not reported')

    def _close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
        self._db = None

    def _write(self, db: sqlite3.Connection) -> None:
        """Put what waits into the database; after a fault also nothing, to
        see whether that works again."""
        if not self._waiting and not self.fault:
            return
        db.execute('BEGIN IMMEDIATE')
        dropped, size = 0, self._bytes
        try:
            if self.fault:
                db.execute(f'PRAGMA user_version = {SCHEMA}')
            for one in self._waiting:
                need = len(one.data) + ROW_BYTES
                if size + need > self._most:
                    gone, freed = self._evict(db, size + need - self._most)
                    dropped, size = dropped + gone, size - freed
                if one.statistics and size + need > self._most:
                    dropped += 1
                    continue
                db.execute('INSERT INTO entries (run, sequence, statistics, '
                           'crc, entry) VALUES (?, ?, ?, ?, ?)',
                           (self.run_id, one.sequence, one.statistics,
                            zlib.crc32(one.data), one.data))
                size += need
            db.execute('COMMIT')
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute('ROLLBACK')
            raise
        self._waiting.clear()
        self._bytes = size
        self.dropped += dropped
        self._say('')

    def _evict(self, db: sqlite3.Connection, need: int) -> tuple[int, int]:
        """Delete the oldest statistics; how many, and their bytes."""
        ids, freed = [], 0
        for number, size in db.execute(
                'SELECT id, coalesce(length(entry), 0) + ? FROM entries '
                'WHERE statistics '
                'ORDER BY id', (ROW_BYTES,)):
            ids.append((number,))
            freed += size
            if freed >= need:
                break
        db.executemany('DELETE FROM entries WHERE id = ?', ids)
        return len(ids), freed

    def _batch(self, db: sqlite3.Connection, most: int, most_bytes: int
               ) -> tuple[str, list[report.AnyEntry]] | None:
        while True:
            oldest = db.execute(
                'SELECT run, id FROM entries ORDER BY id LIMIT 1').fetchone()
            if oldest is None:
                return None
            run, first = oldest
            entries: list[report.AnyEntry] = []
            damaged = [] if _is_run(run) else [(first,)]
            for number, sequence, crc, data in db.execute(
                    'SELECT id, sequence, crc, entry FROM entries '
                    'WHERE run = ? ORDER BY id LIMIT ?',
                    (run, most)):
                entry = _sound(data, crc, sequence)
                if entry is None:
                    damaged.append((number,))
                    continue
                most_bytes -= len(data)
                if entries and most_bytes < 0:
                    break
                entries.append(entry)
            if damaged:
                self._warn(f'{self.path}: entries that are damaged and not '
                           f'reported: {len(damaged)}')
                db.executemany('DELETE FROM entries WHERE id = ?', damaged)
            if entries or not damaged:
                return run, entries

    def _delete(self, db: sqlite3.Connection, run_id: str, sequence: int
                ) -> None:
        [size] = db.execute(
            'SELECT coalesce(sum(length(entry) + ?), 0) FROM entries '
            'WHERE run = ? AND sequence <= ?',
            (ROW_BYTES, run_id, sequence)).fetchone()
        db.execute('DELETE FROM entries WHERE run = ? AND sequence <= ?',
                   (run_id, sequence))
        self._bytes -= int(size)
        db.execute('PRAGMA incremental_vacuum(256)').fetchall()


def _is_run(run: object) -> bool:
    return isinstance(run, str) and _RUN.fullmatch(run) is not None


def _text(data: bytes) -> str:
    return data.decode(errors='replace')


def _sound(data: object, crc: object, sequence: object
           ) -> report.AnyEntry | None:
    """The entry of a row; ``None`` if damaged, or of another version."""
    if not isinstance(data, bytes) or zlib.crc32(data) != crc:
        return None
    try:
        entry = _entry(data)
    except errors.WireError:
        return None
    return entry if entry.sequence == sequence else None


def _entry(data: bytes) -> report.AnyEntry:
    entry: report.AnyEntry = codec.decode(
        data, report.AnyEntry,          # type: ignore[arg-type]
        report.MAX_ENTRY_BYTES)
    return entry
