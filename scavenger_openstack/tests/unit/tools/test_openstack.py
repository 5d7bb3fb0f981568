# SPDX-License-Identifier: Apache-2.0

"""What ``tools/openstack.sh`` tells while it starts, and what it leaves."""

from __future__ import annotations

import pathlib
import threading

import fixtures
import testtools

from scavenger_openstack.tests.functional.openstack import progress
from scavenger_openstack.tests.functional.openstack import state


class ProgressTest(testtools.TestCase):

    def test_it_is_never_silent_for_long(self) -> None:
        lines: list[str] = []
        twice = threading.Event()

        def write(line: str) -> None:
            lines.append(line)
            if len(lines) == 3:
                twice.set()

        with progress.Progress(write, quiet_s=0.05) as told:
            told.say('   1.0 s  libvirt')
            self.assertTrue(twice.wait(30))
        self.assertEqual('   1.0 s  libvirt', lines[0])
        for line in lines[1:]:
            self.assertIn('still at work', line)
            self.assertTrue(line.endswith('since: 1.0 s  libvirt'), line)


class StateTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('tempfile.tempdir',
                                             str(self.top)))
        self.state = state.State()

    def left(self) -> list[str]:
        return sorted(path.name for path in self.top.rglob('*'))

    def test_a_look_leaves_nothing(self) -> None:
        self.assertEqual(({}, False), (self.state.read(),
                                       self.state.starting()))
        self.state.remove()
        self.assertEqual([], self.left())

    def test_nothing_is_left_of_one_that_ended(self) -> None:
        lock = self.state.lock()
        assert lock is not None
        with lock:
            self.assertTrue(self.state.starting())
            self.state.write(pid=1)
            self.state.log.write_text('a line')
            self.assertEqual({'pid': 1}, self.state.read())
            self.state.remove()     # it runs
            self.assertEqual({'pid': 1}, self.state.read())
        self.assertEqual({}, self.state.read())
        self.state.remove()
        self.assertEqual([], self.left())

    def test_a_lock_that_was_removed_is_none(self) -> None:
        """One that was opened before that holds nothing."""
        first = self.state.lock()
        assert first is not None
        (self.state.directory / 'lock').unlink()
        with first:
            second = self.state.lock()
            assert second is not None
            with second:
                self.assertIsNone(self.state.lock())
