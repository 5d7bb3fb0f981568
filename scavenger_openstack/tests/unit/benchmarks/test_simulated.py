# SPDX-License-Identifier: Apache-2.0

"""What detectors name on simulated hosts, and what their limits do."""

from __future__ import annotations

import functools
import importlib
import pathlib
from typing import Any

import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms import profile_estimate
from scavenger_openstack.algorithms.profile_estimate import Target
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import compare
from scavenger_openstack.simulator import scenario
from scavenger_openstack.tests.unit.benchmarks import scripts
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

FOLDER = pathlib.Path(__file__).parents[4] / 'benchmarks/simulated'

SEEDS = (1, 2, 3)

TEXT = """
schema: 1
duration_s: 420
machine: {cpus: 4}
tenants:
  - {id: web, count: 2, application: shop, role: victim, vcpus: 2,
     cores: 0.9, cpu_s: 0.01}
  - id: hog
    priority: background
    role: antagonist
    vcpus: 4
    threads: 6
    weight: 4
    phases: [{shape: bursts, period_s: 40, share: 0.5, level: 1, low: 0.02}]
"""


class Simulated(testtools.TestCase):

    detection: Any
    capped_runs: Any

    def setUp(self) -> None:
        super().setUp()
        scripts.use(self, FOLDER)
        self.detection = importlib.import_module('detection')
        self.capped_runs = importlib.import_module('capped_runs')


@functools.cache
def record(name: str, seed: int) -> dict[str, Any]:
    detection = importlib.import_module('detection')
    return detection.record(
        detection.Task(*catalogue.find([name]), seed=seed))


def rights(scenario: str, seed: int, name: str) -> list[bool]:
    return [pair[-1] for pair in record(scenario, seed)['named'][name]]


class NamesTest(Simulated):

    def test_rows(self) -> None:
        found = record('disk-antagonist', 3)
        self.assertEqual(set(self.detection.CONTROLLERS), set(found['named']))
        self.assertEqual(set(self.detection.CONTROLLERS), set(found['caps']))

    def test_perfcloud_with_what_it_learnt(self) -> None:
        """The thresholds of the paper's machines are above all that this
        disk shows."""
        self.assertIn(True, rights('disk-antagonist', 3, 'perfcloud'))
        self.assertEqual(
            [], rights('disk-antagonist', 3, 'perfcloud-constants'))

    def test_cpi2_is_of_cpi_alone(self) -> None:
        """A service that disturbs itself, case 3 of the paper, is no victim
        by it; the same rule by waits, not in the paper, names innocents."""
        self.assertEqual([], rights('disk-antagonist', 3, 'cpi2'))
        self.assertIn(False, rights('disk-antagonist', 3, 'cpi2-run_delay'))
        self.assertIn(True, rights('disk-antagonist', 3, 'cpi2-io_wait'))
        self.assertEqual([], rights('self-inflicted', 1, 'cpi2'))

    def test_the_curve(self) -> None:
        found = record('cache-antagonist', 3)
        scores = [pair[2] for pair in found['suspected']]
        self.assertTrue(scores)
        # It is named from the threshold of the paper on, and not below.
        least = cpi2.Params().correlation_threshold
        self.assertEqual({tuple(pair[:2]) for pair in found['suspected']
                          if pair[2] >= least},
                         {tuple(pair[:2]) for pair in found['named']['cpi2']})
        self.assertGreaterEqual(min(scores), self.detection.LEAST_SCORE)

    def test_precision_and_recall_over_the_threshold(self) -> None:
        detectors = importlib.import_module('detectors')
        records = [
            {'victims': {'web': 0.5, 'db': 0.1}, 'antagonists': ['hog'],
             'suspected': [['web', 'hog', 0.4, True],
                           ['web', 'calm', 0.2, False]]},
            {'victims': {'web': 0.3}, 'antagonists': ['hog'],
             'suspected': [['web', 'hog', 0.15, True]]}]
        for threshold, precision, recall in (
                (0.1, (2, 3), (2, 2)), (0.2, (1, 2), (1, 2)),
                (0.35, (1, 1), (1, 2)), (0.5, (0, 0), (0, 2))):
            self.assertEqual((precision, recall),
                             detectors.curve(records, threshold))


