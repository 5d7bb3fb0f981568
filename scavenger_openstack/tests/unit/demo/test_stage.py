# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import os
import pathlib
import shutil

import fixtures
import testtools

from scavenger_openstack.demo.stage import stage


class RemoveDirectoryTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'demo'
        for name in ('leases', 'standalone', 'empty'):
            (self.directory / name).mkdir(parents=True)
            (self.directory / name / 'file').touch()
        (self.directory / 'service.log').touch()
        (self.directory / 'link').symlink_to('/')

    def test_the_lock_goes_last(self) -> None:
        """Else another process takes the lock, and removes it, too."""
        self.assertIsNotNone(stage.take_lock(self.directory))
        remove, locks = shutil.rmtree, []

        def watched(path: pathlib.Path) -> None:
            locks.append(stage.take_lock(self.directory))
            remove(path)

        self.useFixture(fixtures.MonkeyPatch('shutil.rmtree', watched))
        stage.remove_directory(self.directory)
        self.assertEqual([None] * 3, locks)
        self.assertFalse(self.directory.exists())

    def test_without_a_lock(self) -> None:
        stage.remove_directory(self.directory)
        self.assertFalse(self.directory.exists())


class NoTree:
    """Stands in for the tree of cgroups, which only root can make."""

    def __init__(self, name: str) -> None:
        pass

    def remove(self) -> None:
        pass


class RemoveTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        run = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, value in (('RUN', run), ('cgroups.Tree', NoTree)):
            self.useFixture(fixtures.MonkeyPatch(
                f'{stage.__name__}.{name}', value))
        self.stage = stage.Stage((), [0])

    def test_never_made(self) -> None:
        self.assertEqual([], self.stage.remove())

    def test_all_of_it(self) -> None:
        (self.stage.directory / 'leases').mkdir(parents=True)
        self.assertEqual([], self.stage.remove())
        self.assertFalse(self.stage.directory.exists())

    def test_what_stays_is_told(self) -> None:
        busy = self.stage.directory / 'busy'
        busy.mkdir(parents=True)

        def refuse(path: pathlib.Path) -> None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))

        self.useFixture(fixtures.MonkeyPatch('shutil.rmtree', refuse))
        self.assertEqual(
            [f'{busy} cannot be removed: Device or resource busy'],
            self.stage.remove())
