# SPDX-License-Identifier: Apache-2.0

"""Where results go: what is replaced, what is written into, what is not."""

from __future__ import annotations

import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.laboratory import output


class TargetTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'out.json'
        self.link = self.directory / 'link'

    def write(self, path: pathlib.Path, text: str = 'new') -> None:
        with output.Target(str(path)) as target:
            target.write(text)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def test_a_file_appears_complete_or_not_at_all(self) -> None:
        self.path.write_text('old')
        with testtools.ExpectedException(ValueError), \
                output.Target(str(self.path)):
            raise ValueError
        self.assertEqual('old', self.path.read_text())
        self.write(self.path)
        self.assertEqual('new', self.path.read_text())
        self.assertEqual(['out.json'], self.names())

    def test_a_pipe_is_written_into(self) -> None:
        os.mkfifo(self.path)
        reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.write(self.path)
        self.assertEqual(b'new', os.read(reader, 99))
        self.assertTrue(self.path.is_fifo())

    def test_a_device_stays_one(self) -> None:
        self.link.symlink_to('/dev/null')
        self.write(self.link)
        self.assertTrue(self.link.is_symlink())
        self.assertTrue(pathlib.Path('/dev/null').is_char_device())

    def test_a_link_of_ours_is_followed(self) -> None:
        self.link.symlink_to(self.path)
        for _ in range(2):      # to what is not there, to what is
            self.write(self.link)
            self.assertTrue(self.link.is_symlink())
            self.assertEqual('new', self.path.read_text())

    def test_a_link_of_another_user_is_not(self) -> None:
        if os.geteuid():
            self.skipTest('needs root, to give a link to another user')
        for content in (None, 'old'):
            self.link.unlink(missing_ok=True)
            self.link.symlink_to(self.path)
            os.lchown(self.link, 65534, 65534)
            if content:
                self.path.write_text(content)
            error = self.assertRaises(PermissionError, self.write, self.link)
            self.assertIn(str(self.link), str(error))
            self.assertEqual(content is not None, self.path.exists())
        self.assertEqual('old', self.path.read_text())
        self.assertEqual(['link', 'out.json'], self.names())
