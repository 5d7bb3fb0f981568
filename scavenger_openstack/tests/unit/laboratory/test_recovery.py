# SPDX-License-Identifier: Apache-2.0



"""What caps do to victims and antagonists."""

from __future__ import annotations

import testtools

from scavenger_openstack.laboratory import detection
from scavenger_openstack.laboratory import recovery
from scavenger_openstack.simulator import scenario
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

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


def played(**series: list[float]) -> recovery.Played:
    """One value a second, from 1 s on."""
    return recovery.Played({}, {
        name: [(float(at), value) for at, value in enumerate(values, 1)]
        for name, values in series.items()}, [], [])


class RecordTest(testtools.TestCase):

    def record(self, text: str) -> dict[str, object]:
        return recovery.record(detection.Task(
            scenario.Scenario(text, 'small.yaml'), 1))

    def test_ours_lies_between_no_cap_and_the_hard_one(self) -> None:
        found = self.record(TEXT)
        slower, work = found['slower'], found['work']
        assert isinstance(slower, dict) and isinstance(work, dict)
        self.assertGreaterEqual(slower['none'], detection.VICTIM)
        self.assertLess(slower['ours'], slower['none'] / 2)
        self.assertEqual(1.0, work['none'])
        self.assertLess(work['hard'], work['static'])
        self.assertTrue(work['hard'] < work['ours'] < 1, str(work))

    def test_nothing_suffers(self) -> None:
        found = self.record(TEXT.replace('threads: 6', 'threads: 1'
                                         ).replace('weight: 4',
                                                   'weight: 0.1'))
        self.assertEqual({'scenario': 'small', 'seed': 1, 'late': False},
                         found)


class BackTest(testtools.TestCase):

    def back(self, *ours: float) -> float | None:
        count = len(ours)
        return recovery.back_s(
            played(web=[1.0] * 5 * count), played(web=[
                value for value in ours for _ in range(5)]), ['web'], 0.0)

    def test_three_samples_in_a_row(self) -> None:
        self.assertEqual(0.0, self.back(1.0, 1.1, 1.0))
        self.assertEqual(10.0, self.back(1.0, 1.2, 1.0, 1.0, 1.0))
        self.assertIsNone(self.back(1.0, 1.0, 1.2, 1.0, 1.0))

    def test_only_after_the_first_cap(self) -> None:
        self.assertEqual(0.0, recovery.back_s(
            played(web=[1.0] * 25), played(web=[2.0] * 10 + [1.0] * 15),
            ['web'], 10.0))


class ConstantTest(testtools.TestCase):

    def test_from_then_on_for_those_who_are_there(self) -> None:
        key, gone = ('hog', Knob.CPU_CORES), ('gone', Knob.CPU_CORES)
        step = recovery.constant({key: 1.5, gone: 1.0}, 10.0)
        rates = Rates(0.0, 1.0, (WorkloadRates(
            Workload('hog', Priority.BACKGROUND), 1.0),))
        self.assertEqual([({}, ()), ({key: 1.5}, ())],
                         [step(9.0, rates), step(10.0, rates)])
        low, _ = recovery.constant({key: 0.001}, 0.0)(0.0, rates)
        self.assertEqual(recovery.bench.FLOORS[Knob.CPU_CORES], low[key])
