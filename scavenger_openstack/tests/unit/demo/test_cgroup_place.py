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

"""Processes that cannot be moved out of a cgroup."""

from __future__ import annotations

import pathlib

import fixtures
import testtools

from scavenger_openstack.demo.stage import cgroup_place


class EmptyTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.seat, self.place = root / 'place/seat', root / 'place'
        self.seat.mkdir(parents=True)

    def moved(self, pids: str) -> str:
        """What was moved last, of processes that stay listed."""
        (self.seat / 'cgroup.procs').write_text(pids)
        (self.place / 'cgroup.procs').write_text('')
        cgroup_place.empty(self.seat, self.place)
        return (self.place / 'cgroup.procs').read_text()

    def test_a_dead_one(self) -> None:
        self.assertEqual('12', self.moved('12\n'))

    def test_one_of_another_pid_namespace(self) -> None:
        """To write 0 moves the process that writes."""
        self.assertEqual('', self.moved('0\n0\n'))
        self.assertEqual('12', self.moved('12\n0\n'))
