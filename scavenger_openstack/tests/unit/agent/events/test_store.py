# SPDX-License-Identifier: Apache-2.0

"""What waits for the conductor, and that disks may fail."""

from __future__ import annotations

from collections.abc import Iterator
import logging
import os
import pathlib
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from typing import Any
from typing import BinaryIO

import fixtures

from scavenger_openstack.agent.events import segments
from scavenger_openstack.agent.events import store
from scavenger_openstack.events import Event
from scavenger_openstack.tests.unit.agent.events import stored
from scavenger_openstack.tests.unit.agent.events.stored import incident
from scavenger_openstack.tests.unit.agent.events.stored import kill
from scavenger_openstack.tests.unit.agent.events.stored import limits
from scavenger_openstack.tests.unit.agent.events.stored import MIB
from scavenger_openstack.tests.unit.agent.events.stored import statistics
from scavenger_openstack.tests.unit import examples
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

KILLED = """
import pathlib, sys
from scavenger_openstack.agent.events import store
from scavenger_openstack.wire import report
kept = store.Store(pathlib.Path(sys.argv[1]), 20_000, 1 << 20)
print('run', kept.run_id, 0, flush=True)
number = 0
while True:
    number += 1
    kept.add([report.Kill(sequence=1, time_s=1.0, workload=f'/w{number}',
                          processes=1, owner='o')])
    print('added', kept.run_id, number, flush=True)
    if number % 7 == 0:
        run, entries = kept.batch(5, 1 << 20)
        print('sent', run, entries[-1].sequence, flush=True)
        kept.acknowledged(run, entries[-1].sequence)
        print('acknowledged', run, entries[-1].sequence, flush=True)
"""


