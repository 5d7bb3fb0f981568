# SPDX-License-Identifier: Apache-2.0


"""The budget of the background's disk operations, sample by sample."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import testtools

from scavenger_openstack.algorithms.perfiso.io_budget import IoBudget
from scavenger_openstack.algorithms.perfiso.io_budget import judge
from scavenger_openstack.algorithms.perfiso.io_budget import patience
from scavenger_openstack.algorithms.perfiso.io_budget import strain
from scavenger_openstack.algorithms.perfiso.io_budget import tolerated
from scavenger_openstack.algorithms.perfiso.io_budget import Vote
from scavenger_openstack.algorithms.perfiso.io_level import FIRST_TICKS
from scavenger_openstack.algorithms.perfiso.io_level import Level
from scavenger_openstack.algorithms.perfiso.io_level import REST_TICKS
from scavenger_openstack.algorithms.perfiso.io_params import Params
from scavenger_openstack.algorithms.perfiso.io_shares import Controller
from scavenger_openstack.algorithms.scavenger.quota import Verdict
from scavenger_openstack.decision.rates import rates
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

ONE = Workload('/one', Priority.FOREGROUND)
TWO = Workload('/two', Priority.FOREGROUND)
SIZE = 4
FLOORS = 20.0
MS = 0.001


TURNS = itertools.count()


def rate(workload: Workload, wait_ms: float | None,
         ops: float | None = 100.0, cores: float | None = None,
         run_delay: float | None = None) -> WorkloadRates:
    """A new measurement: no two of them are the very same number."""
    wait_s = None if wait_ms is None else wait_ms * MS
    return WorkloadRates(
        workload, 1.0, cores, None, run_delay, io_ops_per_s=ops,
        io_wait_s_per_op=wait_s and (
            wait_s * (1 + next(TURNS) % 99 * 1e-14)))


class EquationsTest(testtools.TestCase):

    def test_tolerated(self) -> None:
        for sigma, samples, wanted in (
                (0.0, 4, 0.1), (0.02, 4, 0.1), (0.2, 4, 0.4), (0.0, 1, 0.2),
                (0.2, 1, 0.8), (0.0, 9, 0.1)):
            self.assertAlmostEqual(wanted, tolerated(
                sigma, samples, c=2.0, tolerance=0.1, smoothing=4))

    def test_what_else_is_done_makes_patient(self) -> None:
        for times_s, wanted in (
                ([(0.1, 0.0)], 1.0), ([(0.1, 0.1)], 1.0),
                ([(0.1, 0.3)], 2.0 / 1.5), ([(0.1, 9.9)], 1.5),
                ([(0.1, 0.0), (0.1, 0.6)], 2.0 / 1.5), ([(0.1, None)], 1.0),
                ([(0.1, 9.9), (0.1, None)], 1.0), ([(0.0, 1.0)], 1.0)):
            votes = [Vote(Level(2, 1), 1.0, 1.0, 'a', *times)
                     for times in times_s]
            self.assertAlmostEqual(wanted, patience(votes, 0.15), msg=times_s)

    def test_strain_and_what_it_asks_for(self) -> None:
        for ratios, wanted, verdict in (
                ([1.0], 0.0, Verdict.GROW), ([0.5], -5.0, Verdict.GROW),
                ([1.0, 1.1], 0.5, Verdict.GROW),
                ([1.06], 0.6, Verdict.HOLD), ([1.099], 0.99, Verdict.HOLD),
                ([1.1, 1.12], 1.1, Verdict.SHRINK),
                ([3.0], 20.0, Verdict.SHRINK)):
            found = strain(ratios, 0.1)
            self.assertAlmostEqual(wanted, found)
            # 0.5 itself is in doubt for want of digits.
            self.assertEqual(verdict, judge(found - 1e-9))


class BudgetTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.budget = self.make()

    def make(self, smoothing: int = 1) -> IoBudget:
        return IoBudget(Params(
            wait_tolerance=0.1, wait_smoothing=smoothing,
            increase_share=0.1, decrease_factor=2.0, blind_ticks=3), SIZE)

    def see(self, *rates: WorkloadRates, used: float | None = 1e4,
            quiet: bool = False, binding: bool = True, floors: float = FLOORS,
            most: float = 1e9) -> float | None:
        """By default the background is held, and does a lot in spite."""
        self.budget.observe(next(TURNS), rates, used=used, floors=floors,
                            quiet=quiet, binding=binding, most=most)
        return self.budget.total

    def learn(self, *workloads: Workload, wait_ms: float = 1.0) -> None:
        """The first measurements are of what was before, perhaps."""
        for _ in range(REST_TICKS + SIZE):
            self.assertEqual(FLOORS, self.see(
                *(rate(one, wait_ms) for one in workloads), used=FLOORS,
                quiet=True))
            self.assertEqual('learning', self.budget.rule)

    def learn_again(self) -> None:
        self.budget = self.make()
        self.learn(ONE)

    def curve(self, wanted: list[float], *waits_ms: float) -> None:
        for value, wait_ms in zip(wanted, waits_ms, strict=True):
            total = self.see(rate(ONE, wait_ms))
            assert total is not None
            self.assertAlmostEqual(value, total)

    def test_off_without_any_io_wait(self) -> None:
        self.assertIsNone(self.see(rate(ONE, None)))
        self.assertIsNone(self.see(rate(ONE, 1.0, 4.9)))
        self.assertIsNone(self.see())
        facts = self.budget.facts()
        self.assertEqual('off', facts['rule'])
        self.assertIn('delay accounting', facts['why'])
        self.assertIsNone(self.budget.state())

    def test_grow_hold_shrink(self) -> None:
        self.learn(ONE)
        # By a fifth a tick until it is too much for the first time.
        self.curve([24, 28.8, 34.56, 41.472], 1.0, 1.04, 0.95, 1.0)
        self.curve([41.472] * 2, 1.06, 1.09)
        # Cut to half; then by a tenth of what it was when it was too much,
        # then of what it is; by a fifth when that was harmless.
        self.curve([20.736, *(20.736 + 4.1472 * step
                              for step in range(1, 6)), 45.6192, 50.18112,
                    60.217344, 72.2608128], 1.15, *[1.0] * 9)

    def test_the_more_it_suffers_the_more_is_cut(self) -> None:
        for wait_ms, factor in ((1.101, 2), (1.15, 2), (1.3, 3), (2.0, 10)):
            self.budget = self.make()
            self.learn(ONE)
            self.budget.total = 1000.0
            found = self.see(rate(ONE, wait_ms))
            assert found is not None
            self.assertAlmostEqual(1000 / factor, found)

    def test_cut_from_what_was_done(self) -> None:
        self.learn(ONE)
        self.budget.total = 1000.0
        self.assertEqual(100.0, self.see(rate(ONE, 1.11), used=200.0))
        self.learn_again()
        self.budget.total = 1000.0
        self.assertEqual(500.0, self.see(rate(ONE, 1.11), used=None))

    def test_who_has_enough_gets_no_more(self) -> None:
        self.learn(ONE)
        for _ in range(3):
            self.assertEqual(FLOORS, self.see(rate(ONE, 1.0), binding=False))

    def test_never_above_the_most(self) -> None:
        self.learn(ONE)
        for _ in range(10):
            self.see(rate(ONE, 1.0), most=30.0)
        self.assertEqual(30.0, self.budget.total)
        # The floors are more: the caller opens an incident.
        self.assertEqual(40.0, self.see(rate(ONE, 1.0), most=30.0,
                                        floors=40.0))

    def test_a_disk_that_is_a_small_part_of_the_time_may_be_slower(
            self) -> None:
        """Of each second it waits 0.1 s for the disk."""
        for cores, run_delay, verdict in (
                (None, None, Verdict.SHRINK), (0.01, None, Verdict.SHRINK),
                (0.9, None, Verdict.HOLD), (0.01, 89.0, Verdict.HOLD)):
            self.learn_again()
            self.see(rate(ONE, 1.12, cores=cores, run_delay=run_delay))
            self.assertEqual((cores, verdict), (cores, self.budget.verdict))
        self.learn_again()      # but not by twice as much
        self.see(rate(ONE, 1.2, cores=50.0))
        self.assertEqual(Verdict.SHRINK, self.budget.verdict)

    def test_all_together_are_judged_more_strictly_than_one(self) -> None:
        self.learn(ONE, TWO)
        self.budget.total = 1000.0
        # One is 15 % slower and does a tenth of all: that may be chance.
        self.see(rate(ONE, 1.15, 10.0), rate(TWO, 1.0, 90.0))
        self.assertEqual((Verdict.HOLD, '/one'),
                         (self.budget.verdict, self.budget.by))
        self.see(rate(ONE, 1.15), rate(TWO, 1.15))
        self.assertEqual((Verdict.SHRINK, 'all'),
                         (self.budget.verdict, self.budget.by))
        self.assertEqual(500.0, self.budget.total)
        self.see(rate(ONE, 1.25, 10.0), rate(TWO, 1.0, 90.0))
        self.assertEqual((Verdict.SHRINK, '/one'),
                         (self.budget.verdict, self.budget.by))

    def test_smoothing(self) -> None:
        self.budget = self.make(smoothing=4)
        self.learn(ONE)
        # A mean of n may be 0.1 sqrt(4 / n) off: 0.2, 0.14, 0.115, 0.1.
        for wait_ms, wanted in ((1.0, 'GROW'), (1.2, 'HOLD'), (1.1, 'HOLD'),
                                (1.09, 'HOLD'), (1.05, 'SHRINK')):
            self.see(rate(ONE, wait_ms))
            self.assertEqual(wanted, self.budget.verdict.name, str(wait_ms))
        # What was before the cut is forgotten.
        self.see(rate(ONE, 1.05))
        self.assertEqual('GROW', self.budget.verdict.name)

    def test_a_cut_is_judged_by_a_whole_mean(self) -> None:
        for after, wanted in (
                # A mean of n may be 0.2, 0.14, 0.115 and 0.1 off.
                ([1.3, 1.3, 1.3, 1.3], ['HOLD'] * 3 + ['SHRINK']),
                ([1.3, 1.0, 1.0, 1.0], ['HOLD', 'HOLD', 'HOLD', 'HOLD']),
                ([1.7], ['SHRINK'])):       # that is no noise
            self.budget = self.make(smoothing=4)
            self.learn(ONE)
            self.budget.total = 1000.0
            self.see(rate(ONE, 1.5))
            self.assertEqual('SHRINK', self.budget.verdict.name)
            found = []
            for wait_ms in after:
                self.see(rate(ONE, wait_ms))
                found.append(self.budget.verdict.name)
            self.assertEqual(wanted, found, str(after))

    def test_bursts_of_the_foreground_are_protected_again(self) -> None:
        """After as many samples, whatever rests and restarts are between."""
        self.budget = self.make(smoothing=4)
        self.learn(ONE)
        self.budget.total = 1000.0
        found = []
        for _ in range(5):
            self.see(rate(ONE, 1.5))
            found.append(self.budget.verdict.name)
            self.see(rate(ONE, None, 0.0), binding=False)
            state = json.loads(json.dumps(self.budget.state()))
            self.budget = self.make(smoothing=4)
            self.budget.load(state)
        self.assertEqual(['SHRINK', 'HOLD', 'HOLD', 'HOLD', 'SHRINK'], found)

    def test_no_newcomer_learns_while_the_others_suffer(self) -> None:
        """Whether the total shrinks for that, or has just shrunk."""
        self.budget = self.make(smoothing=4)
        self.learn(ONE)
        self.budget.total = 1000.0
        for wait_ms in (1.5, *[1.3] * 4):
            self.see(rate(ONE, wait_ms), rate(TWO, 2 * wait_ms))
        for left in (1, 1, 1, 0):
            self.see(rate(ONE, 1.0), rate(TWO, 2.0))
            self.assertEqual(left, self.budget.facts()['learning'])

    def test_what_was_before_a_gap_is_forgotten(self) -> None:
        self.budget = self.make(smoothing=4)
        self.learn(ONE)
        for wait_ms in (1.0, 1.0, 1.0):
            self.see(rate(ONE, wait_ms))
        self.see(rate(ONE, None, 0.0))
        self.see(rate(ONE, 1.21))       # 0.2 may one sample be off
        self.assertEqual(('SHRINK', 'all'),
                         (self.budget.verdict.name, self.budget.by))
        # Of one workload alone, while others go on.
        self.budget = self.make(smoothing=4)
        self.learn(ONE, TWO)
        for wait in (1.0, None, 1.41):      # 0.4 may one sample of it be off
            self.see(rate(ONE, wait, 10.0 if wait else 0.0),
                     rate(TWO, 1.0, 1000.0))
        self.assertEqual(('SHRINK', '/one'),
                         (self.budget.verdict.name, self.budget.by))

    def test_the_level_follows_while_the_background_rests(self) -> None:
        self.learn(ONE)
        for _ in range(SIZE):
            self.see(rate(ONE, 3.0, 1000.0), used=FLOORS, quiet=True)
        self.assertEqual(FLOORS, self.budget.total)
        self.see(rate(ONE, 3.1))
        self.assertEqual('GROW', self.budget.verdict.name)

    def test_also_that_of_one_which_waits_now_and_then(self) -> None:
        for workload in (ONE, TWO):     # its best is not known of the other
            self.learn_again()
            for _ in range(2 * FIRST_TICKS + 2 * SIZE):
                self.see(rate(workload, 3.0), used=FLOORS, quiet=True)
                self.see(rate(workload, None, 0.0), used=FLOORS, quiet=True)
            self.see(rate(workload, 3.1))
            self.assertEqual('GROW', self.budget.verdict.name)

    def test_a_level_that_is_too_high_is_lowered(self) -> None:
        self.learn(ONE, wait_ms=2.0)
        self.see(rate(ONE, 1.0))
        # 1 ms is now 5 % below the level, the deviation was 0.
        for above, verdict in ((1.09, 'HOLD'), (1.11, 'SHRINK')):
            self.see(rate(ONE, 1.0 / 0.95 * above))
            self.assertEqual(verdict, self.budget.verdict.name)

    def test_noise_is_tolerated(self) -> None:
        for wait_ms in (1.0, 1.0, 0.8, 1.2, 0.8, 1.2):
            self.see(rate(ONE, wait_ms), used=FLOORS, quiet=True)
        self.see(rate(ONE, 1.2))    # mu 1, sigma 0.23
        self.assertEqual('HOLD', self.budget.verdict.name)
        self.see(rate(ONE, 1.3))
        self.assertEqual('SHRINK', self.budget.verdict.name)

    def test_nothing_is_learnt_while_the_background_works(self) -> None:
        for _ in range(3 * SIZE):
            self.assertEqual(FLOORS, self.see(rate(ONE, 5.0)))
        self.assertEqual('learning', self.budget.rule)
        self.learn(ONE)
        self.curve([24.0], 1.0)

    def test_nor_what_waits_in_the_queue_that_it_left(self) -> None:
        """Else what comes and goes would pass for what is usual, a container
        measured in each tick, and a VM over the last five."""
        for ticks in (1, 5):
            self.learn_again()
            for _ in range(SIZE):
                for wait_ms, quiet in ((9.0, False), (9.0, True),
                                       (1.0, True), (1.0, True)):
                    look = rate(ONE, wait_ms),
                    for _ in range(ticks):
                        self.see(*look, used=0.0, quiet=quiet)
            self.see(rate(ONE, 1.15))
            self.assertEqual('SHRINK', self.budget.verdict.name)

    def test_beside_what_never_rests_for_long_it_is_learnt_later(self) -> None:
        for number in range(1, 5 * SIZE):
            self.see(rate(ONE, 1.0), used=FLOORS, quiet=number % 2 == 0)
            self.assertEqual(number <= 4 * SIZE, (
                self.budget.rule == 'learning'))

    def test_nor_is_a_level_that_is_too_low_kept_for_ever(self) -> None:
        self.learn(ONE)
        for number in range(4 * SIZE * SIZE):
            self.see(rate(ONE, 3.0), used=FLOORS, quiet=number % 2 == 0)
        self.see(rate(ONE, 3.1))
        self.assertEqual('GROW', self.budget.verdict.name)

    def test_a_newcomer_is_learnt_beside_the_others(self) -> None:
        self.learn(ONE)
        self.curve([24.0], 1.0)
        # The disk is 4 % slower than undisturbed; so is its own.
        for _ in range(SIZE):
            self.see(rate(ONE, 1.04), rate(TWO, 2.08))
            self.assertEqual('GROW', self.budget.verdict.name)
        self.see(rate(ONE, 1.04, 10.0), rate(TWO, 2.14, 1000.0))
        self.assertEqual(('HOLD', 'all'),
                         (self.budget.verdict.name, self.budget.by))

    def test_idle_foreground_leaves_the_disk_until_it_comes_back(self,
                                                                 ) -> None:
        self.learn(ONE)
        self.curve([24.0], 1.0)
        for _ in range(50):
            self.see(rate(ONE, None, 0.0))
        self.assertEqual(('', None), (self.budget.by, self.budget.ratio))
        assert self.budget.total is not None
        self.assertGreater(self.budget.total, 1000)
        # What was good when it was last here, and a step.
        self.curve([28.8], 1.0)

    def test_blind_holds_and_then_goes_to_the_floors(self) -> None:
        self.learn(ONE)
        self.curve([24.0, 28.8], 1.0, 1.0)
        for wanted in (28.8, 28.8, 28.8, FLOORS, FLOORS):
            self.assertAlmostEqual(wanted, self.see(rate(ONE, None)) or 0)
        self.assertEqual('blind', self.budget.rule)
        # What was learnt is still there.
        self.curve([24.0, 24.0], 1.0, 1.08)
        # Unknown operations are not idle either.
        for wanted in (24.0, 24.0, 24.0, FLOORS):
            self.assertEqual(wanted, self.see(rate(ONE, None, None)))

    def test_one_who_sees_is_enough(self) -> None:
        self.learn(ONE, TWO)
        for _ in range(6):
            self.see(rate(ONE, None), rate(TWO, 1.0))
            self.assertEqual('holding', self.budget.rule)
        assert self.budget.total is not None
        self.assertGreater(self.budget.total, 30)

    def test_at_its_floors_the_background_may_be_too_much(self) -> None:
        self.learn(ONE)
        # A fifth of all operations are the background's.
        self.assertEqual(10.0, self.see(rate(ONE, 1.5, 80.0), used=20.0,
                                        quiet=True))
        # So it stays until that is judged again; mu is 1.125 now.
        self.budget = self.make(smoothing=4)
        self.learn(ONE)
        for wait_ms in (1.5, 2.0):
            self.assertEqual(10.0, self.see(
                rate(ONE, wait_ms, 80.0), used=20.0, quiet=True))
        self.assertEqual('HOLD', self.budget.verdict.name)
        self.learn_again()
        # A fiftieth: it is another workload's doing.
        self.assertEqual(FLOORS, self.see(rate(ONE, 1.5, 980.0), used=20.0,
                                          quiet=True))
        self.assertEqual('HOLD', self.budget.verdict.name)

    def held(self, look: tuple[WorkloadRates, ...], ticks: int = 4,
             **more: Any) -> None:
        """The same numbers again, which change nothing."""
        total, facts = self.budget.total, self.budget.facts()
        state = json.dumps(self.budget.state())
        for _ in range(ticks):
            self.assertEqual(total, self.see(*look, **more))
            self.assertEqual({**facts, 'verdict': 'hold'},
                             self.budget.facts())
            self.assertEqual(state, json.dumps(self.budget.state()))

    def test_the_same_numbers_again_are_no_news(self) -> None:
        """As of VMs, of which libvirt is asked once in five ticks."""
        self.budget = self.make(smoothing=4)
        for _ in range(REST_TICKS + SIZE):
            look = rate(ONE, 1.0), rate(TWO, 2.0)
            self.see(*look, used=FLOORS, quiet=True)
            for _ in range(4):
                self.see(*look, used=FLOORS, quiet=True)
        self.assertEqual(FLOORS, self.budget.total)
        self.budget.total = 1000.0
        for wait_ms, wanted in ((1.0, 'GROW'), (1.3, 'SHRINK'),
                                (1.0, 'GROW')):
            look = rate(ONE, wait_ms), rate(TWO, 2 * wait_ms)
            self.see(*look)
            self.assertEqual(wanted, self.budget.verdict.name)
            self.held(look)
            self.held(look, quiet=True, used=FLOORS)

    def test_the_same_numbers_again_at_the_floors(self) -> None:
        self.learn(ONE)
        look = rate(ONE, 1.5, 80.0),
        self.assertEqual(10.0, self.see(*look, used=20.0, quiet=True))
        self.held(look, used=20.0, quiet=True)

    def test_learning_takes_as_many_measurements(self) -> None:
        for left in range(REST_TICKS + SIZE, 0, -1):
            look = rate(ONE, 1.0),
            for _ in range(5):
                self.see(*look, used=FLOORS, quiet=True)
                self.assertEqual(int(left > 1),
                                 self.budget.facts()['learning'])

    def test_news_of_others_do_not_count_it_again(self) -> None:
        """A container is measured in each tick, a VM is not."""
        self.learn(ONE, TWO)
        self.budget.total = 1000.0
        vm = rate(TWO, 2.0)
        self.see(rate(ONE, 1.0), vm)
        self.assertEqual('SHRINK', self.budget.verdict.name)
        total = self.budget.total
        for _ in range(4):
            self.assertGreaterEqual(self.see(rate(ONE, 1.0), vm) or 0.0,
                                    total)
        # What is no reason to cut still keeps it from growing.
        vm = rate(TWO, 1.15)
        for _ in range(5):
            self.see(rate(ONE, 1.0, 1e6), vm)
            self.assertEqual(('HOLD', '/two'),
                             (self.budget.verdict.name, self.budget.by))

    def test_nothing_waited_is_measured_each_time(self) -> None:
        for _ in range(REST_TICKS + SIZE):
            self.see(rate(ONE, 0.0), used=FLOORS, quiet=True)
        self.curve([24.0, 28.8], 0.0, 0.0)

    def test_who_left_is_forgotten(self) -> None:
        """But what it waited at its best."""
        self.learn(ONE, wait_ms=2.0)
        self.assertIsNone(self.see())
        self.learn(TWO)
        self.budget.total = 1000.0
        self.see(rate(ONE, 2.0), rate(TWO, 1.0))
        self.assertEqual(Verdict.GROW, self.budget.verdict)
        self.see(rate(ONE, 4.5), rate(TWO, 1.0))
        self.assertEqual(Verdict.SHRINK, self.budget.verdict)

    def test_what_left_has_no_part_in_the_mean_of_what_comes(self) -> None:
        self.budget = self.make(smoothing=4)
        self.learn(ONE)
        self.see(rate(ONE, 1.15))
        self.assertEqual(Verdict.HOLD, self.budget.verdict)
        self.see()
        self.see(rate(ONE, 1.0))        # its best is known
        self.assertEqual(Verdict.GROW, self.budget.verdict)

    def test_a_wait_of_nothing_is_no_level_to_divide_by(self) -> None:
        self.learn(ONE, wait_ms=0.0)
        self.curve([24.0], 0.01)
        self.see(rate(ONE, 0.02))
        self.assertEqual('SHRINK', self.budget.verdict.name)

    def test_state_survives_a_restart(self) -> None:
        self.learn(ONE, TWO)
        for wait_ms in (1.0, 1.0, 1.2, 1.0):
            self.see(rate(ONE, wait_ms), rate(TWO, 1.0))
        before = self.budget
        self.budget = self.make()
        self.budget.load(json.loads(json.dumps(before.state())))
        for wait in (None, 1.05, 1.3, 1.0):
            look = rate(ONE, wait), rate(TWO, wait)
            found = self.see(*look)
            before.observe(next(TURNS), look, used=1e4, floors=FLOORS,
                           quiet=False, binding=True)
            self.assertEqual(before.total, found)
            self.assertEqual(before.facts(), self.budget.facts())

    def test_garbage_is_no_state(self) -> None:
        self.learn(ONE)
        good = self.budget.state()
        assert good is not None
        for wrong in ({}, {**good, 'total': -1}, {**good, 'peak': 'x'},
                      {**good, 'since_cut': -1},
                      {**good, 'proven': math.nan},
                      {**good, 'levels': [[1]]}, {**good, 'levels': 7},
                      {**good, 'last': [None]}):
            self.assertRaises((KeyError, TypeError, ValueError),
                              self.make().load, wrong)


class HostTest(testtools.TestCase):
    """Two databases beside a hog of the disk and a modest batch, on a
    simulated host whose queues nothing here has written down."""

    def play(self, tenants: list[Tenant], *, managed: bool, seconds: int = 400
             ) -> dict[str, Result]:
        host = Simulator(Machine(cpus=16), tenants, seed=1)
        controller, before = Controller(), None
        for _ in range(seconds):
            sample = host.sample()
            decision = controller.step(host.now + 1, rates(before, sample))
            before = sample
            for cap in decision.caps if managed else ():
                host.write(cap.workload, cap.knob, cap.value)
            host.advance(1.0)
            if host.now == 150:
                host.plant.reset_truth()
        return {guest.spec.id: guest.truth.result()
                for guest in host.plant.guests}

    def test_a_hog_of_the_disk(self) -> None:
        databases = [Tenant(id=f'db-{i}', requests_per_s=80, cpu_s=0.004,
                            io_ops=3) for i in range(2)]
        background = [
            Tenant(id='hog', priority=Priority.BACKGROUND, queue_depth=8,
                   threads=0.1),
            Tenant(id='batch', priority=Priority.BACKGROUND,
                   queue_depth=0.05, threads=0.1)]
        alone = self.play(databases, managed=False)
        beside = self.play([*databases, *background], managed=False)
        managed = self.play([*databases, *background], managed=True)
        for db in alone:
            best, worst, ours = (
                results[db].p99_s or 0.0
                for results in (alone, beside, managed))
            self.assertGreater(worst, 1.5 * best)
            self.assertLess(ours, 1.08 * best)
        # What the hog has to leave, the batch can use.
        self.assertGreater(managed['batch'].io_ops_per_s,
                           1.5 * beside['batch'].io_ops_per_s)
        self.assertGreater(managed['hog'].io_ops_per_s, 100)

    def test_services_that_never_rest(self) -> None:
        """Their own load doubles and halves all the time, and the hog was
        there before the agent: what they wait by their own doing is no
        reason to keep the hog at its floor."""
        wave = (Phase(for_s=150.0, level=1.0), Phase(for_s=150.0, level=2.0))
        databases = [Tenant(id=f'db-{i}', requests_per_s=200, cpu_s=0.002,
                            io_ops=3, phases=wave) for i in range(2)]
        hog = Tenant(id='hog', priority=Priority.BACKGROUND, queue_depth=8,
                     threads=0.1)
        alone = self.play(databases, managed=False, seconds=1500)
        managed = self.play([*databases, hog], managed=True, seconds=1500)
        for db, result in alone.items():
            self.assertLess(managed[db].p99_s or math.inf,
                            1.15 * (result.p99_s or 0.0))
        # The disk does 5000 a second, of which they need 1800 on average.
        self.assertGreater(managed['hog'].io_ops_per_s, 200)
