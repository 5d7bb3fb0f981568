# SPDX-License-Identifier: Apache-2.0


"""The quota by IPC, sample by sample."""

from __future__ import annotations

import json
import math

import testtools

from scavenger_openstack.algorithms.scavenger.params import Params
from scavenger_openstack.algorithms.scavenger.quota import deviation
from scavenger_openstack.algorithms.scavenger.quota import family_factor
from scavenger_openstack.algorithms.scavenger.quota import judge
from scavenger_openstack.algorithms.scavenger.quota import next_quota
from scavenger_openstack.algorithms.scavenger.quota import Quota
from scavenger_openstack.algorithms.scavenger.quota import Verdict
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

ONE = Workload('/one', Priority.FOREGROUND)
TWO = Workload('/two', Priority.FOREGROUND)
# Five samples around IPC 2: mean 2, squares 4 x 0.04 over 4, sigma 0.2.
LEARN = (1.8, 2.2, 2.0, 1.8, 2.2)


def rate(workload: Workload, ipc: float | None, cores: float | None = 1.0,
         ) -> WorkloadRates:
    return WorkloadRates(workload, 1.0, cpu_cores=cores,
                         cpi=None if ipc is None else 1 / ipc)


class EquationsTest(testtools.TestCase):

    def test_judge_along_the_whole_curve(self) -> None:
        # mu 2, c sigma 0.2: 1.6 | 1.8 | 2.2 | 2.4
        for ipc, wanted in ((0.1, Verdict.MINIMUM), (1.59, Verdict.MINIMUM),
                            (1.61, Verdict.SHRINK), (1.79, Verdict.SHRINK),
                            (1.81, Verdict.GROW), (2.0, Verdict.GROW),
                            (2.19, Verdict.GROW), (2.21, Verdict.HOLD),
                            (2.39, Verdict.HOLD), (2.41, Verdict.MINIMUM),
                            (9.0, Verdict.MINIMUM)):
            self.assertEqual(wanted, judge(ipc, 2.0, 0.2), str(ipc))

    def test_deviation(self) -> None:
        for sigma, wanted in ((0.2, 0.2), (0.0, 0.04), (0.03, 0.04)):
            self.assertAlmostEqual(wanted, deviation(
                2.0, sigma, c=1.0, min_deviation=0.02))

    def test_many_workloads_raise_no_more_false_alarms_than_one(self,
                                                                ) -> None:
        self.assertEqual(1.0, family_factor(1.0, 1, 1))
        self.assertEqual(2.0, family_factor(2.0, 0, 4))
        for c, smoothing in ((0.5, 1), (1.0, 1), (1.0, 5), (2.0, 3)):
            # The normal distribution by the error function.
            one = 0.5 * math.erfc(c * math.sqrt(smoothing / 2))
            before = c
            for workloads in (2, 5, 20, 60):
                each = family_factor(c, workloads, smoothing)
                alarm = 0.5 * math.erfc(each * math.sqrt(smoothing / 2))
                self.assertAlmostEqual(one, 1 - (1 - alarm) ** workloads)
                self.assertGreater(each, before)
                before = each
        self.assertEqual(100.0, family_factor(100.0, 60, 5))

    def test_aimd(self) -> None:
        def after(quota: float, verdict: Verdict) -> float:
            return next_quota(quota, verdict, minimum=0.3, maximum=4.0,
                              increase=0.1, decrease=2.0)
        self.assertAlmostEqual(1.1, after(1.0, Verdict.GROW))
        self.assertEqual(0.5, after(1.0, Verdict.SHRINK))
        self.assertEqual(0.3, after(0.5, Verdict.SHRINK))
        self.assertEqual(1.0, after(1.0, Verdict.HOLD))
        self.assertEqual(0.3, after(4.0, Verdict.MINIMUM))
        self.assertEqual(4.0, after(3.95, Verdict.GROW))
        self.assertEqual(0.3, after(0.1, Verdict.HOLD))
        self.assertEqual(5.0, next_quota(
            1.0, Verdict.GROW, minimum=5.0, maximum=4.0, increase=0.1,
            decrease=2.0))


def made(smoothing: int = 1) -> Quota:
    """A baseline of five samples."""
    return Quota(Params(
        ipc_c=1.0, ipc_min_cores=0.25, ipc_min_deviation=0.02,
        ipc_quota_increase_cores=0.1, ipc_quota_decrease_factor=2.0,
        ipc_smoothing=smoothing, blind_ticks=3), 5)


class QuotaTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.quota = made()

    def see(self, *rates: WorkloadRates) -> float | None:
        self.quota.observe(rates, minimum=0.2, maximum=4.0)
        return self.quota.cores

    def learn(self, *workloads: Workload) -> None:
        # Until the quota was at its minimum for a whole interval, what the
        # background does counts for nothing.
        for ipc in (0.5, 0.7, *LEARN):
            self.assertEqual(0.2, self.see(*(
                rate(workload, ipc) for workload in workloads)))

    def curve(self, wanted: list[float],
              *seen: tuple[WorkloadRates, ...]) -> None:
        for value, rates in zip(wanted, seen, strict=True):
            found = self.see(*rates)
            assert found is not None
            self.assertAlmostEqual(value, found)

    def test_off_without_any_ipc(self) -> None:
        self.assertIsNone(self.see(rate(ONE, None)))
        self.assertFalse(self.quota.active)
        self.assertEqual('off', self.quota.facts()['rule'])
        self.assertIsNone(self.quota.state())

    def test_smoothing(self) -> None:
        quota = self.quota = made(smoothing=4)
        self.learn(ONE)
        # mu 2, sigma 0.2.  Means: 2; 1.8; 1.8; 1.85; 1.8; 1.75.  A mean
        # of n may be 0.2 sqrt(4 / n) off: 0.4, 0.28, 0.23, then 0.2.
        for ipc, wanted in ((2.0, 'GROW'), (1.6, 'GROW'), (1.8, 'GROW'),
                            (2.0, 'GROW'), (1.79, 'SHRINK'),
                            (1.6, 'SHRINK')):
            self.see(rate(ONE, ipc))
            self.assertEqual(wanted, quota.verdict.name, str(ipc))
        # One far out moves the mean by a quarter: beyond 0.4 at once.
        self.see(rate(ONE, 0.8))
        self.assertEqual('MINIMUM', quota.verdict.name)

    def grow(self, ipc: float, used: float | None, ticks: int = 1
             ) -> float | None:
        for _ in range(ticks):
            self.quota.observe([rate(ONE, ipc)], minimum=0.2, maximum=4.0,
                               used=used)
        return self.quota.cores

    def test_what_rests_after_harm_meets_its_last_good_quota(self) -> None:
        self.learn(ONE)
        # Nothing is known against it so far.
        self.assertAlmostEqual(2.2, self.grow(2.0, 0.0, 20) or 0)
        self.assertAlmostEqual(1.1, self.grow(1.7, 2.0) or 0)
        self.assertAlmostEqual(1.1, self.grow(2.0, 0.0, 30) or 0)
        state = json.loads(json.dumps(self.quota.state()))
        self.quota.load(state)
        self.assertAlmostEqual(1.1, self.grow(2.0, 0.0, 3) or 0)
        self.assertAlmostEqual(1.2, self.grow(2.0, 0.9) or 0)
        self.assertAlmostEqual(1.2, self.grow(2.0, 0.9) or 0)

    def test_up_to_what_was_harmless_it_grows_unused(self) -> None:
        self.learn(ONE)
        self.grow(2.0, 4.0, 30)
        # A new phase: the minimum, and 1.6 is half of what was used.
        self.assertEqual(0.2, self.grow(1.0, 3.2, 6))
        self.assertAlmostEqual(1.6, self.grow(1.0, 0.0, 40) or 0)

    def test_the_paper_grows_whatever_is_used(self) -> None:
        self.learn(ONE)
        self.grow(2.0, None, 20)
        self.grow(1.7, None)
        self.assertAlmostEqual(2.1, self.grow(2.0, None, 10) or 0)

    def test_phase_change_relearns_w_samples(self) -> None:
        self.learn(ONE)
        self.curve([0.3, 0.4, 0.5], *((rate(ONE, 2.0),) for _ in range(3)))
        # 3.0 is beyond 2.4: the minimum, and five samples of the new phase
        # when the quota was at its minimum for a whole interval.
        self.curve([0.2] * 7, *((rate(ONE, 3.0),) for _ in range(7)))
        self.assertEqual(1, self.quota.phases)
        self.curve([0.3], (rate(ONE, 3.0),))
        # The old IPC would now be a phase change.
        self.curve([0.2], (rate(ONE, 2.0),))

    def test_a_new_workload_is_learnt_first(self) -> None:
        self.learn(ONE)
        self.curve([0.3], (rate(ONE, 2.0),))
        self.curve([0.2] * 7 + [0.3], *(
            (rate(ONE, 2.0), rate(TWO, 1.0)) for _ in range(8)))

    def test_what_the_background_did_before_is_not_learnt(self) -> None:
        """ONE had half of its IPC until the quota was in force; beside the
        baseline that it has without that, a loss of a tenth is harm."""
        for ipc in (1.0, 1.0, *LEARN, 2.0):
            self.see(rate(ONE, ipc))
        self.assertAlmostEqual(0.3, self.quota.cores or 0)
        for _ in range(20):
            self.see(rate(ONE, 2.0))
        self.see(rate(ONE, 1.75))
        self.assertEqual('SHRINK', self.quota.verdict.name)

    def test_nor_beside_background_that_was_not_limited(self) -> None:
        """A quota that is for one more of the background was not quiet."""
        for ipc, minimum in (*((2.0, 0.2),) * 4, *((1.0, 0.3),) * 2,
                             (4.0, 0.3), (0.5, 0.3)):
            self.quota.observe([rate(ONE, ipc)], minimum=minimum,
                               maximum=4.0)
        state = self.quota.state()
        assert state is not None
        self.assertEqual({'values': [2.0, 2.0, 4.0, 0.5]},
                         state['baselines'][0][4])

    def test_ways_are_part_of_it(self) -> None:
        """Cores at their minimum beside many ways are not quiet."""
        self.learn(ONE)
        self.quota.cores, self.quota.ways = 0.2, 4.0
        self.quota.observe([rate(ONE, 2.0), rate(TWO, 1.0)], minimum=0.2,
                           maximum=4.0, ways=6)
        self.assertEqual(0, (self.quota.state() or {})['quiet'])

    def test_background_that_changes_all_the_time_does_not_end_it(
            self) -> None:
        """As many samples are skipped as are learnt, then all count."""
        for tick in range(10):
            self.quota.observe([rate(ONE, 2.0)], maximum=4.0,
                               minimum=0.2 + 0.1 * (tick % 2))
            self.assertEqual('learning' if tick < 9 else 'holding',
                             self.quota.facts()['rule'])

    def test_it_shrinks_once_for_the_samples_from_before(self) -> None:
        """mu 2, sigma 0.2: after four samples of 1.65 the mean of five is
        below 1.8 for one more, whatever it is."""
        quota = self.quota = made(smoothing=5)
        self.learn(ONE)
        for _ in range(38):
            self.see(rate(ONE, 2.0))
        cores = []
        for ipc in (1.65, 1.65, 1.65, 1.65, 2.0, 2.0, 2.0, 1.65, 1.65, 1.65,
                    1.65):
            self.see(rate(ONE, ipc))
            cores.append(round(quota.cores or 0, 9))
        self.assertEqual([4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.1, 2.2, 2.3,
                          1.15, 1.15], cores)

    def test_below_the_gate_there_is_no_vote(self) -> None:
        self.learn(ONE)
        self.curve([0.3, 0.4, 0.2], *(
            (rate(ONE, 0.1, cores),) for cores in (0.24, 0.0, 0.25)))

    def test_rule_off_for_one_without_ipc(self) -> None:
        self.learn(ONE)
        self.curve([0.3, 0.4], *(
            (rate(ONE, 2.0), rate(TWO, None)) for _ in range(2)))

    def test_garbage_is_missing(self) -> None:
        self.learn(ONE)
        self.curve([0.3], (rate(ONE, 2.0),))
        for cpi in (math.nan, math.inf, -1.0):
            self.curve([0.3], (rate(ONE, 1.0)._replace(cpi=cpi),))

    def test_garbage_from_the_start_is_no_ipc(self) -> None:
        for cpi in (math.nan, math.inf, 0.0, -1.0):
            self.assertIsNone(self.see(rate(ONE, 1.0)._replace(cpi=cpi)))
            self.assertFalse(self.quota.active)

    def test_blind_over_a_restart(self) -> None:
        self.learn(ONE)
        self.curve([0.3, 0.3, 0.3, 0.3], *(
            (rate(ONE, ipc),) for ipc in (2.0, None, None, None)))
        state = json.loads(json.dumps(self.quota.state()))
        self.quota = made()
        self.quota.load(state)
        self.curve([0.2], (rate(ONE, None),))

    def test_ways_go_first(self) -> None:
        """mu 2, sigma 0.2: below 1.8 the background shrinks, below 1.6 a new
        phase begins."""
        quota = self.quota = made()
        moves = []
        for ipc in (2.0, 2.0, *LEARN, 2.0, 2.0, 2.0, 2.3, 1.7, 1.7, 1.7, 1.0):
            quota.observe([rate(ONE, ipc)], minimum=0.2, maximum=4.0, ways=3)
            assert quota.cores is not None
            moves.append((round(quota.cores, 9), quota.ways))
        self.assertEqual(
            [(0.2, 1.0)] * 7                        # it is learnt
            + [(0.3, 2.0), (0.4, 3.0), (0.5, 3.0), (0.5, 3.0),
               (0.5, 1.5), (0.5, 1.0),              # ways are taken
               (0.25, 1.0), (0.2, 1.0)], moves)

    def test_cores_are_taken_where_the_least_ways_are_left(self) -> None:
        self.learn(ONE)
        for _ in range(3):
            self.see(rate(ONE, 2.0))
        cores = []
        for _ in range(2):
            self.quota.observe([rate(ONE, 1.7)], minimum=0.2, maximum=4.0,
                               ways=6)
            cores.append(self.quota.cores)
        self.assertEqual([0.25, 0.2], cores)
        self.assertEqual(1.0, self.quota.ways)

    def test_ways_over_a_restart(self) -> None:
        self.learn(ONE)
        for ways, kept in ((6, 2.0), (None, None)):
            self.quota.observe([rate(ONE, 2.0)], minimum=0.2, maximum=4.0,
                               ways=ways)
            state = json.loads(json.dumps(self.quota.state()))
            other = made()
            other.load(state)
            self.assertEqual(kept, other.ways)

    def test_off_again_when_all_are_gone(self) -> None:
        self.learn(ONE)
        self.see()
        self.assertIsNone(self.see())
