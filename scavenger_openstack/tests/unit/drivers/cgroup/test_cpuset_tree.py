# SPDX-License-Identifier: Apache-2.0

"""CPU sets while CPUs go offline and come back."""

from __future__ import annotations

from collections.abc import Sequence
import gc

import fixtures
import testtools

from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.leased import leased
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob

BATCH = '/batch'


class OfflineCase(testtools.TestCase):

    version = 1

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(cpusets.Host(8, self.version))
        for path in (BATCH, '/batch/a', '/batch/a/deep'):
            self.host.cgroup(path)
        self.driver = Cgroups([BATCH], root_dir=str(self.host.root))
        self.addCleanup(self.driver.close)
        self.set = self.driver.fast_cpu_set(BATCH)

    def give(self, *cpus: int) -> None:
        self.set.set(frozenset(cpus))

    def foreign(self) -> list[frozenset[int]]:
        return list((self.set.unleased() or {}).values())

    def read(self) -> set[int]:
        return cpusets.cpus_of(str(self.driver.read(BATCH, Knob.CPU_SET)))

    def test_what_the_kernel_takes_is_no_programs_write(self) -> None:
        self.give(4, 5, 6, 7)
        self.host.take_offline(6, 7)
        self.assertEqual([], self.foreign())
        self.assertEqual({4, 5, 6, 7}, self.read())
        self.set.refresh()
        self.assertEqual([], self.foreign())
        # Nor is it when they are back, which v1 gives to no group.
        self.host.bring_online(6)
        self.assertEqual([], self.foreign())
        self.assertEqual({4, 5, 6, 7}, self.read())
        self.host.bring_online(7)
        self.give(4, 5, 6, 7)
        for path in (BATCH, '/batch/a'):
            if self.version == 1:
                self.assertEqual({4, 5, 6, 7}, self.host.set_of(path))

    def test_all_of_the_set_go(self) -> None:
        self.give(7)
        self.host.take_offline(7)
        self.assertEqual([], self.foreign())
        self.assertEqual({7}, self.read())
        self.give(1)
        self.assertEqual({1}, self.host.set_of(BATCH))

    def test_another_program_is_still_seen(self) -> None:
        for theirs in ({4}, {3}, {4, 5, 0}, {4, 5}):
            self.give(4, 5, 6, 7)
            self.host.take_offline(7)
            self.host.set_by_another(BATCH, theirs)
            self.assertEqual([theirs], self.foreign())
            self.assertEqual(theirs, self.read())
            self.set.refresh()
            self.assertEqual([], self.foreign())
            self.host.bring_online(7)

    def test_another_program_sets_one_below(self) -> None:
        """Between two ticks: it stays until the lease has it."""
        self.give(0, 1, 2, 3)
        for theirs in {2}, {1, 3}:
            self.host.set_by_another('/batch/a/deep', theirs)
            self.give(1, 2)
            self.give(1, 2, 3)
            self.assertEqual(theirs, self.host.set_of('/batch/a/deep'))
            actions_ = self.set.actions([])
            self.assertEqual(self.version == 1, self.set.refresh(actions_))
            self.give(2, 3)
            self.below('/batch/a/deep', theirs & {2, 3}, theirs)
            self.give(0, 1, 2, 3)
        if self.version == 1:
            self.assertIn('1,3', [action['text'] for action in actions_])

    def test_another_program_after_the_kernel(self) -> None:
        self.give(4, 5, 6, 7)
        self.host.take_offline(7)
        self.assertEqual([], self.foreign())
        self.host.set_by_another(BATCH, {2})
        self.assertEqual([{2}], self.foreign())

    def test_a_cpu_that_went_since_the_last_tick(self) -> None:
        self.give(*range(8))
        self.host.take_offline(7)
        self.give(6, 7)
        self.assertEqual({6}, self.host.set_of(BATCH) - {7})
        self.assertEqual([], self.foreign())
        self.give(5, 6)
        self.assertEqual({5, 6}, self.host.set_of(BATCH))

    def below(self, path: str, v1: set[int], v2: set[int]) -> None:
        """What a group below has; v2 never writes to it."""
        self.assertEqual(v1 if self.version == 1 else v2,
                         self.host.set_of(path))

    def test_groups_below_that_lost_all_their_cpus(self) -> None:
        self.give(7)
        self.host.take_offline(7)
        self.give(1, 2)
        for path in ('/batch/a', '/batch/a/deep'):
            self.below(path, {1, 2}, set())

    def test_a_smaller_set_below_stays_smaller(self) -> None:
        self.host.set_by_another('/batch/a/deep', {2, 6, 7})
        self.set.refresh()
        for last in (7, 6):
            self.give(6, 7)
            self.host.take_offline(*range(last, 8))
            self.assertEqual([], self.foreign())
            self.set.refresh()
            self.host.bring_online(6, 7)
            self.give(2, 3, 6, 7)
            self.below('/batch/a/deep', {2, 6, 7}, {2, 6, 7})

    def test_below_a_parent_that_lost_a_cpu(self) -> None:
        self.host.cgroup('/slice')
        self.host.cgroup('/slice/jobs')
        driver = Cgroups(['/slice/jobs'], root_dir=str(self.host.root))
        self.addCleanup(driver.close)
        fast = driver.fast_cpu_set('/slice/jobs')
        fast.set(frozenset({1}))
        self.host.take_offline(7)
        self.host.bring_online(7)
        fast.set(frozenset({6, 7}))
        self.below('/slice/jobs', {6}, {6, 7})
        self.assertFalse(fast.unleased())

    def test_a_group_below_that_was_made_again(self) -> None:
        self.host.delete('/batch/a/deep')
        self.host.cgroup('/batch/a/deep')
        self.give(1, 2)
        self.assertEqual({1, 2}, self.host.set_of(BATCH))
        self.below('/batch/a/deep', {1, 2}, set())

    def restore(self, taken: Sequence[base.RestoreAction]) -> None:
        kind = 'cgroup' if self.version == 1 else 'cgroup2'
        mounts = [(str(self.host.sets), kind,
                   self.host.sets.stat().st_dev)]
        for step in taken:
            actions.run(step, mounts, named={one['inode'] for one in taken})

    def every(self) -> list[set[int]]:
        return [self.host.set_of(path)
                for path in (BATCH, '/batch/a', '/batch/a/deep')]

    def test_restored_while_a_cpu_is_offline(self) -> None:
        self.host.set_by_another(BATCH, range(2, 8))
        self.host.set_by_another('/batch/a', range(2, 8))
        self.host.set_by_another('/batch/a/deep', {5, 7})
        taken = self.driver.restore_actions(BATCH, Knob.CPU_SET)
        self.give(2, 3)
        self.host.take_offline(7)
        self.restore(taken)
        left = [set(one) - {7} if self.version == 1 else set(one)
                for one in (range(2, 8), range(2, 8), {5, 7})]
        if self.version == 2:       # nothing below is ever written
            left[1:] = self.every()[1:]
        self.assertEqual(left, self.every())

    def test_restored_when_all_of_its_cpus_are_offline(self) -> None:
        self.host.set_by_another('/batch/a/deep', {7})
        for path in ('/batch/a', BATCH):
            self.host.set_by_another(path, {6, 7})
        taken = self.driver.restore_actions(BATCH, Knob.CPU_SET)
        self.give(6)
        self.host.take_offline(6, 7)
        self.restore(taken)
        self.assertEqual(set(range(6)) if self.version == 1 else {6, 7},
                         self.every()[0])

    def test_restored_as_it_was_once_they_are_back(self) -> None:
        taken = self.driver.restore_actions(BATCH, Knob.CPU_SET)
        before = self.every()
        self.give(2, 7)
        self.host.take_offline(7)
        self.host.bring_online(7)
        self.restore(taken)
        found = self.every()
        if self.version == 2:       # empty before: all CPUs, the same effect
            found[0] = set()
        self.assertEqual(before, found)

    def test_restored_below_a_parent_that_lost_a_cpu(self) -> None:
        self.host.cgroup('/slice')
        self.host.cgroup('/slice/jobs')
        driver = Cgroups(['/slice/jobs'], root_dir=str(self.host.root))
        self.addCleanup(driver.close)
        taken = driver.restore_actions('/slice/jobs', Knob.CPU_SET)
        driver.fast_cpu_set('/slice/jobs').set(frozenset({1}))
        self.host.take_offline(7)
        self.host.bring_online(7)
        self.restore(taken)
        self.assertEqual(set(range(7 if self.version == 1 else 8)),
                         self.host.set_of('/slice/jobs'))

    def test_foreground_is_looked_at_once_more(self) -> None:
        self.host.cgroup('/web')
        for name in 'abcd':
            self.host.cgroup(f'/web/{name}', {5, 6})
        driver = Cgroups([BATCH], ['/web'], root_dir=str(self.host.root))
        self.addCleanup(driver.close)

        def seen() -> set[frozenset[int] | None]:
            return {one.workload.allowed_cpus for one in driver.sample()
                    if one.workload.id.startswith('/web')}
        for _ in range(5):
            seen()
        self.host.take_offline(6)
        driver.cpus_changed()
        self.assertEqual({frozenset({5})}, seen())
        self.host.bring_online(6)
        driver.cpus_changed()
        self.assertEqual({frozenset({5} if self.version == 1 else {5, 6})},
                         seen())


