# SPDX-License-Identifier: Apache-2.0


"""Before anything: perf does not know the cgroups of a fresh tree.

This has to be the first module that runs: to enable any controller, as the
other tests do, ends that state for ever.
"""

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.tests.functional.guest_v2 import tree


class Fresh(testtools.TestCase):

    def test_perf_does_not_know_a_cgroup_yet(self) -> None:
        logs = self.useFixture(fixtures.FakeLogger())
        control = tree.ROOT / 'cgroup.subtree_control'
        self.assertEqual('', control.read_text().strip())
        for path in (tree.ROOT / 'fresh', tree.ROOT / 'fresh/a'):
            path.mkdir()
            self.addCleanup(path.rmdir)
        cgroups = Cgroups(['/fresh'])
        self.addCleanup(cgroups.close)
        counters = perf.Perf(perf.Settings())
        self.addCleanup(counters.close)
        self.assertEqual('B', counters.grade.letter)
        for now in (1.0, 2.0):
            [found] = counters.add(cgroups.sample(), now)
            self.assertIsNone(found.cycles)
        said = [line for line in logs.output.splitlines()
                if 'perf does not know this cgroup' in line]
        self.assertEqual(1, len(said), logs.output)
        self.assertIn('cgroup.subtree_control', said[0])
        # What the line says helps; it is tried again after a while.
        control.write_text('+cpu')
        [found] = counters.add(cgroups.sample(), 2.0 + perf.RETRY_S)
        self.assertEqual(0, found.cycles)
