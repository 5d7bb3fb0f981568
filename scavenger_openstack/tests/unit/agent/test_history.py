# SPDX-License-Identifier: Apache-2.0

"""The history on disk."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import time

import fixtures
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.agent.events import recorder
from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent import history
from scavenger_openstack.agent import names
from scavenger_openstack import errors
from scavenger_openstack import events
from scavenger_openstack.events import Event
from scavenger_openstack.tests.unit.agent import statuses
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

TEXT = statuses.TEXT
TIME = st.floats(0, 2.0 ** 37)

EVENTS = (
    st.builds(recorder.agent_event, TIME,
              st.sampled_from(['started', 'state', 'ended']), TEXT,
              st.integers(0, 2 ** 22))
    | st.builds(events.incident_event, TIME,
                st.sampled_from(['began', 'changed', 'ended']), TEXT,
                statuses.INCIDENTS.map(lambda incident: dataclasses.replace(
                    incident, id='0' * 32)), TIME)
    | statuses.CAPS.flatmap(lambda cap: st.builds(
        events.limit_event, TIME,
        st.sampled_from(['set', 'changed', 'removed']), st.just(cap),
        since_s=TIME, why=TEXT, **dict.fromkeys(
            ('original', 'lowest', 'highest'),
            st.none() | st.just(cap.value)))))


def limit(time_s: float, workload: str = '/batch/a') -> report.Limit:
    return events.limit_event(
        time_s, 'set', Cap(workload, Knob.CPU_CORES, 0.5, 'o', 'r'),
        lowest=0.5, highest=0.5)


class FilesTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'below' / 'history.jsonl'
        self.log = self.useFixture(fixtures.FakeLogger())

    def history(self, most_bytes: int = 1 << 20) -> history.History:
        found = history.History(self.path, most_bytes)
        self.addCleanup(found.close)
        return found

    def events(self) -> list[Event]:
        reader = history.Reader(self.path)
        found = list(reader.events())
        self.unreadable = reader.unreadable
        return found

    @staticmethod
    def some(first: int, count: int) -> list[Event]:
        return [limit(float(number))
                for number in range(first, first + count)]

    @settings(deadline=None)
    @given(EVENTS)
    def test_what_is_read_is_what_was_written(self, event: Event) -> None:
        known = names.Names()
        line = codec.decode(history.as_line(event, known), history.Line,
                            history.MOST_LINE)
        self.assertEqual((event, {}), (line.entry, line.names))
        self.assertTrue(sentences.line(event, known).isprintable())

    def test_names_of_vms_are_kept(self) -> None:
        """Also of one that has ended since, and in a later process."""
        uuid = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
        known = names.Names()
        one = history.History(self.path, 1 << 20, known)
        self.addCleanup(one.close)
        for name in ('web', 'web\n2'):
            known.learn(uuid, 'instance-00000001', name)
            one.add([limit(1.0, uuid)])
        one.add(self.some(2, 1))
        reader = history.Reader(self.path)
        lines, documents = zip(*(
            (sentences.line(event, reader.names),
             json.loads(history.as_line(event, reader.names)))
            for event in reader.events()), strict=True)
        for line, shown in zip(lines, ('web', r'"web\\n2"'), strict=False):
            self.assertIn(f'limit set: instance-00000001 ({shown}, {uuid}) '
                          'cpu_cores = 0.5 cores', line)
        self.assertEqual(
            [(uuid, 'web'), (uuid, 'web\\n2'), ('/batch/a', None)],
            [(one['entry']['workload'], one.get('names', {}).get(uuid, {}).get(
                'display_name')) for one in documents])

    def test_it_goes_on_after_a_restart(self) -> None:
        for first in (0, 3):
            one = self.history()
            one.add(self.some(first, 3))
            one.close()
        self.assertEqual(self.some(0, 6), self.events())

    def test_both_files_together_stay_below_the_bound(self) -> None:
        one, most = self.history(20_000), 0
        for first in range(0, 1000, 10):
            one.add(self.some(first, 10))
            most = max(most, sum(file.stat().st_size for file
                                 in self.path.parent.iterdir()))
        self.assertLessEqual(most, 20_000)
        self.assertGreater(most, 10_000)
        events = self.events()
        self.assertEqual(self.some(1000 - len(events), len(events)), events)

    def test_a_line_that_a_kill_cut_off(self) -> None:
        self.history().add(self.some(0, 2))
        with self.path.open('r+b') as file:
            file.truncate(self.path.stat().st_size - 9)
        self.assertEqual(self.some(0, 1), self.events())
        self.assertEqual(1, self.unreadable)
        self.history().add(self.some(2, 1))
        self.assertEqual(self.some(0, 1) + self.some(2, 1), self.events())

    def test_half_a_line_is_taken_away(self) -> None:
        """The kernel writes what has room."""
        one = self.history()
        one.add(self.some(0, 1))
        size = self.path.stat().st_size
        _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
        try:
            one.add(self.some(1, 1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertIn('No space left', one.fault)
        self.assertEqual(size, self.path.stat().st_size)
        one.add(self.some(2, 1))
        self.assertEqual(self.some(0, 1) + self.some(2, 1), self.events())
        self.assertEqual((0, ''), (self.unreadable, one.fault))

    def test_flipped_bits(self) -> None:
        self.history().add(self.some(0, 8))
        whole = self.path.read_bytes()
        for place in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            self.path.write_bytes(damaged)
            self.assertGreaterEqual(len(self.events()), 6)
        for junk in (b'\x00' * 4096, b'[' * 100_000, b'\xff\n{}\n7\nnull\n',
                     b'{"type":[]}', b'{"type":{}}', b'{"type":null}',
                     b'7' * (history.MOST_LINE + 9)):
            self.path.write_bytes(junk + b'\n' + whole)
            self.assertEqual(self.some(0, 8), self.events())
            self.assertEqual(max(1, junk.count(b'\n')), self.unreadable)

    def test_there_is_none(self) -> None:
        with testtools.ExpectedException(errors.ScavengerError,
                                         '.*no history.*'):
            self.events()

    def test_it_is_not_ours(self) -> None:
        self.path.parent.mkdir()
        other = self.directory / 'other'
        other.write_text('x\n')
        for count, make in enumerate((
                lambda: self.path.symlink_to(other),
                lambda: os.link(other, self.path),
                lambda: os.mkfifo(self.path), self.path.mkdir), 1):
            make()
            one = self.history()
            for first in range(3):
                one.add(self.some(first, 1))
            self.assertIn(str(self.path), one.fault)
            self.assertEqual(count, self.log.output.count('is not written'))
            self.assertEqual('x\n', other.read_text())
            if self.path.is_dir() and not self.path.is_symlink():
                self.path.rmdir()
            else:
                self.path.unlink()

    def test_of_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('needs root: it gives files away')
        self.history().add(self.some(0, 1))
        os.chown(self.path, 12345, 12345)
        with testtools.ExpectedException(errors.ScavengerError,
                                         '.*owner 12345.*'):
            self.events()
        one = self.history()
        one.add(self.some(1, 1))
        self.assertIn('user 12345', one.fault)

    def test_the_directory_goes_and_comes_back(self) -> None:
        """What is open goes on; after a fault it is opened again."""
        self.path.parent.mkdir()
        one = self.history(600)     # a line or two in each file
        one.add(self.some(0, 1))
        (self.path.parent / 'history.jsonl.1').mkdir()
        (self.path.parent / 'history.jsonl.1' / 'x').touch()
        for first in range(1, 9):
            one.add(self.some(first, 1))
        self.assertIn('history.jsonl', one.fault)
        (self.path.parent / 'history.jsonl.1' / 'x').unlink()
        (self.path.parent / 'history.jsonl.1').rmdir()
        one.add(self.some(9, 1))
        self.assertEqual('', one.fault)
        self.assertEqual(1, self.log.output.count('is not written'))
        self.assertEqual(1, self.log.output.count('is written again'))
        self.assertEqual(self.some(9, 1), self.events()[-1:])

    def test_none_is_wanted(self) -> None:
        self.history(0).add(self.some(0, 1))
        self.assertFalse(self.path.exists())


class SinceTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(time.tzset)     # after the variable is set back
        self.useFixture(fixtures.EnvironmentVariable('TZ', 'Asia/Tokyo'))
        time.tzset()

    def test_one_time_zone(self) -> None:
        """UTC, as in what "openstack" prints and takes."""
        self.assertEqual(60.0, history.since('1970-01-01T00:01', 1000.0))
        self.assertTrue(sentences.line(limit(60.0), names.Names()).startswith(
            '1970-01-01 00:01:00+00:00  '))

    def test_durations_and_times(self) -> None:
        for text, wanted in (('90s', 910), ('2m', 880), ('0h', 1000),
                             ('1h30m', -4400), ('1w', -603800),
                             ('1970-01-01T00:01:00+00:00', 60),
                             ('1970-01-01T00:01:00Z', 60)):
            self.assertEqual(wanted, history.since(text, 1000.0))

    def test_garbage(self) -> None:
        for text in ('', 'h', '-1h', '2y', '2h ', '\u0663h', 'yesterday',
                     '9999999'):
            with testtools.ExpectedException(errors.ConfigError):
                history.since(text, 1000.0)
