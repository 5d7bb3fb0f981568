# SPDX-License-Identifier: Apache-2.0


"""PerfCloud: deviation, correlation, equation 1 and algorithm 1."""

from __future__ import annotations

import dataclasses
import math
import statistics

import testtools

from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.tests.unit.algorithms import consistent
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

VMS = [Workload(f'vm{i}', Priority.FOREGROUND, application='spark')
       for i in range(3)]
FIO = Workload('fio', Priority.BACKGROUND)
CALM = Workload('calm', Priority.BACKGROUND)
MB = 1e6


class EquationsTest(testtools.TestCase):

    def test_deviation(self) -> None:
        values = [1.0, 2.0, 4.0, 9.0]
        self.assertAlmostEqual(statistics.pstdev(values),
                               perfcloud.deviation(values) or 0.0)
        self.assertIsNone(perfcloud.deviation([3.0]))
        self.assertIsNone(perfcloud.deviation([]))

    def test_ewma(self) -> None:
        level = None
        for value, wanted in ((4.0, 4.0), (8.0, 6.0), (0.0, 3.0)):
            level = perfcloud.ewma(level, value, 0.5)
            self.assertEqual(wanted, level)

    def test_pearson(self) -> None:
        x, y = [1.0, 2.0, 3.0, 5.0], [2.0, 1.0, 4.0, 6.0]
        self.assertAlmostEqual(statistics.correlation(x, y),
                               perfcloud.pearson(x, y))
        self.assertAlmostEqual(-1.0, perfcloud.pearson(
            [1, 2, 3], [3, 2, 1]))

    def test_missing_is_zero(self) -> None:
        # As the paper says, so that little data proves little.
        self.assertAlmostEqual(
            statistics.correlation([5.0, 0.0, 5.0, 0.0],
                                   [1.0, 0.0, 1.5, 2.0]),
            perfcloud.pearson([5.0, None, 5.0, 0.0], [1.0, None, 1.5, 2.0]))

    def test_nothing_varies(self) -> None:
        self.assertEqual(0.0, perfcloud.pearson([1, 1, 1], [1, 2, 3]))
        self.assertEqual(0.0, perfcloud.pearson([1, 2], [1, 2]))

    def test_the_three_regions_of_equation_1(self) -> None:
        # C_max 100 MB/s: decreased to 20; K = cbrt(100 x 0.8 / 0.005) =
        # 25.2 intervals.
        C_max, K = 100.0, (100 * 0.8 / 0.005) ** (1 / 3)
        cut = perfcloud.next_cap(100.0, 100.0, 0, contention=True, beta=0.8,
                                 gamma=0.005)
        self.assertAlmostEqual(20.0, cut)
        curve = [perfcloud.next_cap(cut, C_max, T, contention=False,
                                    beta=0.8, gamma=0.005)
                 for T in range(61)]
        for T, value in enumerate(curve):
            self.assertAlmostEqual(0.005 * (T - K) ** 3 + 100, value)
        self.assertAlmostEqual(20.0, curve[0])
        steps = [b - a for a, b in zip(curve, curve[1:], strict=False)]
        self.assertGreater(min(steps), 0)           # it only grows
        self.assertGreater(steps[0], 8)             # steep at first,
        self.assertLess(max(steps[22:28]), 0.2)     # flat around K,
        self.assertGreater(steps[45], 5)            # then probing
        self.assertAlmostEqual(100.0, curve[25], 1)


