# SPDX-License-Identifier: Apache-2.0


"""CPI2: specs, outliers, correlation and caps, sample by sample."""

from __future__ import annotations

import dataclasses
import math
import statistics

import testtools

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.allowance import NOT_ALLOWED
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms.sampling import CpiSampler
from scavenger_openstack.algorithms import signals
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.tests.unit.algorithms import consistent
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import UNPROTECTED
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

WEB = Workload('web', Priority.FOREGROUND, application='shop')
HOG = Workload('hog', Priority.BACKGROUND)
CALM = Workload('calm', Priority.BACKGROUND)
VIP = Workload('vip', Priority.FOREGROUND)


class TableTest(testtools.TestCase):
    """The defaults are the paper's."""

    def test_table_2(self) -> None:
        params = cpi2.Params()
        self.assertEqual(
            ('cpi', 10.0, 60.0, 2.0, 3, 300.0, 0.35, 0.1, 300.0),
            (params.signal, params.sample_s, params.period_s,
             params.outlier_sigmas, params.outliers, params.outlier_window_s,
             params.correlation_threshold, params.cap_cores, params.cap_s))
        self.assertEqual(0.25, signals.MIN_CORES)

    def test_sections_3_to_5(self) -> None:
        """100 samples of each of 5 tasks, and no norm without these; a window
        of 10 minutes; 0.01 CPU-s/s for best effort."""
        params = cpi2.Params()
        self.assertEqual(
            (5, 100, 0, 600.0, 1.0, 0.01),
            (params.min_tasks, params.min_samples, params.min_own_samples,
             params.correlation_window_s, params.analysis_interval_s,
             params.cap_best_effort_cores))


class HardCapsTest(testtools.TestCase):

    def test_best_effort_and_others(self) -> None:
        """Section 5."""
        for best_effort, cores in ((True, 0.01), (False, 0.1)):
            self.assertEqual(cores, cpi2.hard_caps(
                cpi2.Params(), best_effort=best_effort)[Knob.CPU_CORES])

    def test_each_knob_has_its_own(self) -> None:
        self.assertEqual(
            {Knob.CPU_CORES: 0.2, Knob.IO_BYTES_PER_S: 3.0},
            cpi2.hard_caps(cpi2.Params(cap_cores=0.2, cap_io_bytes_per_s=3.0)))
        self.assertEqual({one.knob for one in SIGNALS.values()},
                         set(cpi2.hard_caps(cpi2.Params())))


