# SPDX-License-Identifier: Apache-2.0

"""The stop file as the slow loop sees it."""

from __future__ import annotations

import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.agent import stop_file


class StopFileTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'place/stop'

    def found(self) -> stop_file.StopFile:
        found = stop_file.StopFile(self.path)
        self.addCleanup(found.close)
        return found

    def test_there(self) -> None:
        self.path.parent.mkdir()
        found = self.found()
        self.assertFalse(found.appeared())
        self.path.touch()
        self.assertEqual([True] * 2, [found.appeared() for _ in range(2)])
        self.path.unlink()
        self.assertFalse(found.appeared())

    def test_between_two_looks(self) -> None:
        self.path.parent.mkdir()
        found = self.found()
        draft = self.path.with_name('draft')
        for path in (self.path, draft):
            path.touch()
            path.rename(self.path)
            self.path.unlink()
            self.assertEqual([True, False],
                             [found.appeared() for _ in range(2)])
            self.assertFalse(found.exists())

    def test_other_names(self) -> None:
        self.path.parent.mkdir()
        found = self.found()
        for number in range(5000):
            (self.path.parent / f'stop{number}').touch()
        self.path.touch()
        self.path.unlink()
        self.assertTrue(found.appeared())
        self.assertFalse(found.appeared())
        for name in ('sto', 'stop.new', 'a' * 200):
            (self.path.parent / name).touch()
        self.assertFalse(found.appeared())

    def test_a_directory_that_is_made_later_or_again(self) -> None:
        found = self.found()
        self.assertFalse(found.appeared())
        self.path.parent.mkdir()
        self.assertFalse(found.appeared())
        for away in (lambda: self.path.parent.rmdir(), lambda: os.rename(
                self.path.parent, self.path.parent.with_name('old'))):
            self.path.touch()
            self.path.unlink()
            self.assertTrue(found.appeared())
            away()
            self.path.parent.mkdir()
            self.assertFalse(found.appeared())
        self.path.touch()
        self.path.unlink()
        self.assertTrue(found.appeared())

    def test_where_the_kernel_tells_nothing(self) -> None:
        self.path.parent.mkdir()
        found = self.found()
        found.close()           # as out of inotify instances
        self.path.touch()
        self.assertTrue(found.appeared())
        self.path.unlink()
        self.assertFalse(found.appeared())