class ControllerTest(testtools.TestCase):
    """Intervals of 5 ticks of a second."""

    def setUp(self) -> None:
        super().setUp()
        self.controller = perfcloud.Controller(host='h', boot_id='b')
        self.now = 0.0
        self.incidents = consistent.Incidents(self)

    def interval(self, waits: tuple[float, ...], fio: float | None,
                 calm: float = 5 * MB) -> dict[str, float]:
        for _ in range(5):
            self.now += 1
            self.decision = self.controller.step(self.now, Rates(
                self.now, 1.0, (
                    *(WorkloadRates(vm, 1.0, io_wait_s_per_op=wait,
                                    io_ops_per_s=100.0)
                      for vm, wait in zip(VMS, waits, strict=True)),
                    WorkloadRates(FIO, 1.0, io_bytes_per_s=fio),
                    WorkloadRates(CALM, 1.0, io_bytes_per_s=calm)),
                topology={n: Cpu(n, 0, 0) for n in range(4)}))
        self.incidents.follow(self.now, self.decision)
        for cap in self.decision.caps:
            self.assertIs(Knob.IO_BYTES_PER_S, cap.knob)
        return {cap.workload: float(cap.value) for cap in self.decision.caps}

    def calm_down(self) -> None:
        for _ in range(4):
            self.assertEqual({}, self.interval((0.001,) * 3, 1 * MB))

    def test_algorithm_1(self) -> None:
        self.calm_down()
        # Smoothed by half: deviations of 28 ms x 0.5, then x 0.75.
        caps = self.interval((0.001, 0.001, 0.061), 100 * MB)
        # Correlated at once over the calm intervals before: its cap begins
        # at its use and loses 80 %.
        self.assertEqual(['fio'], list(caps))
        self.assertAlmostEqual(20 * MB, caps['fio'], -1)
        incident, = self.decision.incidents
        self.assertEqual(('io_wait', ('fio',), 'vm2'), (
            incident.signal, incident.antagonists, incident.victim))
        self.assertAlmostEqual(0.010, incident.threshold or 0.0)
        self.assertEqual('limit fio', incident.action)
        # The contention is gone; smoothed by half each interval.
        for _ in range(4):
            self.interval((0.001,) * 3, 20 * MB)
        curve = [self.interval((0.001,) * 3, 15 * MB).get('fio', math.inf)
                 for _ in range(30)]
        # It grows along the cubic and is removed when it binds no more.
        self.assertEqual(sorted(curve), curve)
        self.assertEqual(math.inf, curve[-1])
        self.assertEqual((), self.decision.incidents)

    def test_one_vm_has_no_deviation(self) -> None:
        del VMS[1:]
        try:
            for wait in (0.001, 0.001, 0.001, 0.5, 0.5, 0.5):
                self.assertEqual({}, self.interval((wait,), wait * 200 * MB))
        finally:
            VMS.extend(Workload(f'vm{i}', Priority.FOREGROUND,
                                application='spark') for i in (1, 2))

    def test_another_project_may_use_the_same_name(self) -> None:
        own = list(VMS)
        VMS[:] = [dataclasses.replace(vm, project=f'p{n}')
                  for n, vm in enumerate(own)]
        self.addCleanup(VMS.__setitem__, slice(None), own)
        for wait in (0.001, 0.001, 0.001, 0.5, 0.5, 0.5):
            self.assertEqual({}, self.interval((0.001, 0.001, wait),
                                               wait * 200 * MB))

    def test_vms_that_leave_take_the_cap_with_them(self) -> None:
        self.calm_down()
        self.assertEqual(['fio'], list(self.interval(
            (0.001, 0.001, 0.061), 100 * MB)))
        left = VMS[1:]
        del VMS[1:]
        self.addCleanup(VMS.extend, left)
        for _ in range(2):      # held, in case it is but not measured
            self.assertEqual(['fio'], list(self.interval(
                (0.001,), 100 * MB)))
        self.assertEqual({}, self.interval((0.001,), 100 * MB))
        self.assertEqual((), self.decision.incidents)

    def test_no_correlation_no_cap(self) -> None:
        self.calm_down()
        for use in (1, 50, 2, 60):
            self.assertEqual({}, self.interval(
                (0.001, 0.001, 0.061), 1 * MB, calm=1 * MB))
            self.assertIsNotNone(use)
        self.assertEqual((), self.decision.incidents[0].antagonists)

    def test_unmeasured_use(self) -> None:
        self.calm_down()
        self.assertEqual({}, self.interval((0.001, 0.001, 0.061), None))

    def test_below_the_gate(self) -> None:
        for _ in range(5):
            self.now += 5
            decision = self.controller.step(self.now, Rates(
                self.now, 5.0, tuple(
                    WorkloadRates(vm, 5.0, io_wait_s_per_op=0.1 * i,
                                  io_ops_per_s=4.9)
                    for i, vm in enumerate(VMS))))
        self.assertIsNone(decision.facts['io_wait']['deviation'])

    def test_weird_times(self) -> None:
        self.calm_down()
        before = self.controller.step(self.now, Rates(self.now, 1.0, ()))
        for now in (self.now - 3, math.nan, math.inf, self.now):
            self.assertIs(before, self.controller.step(
                now, Rates(now, 1.0, ())))
