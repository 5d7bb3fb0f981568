# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import time

import fixtures

from scavenger_openstack.agent.isolation import fast_loop
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers.cgroup import cpuset_tree
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import parse_cpus


class FastLoopTestCase(base.FunctionalTestCase):
    """The real reader, controller and cpuset, with a hog inside."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.isolation.fast_loop.RETRY_S', 0.1))
        self.tree = self.cgroups()
        self.tree.make('/a')
        self.cpus = parse_cpus(self.tree.get('cpus', '/a'))
        self.cpus &= frozenset(os.sched_getaffinity(0))
        if len(self.cpus) < 2:
            self.skipTest('needs two CPUs')
        self.hogs = [self.spawn('print()\nwhile True:\n    pass', self.tree,
                                '/a')
                     for _ in self.cpus]
        for hog in self.hogs:
            hog.stdout.readline()
        self.lease_error = None
        self.set = cpuset_tree.FastCpuSet(cgroup_files.CgroupDirectory(
            str(self.tree.path('cpuset', '/a')), version=self.tree.version))
        try:
            reader = sched_switch.SchedSwitch()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        self.loop = fast_loop.FastLoop(
            reader, perfiso.Controller(
                perfiso.Params(buffer_cores=1), current=self.cpus,
                topology={cpu: Cpu(cpu, 0, 0) for cpu in self.cpus}),
            self.set.set, self.check,
            perfiso.Bounds(self.cpus, self.cpus, 1), 0.001)
        self.addCleanup(self.loop.stop)

    def check(self):
        if self.lease_error:
            raise self.lease_error

    def size(self):
        return len(parse_cpus(self.tree.get('cpus', '/a')))

    def test_the_hog_leaves_a_buffer(self):
        self.assertEqual(len(self.cpus), self.size())
        self.loop.start()
        self.wait_for('the set is one smaller',
                      lambda: self.size() == len(self.cpus) - 1)
        self.wait_for('and told', lambda: self.loop.cpus is not None)
        facts = self.loop.facts()
        self.assertEqual(len(self.cpus) - 1, facts['cpus'])
        self.assertEqual('', facts['problem'])
        self.loop.stop()
        # It stays as it is: the caller removes the limit.
        self.assertLess(self.size(), len(self.cpus))
        self.set.set(self.cpus)
        time.sleep(0.05)
        self.assertEqual(len(self.cpus), self.size())

    def test_grows_when_there_is_room(self):
        self.loop.start()
        self.wait_for('it shrinks', lambda: self.size() < len(self.cpus))
        for hog in self.hogs:
            hog.kill()
            hog.wait(30)
        self.wait_for_idle('it grows',
                           lambda: self.size() == len(self.cpus))

    def test_no_write_without_a_lease(self):
        self.lease_error = errors.LeaseError('the lease has run out')
        self.loop.start()
        self.wait_for('it is told',
                      lambda: 'run out' in self.loop.problem)
        time.sleep(0.2)
        self.assertEqual(len(self.cpus), self.size())
        self.assertEqual(1, self.log.output.count('run out'))
        self.lease_error = None
        self.wait_for('it goes on', lambda: self.size() < len(self.cpus))
        self.wait_for('and told', lambda: not self.loop.problem)

    def test_restored_behind_its_back(self):
        self.loop.start()
        self.wait_for('it shrinks', lambda: self.size() < len(self.cpus))
        self.tree.put('cpus', '/a',
                        ','.join(map(str, self.cpus)))
        self.set.unleased()     # as the slow loop does each tick
        self.set.refresh()
        self.wait_for('it comes back', lambda: self.size() < len(self.cpus))

    def test_the_group_vanishes(self):
        self.loop.start()
        self.wait_for('it shrinks', lambda: self.size() < len(self.cpus))
        self.tree.delete('/a')
        self.loop.bounds = self.loop.bounds._replace(
            allowed=frozenset(sorted(self.cpus)[:1]))
        self.wait_for('it is told', lambda: self.loop.problem)
        self.assertIn(self.tree.name, self.loop.problem)
        self.loop.stop()
        self.assertNotIn('Traceback', self.log.output)
