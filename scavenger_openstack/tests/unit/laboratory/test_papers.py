# SPDX-License-Identifier: Apache-2.0

"""The detectors of papers on simulated hosts: what they learn, name and do."""

from __future__ import annotations

from collections.abc import Sequence
import logging
import statistics
from typing import Any

import testtools

from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import compare
from scavenger_openstack.laboratory import papers
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

VMS = [Workload(f'vm{number}', Priority.FOREGROUND, application='spark')
       for number in range(3)]


class ThresholdsTest(testtools.TestCase):

    def ticks(self, values: Sequence[tuple[float, ...]]) -> list[Rates]:
        """Intervals of 5 s: an io_wait per VM in ms, and no cpi."""
        return [Rates(time_s + 1.0, 1.0, tuple(WorkloadRates(
            vm, 1.0, io_wait_s_per_op=wait / 1000, io_ops_per_s=50.0)
            for vm, wait in zip(VMS, values[time_s // 5], strict=True)))
            for time_s in range(5 * len(values))]

    def test_the_peak_while_nothing_disturbs(self) -> None:
        """Section III-C, of the averages of section III-D."""
        values = [(1.0, 1.2, 0.9), (1.0, 2.0, 4.0), (1.1, 1.0, 1.4)]
        smooth = [0.0, 0.0, 0.0]
        deviations = []
        for step, interval in enumerate(values):
            smooth = [value if not step else before + 0.5 * (value - before)
                      for before, value in zip(smooth, interval, strict=True)]
            deviations.append(statistics.pstdev(smooth) / 1000)
        peaks = papers.peaks(self.ticks(values), perfcloud.Params())
        self.assertIsNone(peaks['cpi_threshold'])
        self.assertAlmostEqual(max(deviations),
                               peaks['io_wait_threshold_s'] or 0.0, 12)

    def test_parameters(self) -> None:
        """They are parameters of the controller, with these no contention."""
        ticks = self.ticks([(1.0, 1.2, 0.9), (1.0, 2.0, 60.0)])
        for learnt, incidents in ((False, 1), (True, 0)):
            peaks = papers.peaks(ticks, perfcloud.Params())
            level = peaks['io_wait_threshold_s'] or 0.0
            controller = perfcloud.Controller(perfcloud.Params(
                io_wait_threshold_s=level) if learnt else perfcloud.Params())
            found = [controller.step(one.time_s, one) for one in ticks]
            self.assertEqual(incidents, len(found[-1].incidents))

    def test_nothing_to_learn_from(self) -> None:
        self.assertEqual(dict.fromkeys(papers.PARAMETERS.values()),
                         papers.peaks([], perfcloud.Params()))


class ClosedLoopTest(testtools.TestCase):

    def setUp(self) -> None:
        """A comparison keeps the log quiet, which other tests read."""
        super().setUp()
        logger = logging.getLogger('scavenger_openstack')
        self.addCleanup(logger.setLevel, logger.level)

    def scores(self, scenario: str, seed: int, name: str) -> dict[str, Any]:
        found = compare.record(compare.Task(
            0, catalogue.find([scenario])[0], seed, ('none', name)))
        self.assertGreater(found['scores'][name]['writes'], 0)
        return {key: found['scores'][name][key]
                / found['scores']['none'][key]
                for key in ('p99_ratio', 'mean_ratio')}

    def test_perfcloud(self) -> None:
        """Victims of a disk hog fare better."""
        found = self.scores('disk-antagonist', 3, 'perfcloud')
        self.assertLess(found['p99_ratio'], 0.8)
        self.assertLess(found['mean_ratio'], 0.95)

    def test_cpi2(self) -> None:
        """Those of a hog of the cache do for the 5 minutes of its cap."""
        found = self.scores('cache-antagonist', 0, 'cpi2')
        self.assertLess(found['mean_ratio'], 0.95)

    def test_ticks(self) -> None:
        """To look at a host changes nothing on it."""
        [scenario] = catalogue.find(['disk-antagonist'])
        drawn = scenario.draw(3)._replace(duration_s=150.0)
        ticks: list[Rates] = []
        policy = bench.POLICIES['alone']
        self.assertEqual(bench.run(drawn, policy),
                         bench.run(drawn, policy, ticks=ticks))
        self.assertEqual(150 / drawn.interval_s, len(ticks))