class EstimateTest(Simulated):

    def test_the_antagonist_causes_most(self) -> None:
        """And what else runs there is not blamed for it."""
        [drawable] = catalogue.find(['cpu-antagonist'])
        found: dict[str, profile_estimate.Incident] = {}
        for seed in SEEDS:
            drawn = drawable.draw(seed)
            roles = {tenant.id: tenant.role if
                     tenant.role == self.detection.ANTAGONIST
                     else str(tenant.priority) for tenant in drawn.tenants}
            detector = attribution.Controller(
                interval_s=drawn.interval_s, host=f'host-{seed}')
            run = self.detection.play(drawn, drawn.tenants, detector)
            for decision in run.decisions:
                for incident in decision.incidents:
                    found[incident.id] = profile_estimate.Incident(
                        incident.cause, incident.victim, incident.signal,
                        incident.value, incident.threshold, incident.grounds,
                        (), {}, {name: [Target('application', role, '')]
                                 for name, role in roles.items()}, seed)
        self.assertGreaterEqual(len(found), profile_estimate.ENOUGH)
        caused = {target.target: estimated.profile.caused['integer']
                  for target, estimated in profile_estimate.estimate(
                      found.values()).items()
                  if 'integer' in estimated.profile.caused}
        antagonist = caused.pop(self.detection.ANTAGONIST)
        self.assertGreater(antagonist.value, 0.1)
        for estimate in caused.values():
            self.assertGreater(antagonist.value, estimate.value)


class RecordTest(Simulated):

    def judged(self, text: str) -> dict[str, object]:
        return self.capped_runs.record(self.detection.Task(
            scenario.Scenario(text, 'small.yaml'), 1))

    def test_ours_lies_between_no_cap_and_the_hard_one(self) -> None:
        judged = self.judged(TEXT)
        slower, work = judged['slower'], judged['work']
        assert isinstance(slower, dict) and isinstance(work, dict)
        self.assertGreaterEqual(slower['none'], self.detection.VICTIM)
        self.assertLess(slower['ours'], slower['none'] / 2)
        self.assertEqual(1.0, work['none'])
        self.assertLess(work['hard'], work['static'])
        self.assertTrue(work['hard'] < work['ours'] < 1, str(work))

    def test_nothing_suffers(self) -> None:
        judged = self.judged(TEXT.replace('threads: 6', 'threads: 1'
                                         ).replace('weight: 4',
                                                   'weight: 0.1'))
        self.assertEqual({'scenario': 'small', 'seed': 1}, judged)


class BackTest(Simulated):

    def played(self, **series: list[float]) -> Any:
        """One value a second, from 1 s on."""
        return self.capped_runs.Played({}, {
            name: [(float(at), value) for at, value in enumerate(values, 1)]
            for name, values in series.items()}, [], [])

    def back(self, *ours: float) -> float | None:
        count = len(ours)
        return self.capped_runs.back_s(
            self.played(web=[1.0] * 5 * count), self.played(web=[
                value for value in ours for _ in range(5)]), ['web'], 0.0)

    def test_three_samples_in_a_row(self) -> None:
        self.assertEqual(0.0, self.back(1.0, 1.1, 1.0))
        self.assertEqual(10.0, self.back(1.0, 1.2, 1.0, 1.0, 1.0))
        self.assertIsNone(self.back(1.0, 1.0, 1.2, 1.0, 1.0))

    def test_only_after_the_first_cap(self) -> None:
        self.assertEqual(0.0, self.capped_runs.back_s(
            self.played(web=[1.0] * 25),
            self.played(web=[2.0] * 10 + [1.0] * 15), ['web'], 10.0))


class ConstantTest(Simulated):

    def test_from_then_on_for_those_who_are_there(self) -> None:
        key, gone = ('hog', Knob.CPU_CORES), ('gone', Knob.CPU_CORES)
        step = self.capped_runs.constant({key: 1.5, gone: 1.0}, 10.0)
        rates = Rates(0.0, 1.0, (WorkloadRates(
            Workload('hog', Priority.BACKGROUND), 1.0),))
        self.assertEqual([({}, ()), ({key: 1.5}, ())],
                         [step(9.0, rates), step(10.0, rates)])
        low, _ = self.capped_runs.constant({key: 0.001}, 0.0)(0.0, rates)
        self.assertEqual(bench.FLOORS[Knob.CPU_CORES], low[key])


class ScoreboardTest(testtools.TestCase):

    def test_what_is_played_to_estimate_the_rest(self) -> None:
        """No task twice, also where a scenario has one seed."""
        scripts.use(self, FOLDER)
        scoreboard = importlib.import_module('scoreboard')
        [cpu] = catalogue.find(['cpu-antagonist'])
        tasks = [compare.Task(0, cpu, seed, ('none',)) for seed in range(4)]
        for seeds, played in ((1, [0]), (2, [0, 1]), (4, [0, 3])):
            self.assertEqual(played, [
                task.seed for task in scoreboard.ends(tasks[:seeds])])
