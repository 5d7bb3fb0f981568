# SPDX-License-Identifier: Apache-2.0

"""What the processes of a workload have waited, on trees of files."""

from __future__ import annotations

import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.delay import totals
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel.taskstats import Waits
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

PID = 7


class Totals(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'proc' / str(PID)).mkdir(parents=True)
        (root / f'proc/{PID}/stat').write_text(
            f'{PID} (a b) S ' + '0 ' * 18 + '100 0')
        group = root / 'cgroup/batch'
        group.mkdir(parents=True)
        (group / 'cgroup.procs').write_text(f'{PID}\n')
        (group / 'cgroup.threads').write_text(f'{PID}\n')
        self.sample = WorkloadSample(Workload('/batch', Priority.BACKGROUND))
        self.totals = totals.Totals(
            0.0, Mount(f'{root}/cgroup', 2), str(root))

    def waited_s(self, now: float, wait_s: float) -> float | None:
        """After the kernel has said that of the process."""
        asked = self.totals.plan(self.sample, most=10, left=10)
        assert asked is not None
        said = Waits(runs=9, waits=9, wait_ns=round(wait_s * 1e9),
                     read_bytes=0, write_bytes=0, copies=9, cpu_wait_ns=0)
        sample, unknown = self.totals.add(
            asked, dict.fromkeys(asked.questions(), said), now=now,
            since_s=0.5)
        self.assertEqual(0, unknown)
        return sample.io_wait_s

    def test_it_adds_up(self) -> None:
        self.assertEqual([0, 2.0, 2.5], [
            self.waited_s(now, wait_s)
            for now, wait_s in ((60000, 1.0), (60001, 3.0), (60002, 3.5))])

    def test_a_wait_from_boot_on_does_not_count(self) -> None:
        self.assertEqual([0, 0, 0.5], [
            self.waited_s(now, wait_s)
            for now, wait_s in ((60000, 1.0), (60001, 60001.0),
                                (60002, 60001.5))])
