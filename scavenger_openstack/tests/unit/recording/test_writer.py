# SPDX-License-Identifier: Apache-2.0



"""A recording holds all that was seen and decided, and nothing breaks it."""

from __future__ import annotations

import json
import os
import pathlib
import stat

import fixtures
import testtools

from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.decision import changes
from scavenger_openstack import errors
from scavenger_openstack.recording import order_format
from scavenger_openstack.recording import replay
from scavenger_openstack.tests.unit import recordings
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode


class RecorderTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'a.recording'

    def host(self, mode: Mode = Mode.ENFORCE, asked: bool = False
             ) -> recordings.Host:
        host = recordings.Host(self.path, mode=mode, asked=asked)
        self.addCleanup(host.recorder.close)
        return host

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line)
                for line in self.path.read_text().splitlines()]

    def check(self, ticks: list[loop_.Tick]) -> None:
        """What is read is what was written."""
        recording = replay.read(self.path)
        told = changes.Changes()
        for tick, turn in zip(ticks, recording, strict=True):
            self.assertEqual(
                (tick.time_s, tick.sample, tick.stopped, tick.unwatched,
                 tick.reset, tick.unmet, tick.pending,
                 tuple(tick.outcome.problems)),
                (turn.time_s, turn.sample, turn.stopped, turn.unwatched,
                 turn.reset, turn.unmet, turn.pending, turn.problems))
            changed = changes.Changed()
            if tick.decided:
                changed = told.of(tick.decided)
                self.assertEqual(
                    {key: value for key, value
                     in tick.decided.originals.items() if value is not None},
                    turn.originals)
                fast = tick.decided.fast
                self.assertEqual((frozenset(fast.sets), fast.floors),
                                 (turn.fast_sets, turn.floors))
            elif tick.stopped or tick.unwatched:
                changed = told.of_none()
            self.assertEqual(changed, turn.decided)
            self.assertEqual(tick.orders, turn.orders)

    def test_what_is_read_is_what_was_written(self) -> None:
        for mode in (Mode.ENFORCE, Mode.OBSERVE):
            self.path = self.directory / mode
            host = self.host(mode)
            self.check(host.ticks(400))

    def test_what_operators_ask_for_is_read_again(self) -> None:
        ticks = self.host(asked=True).ticks(400)
        self.check(ticks)
        for part in order_format.PARTS:
            self.assertLess(2, len({str(getattr(tick.orders, part))
                                    for tick in ticks}), part)
        lines = self.path.read_text().splitlines()
        self.assertLess(sum('"orders"' in line for line in lines), 100)

    def test_the_header_says_what_it_starts_from(self) -> None:
        self.host()
        header = replay.read(self.path).header
        self.assertEqual(('node7', 'boot', 1.0, 1000.0),
                         (header.host, header.boot_id, header.interval_s,
                          header.loaded_s))
        [controller] = header.controllers
        self.assertEqual(('scavenger', Mode.ENFORCE, 4.0, None),
                         (controller.name, controller.mode,
                          controller.params['memory_window_s'],
                          controller.state))
        self.assertEqual(('perfiso', 10.0),
                         (header.isolation.name,
                          header.isolation.params['grow_interval_ms']))

    def test_what_does_not_change_is_written_once(self) -> None:
        host = self.host()
        sample = host.sample()
        for step in range(3):
            tick = loop_.Tick(2000.0 + step)
            host.decide(tick, sample)
            host.recorder.tick(tick, [])
        first, *others = (line['sample'] for line in self.lines()[1:])
        assert isinstance(first, dict)
        self.assertIn('topology', first)
        for other in others:
            assert isinstance(other, dict)
            self.assertNotIn('topology', other)
            self.assertEqual({'id'}, {'id', 'workload'} & set().union(
                *other['workloads']))

    def test_what_was_read_back_and_what_was_removed(self) -> None:
        host = self.host()
        key = ('/batch/b', Knob.CPU_CORES)
        host.recorder.knobs.write(*key, 0.5)
        host.recorder.tick(loop_.Tick(2000.0), [key])
        host.recorder.tick(loop_.Tick(2001.0), [])
        first, second = replay.read(self.path)
        self.assertEqual(({key: (0.5, 0.5)}, ()),
                         (first.written, first.removed))
        self.assertEqual(({}, (key,)), (second.written, second.removed))

    def test_each_line_is_there_at_once_for_the_owner_alone(self) -> None:
        host = self.host()
        for count in range(1, 4):
            self.assertEqual(count, len(self.lines()))
            host.tick()
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))

    def test_nothing_is_overwritten_and_no_link_followed(self) -> None:
        self.path.write_text('precious')
        link = self.directory / 'link'
        link.symlink_to(self.directory / 'new')
        for path, word in ((self.path, 'already'), (link, 'already'),
                           (self.directory, 'already'),
                           (self.directory / 'no' / 'x', 'No such')):
            error = self.assertRaises(errors.ConfigError, recordings.Host,
                                      path)
            self.assertIn(str(path), str(error))
            self.assertIn(word, str(error))
        self.assertEqual('precious', self.path.read_text())
        self.assertFalse((self.directory / 'new').exists())

    def test_what_cannot_be_written_ends_the_recording_alone(self) -> None:
        """A controller of another package whose incident is no JSON."""
        log = self.useFixture(fixtures.FakeLogger(
            'scavenger_openstack.recording'))
        host = self.host()
        host.ticks(2)
        before = self.path.read_bytes()
        tick = loop_.Tick(3000.0)
        tick.outcome.problems.append(object())  # type: ignore[arg-type]
        host.recorder.tick(tick, [])
        host.ticks(2)
        self.assertEqual(before, self.path.read_bytes())
        self.assertEqual(1, log.output.count('recording to'), log.output)
