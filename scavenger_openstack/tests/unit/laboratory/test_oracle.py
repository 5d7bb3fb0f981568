# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import logging

import testtools

from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory.bench import Allocation
from scavenger_openstack.laboratory import compare
from scavenger_openstack.laboratory import oracle
from scavenger_openstack.laboratory import score
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.types import Priority

BACKGROUND = Priority.BACKGROUND


def web(**fields: float) -> Tenant:
    values: dict[str, float] = {'requests_per_s': 200, 'cpu_s': 0.005,
                                'vcpus': 4, **fields}
    return Tenant(id='web', **values)   # type: ignore[arg-type]


def hog(name: str = 'hog', **fields: float) -> Tenant:
    return Tenant(id=name, priority=BACKGROUND,
                  **fields)   # type: ignore[arg-type]


def drawn(*tenants: Tenant, **machine: float) -> Drawn:
    return Drawn('x', 1, Machine(**machine),    # type: ignore[arg-type]
                 tenants, duration_s=120.0, warmup_s=20.0, interval_s=1.0,
                 step_s=1.0, warmup_step_s=1.0)


class OracleTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        logger = logging.getLogger('scavenger_openstack')
        self.addCleanup(logger.setLevel, logger.level)
        compare.quiet()

    def search(self, host: Drawn) -> oracle.Found:
        self.alone = bench.run(host, bench.POLICIES['alone'])
        self.unmanaged = bench.run(host, bench.POLICIES['none'])
        return oracle.Oracle(host, alone=self.alone,
                             unmanaged=self.unmanaged).best()

    def scored(self, host: Drawn, allocation: Allocation) -> score.Score:
        outcome = bench.run(host, bench.Policy(allocation=allocation))
        return score.score(host, outcome, alone=self.alone,
                           unmanaged=self.unmanaged)

    def test_harmless_background_is_left_alone(self) -> None:
        found = self.search(drawn(web(), hog(threads=1, accesses=0.0)))
        self.assertTrue(found.kept)
        self.assertEqual(Allocation(), found.allocation)
        self.assertEqual(1.0, found.score.work_ratio)

    def test_heavy_hog_only_runs_when_idle(self) -> None:
        found = self.search(drawn(
            web(), hog(threads=8, vcpus=8, weight=30, accesses=0.0)))
        self.assertTrue(found.kept)
        self.assertTrue(found.allocation.idle)
        self.assertGreater(found.score.work_ratio or 0, 0.8)

    def test_keeps_to_the_limit_and_hardly_more_would_not(self) -> None:
        host = drawn(web(io_ops=4),
                     hog(queue_depth=16, io_bytes=65536))
        found = self.search(host)
        self.assertGreater(score.score(
            host, self.unmanaged, alone=self.alone,
            unmanaged=self.unmanaged).p99_ratio or 0, 1.2)
        self.assertTrue(found.kept)
        self.assertLessEqual(found.score.p99_ratio or 9, oracle.LIMIT)
        share = found.allocation.disk
        assert share is not None
        more = self.scored(host, found.allocation._replace(
            disk=share + 2 / 2 ** oracle.STEPS))
        self.assertGreater(more.p99_ratio or 0, oracle.LIMIT)

    def test_what_is_known_competes(self) -> None:
        host = drawn(web(), hog(threads=8, vcpus=8, accesses=0.0))
        found = self.search(host)
        known = {Allocation(cpus=0.123): found.score._replace(
            work_ratio=99.0)}
        self.assertEqual(Allocation(cpus=0.123), oracle.Oracle(
            host, alone=self.alone,
            unmanaged=self.unmanaged).best(known).allocation)

    def test_each_resource_by_itself(self) -> None:
        """The link is crowded, so it is limited; the CPUs are not."""
        found = self.search(drawn(
            web(tx_bytes=200000), hog(threads=1, accesses=0.0),
            hog('sender', tx_bytes_per_s=1e9)))
        self.assertTrue(found.kept)
        self.assertIsNone(found.allocation.cpus)
        self.assertIsNotNone(found.allocation.link)

    def test_memory_that_is_not_there_is_not_given(self) -> None:
        host = drawn(web(memory_bytes=4e9), hog(
            memory_bytes=40e9, memory_growth_bytes_per_s=1e9),
            memory_bytes=16e9)
        found = self.search(host)
        self.assertGreater(self.unmanaged.violation_s, 10)
        self.assertTrue(found.kept)
        self.assertEqual(0, found.score.violation_s)
        self.assertGreater(found.score.work_ratio or 0, 0.1)

    def test_memory_counts_without_anything_to_feel_it(self) -> None:
        found = self.search(drawn(hog(
            memory_bytes=40e9, memory_growth_bytes_per_s=1e9),
            memory_bytes=16e9))
        self.assertTrue(found.kept)
        self.assertIsNotNone(found.allocation.memory)
        self.assertEqual(0, found.score.violation_s)

    def test_hurts_least_when_nothing_is_fine(self) -> None:
        """The floor alone, 10 operations a second, is half of this disk."""
        host = drawn(web(io_ops=0.02), hog(queue_depth=8),
                     disk_service_s=0.05)
        found = self.search(host)
        self.assertFalse(found.kept)
        least = self.scored(host, Allocation(disk=0.0)).p99_ratio or 0
        self.assertGreater(least, oracle.LIMIT)
        self.assertLessEqual(found.score.p99_ratio or 0,
                             least + oracle.NEAR)
