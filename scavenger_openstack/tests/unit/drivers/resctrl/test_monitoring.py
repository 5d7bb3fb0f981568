# SPDX-License-Identifier: Apache-2.0

"""Monitoring groups, on files as the kernel has them in resctrl."""

from __future__ import annotations

import errno
import os
import shutil

import fixtures
import testtools

from scavenger_openstack.drivers.resctrl import monitoring
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.drivers.resctrl import files
from scavenger_openstack.tests.unit.drivers.resctrl.files import Resctrl


class GroupsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.resctrl = self.useFixture(Resctrl())
        self.top = str(self.resctrl.top)

    def groups(self, **threads: frozenset[int]) -> monitoring.Groups:
        groups = monitoring.Groups(self.top, threads)
        self.addCleanup(groups.close)
        return groups

    def refused(self, why: str) -> None:
        self.assertIn(why, str(self.assertRaises(
            errors.Unsupported, monitoring.Groups, self.top,
            {'web': frozenset()})))

    def test_bytes_by_workload(self) -> None:
        self.resctrl.count('', '1000')
        groups = self.groups(web=frozenset((11,)), hog=frozenset((22, 23)))
        web, hog = self.resctrl.names()
        self.assertEqual({'22', '23'}, set((
            self.resctrl.top / 'mon_groups' / hog / 'tasks'
            ).read_text().split()))
        # The kernel counts the bytes of both in the group above them, too.
        for group, text in ((web, '5'), (hog, '700'), ('', '1805')):
            self.resctrl.count(group, text)
        self.assertEqual(({'web': 5, 'hog': 700}, 100), groups.bytes_of())
        groups.close()
        self.assertEqual([], self.resctrl.names())

    def test_groups_change_under_the_lock(self) -> None:
        held = self.resctrl.locked_at()
        with self.resctrl.locked():
            self.assertRaises(errors.DriverError, self.groups,
                              web=frozenset((11,)))
        self.groups(web=frozenset((11,)))
        self.assertEqual([('mkdir', True), ('tasks', False)], held)

    def test_what_is_not_counted_now_is_not_0(self) -> None:
        """Neither of one of them, nor of all others then."""
        groups = self.groups(web=frozenset(), hog=frozenset())
        web, hog = self.resctrl.names()
        for text in ('Unavailable', 'Error', ''):
            self.resctrl.count(hog, text)
            self.assertEqual(({'web': 0}, None), groups.bytes_of())
        self.resctrl.count(hog, '7')
        self.resctrl.count('', 'Unavailable')
        self.assertEqual(({'web': 0, 'hog': 7}, None), groups.bytes_of())

    def test_no_more_than_there_are_ids(self) -> None:
        """One of 8 is that of all others."""
        self.groups(**{f'w{n}': frozenset() for n in range(20)})
        self.assertEqual(7, len(self.resctrl.names()))

    def test_no_ids_left(self) -> None:
        """Of groups that were removed they are free only some time later."""
        (self.resctrl.top / 'info/L3_MON/num_rmids').write_text('99\n')
        self.assertRaises(OSError, monitoring.Groups, self.top,
                          {f'w{n}': frozenset() for n in range(20)})
        self.assertEqual([], self.resctrl.names())

    def test_one_id(self) -> None:
        (self.resctrl.top / 'info/L3_MON/num_rmids').write_text('1\n')
        self.refused('1 monitoring')

    def test_groups_of_another_program(self) -> None:
        for path in ('guaranteed', 'mon_groups/vm1'):
            (self.resctrl.top / path).mkdir()
            self.refused(os.path.basename(path))
            os.rmdir(self.resctrl.top / path)
        (self.resctrl.top / 'schemata').write_text('L3:0=ff\n')
        self.groups(web=frozenset())

    def test_not_mounted(self) -> None:
        shutil.rmtree(self.resctrl.top / 'info')
        self.refused('mount -t resctrl')

    def test_a_cpu_that_only_allocates(self) -> None:
        (self.resctrl.top / 'info/L3_MON/mon_features').write_text(
            'llc_occupancy\n')
        self.refused('does not count')
        shutil.rmtree(self.resctrl.top / 'info/L3_MON')
        self.refused('does not count')

    def test_read_only(self) -> None:
        read_only = os.statvfs_result(
            tuple(os.statvfs(self.top))[:8] + (os.ST_RDONLY, 255))
        self.useFixture(fixtures.MonkeyPatch('os.statvfs',
                                             lambda path: read_only))
        self.refused('read-only')
        self.assertEqual([], self.resctrl.names())

    def test_an_agent_that_is_not_root(self) -> None:
        """Nothing is left of the groups that it has made."""
        self.resctrl.refused = errno.EPERM
        self.assertIn('only root', str(self.assertRaises(
            errors.Unsupported, monitoring.Groups, self.top,
            {'web': frozenset((1,))})))
        self.assertEqual([], self.resctrl.names())

    def test_what_a_killed_agent_left(self) -> None:
        monitoring.Groups(self.top, {'web': frozenset(), 'a': frozenset()})
        self.assertEqual(2, len(self.resctrl.names()))
        self.groups(hog=frozenset()).close()
        self.assertEqual([], self.resctrl.names())

    def test_a_limited_workload(self) -> None:
        """Its threads are in our control group, and so is its monitoring
        group."""
        resctrl = self.useFixture(Resctrl(closids=4, tasks=(11, 22, 23)))
        resctrl.control('scavenger', files.DEFAULT, 22)
        groups = monitoring.Groups(str(resctrl.top), {
            'web': frozenset((11,)), 'hog': frozenset((22, 23))})
        self.addCleanup(groups.close)
        web, = resctrl.names()
        hog, = os.listdir(resctrl.top / 'scavenger/mon_groups')
        self.assertEqual({11}, resctrl.tasks(f'mon_groups/{web}'))
        self.assertEqual({22}, resctrl.tasks(f'scavenger/mon_groups/{hog}'))
        for group, text in (('', '90'), ('scavenger', '30'),
                            (f'scavenger/mon_groups/{hog}', '20')):
            resctrl.put(f'{group}/mon_data/mon_L3_00/mbm_total_bytes', text)
        self.assertEqual(({'web': 0, 'hog': 20}, 100), groups.bytes_of())
        # A killed agent leaves them.
        monitoring.Groups(str(resctrl.top), {'hog': frozenset((22,))})
        monitoring.remove_left(str(resctrl.top))
        self.assertEqual([[], []], [
            os.listdir(resctrl.top / path)
            for path in ('mon_groups', 'scavenger/mon_groups')])

    def test_a_group_that_is_gone(self) -> None:
        groups = self.groups(web=frozenset())
        os.rmdir(self.resctrl.top / 'mon_groups' / self.resctrl.names()[0])
        self.assertRaises(FileNotFoundError, groups.bytes_of)
        groups.close()
