# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import testtools

from scavenger_openstack.laboratory.bench import Outcome
from scavenger_openstack.laboratory import score
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import Priority

BACKGROUND = Priority.BACKGROUND

NOTHING = Result(100.0, 0.0, None, None, None, 0.0, 0.0, 0.0, 0.0)


def service(p99_s: float, mean_s: float) -> Result:
    return NOTHING._replace(requests_per_s=10.0, p99_s=p99_s, mean_s=mean_s)


def outcome(**tenants: Result) -> Outcome:
    return Outcome(tenants, 2, 3.0, 1, 7)


def drawn(*tenants: Tenant) -> Drawn:
    return Drawn('x', 1, Machine(), tenants, 100.0, 0.0, 1.0, 1.0, 1.0)


WEB = Tenant(id='web', requests_per_s=10, cpu_s=0.01)
DB = Tenant(id='db', requests_per_s=10, cpu_s=0.01)
HOG = Tenant(id='hog', priority=BACKGROUND, threads=4)
SCAN = Tenant(id='scan', priority=BACKGROUND, threads=1, queue_depth=4)
EATER = Tenant(id='eater', priority=BACKGROUND,
               memory_growth_bytes_per_s=1e6)
BUILD = Tenant(id='build', threads=4)


class ScoreTest(testtools.TestCase):

    def close(self, expected: float, found: float | None) -> None:
        assert found is not None
        self.assertAlmostEqual(expected, found)

    def test_foreground_is_measured_against_itself_alone(self) -> None:
        found = score.score(
            drawn(WEB, DB),
            outcome(web=service(0.03, 0.012), db=service(0.1, 0.05)),
            alone=outcome(web=service(0.01, 0.01), db=service(0.1, 0.05)),
            unmanaged=outcome())
        self.close((3 + 1) / 2, found.p99_ratio)
        self.close(3, found.p99_ratio_worst)
        self.close((1.2 + 1) / 2, found.mean_ratio)
        self.close(1.2, found.mean_ratio_worst)
        self.assertEqual((2, 3.0, 1, 7), found[-4:])

    def test_service_that_nothing_asked_is_left_out(self) -> None:
        found = score.score(
            drawn(WEB, DB), outcome(web=service(0.03, 0.02), db=NOTHING),
            alone=outcome(web=service(0.01, 0.01), db=NOTHING),
            unmanaged=outcome())
        self.close(3, found.p99_ratio)

    def test_service_that_never_answered_took_all_patience(self) -> None:
        found = score.score(
            drawn(WEB), outcome(web=NOTHING),
            alone=outcome(web=service(0.01, 0.01)), unmanaged=outcome())
        self.close(1000, found.p99_ratio)

    def test_foreground_batch_counts_by_its_time(self) -> None:
        found = score.score(
            drawn(BUILD), outcome(build=NOTHING._replace(cpu_work=1.0)),
            alone=outcome(build=NOTHING._replace(cpu_work=4.0)),
            unmanaged=outcome())
        self.close(4, found.p99_ratio)
        found = score.score(
            drawn(BUILD), outcome(build=NOTHING),
            alone=outcome(build=NOTHING._replace(cpu_work=4.0)),
            unmanaged=outcome())
        self.close(score.SLOWEST, found.p99_ratio)

    def test_work_is_a_mean_over_what_each_uses(self) -> None:
        # Memory that is simply there is not work.
        found = score.score(
            drawn(HOG, SCAN),
            outcome(hog=NOTHING._replace(cpu_work=1.0, memory_bytes=5.0),
                    scan=NOTHING._replace(cpu_work=1.0, io_ops_per_s=50.0)),
            alone=outcome(), unmanaged=outcome(
                hog=NOTHING._replace(cpu_work=4.0, memory_bytes=5.0),
                scan=NOTHING._replace(cpu_work=1.0, io_ops_per_s=100.0)))
        self.close((0.25 + (1 + 0.5) / 2) / 2, found.work_ratio)
        self.assertIsNone(found.p99_ratio)

    def test_memory_is_work_of_who_grows(self) -> None:
        found = score.score(
            drawn(EATER), outcome(eater=NOTHING._replace(memory_bytes=2e9)),
            alone=outcome(),
            unmanaged=outcome(eater=NOTHING._replace(memory_bytes=8e9)))
        self.close(0.25, found.work_ratio)

    def test_starved_when_unmanaged_is_left_out(self) -> None:
        found = score.score(
            drawn(HOG, SCAN),
            outcome(hog=NOTHING._replace(cpu_work=3.0),
                    scan=NOTHING._replace(cpu_work=1.0)),
            alone=outcome(),
            unmanaged=outcome(hog=NOTHING._replace(cpu_work=4.0),
                              scan=NOTHING))
        self.close(0.75, found.work_ratio)

    def test_killed_did_less(self) -> None:
        """It was as fast as ever, for half of the time."""
        found = score.score(
            drawn(HOG),
            outcome(hog=NOTHING._replace(seconds=50.0, cpu_work=4.0)),
            alone=outcome(),
            unmanaged=outcome(hog=NOTHING._replace(cpu_work=4.0)))
        self.close(0.5, found.work_ratio)
