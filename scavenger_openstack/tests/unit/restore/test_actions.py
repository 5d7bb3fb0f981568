# SPDX-License-Identifier: Apache-2.0

"""Restore actions: what a lease may hold, and what reads back the same."""

from __future__ import annotations

import pathlib
from typing import Any

import fixtures
import testtools

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import mount_table
from scavenger_openstack.tests.unit.restore.sample_leases import IO_MAX
from scavenger_openstack.tests.unit.restore.sample_leases import LIMIT
from scavenger_openstack.tests.unit.restore.sample_leases import MOUNTS
from scavenger_openstack.tests.unit.restore.sample_leases import TC
from scavenger_openstack.tests.unit.restore.sample_leases import WRITE


class Steps(testtools.TestCase):
    """What a lease may hold, and what not."""

    def test_allowed(self) -> None:
        for step in (
                WRITE, LIMIT, IO_MAX, TC, {**TC, 'netns': 'ns-1.x'},
                {**WRITE, 'file': 'cpuset.cpus', 'text': '0-1,4'},
                {**WRITE, 'file': 'cpuset.cpus', 'text': ''},
                {**WRITE, 'file': 'freezer.state', 'text': 'THAWED'},
                {**WRITE, 'dir': '/cg/two/a', 'file': 'cpu.max',
                 'text': 'max 100000'}):
            actions.validate(step, MOUNTS)

    def test_refused(self) -> None:
        for wrong in (
                {'dir': '/cg/cpu'}, {'dir': '/cg/cpu/'}, {'dir': '/etc'},
                {'dir': '/cg/cpu/../../etc'},
                {'dir': '/cg/cpu/a/..'}, {'dir': '/cg/cpu/./a'},
                {'dir': '/cg/cpu//a'}, {'dir': '/cg/cpu/a/'},
                {'dir': 'cg/cpu/a'}, {'dir': '/cg/cpu/a\0b'},
                {'dir': '/cg/cpu/a\nb'}, {'dir': None}, {'dir': ['/cg/cpu']},
                {'file': 'cgroup.procs'}, {'file': 'tasks'}, {'file': ''},
                {'file': '../cpu.shares'}, {'file': 'a/cpu.shares'},
                {'file': 'release_agent'}, {'file': 'notify_on_release'},
                {'file': 'cpu.max'},                # v2, in a v1 tree
                {'file': 'cpu.shares\n'}, {'file': None},
                {'text': '-2'}, {'text': '-1\n'}, {'text': ''},
                {'text': '0x10'}, {'text': '1 1'}, {'text': '١'},
                {'text': -1}, {'text': None},
                {'file': 'freezer.state', 'text': 'FREEZING'},
                {'file': 'cpuset.cpus', 'text': '0-'},
                {'file': 'cpuset.cpus', 'text': '1-0'},
                {'file': 'cpuset.cpus', 'text': '0-4294967295'},
                {'inode': 0}, {'inode': '7'}, {'inode': True},
                {'inode': None}, {'device': '8:0'}, {'more': 1},
                {'do': 'exec'}, {'do': None}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**WRITE, **wrong}, MOUNTS)
        for wrong in ({'device': '8:0 1'}, {'device': ''}, {'device': None},
                      {'device': '8'}, {'text': '0 0'}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**LIMIT, **wrong}, MOUNTS)
        for text in ('rbps=max;', 'rbps=-1', 'max', 'bps=1', ''):
            self.assertRaises(actions.Refused, actions.validate,
                              {**IO_MAX, 'text': text}, MOUNTS)
        for wrong in ({'dev': 'a;reboot'}, {'dev': '$(id)'}, {'dev': '-b'},
                      {'dev': 'a b'}, {'dev': '../a'}, {'dev': ''},
                      {'dev': 'a' * 16}, {'dev': 'a\n'}, {'dev': None},
                      {'netns': '/proc/1/ns/net'}, {'netns': '..'},
                      {'netns': '-a'}, {'netns': 'a;b'}, {'netns': None},
                      {'ifindex': 0}, {'ifindex': '5'}, {'argv': ['sh']}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**TC, **wrong}, MOUNTS)
        nothings: list[Any] = [None, 1, 'write', [], {}, [WRITE]]
        for nothing in nothings:
            self.assertRaises(actions.Refused, actions.validate, nothing,
                              MOUNTS)

    def test_a_mount_that_is_missing_is_no_reason_to_refuse(self) -> None:
        """It may come back; until then there is nothing to write."""
        for path in ('/cg/cpux/a', '/cg/memory/batch/a', '/cg/a'):
            step = {**WRITE, 'dir': path}
            actions.validate(step, MOUNTS)
            for mounts in (MOUNTS, []):
                self.assertIn('below no cgroup mount now', str(
                    self.assertRaises(actions.RestoreError, actions.run, step,
                                      mounts)))

    def test_rows_of_mounts(self) -> None:
        table = self.useFixture(fixtures.TempDir()).join('mountinfo')
        for odd in ('', 'odd', '1 2 x:y / /odd rw - cgroup2 c rw',
                    '1 2 0:5 / - cgroup2', 'a b - cgroup2 c rw'):
            pathlib.Path(table).write_text(
                f'{odd}\n9 1 0:30 / /cg/a\\040b\r rw,nosuid shared:4 - '
                f'cgroup2 cgroup2 rw,nsdelegate\n{odd}\n'
                '8 1 0:31 / /cg rw - cgroup cgroup rw,cpu\n')
            self.assertEqual(
                [('0:30', '/', '/cg/a b\r', 'cgroup2', 'cgroup2',
                  'rw,nsdelegate'),
                 ('0:31', '/', '/cg', 'cgroup', 'cgroup', 'rw,cpu')],
                [row for row in mount_table.rows(table, ('cgroup', 'cgroup2'))
                 if row.point != '/odd'], odd)

    def test_the_mount_is_the_one_on_top(self) -> None:
        """Version 1 is often mounted below version 2."""
        mounts = [('/cg', 'cgroup2', 1), ('/cg/net', 'cgroup', 2),
                  ('/cg/net', 'cgroup', 3)]
        self.assertEqual(mounts[2], cgroup.mount_of('/cg/net/a', mounts))
        self.assertEqual(mounts[0], cgroup.mount_of('/cg/networks', mounts))

    def test_same(self) -> None:
        for changes, got, expected in (
                ({}, '-1', True), ({}, '100000', False),
                ({'file': 'cpuset.cpus', 'text': '0,1,2'}, '0-2', True),
                ({'file': 'cpuset.cpus', 'text': '0-2'}, '0-1', False),
                ({'file': 'memory.limit_in_bytes', 'text': '-1'},
                 '9223372036854771712', True),
                ({'file': 'memory.limit_in_bytes', 'text': '1048577'},
                 '1048576', True),
                ({'file': 'memory.limit_in_bytes', 'text': '1048576'},
                 '1052672', False),
                ({'file': 'memory.max', 'text': 'max'}, 'max', True),
                ({'file': 'memory.max', 'text': 'max'}, '4096', False),
                ({'file': 'memory.max', 'text': '4096'}, 'max', False),
                (LIMIT, '', True), (LIMIT, '8:16 5', True),
                (LIMIT, '8:16 5\n8:0 7', False),
                ({**LIMIT, 'text': '7'}, '8:0 7', True),
                (IO_MAX, '8:0 rbps=max wbps=1048576 riops=max wiops=max',
                 True),
                (IO_MAX, '8:0 rbps=1 wbps=1048576 riops=max wiops=max',
                 False),
                ({**IO_MAX, 'text': 'rbps=max'}, '', True),
                # The device of a row is the last that it names.
                (IO_MAX, '7:0 8:0  wbps=1048576', True),
                (IO_MAX, '8:0 7:0 rbps=1\n8:0 wbps=1048576', True),
                ({**IO_MAX, 'text': 'rbps=max'}, '(unknown) rbps=1\nodd\n\n',
                 True),
                ({**IO_MAX, 'text': 'rbps=max'}, '7:0 8:0 rbps=1', False),
                (LIMIT, '(unknown) 5\nodd\n\n8:0 7', False)):
            self.assertEqual(
                expected, cgroup.same({**WRITE, **changes}, got),
                f'{changes} {got}')
