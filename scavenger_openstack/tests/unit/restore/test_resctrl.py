# SPDX-License-Identifier: Apache-2.0

"""The removal of the group of resctrl that limits last-level caches."""

from __future__ import annotations

import errno
import os
import pathlib
from unittest import mock

import fixtures
import testtools

from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import mount_table
from scavenger_openstack.restore import resctrl
from scavenger_openstack.tests.unit.drivers.resctrl import files
from scavenger_openstack.tests.unit import mount_files


class RemoveTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.resctrl = self.useFixture(files.Resctrl(closids=4, tasks=(1, 2)))
        self.top = str(self.resctrl.top)
        self.action = resctrl.action(self.top)

    def run_action(self) -> bool:
        actions.validate(self.action, [])
        return actions.run(self.action, [])

    def fails(self, text: str, error: type[Exception] = actions.RestoreError
              ) -> None:
        self.assertIn(text, str(self.assertRaises(error, self.run_action)))

    def test_tasks_are_in_the_default_group_again(self) -> None:
        self.resctrl.control('scavenger', files.DEFAULT, 2)
        self.resctrl.control('vm', files.DEFAULT, 1)
        self.assertTrue(self.run_action())
        self.assertEqual([{2}, {1}], [
            self.resctrl.tasks(), self.resctrl.tasks('vm')])
        # No other group is touched, and the second time there is none.
        self.assertFalse(self.run_action())
        self.assertEqual({1}, self.resctrl.tasks('vm'))

    def test_other_programs_are_kept_out(self) -> None:
        """But no limit outlives its lease for a lock that another has."""
        held = self.resctrl.locked_at()
        for _ in range(2):
            self.resctrl.control('scavenger')
            self.assertTrue(self.run_action())
        with self.resctrl.locked():
            self.resctrl.control('scavenger')
            self.assertTrue(self.run_action())
        self.assertEqual([('rmdir', True)] * 3, [
            change for change in held if change[0] == 'rmdir'])
        self.assertFalse(self.resctrl.is_locked())

    def test_no_lock_can_be_had(self) -> None:
        """The kernel has no memory for it."""
        self.resctrl.control('scavenger')
        with mock.patch('fcntl.flock', side_effect=OSError(
                errno.ENOLCK, os.strerror(errno.ENOLCK))):
            self.assertTrue(self.run_action())

    def test_refused(self) -> None:
        for wrong in ({'dir': 'sys'}, {'dir': '/sys/../etc'}, {'dir': '/a//b'},
                      {'dir': None}, {'dir': '/a\n'}, {'group': 'vm'},
                      {'inode': 7}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**self.action, **wrong}, [])

    def test_only_where_resctrl_is_mounted(self) -> None:
        """Neither below another directory, nor on what lies above it."""
        os.makedirs(f'{self.top}/below/scavenger')
        for path in (f'{self.top}/below', os.path.dirname(self.top)):
            self.action = resctrl.action(path)
            self.fails('not mounted', actions.Gone)
        self.assertTrue(os.path.isdir(f'{self.top}/below/scavenger'))
        self.action = resctrl.action(self.top)
        self.resctrl.mounted = [(self.top, 'resctrl', 1)]
        self.resctrl.control('scavenger')
        self.fails('lies above it')
        self.assertTrue(os.path.isdir(f'{self.top}/scavenger'))

    def test_unmounted(self) -> None:
        self.resctrl.mounted = []
        self.fails('not mounted', actions.Gone)

    def test_read_only(self) -> None:
        self.resctrl.control('scavenger')

        def refuse(change: str) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        self.resctrl.before = refuse
        self.fails('mount resctrl read-write')

    def test_ability(self) -> None:
        kind = abilities.of_action(self.action, [])
        self.assertEqual([kind], abilities.valid([kind, kind + '\n']))
        self.assertEqual('', abilities.why_not(kind))
        self.assertIn(self.top, abilities.named(kind))
        pathlib.Path(self.top, 'tasks').unlink()
        self.assertIn('tasks', abilities.why_not(kind))
        self.resctrl.mounted = []
        self.assertIn('mount it', abilities.why_not(kind))

    def test_a_mount_of_another_kind(self) -> None:
        """Of all mounts only those of resctrl count."""
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        mount_files.mount(root, '/c cgroup2 rw', '/r resctrl rw',
                          '/r/hidden resctrl rw')
        (root / 'r/hidden').rmdir()
        self.assertEqual(['/r'], [row.point for row in mount_table.visible(
            ('resctrl',), str(root))])
