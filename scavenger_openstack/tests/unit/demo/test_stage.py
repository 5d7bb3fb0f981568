# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

from __future__ import annotations

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
