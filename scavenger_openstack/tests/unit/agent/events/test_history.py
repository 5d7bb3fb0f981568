# SPDX-License-Identifier: Apache-2.0

"""The history on disk."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from typing import Any

import fixtures
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.agent.events import history
from scavenger_openstack.agent.events import segments
from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent.events import store
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent import names
from scavenger_openstack.agent import private_files
from scavenger_openstack import errors
from scavenger_openstack import events
from scavenger_openstack.events import Event
from scavenger_openstack.tests.unit.agent.events import stored
from scavenger_openstack.tests.unit.agent.events.stored import limit
from scavenger_openstack.tests.unit.agent.events.stored import limits
from scavenger_openstack.tests.unit.agent import statuses
from scavenger_openstack.wire import codec

TEXT = statuses.TEXT
TIME = st.floats(0, 2.0 ** 37)

EVENTS = (
    st.builds(tick_events.agent_event, TIME,
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


class HistoryTest(stored.StoreTestCase):

    def open(self, history_bytes: int = stored.MIB,
             reports_bytes: int | None = None, **options: Any) -> store.Store:
        """Without a control plane, unless a test asks for one."""
        return super().open(history_bytes, reports_bytes, **options)

    @settings(deadline=None)
    @given(EVENTS)
    def test_what_is_read_is_what_was_written(self, event: Event) -> None:
        kept = self.open()
        kept.add([event])
        kept.close()
        [read] = self.history()
        self.assertEqual(
            codec.replace(event, sequence=1), read)
        self.assertTrue(sentences.line(read, names.Names()).isprintable())
        for path in self.files():
            path.unlink()

    def test_names_of_vms_are_kept(self) -> None:
        """Also of one that has ended since, and in a later process."""
        uuid = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
        vm_names = names.Names()
        kept = self.open(vm_names=vm_names)
        for name in ('web', 'web\n2'):
            vm_names.learn(uuid, 'instance-00000001', name)
            kept.add([limit(1.0, uuid)])
        kept.add(limits(2, 1))
        reader = history.Reader(self.directory)
        lines, documents = zip(*(
            (sentences.line(event, reader.names),
             json.loads(history.as_json(event, reader.names)))
            for event in reader.events()), strict=True)
        for line, shown in zip(lines, ('web', r'"web\\n2"'), strict=False):
            self.assertIn(f'limit set: instance-00000001 ({shown}, {uuid}) '
                          'cpu_cores = 0.5 cores', line)
        self.assertEqual(
            [(uuid, 'web'), (uuid, r'web\n2'), ('/batch/a', None)],
            [(document['workload'], document.get('names', {}).get(
                uuid, {}).get('display_name')) for document in documents])

    def test_it_goes_on_after_a_restart(self) -> None:
        for first in (0, 3):
            kept = self.open()
            kept.add(limits(first, 3))
            kept.close()
        self.assertEqual([*range(6)], self.times())

    def test_it_stays_below_its_bound(self) -> None:
        kept, most = self.open(40_000), 0
        for first in range(0, 2000, 10):
            kept.add(limits(first, 10))
            most = max(most, self.size())
        self.assertLessEqual(most, 40_000)
        self.assertGreater(most, 30_000)
        times = self.times()
        self.assertEqual([*range(2000 - len(times), 2000)], times)

    def test_agents_that_end_at_once_stay_below_it(self) -> None:
        """A file takes a block of the disk at least."""
        for first in range(100):
            kept = self.open(40_000)
            kept.add(limits(first, 1))
            kept.close()
        self.assertLessEqual(len(self.files()), 40_000 // 4096)
        self.assertEqual(99.0, self.times()[-1])

    def test_a_line_that_a_kill_cut_off(self) -> None:
        self.open().add(limits(0, 2))
        [path] = self.files()
        os.truncate(path, path.stat().st_size - 9)
        self.assertEqual([0], self.times())
        self.assertEqual(1, self.unreadable)
        self.open().add(limits(2, 1))
        self.assertEqual([0, 2], self.times())

    def test_half_a_line_is_taken_away(self) -> None:
        """The kernel writes what has room; the rest is written later."""
        kept = self.open()
        kept.add(limits(0, 1))
        size = self.size()
        with self.full(size + 50):
            kept.add(limits(1, 1))
        self.assertIn('No space left', kept.fault)
        self.assertEqual(size, self.size())
        kept.add(limits(2, 1))
        self.assertEqual([0, 1, 2], self.times())
        self.assertEqual((0, ''), (self.unreadable, kept.fault))

    def test_flipped_bits(self) -> None:
        self.open().add(limits(0, 8))
        [path] = self.files()
        whole = path.read_bytes()
        for place in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            times = self.times()
            self.assertGreaterEqual(len(times), 6)
            self.assertEqual(set(), {*times} - {*map(float, range(8))})
        for junk in (b'\x00' * 4096, b'[' * 100_000, b'\xff\n{}\n7\nnull\n',
                     b'00000000 ', segments.encode(1, b'{"type":[]}'),
                     segments.encode(1, b'[' * 100_000),
                     segments.encode(1, b'{"entry":{"type":null}}'),
                     b'7' * (segments.MOST_LINE + 9)):
            path.write_bytes(junk.rstrip(b'\n') + b'\n' + whole)
            self.assertEqual([*range(8)], self.times())
            self.assertEqual(max(1, junk.rstrip().count(b'\n') + 1),
                             self.unreadable)

    def test_there_is_none(self) -> None:
        with testtools.ExpectedException(errors.ScavengerError,
                                         '.*no history.*'):
            self.history()

    def test_of_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('needs root: it gives files away')
        self.open().add(limits(0, 1))
        os.chown(self.files()[0], 12345, 12345)
        with testtools.ExpectedException(errors.ScavengerError,
                                         '.*owner 12345.*'):
            self.history()

    def test_the_directory_goes_and_comes_back(self) -> None:
        log = self.useFixture(fixtures.FakeLogger())
        kept = self.open(65_536)     # some lines in each file
        kept.add(limits(0, 1))
        aside = self.top / 'aside'
        self.directory.rename(aside)
        self.top.joinpath('history').symlink_to('/proc/self')
        self.useFixture(fixtures.MonkeyPatch(
            f'{private_files.__name__}.make_directory',
            lambda *args: None))
        for first in range(1, 99):
            kept.add(limits(first, 1))
        self.assertIn(str(self.directory), kept.fault)
        self.directory.unlink()
        aside.rename(self.directory)
        kept.add(limits(99, 1))
        self.assertEqual('', kept.fault)
        self.assertEqual(1, len(self.lines))
        self.assertEqual(1, log.output.count('is written again'))
        self.assertEqual([*range(100)], self.times())

    def test_it_is_deleted_while_the_agent_runs(self) -> None:
        kept = self.open(20_000)
        kept.add(limits(0, 1))
        shutil.rmtree(self.directory)
        for first in range(1, 30):
            kept.add(limits(first, 1))
        self.assertEqual(29.0, self.times()[-1])
        self.assertEqual('', kept.fault)

    def test_none_is_wanted(self) -> None:
        self.open(0).add(limits(0, 1))
        self.assertFalse(self.directory.exists())


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
