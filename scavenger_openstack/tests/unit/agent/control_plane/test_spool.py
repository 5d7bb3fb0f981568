# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import logging
import os
import pathlib
import random
import resource
import signal
import sqlite3
import subprocess
import sys

import fixtures
import testtools

from scavenger_openstack.agent.control_plane import spool
from scavenger_openstack.agent.control_plane import waiting
from scavenger_openstack.tests.unit import examples
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

MIB = 2 ** 20

KILLED = """
import pathlib, sys
from scavenger_openstack.agent.control_plane import spool
from scavenger_openstack.wire import report
one = spool.Spool(pathlib.Path(sys.argv[1]), 1 << 20)
print(one.run_id, flush=True)
number = 0
while True:
    number += 1
    one.add([report.Kill(sequence=1, time_s=1.0, workload=f'/w{number}',
                         processes=1, owner='o')])
    print(number, flush=True)
"""


def kill(name: str = 'w') -> report.Kill:
    return report.Kill(sequence=1, time_s=1.0, workload=name, processes=1,
                       owner='o', reason='x' * 200)


def statistics(name: str = 'a') -> report.Statistics:
    return report.Statistics(
        sequence=1, time_s=1.0, project='p', application=name,
        cpu_model='epyc', signal='cpi', hour_s=0.0, n=1, mean=1.0, m2=0.0,
        least=1.0, most=1.0)


def incident(evidence: int = 0) -> report.Incident:
    return report.Incident(
        sequence=1, time_s=1.0, id='0' * 32, what='began', begun_s=1.0,
        victim='v', signal='cpi', evidence=[report.Series(
            workload='w', signal='cpi', times_s=[1.0] * 120,
            values=[1.5] * 120)] * evidence)


class SpoolTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.directory = self.top / 'sync'
        self.path = self.directory / spool.FILE
        self.lines: list[str] = []

    def open(self, most_bytes: int = MIB) -> spool.Spool:
        found = spool.Spool(self.directory, most_bytes, self.lines.append)
        self.addCleanup(found.close)
        return found

    def names(self, one: spool.Spool, most: int = 500) -> list[str]:
        """What the oldest run has, by the names of the workloads."""
        return [entry.workload for entry in one.batch(most, MIB)[1]
                if isinstance(entry, report.Kill)]

    def filled(self, *names: str) -> str:
        """A spool with entries that was closed; its run."""
        one = self.open()
        one.add(map(kill, names or ('a', 'b')))
        one.close()
        return one.run_id

    def moved_aside(self, *words: str) -> None:
        """The spool was, with one line; a new one works."""
        one = self.open()
        one.add([kill('new')])
        self.assertEqual((one.run_id, ['new']),
                         (one.batch(9, MIB)[0], self.names(one)))
        self.assertEqual('', one.fault)
        [line] = self.lines
        for word in (*words, 'unusable', 'a new one is begun'):
            self.assertIn(word, line)

    def test_numbers_and_acknowledgement(self) -> None:
        one = self.open()
        one.add(map(kill, 'abc'))
        one.add([kill('d')])
        run, entries = one.batch(3, MIB)
        self.assertEqual((one.run_id, [1, 2, 3]),
                         (run, [entry.sequence for entry in entries]))
        one.acknowledged(run, 2)
        self.assertEqual(['c', 'd'], self.names(one))
        one.acknowledged('another', 4)
        self.assertEqual(['c', 'd'], self.names(one))
        one.acknowledged(run, 4)
        self.assertEqual(([], 0), (self.names(one), one.bytes))
        one.add([kill('e')])
        self.assertEqual(5, one.batch(9, MIB)[1][0].sequence)

    def test_the_file_cannot_be_read_for_a_moment(self) -> None:
        """Nothing overtakes what is in there."""
        self.useFixture(fixtures.MonkeyPatch(
            f'{spool.__name__}.BUSY_S', 0.1))
        one = self.open()
        one.add(map(kill, 'ab'))
        one.batch(9, MIB)
        one.close()
        other = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(other.close)
        other.execute('PRAGMA locking_mode = EXCLUSIVE')
        other.execute('BEGIN EXCLUSIVE')
        one.add([kill('c')])
        self.assertIn('locked', one.fault)
        self.assertEqual([], self.names(one))
        other.close()
        one.add([])
        self.assertEqual(['a', 'b', 'c'], self.names(one))

    def test_batches_are_short(self) -> None:
        one = self.open()
        one.add([incident(9), incident(9)])
        self.assertEqual([1, 1, 2], [len(one.batch(9, most)[1])
                                     for most in (1, 9000, MIB)])

    def test_oldest_run_first(self) -> None:
        first = self.filled('a')
        second = self.filled('b')
        one = self.open()
        one.add([kill('c')])
        for run, name in ((first, 'a'), (second, 'b'), (one.run_id, 'c')):
            self.assertEqual((run, [name]),
                             (one.batch(9, MIB)[0], self.names(one)))
            one.acknowledged(run, 1)
        self.assertEqual((one.run_id, []), one.batch(9, MIB))
        self.assertEqual([], self.lines)

    def test_full(self) -> None:
        """Statistics go, oldest first; nothing else does."""
        one = self.open(20_000)
        one.add(statistics(f'a{number}') for number in range(200))
        self.assertLessEqual(one.bytes, 20_000)
        left = [entry.application for entry in one.batch(500, MIB)[1]
                if isinstance(entry, report.Statistics)]
        self.assertEqual(f'a{200 - len(left)}', left[0])
        self.assertEqual('a199', left[-1])
        self.assertEqual(200 - len(left), one.dropped)
        one.add(kill(f'k{number}') for number in range(100))
        self.assertEqual([f'k{number}' for number in range(100)],
                         self.names(one))
        self.assertEqual(200, one.dropped)
        one.add([statistics()])
        self.assertEqual(201, one.dropped)
        one.add([incident(5)])
        last = one.batch(500, MIB)[1][-1]
        self.assertIsInstance(last, report.Incident)
        self.assertEqual([], getattr(last, 'evidence', None))

    def test_what_no_conductor_would_take(self) -> None:
        one = self.open()
        one.add([kill(''), kill('a'), kill('x\udcff')])
        self.assertEqual(['a'], self.names(one))
        self.assertEqual(2, len(self.lines))

    def test_killed_at_any_time(self) -> None:
        """What was kept when it said so is there."""
        chance = random.Random(examples.SEED)
        said: dict[str, int] = {}
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, '-c', KILLED, str(self.directory)],
                stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            run = process.stdout.readline().strip()
            for _ in range(chance.randrange(1, 60)):
                said[run] = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            process.communicate()
        one = self.open()
        for run, least in said.items():
            found, entries = one.batch(500, MIB)
            self.assertEqual(run, found)
            self.assertGreaterEqual(len(entries), least)
            self.assertEqual(list(range(1, len(entries) + 1)),
                             [entry.sequence for entry in entries])
            one.acknowledged(run, entries[-1].sequence)
        self.assertEqual([], self.lines)

    def test_full_disk(self) -> None:
        """It waits in memory, is handed out, and is written in the end."""
        one = self.open(64 * MIB)
        one.add([kill('a')])
        one.close()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            one.add(kill(f'k{number}') for number in range(100))
            [line] = self.lines
            self.assertIn('waits in memory', line)
            run = one.run_id
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, old)
        one.add([kill('last')])
        self.assertEqual('', one.fault)
        self.assertEqual(102, len(self.names(one)))
        one.close()
        self.assertEqual((run, 102), (self.open().batch(500, MIB)[0],
                                      len(self.names(self.open()))))

    def test_in_memory_only(self) -> None:
        (self.top / 'file').write_text('')
        one = spool.Spool(self.top / 'file' / 'sync', MIB, self.lines.append)
        one.add(map(kill, 'ab'))
        run, entries = one.batch(9, MIB)
        self.assertEqual((one.run_id, [1, 2]),
                         (run, [entry.sequence for entry in entries]))
        one.acknowledged(run, 1)
        self.assertEqual(['b'], self.names(one))
        self.assertEqual(1, len(self.lines))

    def test_memory_is_bounded(self) -> None:
        """Evidence does not wait without end for a disk that takes none."""
        (self.top / 'file').write_text('')
        one = spool.Spool(self.top / 'file' / 'sync', MIB, self.lines.append)
        for _ in range(200):
            one.add([incident(9)])
        self.assertLess(one.bytes, 1.2 * MIB)
        run, entries = one.batch(500, 2 * MIB)
        self.assertEqual(200, len(entries))
        one.acknowledged(run, 200)
        self.assertEqual(0, one.bytes)

    def without_disk(self) -> spool.Spool:
        (self.top / 'file').write_text('')
        return spool.Spool(self.top / 'file' / 'sync', 64 * MIB,
                           self.lines.append)

    def told(self, one: spool.Spool) -> list[report.AnyEntry]:
        """All that is handed out."""
        found: list[report.AnyEntry] = []
        while entries := one.batch(500, MIB)[1]:
            found += entries
            one.acknowledged(one.run_id, entries[-1].sequence)
        return found

    def test_memory_is_bounded_whatever_happens(self) -> None:
        one = self.without_disk()
        for number in range(3 * waiting.MOST):
            one.add([kill(f'k{number}')])
        self.assertLess(one.bytes, waiting.MOST_BYTES)
        found = self.told(one)
        self.assertLessEqual(len(found), waiting.MOST)
        self.assertGreater(len(found), 0.8 * waiting.MOST)
        # The newest of them, in order, and none twice.
        self.assertEqual(list(range(3 * waiting.MOST - len(found) + 1,
                                    3 * waiting.MOST + 1)),
                         [entry.sequence for entry in found])
        self.assertEqual(3 * waiting.MOST - len(found), one.dropped)
        self.assertEqual(2, len(self.lines))
        self.assertIn('are lost', self.lines[1])

    def test_long_entries_in_memory(self) -> None:
        one = self.without_disk()
        reason = 'x' * 2000
        one.add(codec.replace(kill(f'k{number}'), reason=reason)
                for number in range(2 * waiting.MOST_BYTES // 2000))
        self.assertLess(one.bytes, waiting.MOST_BYTES)
        self.assertGreater(one.bytes, 0.8 * waiting.MOST_BYTES)
        self.assertEqual(one.bytes, sum(
            len(codec.encode(entry)) for entry in self.told(one)))
        self.assertEqual(0, one.bytes)

    def test_what_goes_first(self) -> None:
        """Statistics, then what later entries say again."""
        one = self.without_disk()
        few = waiting.MOST // 20
        one.add(statistics(f'a{number}') for number in range(few))
        for what in ('set', 'changed', 'removed'):
            one.add(report.Limit(
                sequence=1, time_s=float(number), workload='w',
                knob='cpu_cores', what=what,
                since_s=float(number), owner='o') for number in range(few))
        one.add([incident(1), codec.replace(incident(), what='ended')])
        one.add(kill(f'k{number}') for number in range(
            waiting.MOST - 3 * few))
        found = self.told(one)
        self.assertEqual(few, one.dropped)
        self.assertEqual([], [entry for entry in found
                              if isinstance(entry, report.Statistics)])
        limits = [entry for entry in found if isinstance(entry, report.Limit)]
        self.assertEqual({float(number) for number in range(few)},
                         {entry.since_s for entry in limits
                          if entry.what == 'removed'})
        self.assertLess(len(limits), 3 * few)
        self.assertIn('ended', [entry.what for entry in found
                                if isinstance(entry, report.Incident)])
        self.assertEqual(waiting.MOST - 3 * few, len(
            [entry for entry in found if isinstance(entry, report.Kill)]))
        self.assertEqual(1, len(self.lines))

    def test_many_at_once_are_written(self) -> None:
        """What the disk takes is not lost for want of memory."""
        one = self.open(64 * MIB)
        one.add(kill(f'k{number}') for number in range(2 * waiting.MOST))
        self.assertEqual((2 * waiting.MOST, 0),
                         (len(self.told(one)), one.dropped))

    def test_a_full_disk_that_can_be_read(self) -> None:
        """That is no reason to say that it is written again."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        one = self.open(64 * MIB)
        one.add([kill('a')])
        one.close()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
        try:
            one.add(kill(f'k{number}') for number in range(300))
            for _ in range(3):
                self.assertEqual(['a'], self.names(one))
                one.add([kill('more')])
                self.assertNotEqual('', one.fault)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, old)
        self.assertEqual(1, len(self.lines), str(self.lines))
        self.assertNotIn('written again', log.output)
        one.add([])
        self.assertIn('written again', log.output)
        self.assertEqual(304, len(self.told(one)))

    def test_torn(self) -> None:
        self.filled(*(f'w{number}' for number in range(50)))
        os.truncate(self.path, self.path.stat().st_size // 2 + 7)
        self.moved_aside()

    def test_no_database(self) -> None:
        self.filled()
        self.path.write_bytes(b'never a database ' * 1000)
        self.moved_aside('not a database')

    def test_empty_file(self) -> None:
        self.filled()
        os.truncate(self.path, 0)
        one = self.open()
        one.add([kill('new')])
        self.assertEqual(['new'], self.names(one))

    def test_another_version(self) -> None:
        self.filled()
        with sqlite3.connect(self.path) as db:
            db.execute('PRAGMA user_version = 9')
        db.close()
        self.moved_aside('another version (9')

    def test_another_table(self) -> None:
        self.filled()
        with sqlite3.connect(self.path) as db:
            db.execute('DROP TABLE entries')
            db.execute('CREATE TABLE other (id)')
        db.close()
        self.moved_aside('entries')

    def test_a_bit_flips_in_a_name(self) -> None:
        """Without that column writing goes on, and reading does not; or an
        error quotes what is no text."""
        for text, other in ((b' id INTEGER', b' ie INTEGER'),
                            (b'CREATE TABLE entries', b'CREAT\xc5 TABLE entr'
                             b'ies')):
            self.filled()
            data = self.path.read_bytes()
            self.assertEqual(1, data.count(text))
            self.path.write_bytes(data.replace(text, other))
            self.moved_aside('damaged')
            self.lines.clear()
            for path in self.directory.iterdir():
                path.unlink()

    def test_bit_flips(self) -> None:
        """Whatever flips, it goes on, and what comes out is what went in."""
        self.filled(*(f'w{number}' for number in range(30)))
        good = self.path.read_bytes()
        chance = random.Random(examples.SEED)
        for _ in range(60):
            data = bytearray(good)
            for _ in range(chance.randrange(1, 20)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            for path in self.directory.iterdir():
                path.unlink()
            self.path.write_bytes(data)
            self.path.chmod(0o600)
            one = self.open()
            one.add([kill('new')])
            seen = []
            for _ in range(60):
                run, entries = one.batch(500, MIB)
                if not entries:
                    break
                seen += entries
                one.acknowledged(run, entries[-1].sequence)
            else:
                self.fail('it never ends')
            names = [entry.workload for entry in seen
                     if isinstance(entry, report.Kill)]
            if 'new' not in names:      # damage that only reading it showed
                self.assertIn('not reported', self.lines[-1])
                one.add([kill('newer')])
                self.assertEqual(['newer'], self.names(one))
            self.assertEqual(set(), set(names) - {'new'} - {
                f'w{number}' for number in range(30)})
            one.close()

    def test_links_are_not_followed(self) -> None:
        target = self.top / 'target'
        target.write_text('precious')
        self.directory.mkdir(0o700)
        for name in (spool.FILE, f'{spool.FILE}-wal'):
            self.lines.clear()
            (self.directory / name).symlink_to(target)
            self.moved_aside('others may have written it')
            self.assertEqual('precious', target.read_text())
            for path in self.directory.iterdir():
                path.unlink()

    def test_directory_that_is_a_link(self) -> None:
        (self.top / 'elsewhere').mkdir()
        self.directory.symlink_to(self.top / 'elsewhere')
        self.moved_aside('sync')
        self.assertEqual([], list((self.top / 'elsewhere').iterdir()))

    def test_owned_by_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('only root can give files away')
        self.filled()
        os.chown(self.path, 65534, 65534)
        self.moved_aside('owner 65534')

    def test_directory_that_others_may_write_to(self) -> None:
        self.filled()
        self.directory.chmod(0o777)
        self.moved_aside('others may have written there')

    def test_nobody_else_reads_it(self) -> None:
        one = self.open()
        one.add([kill()])
        self.assertEqual(
            {0o600}, {path.stat().st_mode & 0o777
                      for path in self.directory.iterdir()})
        self.assertEqual(0o700, self.directory.stat().st_mode & 0o777)