class SpecsTest(testtools.TestCase):

    def test_statistics_are_those_of_all_samples(self) -> None:
        left, right = [1.0, 2.5, 4.0, 0.5], [10.0, 11.0, 9.5]
        one, two = specs.Statistics(), specs.Statistics()
        for value in left:
            one = one.add(value, value / 4)
        for value in right:
            two = two.add(value, value / 4)
        both = one.merge(two)
        self.assertEqual(7, both.n)
        self.assertAlmostEqual(statistics.mean(left + right), both.mean)
        assert both.stddev is not None
        self.assertAlmostEqual(statistics.stdev(left + right), both.stddev)
        assert both.cpu_cores is not None
        self.assertAlmostEqual(both.mean / 4, both.cpu_cores)
        self.assertEqual(one.cpu_cores, one.merge(
            specs.Statistics(3.0, 1.0, 0.0)).cpu_cores)
        for found, wanted in zip(two.merge(one), both, strict=True):
            self.assertAlmostEqual(wanted or 0.0, found or 0.0)
        self.assertEqual(both, both.merge(specs.Statistics()))
        self.assertEqual(specs.Statistics(), specs.Statistics().merge(
            specs.Statistics()))

    def test_age(self) -> None:
        one = specs.Statistics(100.0, 2.0, 396.0)
        old = one.age(2.0)
        self.assertAlmostEqual(81.0, old.n)
        self.assertEqual(2.0, old.mean)
        assert old.stddev is not None
        self.assertAlmostEqual(2.0, old.stddev, 1)

    def test_gates(self) -> None:
        enough = specs.Statistics(100.0, 1.0, 99.0)
        tasks = {f't{i}': enough for i in range(4)}
        tasks['new'] = specs.Statistics(99.0, 5.0, 0.0)
        self.assertIsNone(specs.of_application(tasks))
        tasks['fifth'] = enough._replace(cpu_cores=0.5)
        spec = specs.of_application(tasks)
        assert spec is not None
        self.assertEqual((1.0, 500.0, 5, 0.5), (
            spec.mean, spec.samples, spec.tasks, spec.cpu_cores))
        self.assertAlmostEqual(math.sqrt(495 / 499), spec.stddev)
        self.assertIsNone(specs.of_own(specs.Statistics(59.0, 1.0, 1.0),
                                       min_samples=60))
        self.assertEqual('own', specs.of_own(  # type: ignore[union-attr]
            enough, min_samples=60).source)
        # The paper leaves it alone.
        self.assertIsNone(specs.of_own(
            enough, min_samples=cpi2.Params().min_own_samples))

    def test_garbage(self) -> None:
        one = specs.Statistics(3.0, 1.5, 0.25, 0.5)
        for good in (one, one._replace(cpu_cores=None)):
            self.assertEqual(good, specs.from_json(list(good)))
        for value in (None, 3, [1, 2], [1, 2, -3, None], [-1, 2, 3, 1],
                      [1, math.nan, 3, 1], [math.inf, 1, 1, 1],
                      ['a', 1, 1, 1], [1, 1, 1], [1, 1, 1, -1], []):
            self.assertRaises(ValueError, specs.from_json, value)


class EquationsTest(testtools.TestCase):

    def test_threshold(self) -> None:
        # Figure 7 of the paper: mu 1.8, sigma 0.16.
        spec = specs.Spec(1.8, 0.16, 450e3, 1000, 'directive')
        self.assertAlmostEqual(2.12, cpi2.threshold(spec, cpi2.Params()))

    def test_correlation_along_a_whole_curve(self) -> None:
        # Use 1, 1, 2 of 4; threshold 2; the last c from 0.5 to 8.
        for c, last in ((0.5, -0.75), (1.0, -0.5), (2.0, 0.0), (4.0, 0.5),
                        (8.0, 0.75)):
            self.assertAlmostEqual(
                0.25 * 0.5 - 0.25 * 0.5 + 0.5 * last,
                cpi2.correlation([4.0, 1.0, c], [1.0, 1.0, 2.0], 2.0))

    def test_correlation_of_nothing(self) -> None:
        self.assertEqual(0.0, cpi2.correlation([], [], 1.0))
        self.assertEqual(0.0, cpi2.correlation([3.0, 3.0], [0.0, 0.0], 1.0))


class SamplerTest(testtools.TestCase):

    def test_what_a_sample_counts_for(self) -> None:
        """Cycles over instructions of 10 s; none below 0.25 CPU-s/s in these
        10 s: section 4.1."""
        for uses, cpis, wanted in (
                ([0.1] * 9 + [2.0], [3.0] * 9 + [1.0], 2.9 / (0.3 + 2.0)),
                ([0.2] * 9 + [0.6], [2.0] * 10, None),
                ([0.5] * 10, [1.0, 2.0] * 5, 5.0 / (2.5 + 1.25))):
            sampler = CpiSampler(SIGNALS['cpi'], duration_s=10.0,
                                 interval_s=10.0)
            for second, (use, cpi) in enumerate(zip(uses, cpis, strict=True)):
                sample = sampler.add(second + 1.0, Rates(
                    second + 1.0, 1.0, (
                        WorkloadRates(WEB, 1.0, cpu_cores=use, cpi=cpi),)))
            assert sample is not None
            found = sample.values.get('web')
            self.assertIs(wanted is None, found is None)
            self.assertAlmostEqual(wanted or 0.0, found or 0.0)
            self.assertAlmostEqual(sum(uses) / 10, sample.uses['web'])