class StoreTest(stored.StoreTestCase):

    def names(self, kept: store.Store, most: int = 500) -> list[str]:
        """The kills of the oldest run, by the names of the workloads."""
        return [entry.workload for entry in kept.batch(most, MIB)[1]
                if isinstance(entry, report.Kill)]

    def filled(self, *names: str) -> str:
        """Store kills, and close; return the run."""
        kept = self.open()
        kept.add(map(kill, names or ('a', 'b')))
        kept.close()
        return kept.run_id

    def drained(self, kept: store.Store) -> list[Event]:
        """All that is reported, in its order."""
        entries: list[Event] = []
        for _ in range(1000):
            run, batch = kept.batch(500, MIB)
            if not batch:
                return entries
            entries += batch
            kept.acknowledged(run, batch[-1].sequence)
        self.fail('it never ends')

    def test_numbers_and_acknowledgement(self) -> None:
        kept = self.open()
        kept.add(map(kill, 'abc'))
        kept.add([kill('d')])
        run, entries = kept.batch(3, MIB)
        self.assertEqual((kept.run_id, [1, 2, 3]),
                         (run, [entry.sequence for entry in entries]))
        kept.acknowledged(run, 2)
        self.assertEqual(['c', 'd'], self.names(kept))
        kept.acknowledged('0' * 32, 4)
        kept.acknowledged(run, 1)
        self.assertEqual(['c', 'd'], self.names(kept))
        kept.acknowledged(run, 4)
        self.assertEqual(([], 0), (self.names(kept), kept.waiting_bytes))
        kept.add([kill('e')])
        self.assertEqual(5, kept.batch(9, MIB)[1][0].sequence)

    def test_batches_are_short(self) -> None:
        kept = self.open()
        kept.add([incident(9), incident(9)])
        self.assertEqual([1, 1, 2], [len(kept.batch(9, most)[1])
                                     for most in (1, 9000, MIB)])

    def test_oldest_run_first(self) -> None:
        first = self.filled('a')
        second = self.filled('b')
        kept = self.open()
        kept.add([kill('c')])
        for run, name in ((first, 'a'), (second, 'b'), (kept.run_id, 'c')):
            self.assertEqual((run, [name]),
                             (kept.batch(9, MIB)[0], self.names(kept)))
            kept.acknowledged(run, 1)
        self.assertEqual((kept.run_id, []), kept.batch(9, MIB))
        self.assertEqual([], self.lines)

    def test_what_is_acknowledged_stays_so(self) -> None:
        kept = self.open()
        kept.add(map(kill, 'abc'))
        kept.acknowledged(kept.run_id, 2)
        kept.close()
        again = self.open()
        again.add([kill('d')])
        self.assertEqual(['c', 'd'], [
            entry.workload for entry in self.drained(again)
            if isinstance(entry, report.Kill)])
        again.close()
        self.assertEqual([], self.drained(self.open()))

    def test_before_there_was_a_control_plane(self) -> None:
        """What happened then is not reported."""
        kept = self.open(reports_bytes=None)
        kept.add([kill('a'), incident(1)])
        kept.add_reports([statistics()])
        self.assertEqual([], self.files('reports'))
        self.assertEqual(([], 0), (self.names(kept), kept.waiting_bytes))
        kept.close()
        kept = self.open()
        kept.add([kill('c')])
        self.assertEqual(['c'], self.names(kept))
        kept.close()
        # And again: what was not reported meanwhile never is.
        self.open(reports_bytes=None).add([kill('d')])
        kept = self.open()
        kept.add([kill('e')])
        self.assertEqual(['e'], self.names(kept))
        self.assertEqual(5, len(self.history()))

    def test_order_of_both_kinds(self) -> None:
        """And an incident once, with its measurements."""
        kept = self.open()
        kept.add_reports([statistics('a')])
        kept.add([incident(1, 1), kill('b')])
        kept.add_reports([incident(0, 2)])
        kept.add([kill('c'), incident(0, 3)])
        entries = self.drained(kept)
        self.assertEqual([1, 2, 3, 4, 5, 6],
                         [entry.sequence for entry in entries])
        self.assertEqual([1, 0, 0], [
            len(entry.evidence) for entry in entries
            if isinstance(entry, report.Incident)])
        # The history has events only, and no measurements.
        self.assertEqual(
            [(2, []), (3, None), (5, None), (6, [])],
            [(event.sequence, getattr(event, 'evidence', None))
             for event in self.history()])

    def test_room_for_reports(self) -> None:
        """The oldest go: statistics are counted, events are reported."""
        kept = self.open(reports_bytes=40_000)
        for number in range(400):
            kept.add_reports([statistics(f'a{number}')])
        kept.add(incident(9, number) for number in range(10))
        self.assertLessEqual(self.size('reports'), 40_000)
        entries = self.drained(kept)
        left = [entry.application for entry in entries
                if isinstance(entry, report.Statistics)]
        self.assertEqual(400 - len(left), kept.dropped)
        self.assertEqual([f'a{number}' for number in range(
            400 - len(left), 400)], left)
        incidents = [entry for entry in entries
                     if isinstance(entry, report.Incident)]
        self.assertEqual([f'{number:032x}' for number in range(10)],
                         [entry.id for entry in incidents])
        self.assertEqual([], incidents[0].evidence)
        self.assertEqual(9, len(incidents[-1].evidence))

    def test_what_is_reported_is_not_dropped(self) -> None:
        """Of a segment that goes for want of room."""
        kept = self.open(reports_bytes=40_000)
        kept.add_reports([statistics()] * 20)
        kept.acknowledged(kept.run_id, 15)
        while not kept.dropped:
            kept.add_reports([statistics()])
        total = kept.batch(1, 1)[1][0].sequence - 1
        self.assertEqual(total - 15, kept.dropped)

    def test_reported_reports_are_removed(self) -> None:
        kept = self.open(reports_bytes=40_000)
        for _ in range(200):
            kept.add_reports([statistics()])
            self.drained(kept)
        self.assertEqual(0, kept.dropped)
        self.assertLessEqual(len(self.files('reports')), 2)

    def test_events_wait_beyond_the_bound_of_the_history(self) -> None:
        for history_bytes in (0, 20_000):
            kept = self.open(history_bytes)
            for number in range(600):
                kept.add([kill(f'k{number}')])
            self.assertGreater(self.size(), 100_000)
            self.assertEqual(600, len(self.drained(kept)))
            kept.add([kill()])
            self.assertLess(self.size(), history_bytes
                            + segments.SMALL // segments.SEGMENTS)
            self.drained(kept)
            kept.close()

    def test_what_no_conductor_takes(self) -> None:
        kept = self.open()
        kept.add([kill('x\udcff'), kill('a'), codec.replace(
            incident(), cause='x' * report.MAX_ENTRY_BYTES),
            codec.replace(incident(), id='none of a conductor'),
            codec.replace(kill('b'), processes=-1)])
        self.assertEqual([1], [entry.sequence
                               for entry in kept.batch(9, MIB)[1]])
        self.assertEqual(4, str(self.lines).count('left out'))
        self.assertEqual((1, 0), (len(self.history()), self.unreadable))

    def test_killed_at_any_time(self) -> None:
        """What was added is reported, and what was acknowledged is not
        reported again."""
        chance = random.Random(examples.SEED)
        last: dict[str, dict[str, int]] = {}
        for _ in range(4):
            process = subprocess.Popen(
                [sys.executable, '-c', KILLED, str(self.directory)],
                stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 300)):
                what, run, number = process.stdout.readline().split()
                last.setdefault(run, {})[what] = int(number)
            process.send_signal(signal.SIGKILL)
            for line in process.communicate()[0].splitlines():
                if line.count(' ') == 2 and line[-1].isdigit():
                    what, run, number = line.split()
                    if what != 'added':     # it may be cut off
                        last[run][what] = int(number)
        kept = self.open()
        reported: dict[str, list[int]] = {}
        while (batch := kept.batch(500, MIB))[1]:
            reported.setdefault(batch[0], []).extend(
                entry.sequence for entry in batch[1])
            kept.acknowledged(batch[0], batch[1][-1].sequence)
        for run, known in last.items():
            numbers = reported.get(run, [])
            first = numbers[0] if numbers else known['sent'] + 1
            self.assertEqual(list(range(first, first + len(numbers))),
                             numbers)
            self.assertIn(first - 1, (known.get('acknowledged', 0),
                                      known.get('sent', 0)))
            if numbers:
                self.assertGreaterEqual(numbers[-1], known.get('added', 0))
        self.assertEqual([], self.lines)

    def test_full_disk(self) -> None:
        """It waits in memory, is handed out, and is written in the end."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        kept = self.open(64 * MIB)
        kept.add([kill('a')])
        size = self.size()
        with self.full(size + 50):
            kept.add(kill(f'k{number}') for number in range(100))
            for number in range(1, 4):
                self.assertEqual(100 + number, len(self.names(kept)))
                kept.add([kill('more')])
            kept.acknowledged(kept.run_id, 1)
            self.assertEqual(2, kept.batch(1, 1)[1][0].sequence)
            [line] = self.lines
            self.assertIn('No space left', line)
            self.assertEqual(size, self.size())
            self.assertNotIn('written again', log.output)
        kept.add([kill('last')])
        self.assertEqual('', kept.fault)
        self.assertIn('written again; events lost: 0', log.output)
        self.assertEqual(105, len(self.history()))
        self.assertEqual(0, self.unreadable)
        run = kept.run_id
        kept.close()
        kept = self.open()
        self.assertEqual((run, 104), (kept.batch(500, MIB)[0],
                                      len(self.names(kept))))

    def without_disk(self) -> store.Store:
        (self.top / 'file').write_text('')
        kept = store.Store(self.top / 'file' / 'history', 64 * MIB, 64 * MIB,
                           warn=self.lines.append)
        self.addCleanup(kept.close)
        return kept

    def test_in_memory_only(self) -> None:
        kept = self.without_disk()
        kept.add(map(kill, 'ab'))
        kept.add_reports([statistics()])
        run, entries = kept.batch(9, MIB)
        self.assertEqual((kept.run_id, [1, 2, 3]),
                         (run, [entry.sequence for entry in entries]))
        kept.acknowledged(run, 1)
        self.assertEqual(['b'], self.names(kept))
        kept.acknowledged(run, 3)
        self.assertEqual(([], 0), (self.names(kept), kept.waiting_bytes))
        self.assertEqual(1, len(self.lines))

    def test_the_disk_comes_back_with_what_was_before(self) -> None:
        """What was handed out of memory meanwhile does not hide it."""
        first = self.filled('a', 'b')
        aside = self.top / 'aside'
        self.directory.rename(aside)
        self.directory.write_text('')
        self.top.chmod(0o755)
        kept = self.open()
        self.useFixture(fixtures.MonkeyPatch(
            f'{store.__name__}.private_files.make_directory', self.refuse))
        kept.add(map(kill, 'cd'))
        self.assertEqual(['c', 'd'], self.names(kept))
        self.useFixture(fixtures.MonkeyPatch(
            f'{store.__name__}.private_files.make_directory',
            lambda *args: None))
        self.directory.unlink()
        aside.rename(self.directory)
        kept.add([kill('e')])
        kept.acknowledged(kept.run_id, 2)
        self.assertEqual((first, ['a', 'b']),
                         (kept.batch(9, MIB)[0], self.names(kept)))
        kept.acknowledged(first, 2)
        self.assertEqual((kept.run_id, ['e']),
                         (kept.batch(9, MIB)[0], self.names(kept)))

    @staticmethod
    def refuse(*args: object) -> None:
        raise OSError(28, 'No space left on device')

    def test_memory_is_bounded(self) -> None:
        """Events of a disk that takes none for long: the newest stay."""
        kept = self.without_disk()
        most = 3 * segments.MOST_WAITING
        for number in range(0, most, 100):
            kept.add(kill(f'k{number + some}', '') for some in range(100))
            kept.add_reports([statistics()] * 100)
        entries = [entry for entry in self.drained(kept)
                   if isinstance(entry, report.Kill)]
        self.assertLessEqual(len(entries), segments.MOST_WAITING)
        self.assertGreater(len(entries), 0.8 * segments.MOST_WAITING)
        self.assertEqual([f'k{number}' for number in range(
            most - len(entries), most)], [
                entry.workload for entry in entries])
        self.assertEqual(2, len(self.lines))
        self.assertIn('are lost', self.lines[1])
        self.assertGreater(kept.dropped, 2 * (most - len(entries)) - 100)

    def test_long_entries_in_memory(self) -> None:
        kept = self.without_disk()
        kept.add(kill(f'k{number}', 'x' * 2000) for number in range(
            2 * segments.MOST_WAITING_BYTES // 2000))
        kept.add(incident(9, number) for number in range(300))
        self.assertLess(kept.waiting_bytes, 2 * segments.MOST_WAITING_BYTES)
        self.assertGreater(kept.waiting_bytes,
                           1.5 * segments.MOST_WAITING_BYTES)

    def test_many_at_once_are_written(self) -> None:
        """What the disk takes is not lost for want of memory."""
        kept = self.open(64 * MIB)
        kept.add(kill(f'k{number}') for number in range(
            2 * segments.MOST_WAITING))
        self.assertEqual((2 * segments.MOST_WAITING, 0),
                         (len(self.drained(kept)), kept.dropped))

    def test_no_descriptor_is_left(self) -> None:
        """For one of the two kinds: what it has waits, and is not taken for
        reported when the other one is."""
        kept = self.open()
        kept.add_reports([statistics()])
        kept.add([incident(1), kill('a')])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.open('/', os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        try:
            run, entries = kept.batch(9, MIB)
            if entries:
                kept.acknowledged(run, entries[-1].sequence)
            self.assertNotEqual(0, kept.waiting_bytes)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual([1, 2, 3], [
            entry.sequence for entry in self.drained(kept)])
        self.assertEqual([], self.lines)

    def test_torn(self) -> None:
        run = self.filled(*(f'w{number}' for number in range(50)))
        [path] = self.files()
        os.truncate(path, path.stat().st_size // 2 + 7)
        kept = self.open()
        kept.add([kill('new')])
        names = self.names(kept)
        self.assertEqual(([f'w{number}' for number in range(len(names))], run),
                         (names, kept.batch(9, MIB)[0]))
        self.assertEqual(['new'], [
            entry.workload for entry in self.drained(kept)[len(names):]
            if isinstance(entry, report.Kill)])
        self.assertEqual([], self.lines)

    def test_empty_file_and_others(self) -> None:
        self.filled()
        os.truncate(self.files()[0], 0)
        for name in ('x', 'x.events', '0000000001-' + 'g' * 32
                     + f'-{1:016}.events'):
            (self.directory / name).write_text('x')
        kept = self.open()
        kept.add([kill('new')])
        self.assertEqual(['new'], self.names(kept))
        self.assertEqual([], self.lines)

    def test_bit_flips(self) -> None:
        """Whatever flips, it goes on, and what comes out is what went in."""
        self.filled(*(f'w{number}' for number in range(30)))
        [path] = self.files()
        good = path.read_bytes()
        chance = random.Random(examples.SEED)
        for _ in range(60):
            data = bytearray(good)
            for _ in range(chance.randrange(1, 20)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            for file in self.directory.iterdir():
                if file.suffix in ('.events', '.reports') and file != path:
                    file.unlink()
            (self.directory / store.POSITION).write_text(
                '{"run":0,"sequence":0}')
            path.write_bytes(data)
            kept = self.open()
            kept.add([kill('new')])
            names = [entry.workload for entry in self.drained(kept)
                     if isinstance(entry, report.Kill)]
            self.assertEqual('new', names[-1])
            self.assertEqual(names[:-1], [
                name for name in (f'w{number}' for number in range(30))
                if name in names])
            self.assertGreater(len(names), 5)
            self.assertTrue(self.lines)
            kept.close()

    def test_one_is_removed_while_a_damaged_one_is_read(self) -> None:
        """By the thread of the reports, which has no lock meanwhile."""
        kept = self.open()
        kept.add([kill('a')])

        class Interrupted:
            """At its comparison another thread has the CPU."""

            def __eq__(self, other: object) -> bool:
                kept._damaged.add((pathlib.Path('b'), 0))
                return False

            __hash__ = object.__hash__

        path: Any = Interrupted()
        segment, = kept._events.segments
        kept._damaged |= {(segment.path, 5), (path, 0), (segment.path, 7)}
        kept._remove(kept._events, segment)
        self.assertEqual({path, pathlib.Path('b')},
                         {place for place, _ in kept._damaged})

    def test_a_damaged_position(self) -> None:
        """All that is there is reported again, and the conductor notices."""
        kept = self.open()
        kept.add([kill('a')])
        self.drained(kept)
        kept.close()
        for damage in (b'', b'\0' * 30, b'{"run":-1,"sequence":7}', b'[]'):
            (self.directory / store.POSITION).write_bytes(damage)
            kept = self.open()
            kept.add([kill('a')])
            self.assertEqual(['a'], self.names(kept))
            self.assertIn('reported again', self.lines.pop())
            self.drained(kept)
            kept.close()

    def test_what_is_no_position(self) -> None:
        """It is moved aside, and events are written all the same."""
        target = self.top / 'target'
        path = self.directory / store.POSITION
        for make in (lambda: path.symlink_to(target), path.mkdir,
                     lambda: os.mkfifo(path)):
            self.filled('a')
            target.write_text('{"run":7,"sequence":7}')
            path.unlink()
            make()
            kept = self.open()
            kept.add([kill('b')])
            self.assertEqual(('', 'a'), (kept.fault, self.names(kept)[0]))
            self.assertIn('reported again', self.lines.pop())
            self.drained(kept)
            kept.close()
            for other in self.directory.iterdir():
                if other.suffix in ('.events', '.unusable'):
                    other.rmdir() if stat.S_ISDIR(
                        other.lstat().st_mode) else other.unlink()
        self.assertEqual([], self.lines)

    def remove_files(self) -> None:
        for path in self.directory.iterdir():
            path.unlink()

    def test_files_that_are_removed(self) -> None:
        """By an operator, while the agent runs: it goes on in new ones, and
        what has been reported by then is not reported again."""
        for remove in (lambda: shutil.rmtree(self.directory),
                       self.remove_files):
            kept = self.open()
            kept.add(map(kill, 'ab'))
            self.drained(kept)
            kept.add([kill('c')])
            remove()
            kept.add([kill('d')])
            [line] = self.lines
            self.assertIn('removed', line)
            self.lines.clear()
            self.assertEqual(('', ['d']), (kept.fault, self.names(kept)))
            kept.close()
            kept = self.open()
            kept.add([kill('e')])
            self.assertEqual(['d', 'e'], [
                entry.workload for entry in self.drained(kept)
                if isinstance(entry, report.Kill)])
            self.assertEqual(2, len(self.history()))
            kept.close()
            shutil.rmtree(self.directory)

    def test_a_position_that_cannot_be_saved(self) -> None:
        kept = self.open()
        kept.add(map(kill, 'ab'))
        (self.directory / store.POSITION).unlink()
        (self.directory / store.POSITION).mkdir()
        self.files()[0].unlink()
        kept.add([kill('c')])
        self.assertEqual(('', ['c']), (kept.fault, self.names(kept)))

    def test_files_of_others(self) -> None:
        """They are moved aside; nothing is written to what they link to."""
        target = self.top / 'target'
        target.write_text('precious')
        run = '0' * 32
        name = f'{1:010}-{run}-{1:016}.events'
        self.directory.mkdir(0o700)
        path = self.directory / name

        def others_write() -> None:
            path.write_text('')
            path.chmod(0o666)

        def of_another_user() -> None:
            path.write_text('')
            os.chown(path, 65534, 65534)

        for make in (lambda: path.symlink_to(target),
                     lambda: os.link(target, path), lambda: os.mkfifo(path),
                     path.mkdir, others_write, of_another_user):
            make()
            kept = self.open()
            kept.add([kill('new')])
            self.assertEqual((kept.run_id, ['new']),
                             (kept.batch(9, MIB)[0], self.names(kept)))
            [line] = self.lines
            self.assertIn(f'{name}: owner', line)
            self.assertIn('unusable', line)
            self.assertEqual('precious', target.read_text())
            self.lines.clear()
            self.drained(kept)
            kept.close()
            aside = self.directory / f'{name}.unusable'
            if aside.is_dir() and not aside.is_symlink():
                aside.rmdir()
            else:
                aside.unlink()

    def test_directory_of_others(self) -> None:
        (self.top / 'elsewhere').mkdir()
        self.directory.symlink_to(self.top / 'elsewhere')
        for _ in range(2):
            kept = self.open()
            kept.add([kill('new')])
            self.assertEqual((kept.run_id, ['new']),
                             (kept.batch(9, MIB)[0], self.names(kept)))
            [line] = self.lines
            self.assertIn('others may have written', line, line)
            self.assertEqual([], list((self.top / 'elsewhere').iterdir()))
            self.lines.clear()
            kept.close()
            self.directory.chmod(0o777)

    def test_a_directory_for_other_files(self) -> None:
        """Such as /tmp, or /var/log where a group may write to it: it stays
        where it is, and nothing is written to it."""
        self.filled('a')
        self.directory.chmod(0o1777)
        (self.directory / 'other').mkdir()
        before = sorted(self.directory.iterdir())
        kept = self.open()
        for _ in range(2):
            kept.add([kill('b')])
            self.assertIn('other files', kept.fault)
            self.assertEqual(before, sorted(self.directory.iterdir()))
            self.assertEqual([self.directory], list(self.top.iterdir()))
        (self.directory / 'other').rmdir()
        self.directory.chmod(0o700)
        kept.add([kill('c')])
        self.assertEqual(('', 4), (kept.fault, len(self.history())))

    def test_a_directory_of_another_user(self) -> None:
        """Its files are that user's, as far as root may give files away."""
        if os.geteuid() != 0:
            self.skipTest('only root can give files away')
        os.chown(self.top, 65534, 65534)
        self.open().add([kill()])
        self.assertEqual({65534}, {path.stat().st_uid for path in (
            self.directory, *self.directory.iterdir())})
        for path in self.files():
            path.unlink()

        def refuse(*args: object) -> None:
            raise PermissionError(1, 'Operation not permitted')

        # As of a process without CAP_CHOWN.
        with fixtures.MonkeyPatch('os.chown', refuse):
            kept = self.open()
            kept.add([kill()])
        self.assertEqual(('', [0]), (kept.fault, [
            path.stat().st_uid for path in self.files()]))

    def test_a_position_of_root(self) -> None:
        """An agent of the user that owns the directory may not read it."""
        if os.geteuid() != 0:
            self.skipTest('only root can be another user')
        os.chown(self.top, 65534, 65534)
        self.filled()
        os.chown(self.directory / store.POSITION, 0, 0)
        child = os.fork()
        if not child:
            os.setuid(65534)
            kept = self.open()
            kept.add([kill()])
            os._exit(bool(kept.fault))
        self.assertEqual(0, os.waitpid(child, 0)[1])

    def test_a_directory_that_is_swapped(self) -> None:
        """By the user that owns what it is in, as soon as it is there: that
        gets nothing else from root."""
        if os.geteuid() != 0:
            self.skipTest('only root can give files away')
        os.chown(self.top, 65534, 65534)
        elsewhere = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        make = os.mkdir

        def swap(path: pathlib.Path, mode: int) -> None:
            make(path, mode)
            path.rmdir()
            path.symlink_to(elsewhere)

        kept = self.open()
        with fixtures.MonkeyPatch('os.mkdir', swap):
            kept.add([kill()])
        self.assertEqual((0, []), (elsewhere.stat().st_uid,
                                   list(elsewhere.iterdir())))

    def test_no_other_user_reads_it(self) -> None:
        kept = self.open()
        kept.add([kill()])
        kept.add_reports([statistics()])
        self.assertEqual(
            {0o600}, {path.stat().st_mode & 0o777
                      for path in self.directory.iterdir()})
        self.assertEqual(0o700, self.directory.stat().st_mode & 0o777)

    def test_two_threads(self) -> None:
        """Of two kinds, and only one of them is in both: each entry is
        reported once, in order."""
        kept = self.open(40_000, 64 * MIB)
        total, numbers = 3000, list[int]()
        evidence = 0

        def add() -> None:
            for number in range(total // 3):
                kept.add([kill(str(number), '')])
                kept.add_reports([statistics()])
                kept.add([incident(1, number)])

        thread = threading.Thread(target=add)
        thread.start()
        while len(numbers) < total:
            run, entries = kept.batch(50, MIB)
            if entries:
                numbers += [entry.sequence for entry in entries]
                evidence += sum(bool(entry.evidence) for entry in entries
                                if isinstance(entry, report.Incident))
                kept.acknowledged(run, numbers[-1])
            elif not thread.is_alive() and not kept.batch(1, 1)[1]:
                break
        thread.join()
        self.assertEqual([], self.lines)
        self.assertEqual(0, kept.dropped)
        self.assertEqual(list(range(1, total + 1)), numbers)
        self.assertEqual(total // 3, evidence)

    def test_what_is_added_while_a_report_is_read(self) -> None:
        """It is reported with its measurements, by the next one."""
        kept = self.open()
        kept.add([kill()])
        read = segments.lines

        def lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
            yield from read(file)
            if not added:
                added.append(1)
                kept.add([incident(1)])
            yield from read(file)

        added: list[int] = []
        with fixtures.MonkeyPatch(f'{segments.__name__}.lines', lines):
            run, [entry] = kept.batch(9, MIB)
        self.assertEqual([1], added)
        kept.acknowledged(run, entry.sequence)
        [entry] = self.drained(kept)
        assert isinstance(entry, report.Incident)
        self.assertEqual(1, len(entry.evidence))

    def test_limits_fit(self) -> None:
        """As many as the documentation has of so many MiB."""
        self.open(16 * MIB).add(limits(0, 100))
        self.assertLess(self.size() / 100, 320)