class TestVersion2(OfflineCase):

    version = 2

    def test_its_own_set_has_no_cpu_online(self) -> None:
        """It would run on all CPUs of its parent, dedicated ones too."""
        self.host.set_by_another(BATCH, {6, 7})
        self.host.take_offline(6, 7)
        taken = self.driver.restore_actions(BATCH, Knob.CPU_SET)
        key = BATCH, Knob.CPU_SET
        wish = Cap(*key, '2-5', 'scavenger', 'a test')
        for online, within in ((self.host.online, '2-5'), ({*range(7)}, None),
                               ((), None)):
            found = arbitrate.arbitrate([wish], arbitrate.in_effect(
                {key: self.driver.read(*key)}, online), {})
            self.assertEqual([within] if within else [],
                             [cap.value for cap in found.values()])
            for cap in found.values():
                self.driver.write(*key, cap.value)
                self.assertEqual({2, 3, 4, 5}, self.host.set_of(BATCH))
                self.restore(taken)
        self.assertEqual({6, 7}, self.host.set_of(BATCH))

    def test_a_partition_beside_it_keeps_its_cpus(self) -> None:
        self.host.partition('/machine', {4, 5, 6, 7})
        taken = self.driver.restore_actions(BATCH, Knob.CPU_SET)
        self.assertEqual('2-3', self.driver.write(BATCH, Knob.CPU_SET, '2-5'))
        self.give(0, 1, 4)
        self.assertEqual({0, 1}, self.host.set_of(BATCH))
        self.assertRaises(errors.DriverError, self.give, 6)
        self.assertRaises(errors.DriverError, self.driver.write, BATCH,
                          Knob.CPU_SET, '6-7')
        for _ in range(2):
            self.restore(taken)
            self.assertEqual({0, 1, 2, 3}, self.host.set_of(BATCH))
        self.assertTrue(self.host.is_partition('/machine'))

    def test_restored_while_a_partition_has_all_its_cpus(self) -> None:
        self.host.set_by_another(BATCH, {4, 5})
        taken = self.driver.restore_actions(BATCH, Knob.CPU_SET)
        self.host.set_by_another(BATCH, {0})
        self.host.partition('/machine', {4, 5})
        self.restore(taken)
        self.assertEqual({0, 1, 2, 3, 6, 7}, self.host.set_of(BATCH))
        self.assertTrue(self.host.is_partition('/machine'))

    def test_a_partition_may_have_its_own_cpus_again(self) -> None:
        self.host.partition('/jobs', {4, 5})
        driver = Cgroups(['/jobs'], root_dir=str(self.host.root))
        self.addCleanup(driver.close)
        taken = driver.restore_actions('/jobs', Knob.CPU_SET)
        self.assertEqual('4', driver.write('/jobs', Knob.CPU_SET, '4'))
        self.assertEqual('4-5', driver.write('/jobs', Knob.CPU_SET, '4-5'))
        driver.write('/jobs', Knob.CPU_SET, '5')
        self.restore(taken)
        self.assertEqual({4, 5}, self.host.set_of('/jobs'))
        self.assertTrue(self.host.is_partition('/jobs'))