class ControllerTest(testtools.TestCase):
    """One sample per step: samples of one second each second."""

    def setUp(self) -> None:
        super().setUp()
        self.params = cpi2.Params(
            sample_s=1.0, period_s=1.0, outlier_window_s=5.0,
            correlation_window_s=10.0, cap_s=5.0, min_own_samples=10)
        self.controller = cpi2.Controller(self.params, host='h',
                                          boot_id='b')
        self.now = 0.0
        self.incidents = consistent.Incidents(self)

    cpu_model: str | None = 'one'
    victim, hog = WEB, HOG

    def see(self, cpi: float | None, hog: float, calm: float = 0.5,
            **others: WorkloadRates) -> list[tuple[str, Knob, object]]:
        self.now += 1
        self.decision = self.controller.step(self.now, Rates(
            self.now, 1.0, (
                WorkloadRates(self.victim, 1.0, cpu_cores=1.0, cpi=cpi),
                WorkloadRates(VIP, 1.0, cpu_cores=hog),
                WorkloadRates(self.hog, 1.0, cpu_cores=hog),
                WorkloadRates(CALM, 1.0, cpu_cores=calm)),
            cpu_model=self.cpu_model))
        self.incidents.follow(self.now, self.decision)
        return [(cap.workload, cap.knob, cap.value)
                for cap in self.decision.caps]

    def learn(self) -> None:
        for i in range(12):
            self.assertEqual([], self.see(1.0 + 0.01 * (i % 3), 0.01))

    def test_names_caps_and_ends(self) -> None:
        self.learn()
        found = [self.see(3.0, 2.0) for _ in range(3)]
        # Two outliers are none; the third is analysed at once.
        capped = [('hog', Knob.CPU_CORES, 0.1)]
        self.assertEqual([[], [], capped], found)
        incident, = self.decision.incidents
        self.assertEqual(('web', 'cpi', ('hog',)), (
            incident.victim, incident.signal, incident.antagonists))
        # It began with the first outlier.
        self.assertEqual(self.now - 2, incident.time_s)
        # A foreground workload with the same use is a suspect, no more.
        self.assertEqual({'hog', 'vip'},
                         {name for name, _ in incident.suspects[:2]})
        found = [self.see(1.0, 0.1) for _ in range(6)]
        self.assertEqual([capped] * 4 + [[], []], found)
        self.assertEqual((), self.decision.incidents)

    def test_nothing_is_limited_for_what_is_not_protected(self) -> None:
        """It is found, and named, as ever: CPI2, section 5."""
        self.victim = dataclasses.replace(WEB, protected=False)
        self.learn()
        for _ in range(6):
            self.assertEqual([], self.see(3.0, 2.0))
        incident, = self.decision.incidents
        self.assertEqual((('hog',), UNPROTECTED), (
            incident.antagonists, incident.action))

    def test_what_the_floor_leaves(self) -> None:
        """0.01 CPU-s/s are for best effort: section 5.  A floor is kept, and
        the reason says so."""
        for killable, floor, cores, kept in (
                (True, {}, 0.01, False),
                (True, {Knob.CPU_CORES: 0.01}, 0.01, False),
                (True, {Knob.CPU_CORES: 0.1}, 0.1, True),
                (False, {Knob.CPU_CORES: 0.1}, 0.1, False),
                (False, {Knob.CPU_CORES: 0.5}, 0.5, True)):
            self.hog = dataclasses.replace(HOG, killable=killable,
                                           floor=floor)
            self.controller = cpi2.Controller(self.params, host='h',
                                              boot_id='b')
            self.learn()
            for _ in range(3):
                self.see(3.0, 2.0)
            [cap] = self.decision.caps
            self.assertEqual((cores, kept),
                             (cap.value, 'its floor' in cap.reason))

    def test_the_fleet_governor(self) -> None:
        """It names what it may not limit."""
        self.learn()
        self.controller.allow(Budget(0, self.now + 60, 1.0))
        for _ in range(3):
            self.assertEqual([], self.see(3.0, 2.0))
        [incident] = self.decision.incidents
        self.assertEqual((('hog',), NOT_ALLOWED),
                         (incident.antagonists, incident.action))
        self.controller.allow(Budget(1, self.now + 120, 2.0))
        self.assertEqual(1, len([self.see(3.0, 2.0) for _ in range(3)][-1]))

    def test_an_application_of_few_tasks_is_left_alone(self) -> None:
        """As in the paper, section 3.1, unless that is asked for."""
        self.controller = cpi2.Controller(dataclasses.replace(
            self.params, min_own_samples=cpi2.Params().min_own_samples))
        for _ in range(200):
            self.see(1.0, 0.01)
        for _ in range(9):
            self.assertEqual([], self.see(3.0, 2.0))
        self.assertEqual((), self.decision.incidents)

    def test_the_evidence(self) -> None:
        """The victim's CPI and the use of suspects, as in figures 8 to 11;
        the correlation of section 4.2 can be computed again from it."""
        self.learn()
        curve = [(1.1, 0.5), (3.0, 2.0), (None, 1.5), (2.5, 1.8)]
        for cpi, hog in curve:
            self.see(cpi, hog)
        incident, = self.decision.incidents
        [victim, *uses] = self.controller.evidence(incident)
        times = [self.now - ago for ago in reversed(range(10))]
        self.assertEqual(
            ('web', 'cpi', times,
             [1.0, 1.01, 1.02] * 2 + [cpi for cpi, _ in curve]),
            (victim[0], victim[1], victim[2],
             [round(one, 6) if one else None for one in victim[3]]))
        self.assertEqual([name for name, _ in incident.suspects],
                         [name for name, *_ in uses])
        assert incident.threshold is not None
        for (name, what, when, used), (_, score) in zip(
                uses, incident.suspects, strict=True):
            self.assertEqual(('cpu_cores', times), (what, when))
            pairs = [(c, u) for c, u in zip(victim[3], used, strict=True)
                     if c is not None and u is not None]
            self.assertAlmostEqual(score, sum(
                u * (1 - incident.threshold / c if c > incident.threshold
                     else c / incident.threshold - 1) for c, u in pairs)
                / sum(u for _, u in pairs), msg=name)

    def test_the_specs_of_all_hosts_come_first(self) -> None:
        """Before its own past, which a disturbance from the start is in."""
        for given, incidents in (({}, 0), ({'cpi': 1.0}, 1),
                                 ({'run_delay': 1.0}, 0)):
            self.controller = cpi2.Controller(self.params)
            self.controller.compare({
                ('', 'shop', 'one', signal): specs.Spec(
                    mean, 0.1, 500, 0, 'directive')
                for signal, mean in given.items()})
            for _ in range(12):
                self.see(3.0, 2.0)
            self.assertEqual(incidents, len(self.decision.incidents),
                             str(given))

    def test_no_correlating_suspect_no_action(self) -> None:
        self.learn()
        # The use is high when the signal is low.
        for i in range(10):
            self.assertEqual([], self.see(3.0 if i % 2 else 1.0,
                                          0.0 if i % 2 else 2.0, 0.0))
        incident, = self.decision.incidents
        self.assertEqual((), incident.antagonists)
        self.assertIn('nothing', incident.action)

    def test_what_is_done_is_true_when_the_limit_has_ended(self) -> None:
        self.learn()
        for _ in range(3):
            self.see(3.0, 2.0)
        self.assertEqual('limit hog', self.decision.incidents[0].action)
        capped = [bool(self.see(3.0 if i < 2 else 1.0, 0.0))
                  for i in range(6)]
        self.assertEqual([True] * 4 + [False] * 2, capped)
        incident, = self.decision.incidents
        self.assertEqual('nothing now: the limit has ended', incident.action)

    def test_a_limit_ends_with_its_victim(self) -> None:
        self.learn()
        for _ in range(3):
            self.see(3.0, 2.0)
        self.now += 1
        decision = self.controller.step(self.now, Rates(self.now, 1.0, (
            WorkloadRates(HOG, 1.0, cpu_cores=2.0),), cpu_model='one'))
        self.assertEqual(((), ()), (decision.caps, decision.incidents))

    def test_another_round_names_another(self) -> None:
        self.learn()
        for _ in range(3):
            self.see(3.0, 2.0, 1.9)
        found = [self.see(3.0, 0.1, 1.9) for _ in range(3)]
        self.assertEqual({'hog', 'calm'}, {name for name, _, _ in found[-1]})

    def test_another_round_names_the_same_while_it_is_not_held(self) -> None:
        """As when the detector observes: calm did nothing."""
        self.learn()
        for _ in range(9):
            found = self.see(3.0, 2.0, 1.9)
        self.assertEqual([('hog', Knob.CPU_CORES, 0.1)], found)
        [incident] = self.decision.incidents
        self.assertEqual(('hog',), incident.antagonists)

    def test_one_antagonist_of_two_victims(self) -> None:
        """It is named for both, and limited once."""
        other = dataclasses.replace(WEB, id='db', application='mail')
        self.controller.allow(Budget(1, 3600.0, 1.0))
        for cpi, hog in [(1.0, 0.01), (1.01, 0.01)] * 6 + [(3.0, 2.0)] * 5:
            self.now += 1
            self.decision = self.controller.step(self.now, Rates(
                self.now, 1.0, (
                    WorkloadRates(WEB, 1.0, cpu_cores=1.0, cpi=cpi),
                    WorkloadRates(other, 1.0, cpu_cores=1.0, cpi=2 * cpi),
                    WorkloadRates(HOG, 1.0, cpu_cores=hog)),
                cpu_model='one'))
        self.assertEqual(['hog'], [cap.workload
                                   for cap in self.decision.caps])
        self.assertEqual(
            {'web': ('limit hog', ('hog',)), 'db': ('limit hog', ('hog',))},
            {one.victim: (one.action, one.antagonists)
             for one in self.decision.incidents})

    def test_below_the_gate_and_missing_is_no_outlier(self) -> None:
        self.learn()
        for _ in range(20):
            self.assertEqual([], self.see(None, 2.0))
            self.assertEqual([], self.see(math.nan, 2.0))
        self.assertEqual((), self.decision.incidents)

    def test_all_suspects_equal(self) -> None:
        self.learn()
        for _ in range(3):
            found = self.see(3.0, 2.0, 2.0)
        self.assertEqual(1, len(found))

    def test_the_capped_may_leave(self) -> None:
        self.learn()
        for _ in range(3):
            self.see(3.0, 2.0)
        self.now += 1
        decision = self.controller.step(self.now, Rates(self.now, 1.0, ()))
        self.assertEqual((), decision.caps)

    def test_a_limit_is_for_no_other_of_that_name(self) -> None:
        self.learn()
        for _ in range(3):
            self.see(3.0, 2.0)
        self.assertEqual(1, len(self.see(1.0, 0.1)))
        self.hog = dataclasses.replace(HOG, created_s=self.now)
        self.assertEqual([], self.see(1.0, 0.1))

    def test_another_cpu_model(self) -> None:
        """Specs are by CPU model: what was learnt does not hold there."""
        self.learn()
        self.cpu_model = None       # unknown is no other
        self.see(1.0, 0.01)
        state = self.controller.state()
        for model, capped in (('one', True), ('other', False)):
            self.controller = cpi2.Controller(self.params)
            self.controller.load(state, self.now)
            self.cpu_model = model
            found = [self.see(3.0, 2.0) for _ in range(3)]
            self.assertEqual(capped, bool(found[-1]), model)
        self.assertEqual('other', self.controller.state()['cpu_model'])

    def test_state(self) -> None:
        self.learn()
        other = cpi2.Controller(self.params, host='h', boot_id='b')
        other.load(self.controller.state(), self.now)
        self.controller = other
        for hog in (2.0, 2.1, 2.2):
            found = self.see(3.0 + hog, hog)
        self.assertEqual([('hog', Knob.CPU_CORES, 0.1)], found)
        other.load({'signal': 'run_delay'}, self.now)
