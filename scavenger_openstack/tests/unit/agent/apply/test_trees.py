# SPDX-License-Identifier: Apache-2.0

"""What is restored below a limited group when others set CPU sets there."""

from __future__ import annotations

from collections.abc import Iterable
import pathlib

import fixtures
import testtools

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.types import Cap
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob

BATCH, A, DEEP, B = '/batch', '/batch/a', '/batch/a/deep', '/batch/b'
KEY = (BATCH, Knob.CPU_SET)
ALL = set(range(8))


class TreeTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(cpusets.Host(8, 1))
        for path in (BATCH, A, DEEP, B):
            self.host.cgroup(path)
        mount = (str(self.host.sets), 'cgroup',
                 self.host.sets.stat().st_dev)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.cgroup.mounts', lambda: [mount]))
        self.driver = Cgroups([BATCH], root_dir=str(self.host.root))
        self.addCleanup(self.driver.close)
        self.leases = leases.Leases(pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state'))
        self.leases.open()
        self.addCleanup(self.leases.close)
        self.actuator = actuator.Actuator(self.driver, self.leases, 1.0)

    def fast(self, *cpus: int) -> base.CpuSet:
        """What a tick does and then the fast loop."""
        self.actuator.hold(*KEY)
        fast = self.driver.fast_cpu_set(BATCH)
        fast.refresh()
        fast.set(frozenset(cpus))
        return fast

    def slow(self, *cpus: int) -> None:
        """A tick without the fast loop."""
        cap = Cap(*KEY, format_cpus(cpus), 'test', 'the test says so')
        self.actuator.reconcile({KEY: cap}, self.actuator.read([cap]))

    def another(self, path: str, cpus: Iterable[int]) -> None:
        self.host.set_by_another(path, cpus)

    def remove(self) -> list[set[int]]:
        """What each group has afterwards."""
        self.actuator.remove(KEY)
        self.assertNotIn(KEY, self.leases.held())
        return [self.host.set_of(path) for path in (BATCH, A, DEEP, B)]

    def test_one_below(self) -> None:
        self.fast(0, 1, 2, 3)
        self.another(DEEP, {2})
        for end in (4, 5, 3):
            self.fast(*range(end))
        self.assertEqual([ALL, ALL, {2}, ALL], self.remove())
        self.assertEqual(1, self.log.output.count('another program'))
        self.assertIn(DEEP, self.log.output)

    def test_one_below_and_all_in_it(self) -> None:
        """Its parent's record would not fit, and nothing be restored."""
        self.fast(0, 1, 2, 3)
        self.another(DEEP, {2})
        self.another(A, {2})
        self.fast(0, 1, 2, 3)
        self.assertEqual([ALL, {2}, {2}, ALL], self.remove())

    def test_the_group_itself(self) -> None:
        fast = self.fast(0, 1, 2, 3)
        for path in (DEEP, A, B, BATCH):
            self.another(path, {1, 2})
        for _ in range(2):      # not before the lease has it
            fast.set(frozenset((1,)))
            self.assertEqual({1, 2}, self.host.set_of(BATCH))
            theirs = fast.unleased()
        self.actuator.hold(*KEY, theirs)
        fast.refresh(self.leases.held()[KEY].original.actions)
        fast.set(frozenset((1,)))
        self.assertEqual('1-2', self.leases.held()[KEY].original.value)
        self.assertIn('set it to CPUs 1-2, which will be', self.log.output)
        self.assertEqual([{1, 2}] * 4, self.remove())

    def test_without_the_fast_loop(self) -> None:
        self.slow(0, 1, 2, 3)
        self.another(DEEP, {2})
        for _ in range(actuator.READ_TICKS):
            self.slow(0, 1, 2, 3)
        self.assertEqual([ALL, ALL, {2}, ALL], self.remove())

    def test_given_back_to_us(self) -> None:
        self.fast(0, 1, 2, 3)
        self.another(DEEP, {2})
        self.fast(0, 1, 2)
        self.another(DEEP, {0, 1, 2})
        self.fast(0, 1)
        self.assertEqual([ALL, ALL, ALL, ALL], self.remove())

    def test_a_set_of_its_own_from_before_us(self) -> None:
        self.another(DEEP, {1, 2})
        for cpus in ((2, 3), (1, 2), (5,), (0, 1)):
            self.fast(*cpus)
        self.assertEqual([ALL, ALL, {1, 2}, ALL], self.remove())
        self.assertNotIn('another program', self.log.output)

    def test_what_is_ours_is_not_theirs_when_looked_at_again(self) -> None:
        """The driver opens what vanished for a moment, an agent that comes
        later the leases that stayed: neither saw who wrote what is there."""
        self.another(DEEP, {1, 2})
        self.fast(2, 3)
        self.driver.sample()
        self.driver._let_go(BATCH)
        self.fast(2, 4)
        self.driver.close()
        self.driver = Cgroups([BATCH], root_dir=str(self.host.root))
        self.actuator = actuator.Actuator(self.driver, self.leases, 1.0)
        self.host.cgroup('/batch/new')
        for cpus in ((2, 5), (6,)):
            self.fast(*cpus)
        self.assertEqual([ALL, ALL, {1, 2}, ALL], self.remove())
        self.assertEqual(ALL, self.host.set_of('/batch/new'))
