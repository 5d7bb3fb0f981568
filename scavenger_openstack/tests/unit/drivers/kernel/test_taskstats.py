# SPDX-License-Identifier: Apache-2.0


"""What the kernel may answer about tasks, also when it is garbage."""

from __future__ import annotations

import errno
import os
import pathlib
import random
import struct

import fixtures
import testtools

from scavenger_openstack.drivers.delay import totals
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.drivers.kernel.taskstats import Waits

FAMILY, ERROR = 31, 2


def answer(version: int = 16, size: int = 560, *, padded: bool = False
           ) -> bytes:
    """One of a process, laid out as linux/taskstats.h says."""
    stats = bytearray(size)
    struct.pack_into('=H', stats, 0, version)
    for at, value in ((16, 7), (32, 5), (40, 1234), (48, 99), (248, 4096),
                      (256, 8192), (400, 3)):
        if at + 8 <= size:
            struct.pack_into('=Q', stats, at, value)
    inner = struct.pack('=HHI', 8, 2, 4711)
    if padded:
        inner += struct.pack('=HH', 4, 6)
    inner += struct.pack('=HH', 4 + size, 3) + stats
    body = (struct.pack('=BBxx', 2, 1)
            + struct.pack('=HH', 4 + len(inner), 5) + inner)
    return struct.pack('=IHHII', 16 + len(body), FAMILY, 0, 1, 9) + body


def refusal(number: int) -> bytes:
    return (struct.pack('=IHHIIi', 36, ERROR, 0, 1, 9, -number) + bytes(16))


def parsed(data: bytes, kind: int = FAMILY) -> Waits | None:
    return taskstats.parse(kind, data, len(data))


class TestParse(testtools.TestCase):

    def test_all_versions_of_the_form(self) -> None:
        wanted = Waits(7, 5, 1234, 4096, 8192, 3)
        for version in (13, 14, 16, 17):
            self.assertEqual(wanted, parsed(answer(version)))
        self.assertEqual(wanted, parsed(answer(padded=True)))
        # Before 13 the place of the copies held something else or nothing.
        for version, size in ((8, 328), (12, 416)):
            self.assertEqual(wanted._replace(copies=None),
                             parsed(answer(version, size)))

    def test_a_version_with_other_places_is_refused(self) -> None:
        for version in (0, 15):
            error = self.assertRaises(ValueError, parsed, answer(version))
            self.assertIn(f'version {version} ', str(error))

    def test_a_task_that_is_gone(self) -> None:
        self.assertIsNone(parsed(refusal(errno.ESRCH), ERROR))

    def test_a_refusal_keeps_its_reason(self) -> None:
        error = self.assertRaises(OSError, parsed, refusal(errno.EPERM),
                                  ERROR)
        self.assertEqual(errno.EPERM, error.errno)
        self.assertRaises(ValueError, parsed, refusal(1)[:18], ERROR)

    def test_short_answers_are_refused(self) -> None:
        data = answer()
        for size in range(len(data)):
            self.assertRaises(ValueError, parsed, data[:size])
        self.assertRaises(ValueError, parsed, answer(size=200))

    def test_garbage_is_refused_or_numbers(self) -> None:
        chance = random.Random(5)
        for _ in range(3000):
            data = bytearray(answer(padded=chance.random() < 0.5))
            for _ in range(chance.randint(1, 12)):
                data[chance.randrange(16, 60)] = chance.randrange(256)
            try:
                found = parsed(bytes(data))
            except ValueError:
                continue
            self.assertIsInstance(found, Waits)


class TestCgroupTasks(testtools.TestCase):
    """A directory with files plays a cgroup."""

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for below in ('', 'a', 'a/b', 'c'):
            (self.top / below).mkdir(exist_ok=True)
            (self.top / below / 'cgroup.procs').write_text('7\n8\n')

    def test_nodes_and_their_members(self) -> None:
        nodes = cgroup_members.nodes_of(str(self.top), 4)
        self.assertEqual(4, len(nodes))
        self.assertEqual([7, 8] * 4, cgroup_members.members(
            nodes, 'cgroup.procs', 8))
        self.assertRaises(cgroup_members.TooMany, cgroup_members.nodes_of,
                          str(self.top), 3)
        self.assertRaises(cgroup_members.TooMany, cgroup_members.members,
                          nodes, 'cgroup.procs', 7)

    def test_what_is_gone(self) -> None:
        self.assertRaises(FileNotFoundError, cgroup_members.nodes_of,
                          str(self.top / 'x'), 3)
        self.assertRaises(FileNotFoundError, cgroup_members.members,
                          [(str(self.top / 'x'), 2)], 'cgroup.procs', 3)
        # One below is not the workload.
        self.assertEqual([7, 8], cgroup_members.members(
            [(str(self.top), 3), (str(self.top / 'x'), 2)],
            'cgroup.procs', 3))

    def test_names_may_hold_anything(self) -> None:
        directory = self.top / 'proc/12'
        directory.mkdir(parents=True)
        after = ' '.join(['S', *['1'] * 18, '4500', '0'])
        (directory / 'stat').write_text(f'12 (a) b) (c) {after}\n')
        self.assertEqual(4500 * totals.CLOCK_S,
                         totals.began_s(str(self.top), 12))
        (directory / 'stat').write_text('12 (a')
        self.assertEqual(0.0, totals.began_s(str(self.top), 12))
        self.assertEqual(0.0, totals.began_s(str(self.top), 13))

    def test_our_own_beginning(self) -> None:
        began_s = totals.began_s('', os.getpid())
        self.assertGreater(began_s, 0)
