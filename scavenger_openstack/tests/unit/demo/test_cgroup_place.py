# SPDX-License-Identifier: Apache-2.0

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
        cgroup_place.move_all(self.seat, self.place)
        return (self.place / 'cgroup.procs').read_text()

    def test_a_dead_one(self) -> None:
        self.assertEqual('12', self.moved('12\n'))

    def test_one_of_another_pid_namespace(self) -> None:
        """To write 0 moves the process that writes."""
        self.assertEqual('', self.moved('0\n0\n'))
        self.assertEqual('12', self.moved('12\n0\n'))
