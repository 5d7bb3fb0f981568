# SPDX-License-Identifier: Apache-2.0


"""PerfCloud: deviation, correlation, equation 1 and algorithm 1."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import statistics

import testtools

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.allowance import NOT_ALLOWED
from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.tests.unit.algorithms import consistent
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import UNPROTECTED
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

    def test_missing_is_zero(self) -> None:
        # As the paper says, so that little data proves little.
        self.assertAlmostEqual(
            statistics.correlation([5.0, 0.0, 5.0, 0.0],
                                   [1.0, 0.0, 1.5, 2.0]),
            perfcloud.pearsons([5.0, None, 5.0, 0.0],
                               [[1.0, None, 1.5, 2.0]])[0])

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

    fio = FIO

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
                    WorkloadRates(self.fio, 1.0, io_bytes_per_s=fio),
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
        # Smoothed by half, as all that is measured: deviations of 28 ms x
        # 0.5, then x 0.75; uses of 1 + (100 - 1) x 0.5 MB/s.
        caps = self.interval((0.001, 0.001, 0.061), 100 * MB)
        # Correlated at once over the calm intervals before: its cap begins
        # at its use and loses 80 %.
        self.assertEqual(['fio'], list(caps))
        self.assertAlmostEqual(0.2 * 50.5 * MB, caps['fio'], -1)
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

    def test_the_fleet_governor(self) -> None:
        """No new limit; one that is there follows equation 1."""
        self.calm_down()
        self.controller.allow(Budget(0, self.now + 60, 1.0))
        self.assertEqual({}, self.interval((0.001, 0.001, 0.061), 100 * MB))
        self.assertEqual([NOT_ALLOWED], [
            one.action for one in self.decision.incidents])
        self.controller.allow(Budget(1, self.now + 120, 2.0))
        first = self.interval((0.001, 0.001, 0.061), 110 * MB)
        self.assertEqual(['fio'], list(first))
        second = self.interval((0.001, 0.001, 0.061), 120 * MB)
        self.assertAlmostEqual(0.2 * first['fio'], second['fio'], 3)

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

    def test_a_limit_is_for_no_other_of_that_name(self) -> None:
        self.calm_down()
        self.assertEqual(['fio'], list(self.interval(
            (0.001, 0.001, 0.061), 100 * MB)))
        self.fio = dataclasses.replace(FIO, created_s=self.now)
        self.assertEqual({}, self.interval((0.001,) * 3, 1 * MB))

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


HOG = [9.0, 2.0, 6.0, 1.0, 8.0, 4.0, 7.0, 3.0, 9.0, 1.0, 5.0, 2.0, 6.0, 8.0]
"""MB/s of a disk hog, interval by interval."""
OTHER = [3.0, 8.0, 1.0, 9.0, 2.0, 7.0, 4.0, 9.0, 2.0, 6.0, 1.0, 8.0, 3.0, 5.0]


def members(application: str, project: str = '', count: int = 2,
            protected: bool = True) -> list[Workload]:
    return [Workload(f'{project}{application}{number}', Priority.FOREGROUND,
                     project=project, application=application,
                     protected=protected)
            for number in range(count)]


def waits(vms: Sequence[Workload], deviation: float | None
          ) -> list[WorkloadRates]:
    """Two VMs, of whose io_wait this is the standard deviation; ``None``:
    they do too little for one."""
    return [WorkloadRates(
        vm, 1.0, io_wait_s_per_op=0.001 + number * 2 * (deviation or 0.0),
        io_ops_per_s=1.0 if deviation is None else 100.0)
        for number, vm in enumerate(vms)]


def used(**uses: float | None) -> list[WorkloadRates]:
    """What background VMs read and write, in MB/s."""
    return [WorkloadRates(Workload(name, Priority.BACKGROUND), 1.0,
                          io_bytes_per_s=None if use is None else use * MB)
            for name, use in uses.items()]


class SeriesTest(testtools.TestCase):
    """What is correlated with what, against the paper's own equations.

    Without the moving average, of which section III-D gives no weight, a
    deviation in proportion to a use has the correlation 1.
    """

    def setUp(self) -> None:
        super().setUp()
        self.new()

    def new(self, **params: float) -> None:
        self.controller = perfcloud.Controller(perfcloud.Params(
            **{'ewma_alpha': 1.0, **params}),   # type: ignore[arg-type]
            host='h', boot_id='b')
        self.now = 0.0
        self.decision = Decision()

    def interval(self, *ticks: Iterable[WorkloadRates]) -> None:
        """Five seconds; the last of the ticks until its end."""
        for second in range(5):
            self.now += 1
            self.decision = self.controller.step(self.now, Rates(
                self.now, 1.0, tuple(ticks[min(second, len(ticks) - 1)]),
                topology={n: Cpu(n, 0, 0) for n in range(4)}))

    @property
    def caps(self) -> dict[str, float]:
        return {cap.workload: float(cap.value) for cap in self.decision.caps}

    def incident(self, victim: str) -> Incident:
        [found] = [one for one in self.decision.incidents
                   if one.victim.startswith(victim)]
        return found

    def check(self, incident: Incident, levels: Sequence[float],
              uses: Mapping[str, Sequence[float]]) -> None:
        """Section III-B, recomputed over the last 12 intervals."""
        wanted = {name: statistics.correlation(levels[-12:], use[-12:])
                  for name, use in uses.items()}
        self.assertEqual({name for name, r in wanted.items() if r >= 0.8},
                         dict(incident.suspects).keys())
        for name, r in incident.suspects:
            self.assertAlmostEqual(wanted[name], r)

    def test_what_rests_in_the_last_second_of_each_interval(self) -> None:
        """The mean of the interval counts, not its end."""
        vms = members('spark')
        levels: list[float] = []
        means: list[float] = []
        cap = highest = 0.0
        for step, use in enumerate(HOG):
            busy = [*waits(vms, 0.004 * use), *used(hog=use, calm=1)]
            rests = [*waits(vms, 0.004 * use), *used(hog=0, calm=1)]
            self.interval(busy, busy, busy, busy, rests)
            levels.append(0.004 * use)
            means.append(0.8 * use)
            if step < 2:
                self.assertEqual({}, self.caps)     # three samples at least
                continue
            # Equation 1 and algorithm 1: it begins at its use.
            contention = levels[-1] > 0.010
            if step == 2:
                cap = means[-1]
            if contention:
                highest, since = cap, 0
                cap *= 0.2
            else:
                since += 1
                cap = 0.005 * (since - math.cbrt(
                    highest * 0.8 / 0.005)) ** 3 + highest
            self.assertAlmostEqual(cap * MB, self.caps['hog'], 3)
            if contention:
                self.assertEqual(('hog',),
                                 self.incident('spark').antagonists)
                self.check(self.incident('spark'), levels,
                           {'hog': means})

    def test_an_interval_without_a_level_shifts_nothing(self) -> None:
        vms = members('spark')
        levels: list[float] = []
        uses: list[float] = []
        for step, use in enumerate([*HOG, *HOG]):
            level = None if step == 5 else 0.01 * use
            self.interval([*waits(vms, level), *used(hog=use, calm=1)])
            if level is not None:
                levels.append(level)
                uses.append(use)
            if len(levels) >= 3 and level is not None and level > 0.010:
                self.check(self.incident('spark'), levels, {'hog': uses})
                [(_, r)] = self.incident('spark').suspects
                self.assertAlmostEqual(1.0, r)

    def test_a_use_that_is_not_known_is_0_in_the_series(self) -> None:
        """So that two intervals of twelve prove nothing: section III-B."""
        vms = members('spark')
        levels = [0.01 * use for use in HOG]
        short = [use if step in (4, 6) else None
                 for step, use in enumerate(HOG)]
        new = [use if step > 10 else None for step, use in enumerate(HOG)]
        for step, use in enumerate(HOG):
            self.interval([*waits(vms, levels[step]), *used(
                hog=use, short=short[step],
                **({} if new[step] is None else {'new': use}))])
        self.check(self.incident('spark'), levels, {
            'hog': HOG, 'short': [use or 0.0 for use in short],
            'new': [use or 0.0 for use in new]})

    def test_foreground_is_never_named(self) -> None:
        """Neither that of another application nor that of none."""
        vms = members('spark')
        others = [Workload('alone', Priority.FOREGROUND),
                  Workload('hadoop', Priority.FOREGROUND,
                           application='hadoop')]
        for use in HOG:
            self.interval([*waits(vms, 0.01 * use), *(
                WorkloadRates(one, 1.0, io_bytes_per_s=use * MB)
                for one in (*vms, *others))])
            self.assertEqual({}, self.caps)
        self.assertEqual(((), ()), (self.incident('spark').suspects,
                                    self.incident('spark').antagonists))

    def test_never_known_is_never_named(self) -> None:
        vms = members('spark')
        for use in HOG:
            self.interval([*waits(vms, 0.01 * use), *used(hog=None)])
        self.assertEqual(((), ()), (self.incident('spark').suspects,
                                    self.incident('spark').antagonists))

    def test_a_cap_outlives_an_interval_in_which_the_use_is_not_known(
            self) -> None:
        vms = members('spark')
        for use in HOG[:3]:
            self.interval([*waits(vms, 0.02 * use), *used(hog=use)])
        caps = self.caps
        curve = []
        for _ in range(3):
            self.interval([*waits(vms, 0.0), *used(hog=None)])
            curve.append(self.caps)
        self.assertEqual(({'hog'}, [{'hog'}, {'hog'}, set()]),
                         (set(caps), [set(one) for one in curve]))
        self.assertGreater(curve[0]['hog'], caps['hog'])

    def test_two_applications_do_not_mix(self) -> None:
        """One suffers from one hog, the other from another, by turns more."""
        spark, hadoop = members('spark'), members('hadoop')
        levels: dict[str, list[float]] = {'spark': [], 'hadoop': []}
        for use, other in zip(HOG, OTHER, strict=True):
            levels['spark'].append(0.012 * use)
            levels['hadoop'].append(0.013 * other)
            self.interval([*waits(spark, 0.012 * use),
                           *waits(hadoop, 0.013 * other),
                           *used(hog=use, other=other)])
        for name in levels:
            self.check(self.incident(name), levels[name],
                       {'hog': HOG, 'other': OTHER})
        self.assertEqual(('hog',), self.incident('spark').antagonists)
        self.assertEqual(('other',), self.incident('hadoop').antagonists)
        self.assertEqual({'hog', 'other'}, set(self.caps))
        self.assertEqual(max(levels['spark'][-1], levels['hadoop'][-1]),
                         self.decision.facts['io_wait']['deviation'])

    def test_the_tightest_cap_of_two_applications_counts(self) -> None:
        """Both suffer from one; the second came later."""
        first, second = members('spark'), members('spark', project='p')
        for step, use in enumerate(HOG[:6]):
            self.interval([*waits(first, 0.02 * use),
                           *(waits(second, 0.02 * use) if step > 2 else ()),
                           *used(hog=use)])
        self.assertEqual([('hog',), ('hog',)], [
            one.antagonists for one in self.decision.incidents])
        self.assertEqual(2, len({one.id for one in self.decision.incidents}))
        self.assertAlmostEqual(HOG[2] * 0.2 ** 4 * MB, self.caps['hog'], 3)

    def test_misses_in_the_cache_are_correlated_and_cpu_is_capped(
            self) -> None:
        vms = members('spark')
        levels = [0.5 * use for use in HOG]
        caps: list[dict[str, float]] = []
        for level, use in zip(levels, HOG, strict=True):
            self.interval(*[[
                *(WorkloadRates(vm, 1.0, cpu_cores=1.0, cpi=1 + 2 * part)
                  for vm, part in zip(vms, (0.0, level), strict=True)),
                WorkloadRates(Workload('stream', Priority.BACKGROUND), 1.0,
                              cpu_cores=0.5 * second,
                              llc_misses_per_s=1e6 * use * second),
                # As busy, and nothing is known of its misses.
                WorkloadRates(Workload('blind', Priority.BACKGROUND), 1.0,
                              cpu_cores=use)] for second in range(5)])
            if len(caps) < 3:
                caps.append(self.caps)
        # It is cut to a fifth of its mean over the interval, a core.
        self.assertEqual(([{}, {}], ['stream']), (caps[:2], list(caps[2])))
        self.assertAlmostEqual(0.2, caps[2]['stream'])
        self.check(self.incident('spark'), levels, {'stream': HOG})

    def test_nothing_is_limited_for_what_is_not_protected(self) -> None:
        vms = members('spark', protected=False)
        for use in HOG[:4]:
            self.interval([*waits(vms, 0.02 * use), *used(hog=use)])
        self.assertEqual({}, self.caps)
        self.assertEqual((('hog',), UNPROTECTED), (
            self.incident('spark').antagonists,
            self.incident('spark').action))

    def test_the_evidence_is_what_was_compared(self) -> None:
        vms = members('spark')
        levels = [0.01 * use for use in HOG]
        for level, use in zip(levels, HOG, strict=True):
            self.interval([*waits(vms, level), *used(hog=use)])
        times = [self.now - 5.0 * ago for ago in reversed(range(12))]
        [victim, hog] = self.controller.evidence(self.incident('spark'))
        self.assertEqual((('spark1', 'io_wait', times),
                          ('hog', 'io_bytes_per_s', times,
                           [use * MB for use in HOG[-12:]])),
                         (victim[:3], hog))
        for wanted, value in zip(levels[-12:], victim[3], strict=True):
            self.assertAlmostEqual(wanted, value or 0.0)
        self.assertEqual([], self.controller.evidence(dataclasses.replace(
            self.incident('spark'), signal='cpi')))
