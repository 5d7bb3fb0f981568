# SPDX-License-Identifier: Apache-2.0


"""Deficits and shares by hand, and the controller over whole curves."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

import fixtures
import testtools

from scavenger_openstack.algorithms.perfiso.deficit import deficit
from scavenger_openstack.algorithms.perfiso.deficit import fair_part
from scavenger_openstack.algorithms.perfiso.deficit import parts_of
from scavenger_openstack.algorithms.perfiso.deficit import priority
from scavenger_openstack.algorithms.perfiso import disk_shares
from scavenger_openstack.algorithms.perfiso.io_level import REST_TICKS
from scavenger_openstack.algorithms.perfiso.io_shares import Controller
from scavenger_openstack.algorithms.perfiso.io_shares import Params
from scavenger_openstack.decision.rates import rates as rates_of
from scavenger_openstack.types import Decision
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

OPS = Knob.IO_OPS_PER_S
A = Workload('/batch/a', Priority.BACKGROUND)
B = Workload('/batch/b', Priority.BACKGROUND, vcpus=3.0)
VM = Workload('vm', Priority.FOREGROUND)
SMALL = Params(wait_tolerance=0.1, wait_window_s=4.0, wait_smoothing=1,
               deficit_window_s=2.0)
# Without a foreground the budget is just this.
STATIC = dataclasses.replace(SMALL, max_ops_per_s=800.0)


TURNS = itertools.count()


def use(workload: Workload, ops: float | None) -> WorkloadRates:
    return WorkloadRates(workload, 1.0, io_ops_per_s=ops)


def vm(wait_ms: float | None = 1.0, ops: float | None = 1000.0,
       workload: Workload = VM) -> WorkloadRates:
    """A new measurement: no two of them are the very same number."""
    wait_s = None if wait_ms is None else wait_ms / 1000
    return WorkloadRates(
        workload, 1.0, io_ops_per_s=ops, io_wait_s_per_op=wait_s and (
            wait_s * (1 + next(TURNS) % 99 * 1e-14)))


def caps(decision: Decision) -> dict[str, Any]:
    found = {cap.workload: cap.value for cap in decision.caps}
    assert len(found) == len(decision.caps)
    assert all(cap.knob is OPS for cap in decision.caps)
    return found


def loosening(share: float) -> fixtures.Fixture:
    """Limits rise by this share of the budget per tick."""
    return fixtures.MonkeyPatch(
        'scavenger_openstack.algorithms.perfiso.disk_shares.LOOSEN_SHARE',
        share)


class EquationsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(loosening(1.0))
    """Two ticks; A weighs 1 and does 100, then 300; B weighs 3 and does 300,
    then 100."""

    def test_what_each_is_due(self) -> None:
        self.assertEqual([0.25, 0.75], parts_of([1.0, 3.0]))
        self.assertEqual(100.0, fair_part([0.25, 0.25], [400.0, 400.0]))
        self.assertEqual(300.0, fair_part([0.75, 0.75], [400.0, 400.0]))
        # Weights and what is done may change from tick to tick.
        self.assertEqual(150.0, fair_part([0.25, 1.0], [400.0, 200.0]))

    def test_deficits(self) -> None:
        # Both did 200 on average; of a budget of 800 they are guaranteed
        # 200 and 600, more than the 100 and 300 that they are due.
        self.assertEqual(1.0, deficit(200.0, 200.0, 100.0))
        self.assertAlmostEqual(-1 / 3, deficit(200.0, 600.0, 300.0) or 0)
        # Guaranteed less than due.
        self.assertEqual(3.0, deficit(200.0, 50.0, 100.0))
        self.assertEqual(-1.0, deficit(0.0, 50.0, 100.0))
        self.assertEqual(0.0, deficit(50.0, 50.0, 100.0))
        self.assertIsNone(deficit(0.0, 50.0, 0.0))
        self.assertIsNone(deficit(7.0, 0.0, 10.0))

    def test_priorities(self) -> None:
        for found, wanted in ((None, 1.0), (0.0, 1.0), (1.0, 0.5), (9.0, 0.5),
                              (-1 / 3, 1.5), (-0.5, 2.0), (-1.0, 2.0),
                              (math.inf, 0.5)):
            self.assertAlmostEqual(wanted, priority(found))

    def test_the_whole_example(self) -> None:
        controller = Controller(STATIC)
        controller.step(1.0, Rates(0.0, 1.0, (use(A, 100.0), use(B, 300.0))))
        found = controller.step(2.0, Rates(0.0, 1.0, (
            use(A, 300.0), use(B, 100.0))))
        # Weights 1 / 2 and 3 x 1.5.  Demands 375 and 125 are met, and the
        # other 300 of the budget are shared 1 : 9.
        self.assertEqual({'/batch/a': 405.0, '/batch/b': 395.0}, caps(found))
        self.assertEqual(
            ['disks: max_ops_per_s is set, so 800 operations/s for 2 '
             'workloads; deficit +1.00',
             'disks: max_ops_per_s is set, so 800 operations/s for 2 '
             'workloads; deficit -0.33'],
            [cap.reason for cap in found.caps])


class ControllerTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(loosening(1.0))
        self.use(SMALL)

    def use(self, params: Params) -> None:
        self.controller = Controller(params, host='h', boot_id='b')
        self.now = 0.0

    def step(self, *workloads: WorkloadRates) -> Decision:
        self.now += 1
        return self.controller.step(self.now, Rates(0.0, 1.0, workloads))

    def learn(self, *background: Workload) -> None:
        for _ in range(REST_TICKS + 4):
            found = self.step(vm(), *(use(one, 10.0) for one in background))
            self.assertEqual({one.id: 10.0 for one in background},
                             caps(found))
            self.assertEqual('learning', found.facts['rule'])


class SharesTest(ControllerTest):

    def setUp(self) -> None:
        super().setUp()
        self.use(STATIC)

    def test_by_weight_when_both_want_all(self) -> None:
        for _ in range(9):
            found = self.step(use(A, 200.0), use(B, 600.0))
            self.assertEqual({A.id: 200.0, B.id: 600.0}, caps(found))

    def test_what_one_does_not_want_goes_to_the_other(self) -> None:
        for _ in range(9):
            found = caps(self.step(use(A, 760.0), use(B, 1.0)))
        # B has its floor, and the rest of its part lies ready for it.
        self.assertTrue(A.id in found and found[A.id] >= 700, found)
        self.assertTrue(10 <= found[B.id] <= 100, found)
        self.assertLessEqual(sum(found.values()), 800)

    def test_what_does_none_is_not_limited(self) -> None:
        """But when it begins, and for some seconds after it has ended; what
        never did any loses what it had before that was known."""
        found = self.step(use(A, None), use(B, 5.0))
        self.assertEqual({A.id, B.id}, caps(found).keys())
        more = int(self.controller.params.deficit_window_s) - 1
        for ops, limited in ((0.0, False), (0.9, False), (3.0, True),
                             *[(0.0, True)] * more, (0.0, False)):
            found = self.step(use(A, ops), use(B, 5.0))
            self.assertEqual({A.id, B.id} if limited else {B.id},
                             caps(found).keys())
            self.assertEqual(ops == 0.0 and self.now < 3 or ops == 0.9,
                             (A.id, OPS) in found.removal_reasons)

    def test_what_may_do_some_is_limited(self) -> None:
        self.step(use(A, 0.0), use(B, 5.0))
        self.assertEqual({A.id, B.id}, caps(
            self.step(use(A, None), use(B, 5.0))).keys())
        found = self.step(use(A, 0.0), use(B, 5.0))
        self.assertEqual({B.id}, caps(found).keys())
        self.assertIn((A.id, OPS), found.removal_reasons)

    def test_what_does_nothing_has_no_part(self) -> None:
        """Beside two that compute, the one that reads has it all, and is not
        above what is due to it."""
        idle = [dataclasses.replace(B, id=f'/batch/{i}') for i in range(2)]
        for _ in range(9):
            found = self.step(use(A, 780.0), *(use(one, 0.0) for one in idle))
        self.assertEqual({A.id: 780.0}, caps(found))
        self.assertIn('deficit +0.00', found.caps[0].reason)
        # It has its floor when it begins, and its part soon.
        for wanted in (10.0, 200.0):
            self.assertGreaterEqual(caps(self.step(
                use(A, 400.0), use(idle[0], 400.0), use(idle[1], 0.0))
                )[idle[0].id], wanted)

    def test_who_did_little_comes_first_for_a_while(self) -> None:
        one = dataclasses.replace(A, id='/batch/one')
        for _ in range(9):
            self.step(use(A, 790.0), use(one, 0.0))
        # Now both want all that there is.
        shares = []
        for _ in range(4):
            found = caps(self.step(use(A, 400.0), use(one, 400.0)))
            shares.append(found[one.id])
        # What the other did while this wanted nothing was its due then.
        self.assertEqual([478.0, 400.0, 400.0, 400.0], shares)

    def test_down_at_once_and_up_step_by_step(self) -> None:
        self.useFixture(loosening(0.1))
        for wanted in (90.0, 170.0, 250.0, 330.0):
            found = self.step(use(A, 800.0))
            self.assertEqual({A.id: wanted}, caps(found))
        limits = caps(self.step(use(A, 300.0), use(B, 600.0)))
        self.assertEqual(90.0, limits[B.id])
        self.use(STATIC)
        for _ in range(20):
            self.step(use(A, 800.0))
        before = caps(self.step(use(A, 800.0)))
        limits = caps(self.step(use(A, 800.0), use(B, 800.0)))
        self.assertEqual({A.id: 800.0}, before)
        self.assertLess(limits[A.id], 400.0)

    def test_small_budgets_still_grow(self) -> None:
        low = dataclasses.replace(A, floor={OPS: 1.0})
        self.useFixture(loosening(0.01))
        self.use(dataclasses.replace(STATIC, max_ops_per_s=5.0))
        found = [caps(self.step(use(low, 5.0)))[A.id] for _ in range(6)]
        self.assertEqual([2.0, 3.0, 4.0, 5.0, 5.0, 5.0], found)

    def test_unknown_use_wants_its_part(self) -> None:
        for _ in range(9):
            found = self.step(use(A, None), use(B, 600.0))
            self.assertIsNone(found.facts['used_ops_per_s'])
        # Nothing is due to A as far as is known; B did just what it is due
        # of what is known.
        self.assertEqual(200.0, caps(found)[A.id])
        found = self.step(use(A, None), use(B, None))
        self.assertEqual({A.id, B.id}, caps(found).keys())
        found = self.step(use(A, math.nan), use(B, -1.0))
        self.assertEqual({A.id, B.id}, caps(found).keys())

    def test_no_weight_no_more_than_the_floor(self) -> None:
        none = dataclasses.replace(A, vcpus=0.0)
        for _ in range(9):
            found = caps(self.step(use(none, 500.0), use(B, 500.0)))
        self.assertEqual({A.id: 10.0, B.id: 790.0}, found)
        for _ in range(9):
            found = caps(self.step(use(none, 400.0), use(
                dataclasses.replace(B, vcpus=-1.0), 400.0)))
        self.assertEqual({A.id: 400.0, B.id: 400.0}, found)

    def test_one_workload_has_it_all(self) -> None:
        for ops in (1.0, 5.0, 800.0):
            self.assertEqual({A.id: 800.0}, caps(self.step(use(A, ops))))

    def test_coming_and_going_in_the_middle_of_a_window(self) -> None:
        self.step(use(A, 400.0))
        both = caps(self.step(use(A, 400.0), use(B, None)))
        self.assertEqual({A.id, B.id}, both.keys())
        for _ in range(5):
            both = caps(self.step(use(A, 200.0), use(B, 600.0)))
        self.assertEqual({A.id: 200.0, B.id: 600.0}, both)
        self.assertEqual({A.id: 800.0}, caps(self.step(use(A, 200.0))))
        self.assertEqual({}, caps(self.step()))
        # Made again under the same name: nothing is known of it.
        again = dataclasses.replace(B, created_s=7.0)
        found = self.step(use(again, None))
        self.assertNotIn('deficit', found.caps[0].reason)

    def test_sixty(self) -> None:
        many = [Workload(f'/batch/{i}', Priority.BACKGROUND,
                         vcpus=1.0 + i % 3) for i in range(60)]
        for _ in range(9):
            found = caps(self.step(*(use(one, 30.0) for one in many)))
            self.assertEqual(60, len(found))
            self.assertLessEqual(sum(found.values()), 800)
            self.assertGreaterEqual(min(found.values()), 10)

    def test_floors_that_do_not_fit(self) -> None:
        big = dataclasses.replace(A, floor={OPS: 500.0})
        most = dataclasses.replace(B, floor={OPS: 400.0})
        ids = set()
        for _ in range(3):
            found = self.step(use(big, 1.0), use(most, 900.0))
            self.assertEqual({A.id: 500.0, B.id: 400.0}, caps(found))
            [incident] = found.incidents
            ids.add(incident.id)
            self.assertEqual(
                ('overcommitted', 'foreground', 'io_ops_per_s', 'h', 1.0,
                 900.0, 800.0),
                (incident.cause, incident.victim, incident.signal,
                 incident.host, incident.time_s, incident.value,
                 incident.threshold))
        self.assertEqual(1, len(ids))
        for _ in range(300):
            found = self.step(use(big, 1.0))
        self.assertEqual((), found.incidents)


class ForegroundTest(ControllerTest):

    def test_off_with_a_reason(self) -> None:
        for rates in ((use(A, 900.0),), (use(A, 900.0), vm(None)),
                      (use(A, 900.0), vm(9.0, 4.0))):
            found = self.step(*rates)
            self.assertEqual({}, caps(found))
            self.assertEqual('off', found.facts['rule'])
            self.assertIn('io_wait', found.facts['why'])

    def test_what_background_waits_is_no_signal(self) -> None:
        found = self.step(vm(9.0, workload=A), vm(9.0, workload=B), vm(None))
        self.assertEqual(({}, 'off'), (caps(found), found.facts['rule']))

    def test_the_static_limit_needs_no_signal(self) -> None:
        self.use(STATIC)
        found = self.step(use(A, 900.0), vm(None))
        self.assertEqual({A.id: 800.0}, caps(found))
        self.assertEqual('off', found.facts['rule'])

    def test_learn_grow_and_yield(self) -> None:
        self.learn(A, B)
        before = 20.0
        for _ in range(50):
            limits = caps(self.step(vm(), use(A, before / 4),
                                    use(B, before * 3 / 4)))
            self.assertGreaterEqual(sum(limits.values()), before - 2)
            before = sum(limits.values())
        self.assertGreater(before, 150)
        found = self.step(vm(1.3), use(A, before / 4),
                          use(B, before * 3 / 4))
        self.assertEqual('shrink', found.facts['verdict'])
        # Three times what is tolerated: a third.
        self.assertAlmostEqual(before / 3, sum(caps(found).values()),
                               delta=3)
        self.assertIn('the foreground waits 1.30 x as long as undisturbed',
                      found.caps[0].reason)

    def test_who_can_have_no_more_does_not_ask_for_it(self) -> None:
        none = dataclasses.replace(A, vcpus=0.0)
        self.learn(none, B)
        for _ in range(5):
            found = self.step(vm(), use(none, 10.0), use(B, 1.0))
            self.assertEqual(20.0, found.facts['budget_ops_per_s'])
        self.step(vm(), use(none, 10.0), use(B, 9.0))
        found = self.step(vm(), use(none, 10.0), use(B, 9.0))
        self.assertGreater(found.facts['budget_ops_per_s'], 20.0)

    def test_what_the_kernel_rounds_down_is_no_want_of_less(self) -> None:
        """Of a limit of 19 operations a second, it lets 10 through."""
        self.learn(A)
        limit = 10.0
        for _ in range(40):
            limit = caps(self.step(vm(), use(A, limit - limit % 10)))[A.id]
        self.assertGreater(limit, 100.0)
        for limits, allowed in (((0.5, 9.9), None), ((10.0, 19.0), 10.0),
                                ((20.0, 29.9), 20.0), ((math.inf,), None)):
            for value in limits:
                self.assertEqual(value if allowed is None else allowed,
                                 disk_shares.let_through(value))

    def test_learning_waits_for_quiet(self) -> None:
        for _ in range(9):
            found = self.step(vm(), use(A, 500.0))
            self.assertEqual(('learning', False), (
                found.facts['rule'], found.facts['quiet']))
            self.assertEqual({A.id: 10.0}, caps(found))
        self.assertIn('learning', found.caps[0].reason)
        # Reads and writes, on each of two disks.
        two = dataclasses.replace(A, disks=('vda', 'vdb'))
        found = self.step(vm(), use(two, 40.0)).facts['disks']
        self.assertEqual([('vda', True), ('vdb', True)], [
            (disk, facts['quiet']) for disk, facts in found.items()])
        self.assertFalse(self.step(vm(), use(A, 40.0)).facts['quiet'])
        self.assertFalse(self.step(vm(), use(A, None)).facts['quiet'])

    def test_overcommitted_by_what_the_foreground_feels(self) -> None:
        self.learn(A)
        found = self.step(vm(ops=50.0), use(A, 10.0))
        self.assertEqual((), found.incidents)
        found = self.step(vm(2.0, 50.0), use(A, 10.0))
        [incident] = found.incidents
        self.assertEqual(({A.id: 10.0}, 10.0, 5.0), (
            caps(found), incident.value, incident.threshold))
        # It may be another phase of the foreground: learnt in a window.
        for _ in range(309):
            found = self.step(vm(2.0, 50.0), use(A, 10.0))
        self.assertEqual((), found.incidents)

    def test_no_background(self) -> None:
        for _ in range(5):
            self.assertEqual((), self.step(vm()).caps)
        self.assertEqual({A.id}, caps(self.step(vm(), use(A, 1.0))).keys())

    def test_backward_counters_are_unknown(self) -> None:
        """As the agent sees them: a tick without rates, and on."""
        def host(time_s: float, wait_s: float, ops: int,
                 batch: int) -> HostSample:
            return HostSample('h', 'b', time_s, time_s, (
                WorkloadSample(VM, io_wait_s=wait_s, io_ops=ops),
                WorkloadSample(A, io_ops=batch)))
        before, rules = None, []
        for tick, reset in enumerate([0] * (6 + REST_TICKS) + [7] * 3):
            done = tick - reset
            sample = host(1.0 + tick, done * 0.1 + tick * tick * 1e-9,
                          done * 100, done * 10)
            found = self.controller.step(sample.time_s,
                                         rates_of(before, sample))
            before = sample
            rules.append((found.facts['rule'], found.facts['quiet']))
        self.assertEqual(
            [('off', False)] + [('learning', True)] * (REST_TICKS + 4)
            + [('holding', True), ('holding', False)]
            + [('holding', True)] * 2, rules)

    def test_state(self) -> None:
        self.assertEqual({}, self.controller.state())
        self.learn(A)
        for _ in range(20):
            before = self.step(vm(), use(A, 40.0))
        kept = json.loads(json.dumps(self.controller.state()))
        for changes, rule in (({}, 'holding'), ({'saved_s': 99.0}, 'learning'),
                              ({'saved_s': 'x'}, 'learning'),
                              ({'best_waits': 7}, 'learning'),
                              # What it waited at its best is still known.
                              ({'disks': {'': {'total': 1}}}, 'holding'),
                              ({'disks': 7}, 'holding')):
            controller = Controller(SMALL)
            controller.load({**kept, **changes}, self.now + 1)
            found = controller.step(self.now + 2, Rates(0.0, 1.0, (
                vm(), use(A, 10.0))))
            self.assertEqual(rule, found.facts['rule'])
            if not changes:
                self.assertEqual(before.facts['budget_ops_per_s'],
                                 found.facts['budget_ops_per_s'])

    def restart(self, after_s: float) -> None:
        """Let another agent go on from the state of this one."""
        kept = json.loads(json.dumps(self.controller.state()))
        self.controller = Controller(self.controller.params)
        self.now += after_s
        self.controller.load(kept, self.now)

    def test_a_restart_needs_no_quiet(self) -> None:
        """However long ago: it is known what the foreground waits at best.
        Neither does another of the same application."""
        shop = dataclasses.replace(VM, project='p', application='shop')
        other = dataclasses.replace(shop, id='other')
        for workload in (shop, other):
            for wait_ms, budget in ((1.02, 700.0), (1.3, 700 / 3)):
                self.use(SMALL)
                for _ in range(6):
                    self.step(vm(workload=shop), use(A, 10.0))
                self.restart(3600.0)
                for _ in range(2):
                    found = self.step(vm(wait_ms, workload=workload),
                                      use(A, 700.0))
                    if found.facts['verdict'] == 'shrink':
                        break
                self.assertEqual('holding', found.facts['rule'])
                self.assertAlmostEqual(budget, min(
                    700.0, found.facts['budget_ops_per_s']), delta=1)
        # The best of a day, not longer.
        self.restart(25 * 3600.0)
        found = self.step(vm(workload=shop), use(A, 700.0))
        self.assertEqual('learning', found.facts['rule'])

    def test_background_without_counters_is_learnt_beside(self) -> None:
        """It has its floor, so it does no more than that."""
        rules = [self.step(vm(), use(A, None), use(B, 10.0)).facts['rule']
                 for _ in range(12)]
        ticks = self.controller.params.blind_ticks + REST_TICKS + 4
        self.assertEqual(['learning'] * ticks, rules[:ticks])
        self.assertEqual({'holding'}, set(rules[ticks:]))

    def test_a_foreground_that_reads_nothing(self) -> None:
        """Where it never did, nothing is limited; where it did, the
        background grows until it does again."""
        for _ in range(9):
            found = self.step(vm(None, 0.0), use(A, 900.0))
            self.assertEqual(({}, 'off'), (caps(found), found.facts['rule']))
        self.learn(A)
        for _ in range(60):
            limit = caps(self.step(vm(), use(A, 10.0)))[A.id]
        for _ in range(60):
            idle = caps(self.step(vm(None, 0.0), use(A, 1e4)))[A.id]
        self.assertGreater(idle, 5 * limit)
        self.assertLess(caps(self.step(vm(), use(A, 1e4)))[A.id], 2 * limit)

    def test_time_that_does_not_move_changes_nothing(self) -> None:
        self.learn(A)
        found = self.step(vm(), use(A, 10.0))
        rates = Rates(0.0, 1.0, (vm(9.0), use(A, 900.0)))
        for now in (self.now, self.now - 1, math.nan, math.inf):
            self.assertIs(found, self.controller.step(now, rates))


class DisksTest(ControllerTest):
    """A slow disk 8:0 and a fast one 8:16."""

    SLOW = dataclasses.replace(VM, disks=('8:0',))
    FAST = dataclasses.replace(VM, id='fast', disks=('8:16',))
    ON_SLOW = dataclasses.replace(A, disks=('8:0',))
    ON_FAST = dataclasses.replace(B, disks=('8:16',))

    def see(self, slow_ms: float, fast_ms: float, *background: WorkloadRates
            ) -> Decision:
        return self.step(vm(slow_ms, workload=self.SLOW),
                         vm(fast_ms, workload=self.FAST), *background)

    def learn_both(self, *background: Workload) -> None:
        for _ in range(REST_TICKS + 5):
            self.see(9.0, 0.1, *(use(one, 10.0) for one in background))
        for _ in range(40):
            self.see(9.0, 0.1, *(use(one, 400.0) for one in background))

    def test_the_slow_one_costs_the_other_nothing(self) -> None:
        self.learn_both(self.ON_SLOW, self.ON_FAST)
        before = caps(self.see(9.0, 0.1, use(self.ON_SLOW, 400.0),
                               use(self.ON_FAST, 400.0)))
        found = self.see(20.0, 0.1, use(self.ON_SLOW, 400.0),
                         use(self.ON_FAST, 400.0))
        self.assertLess(caps(found)[A.id], before[A.id] / 2)
        self.assertGreaterEqual(caps(found)[B.id], before[B.id])
        self.assertEqual(('shrink', 'grow'), tuple(
            found.facts['disks'][disk]['verdict'] for disk in ('8:0', '8:16')))
        self.assertIn('disk 8:0: ', found.caps[0].reason)

    def test_what_uses_both_has_the_tighter_limit(self) -> None:
        both = dataclasses.replace(A, disks=('8:0', '8:16'))
        unknown = dataclasses.replace(A, disks=('',))
        for workload in (both, unknown, A):
            for waits in ((20.0, 0.1), (9.0, 1.0)):
                self.use(SMALL)
                self.learn_both(workload, self.ON_FAST)
                before = caps(self.see(9.0, 0.1, use(workload, 400.0),
                                       use(self.ON_FAST, 400.0)))
                found = caps(self.see(*waits, use(workload, 400.0),
                                      use(self.ON_FAST, 400.0)))
                self.assertLess(found[A.id], before[A.id] / 2, workload)

    def test_a_foreground_of_which_the_disks_are_not_known(self) -> None:
        self.learn_both(self.ON_SLOW, self.ON_FAST)
        lost = vm(1.0, workload=dataclasses.replace(VM, id='lost'))
        for _ in range(5):
            self.step(lost, use(self.ON_SLOW, 10.0), use(self.ON_FAST, 10.0))
        found = self.step(lost._replace(io_wait_s_per_op=0.003),
                          use(self.ON_SLOW, 10.0), use(self.ON_FAST, 10.0))
        self.assertEqual({A.id: 10.0, B.id: 10.0}, caps(found))

    def test_a_disk_without_counters_beside_another(self) -> None:
        """The rule is off for it, which the status says, and not the other."""
        for _ in range(9):
            found = self.step(vm(None, workload=self.SLOW),
                              vm(0.1, workload=self.FAST),
                              use(self.ON_SLOW, 900.0), use(self.ON_FAST, 9.0))
        self.assertEqual({B.id}, caps(found).keys())
        self.assertEqual(['off', 'holding'], [
            found.facts['disks'][disk]['rule'] for disk in ('8:0', '8:16')])
        self.assertIn('io_wait', found.facts['disks']['8:0']['why'])

    def test_floors_that_do_not_fit_on_one(self) -> None:
        self.use(dataclasses.replace(SMALL, max_ops_per_s=50.0))
        big = dataclasses.replace(self.ON_SLOW, floor={OPS: 60.0})
        found = self.see(9.0, 0.1, use(big, 60.0), use(self.ON_FAST, 9.0))
        self.assertEqual(['io_ops_per_s 8:0'],
                         [one.signal for one in found.incidents])