class TestExclusive(testtools.TestCase):
    """Version 1: a cgroup beside that has CPUs to itself."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(cpusets.Host(8, 1))
        for path in (BATCH, '/batch/a', '/batch/b'):
            self.host.cgroup(path)
        self.driver = Cgroups([BATCH], root_dir=str(self.host.root))
        self.addCleanup(self.driver.close)
        self.before = leased(self.driver, BATCH, Knob.CPU_SET)

    def write(self, cpus: str) -> object:
        return self.driver.write(BATCH, Knob.CPU_SET, cpus, self.before)

    def sets(self) -> list[set[int]]:
        return [self.host.set_of(path)
                for path in (BATCH, '/batch/a', '/batch/b')]

    def restore(self) -> None:
        mounts = [(str(self.host.sets), 'cgroup',
                   self.host.sets.stat().st_dev)]
        before = self.before.original.actions
        for action in before:
            actions.run(action, mounts,
                        named={one['inode'] for one in before})

    def test_the_others_are_set(self) -> None:
        self.assertEqual('0', self.write('0'))
        self.host.exclusive('/pinned', {1})
        for _ in range(3):
            self.assertEqual('0,2', self.write('0-2'))
            self.assertEqual([{0, 2}] * 3, self.sets())
        self.assertEqual(1, self.log.output.count(
            f' > {self.host.sets}/pinned/cpuset.cpu_exclusive'))
        self.restore()
        self.assertEqual([{0, *range(2, 8)}] * 3, self.sets())

    def test_none_is_left(self) -> None:
        self.write('0')
        self.host.exclusive('/pinned', {1, 2})
        exc = self.assertRaises(errors.Denied, self.write, '1')
        self.assertIn('pinned', str(exc))
        self.assertIn(f'echo 0 > {self.host.sets}/pinned/cpuset.cpu_exclusive',
                      str(exc))
        self.assertEqual([{0}] * 3, self.sets())

    def test_it_has_all_that_is_to_be_restored(self) -> None:
        self.write('0')
        self.host.exclusive('/pinned', range(1, 8))
        self.restore()
        self.assertEqual([{0}] * 3, self.sets())

    def test_the_group_itself_is_exclusive(self) -> None:
        self.write('0')
        self.host.set_exclusive(BATCH)
        self.host.cgroup('/web', {4, 5})
        self.assertEqual('0-3', self.write('0-5'))
        self.restore()
        self.assertEqual({0, 1, 2, 3, 6, 7}, self.host.set_of(BATCH))

    def test_one_below_that_is_exclusive(self) -> None:
        self.host.set_by_another('/batch/b', {0, 1, 2, 3})
        self.host.set_by_another('/batch/a', {6, 7})
        self.host.set_exclusive('/batch/a')
        self.before = leased(self.driver, BATCH, Knob.CPU_SET)
        self.assertEqual('2,6', self.write('2,6'))
        self.assertEqual([{2, 6}, {6}, {2}], self.sets())
        # a would have no CPU of its own; then all stays as it was.
        exc = self.assertRaises(errors.DriverError, self.write, '2-3')
        self.assertIn('cpuset.cpu_exclusive', str(exc))
        self.assertEqual([{2, 6}, {6}, {2}], self.sets())
        self.restore()
        self.assertEqual([set(range(8)), {6, 7}, {0, 1, 2, 3}], self.sets())

    def test_one_below_that_cannot_be_narrowed(self) -> None:
        """Nothing is half set."""
        self.write('0-5')
        for path in ('/batch/a', '/batch/b'):
            self.host.busy = {path}
            self.assertRaises(errors.DriverError, self.write, '0')
            self.assertEqual([{*range(6)}] * 3, self.sets())
        self.host.busy.clear()
        self.assertEqual('0', self.write('0'))
        self.assertEqual([{0}] * 3, self.sets())


class TestMany(testtools.TestCase):
    """Tenants make as many cgroups below their own as they like."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.cgroup.cpuset_tree.MOST', 4))
        self.host = self.useFixture(cpusets.Host(8, 1))
        for path in (BATCH, '/batch/a', '/batch/b'):
            self.host.cgroup(path)
        self.driver = Cgroups([BATCH], root_dir=str(self.host.root))
        self.addCleanup(self.driver.close)
        gc.collect()        # of other tests
        gc.disable()
        self.addCleanup(gc.enable)

    def test_no_more_are_followed(self) -> None:
        one = self.driver.fast_cpu_set(BATCH)
        self.host.cgroup('/batch/b/c')
        one.refresh()
        for name in 'defg':
            self.host.cgroup(f'/batch/a/{name}')
        self.assertRaises(errors.DriverError, one.refresh)
        before = descriptors.of_process()
        for call in (one.refresh, one.actions,
                     lambda: one.set(frozenset({1}))):
            self.assertIn('4 more cgroups, and 4 are followed', str(
                self.assertRaises(errors.DriverError, call)))
        self.assertEqual(set(range(8)), self.host.set_of(BATCH))
        self.assertEqual(set(), descriptors.of_process() - before)
        for name in 'efg':
            self.host.delete(f'/batch/a/{name}')
        one.set(frozenset({1}))
        for path in (BATCH, '/batch/a/d', '/batch/b/c'):
            self.assertEqual({1}, self.host.set_of(path))

    def test_too_many_from_the_start(self) -> None:
        for name in 'cdefg':
            self.host.cgroup(f'/batch/b/{name}')
        before = descriptors.of_process()
        for _ in range(9):
            try:
                self.fail(self.driver.restore_actions(BATCH, Knob.CPU_SET))
            except errors.DriverError:
                pass
        # The top one is kept, and a file in it.
        self.assertEqual(2, len(descriptors.of_process() - before))
