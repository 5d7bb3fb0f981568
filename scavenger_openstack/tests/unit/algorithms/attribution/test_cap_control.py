# SPDX-License-Identifier: Apache-2.0

"""What the detector limits, for how long, and what it learns from that."""

from __future__ import annotations

import dataclasses
import math

from scavenger_openstack.algorithms.attribution import cap_control
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.trial import TrialOutcome
from scavenger_openstack.algorithms.attribution import use as use_
from scavenger_openstack.algorithms.signals import disk_limits
from scavenger_openstack.tests.unit.algorithms.attribution.cap_cases import (
    CapControlTestCase)
from scavenger_openstack.tests.unit.algorithms.attribution.cap_cases import (
    disturbance)
from scavenger_openstack.tests.unit.algorithms.attribution.cap_cases import (
    uses)
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload


class TrialTest(CapControlTestCase):

    def test_what_is_set_together_is_one_trial(self) -> None:
        both = disturbance(named=('hog', 'mate'))
        self.disturbances = [both]
        for _ in range(3):
            self.turn(uses(hog=4.0, mate=2.0), 1.4)
        self.answer(both)
        self.assertTrue(self.cap('hog') < 4 and self.cap('mate') < 2)
        for _ in range(4):
            self.turn(uses(hog=self.cap('hog'), mate=self.cap('mate')), 1.0)
        self.assertEqual((1, 0, 0), (self.held.tally.confirmed,
                                     self.held.tally.refuted,
                                     self.held.tally.unclear))

    def test_the_rest_of_an_antagonist_proves_nothing(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(20):
            self.turn(uses(hog=0.0), 1.0)
        self.assertEqual(0, self.held.tally.confirmed)
        self.assertEqual('open', one.outcome)

    def test_a_trial_waits_while_the_antagonist_rests(self) -> None:
        one = disturbance()
        self.capped(one)
        first, sets = self.cap(), 0
        for _ in range(3):
            self.turn(uses(hog=first), 1.0)     # set within this sample
            self.turn(uses(hog=first), 1.0)
            for rests in range(3 * 2 ** sets + 1):
                self.assertEqual(rests >= 3 * 2 ** sets,
                                 self.cap() == math.inf)
                self.turn(uses(hog=0.0), 1.0)
            self.assertEqual(math.inf, self.cap())
            self.turn(uses(hog=4.0), 1.4)
            self.assertAlmostEqual(first, self.cap())
            sets += 1
            self.assertEqual('open' if sets < 3 else TrialOutcome.CONFIRMED,
                             one.outcome)
        self.assertEqual((1, 0, 0), (self.held.tally.confirmed,
                                     self.held.tally.refuted,
                                     self.held.tally.unclear))

    def at_its_floor(self, *levels: float) -> list[float]:
        """Limits of a hog whose victim has these levels in turn."""
        one = disturbance()
        self.capped(one)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.0)
        limits = []
        for level in levels * 40:
            one.recent.append(level / (1 + one.shift) - 1)
            self.turn(uses(hog=self.cap()), level)
            limits.append(self.cap())
        return limits

    def test_at_its_floor_it_is_not_to_blame_for_what_is_left(self) -> None:
        """It was cut for noise time and again; now it keeps what hurts
        nobody."""
        limits = self.at_its_floor(1.08, 1.03, 1.03)
        self.assertAlmostEqual(0.1, min(limits))
        self.assertGreater(min(limits[-20:]), 0.3)

    def test_of_two_at_their_floors_one_grows_at_a_time(self) -> None:
        both = disturbance(named=('hog', 'mate'))
        self.disturbances = [both]
        for _ in range(3):
            self.turn(uses(hog=4.0, mate=4.0), 1.4)
        self.answer(both)
        for _ in range(4):
            self.turn(uses(hog=self.cap(), mate=self.cap('mate')), 1.0)
        grown = []
        for level in (1.08, 1.03, 1.03) * 16:
            both.recent.append(level / (1 + both.shift) - 1)
            self.turn(uses(hog=self.cap(), mate=self.cap('mate')), level)
            grown.append((self.cap() > 0.15) + (self.cap('mate') > 0.15))
        self.assertEqual({1}, set(grown[6:]))

    def test_at_its_floor_it_stays_while_victims_suffer_much(self) -> None:
        limits = self.at_its_floor(1.2, 1.2, 1.0)
        self.assertAlmostEqual(0.1, min(limits))
        self.assertLess(max(limits[-20:]), 0.15)

    def test_coming_back_is_no_new_cap(self) -> None:
        self.capped(disturbance())
        for _ in range(20):     # within what is one minute to the limit
            began_s = self.now
            while self.cap() < 4:
                self.turn(uses(hog=0.0), 1.0)
            self.now = began_s
            self.turn(uses(hog=4.0), 1.4)
            self.assertTrue(self.cap() < 4)

    def test_a_verdict_is_of_those_at_work(self) -> None:
        both = disturbance(named=('hog', 'mate'))
        self.disturbances = [both]
        for _ in range(3):
            self.turn(uses(hog=4.0, mate=2.0), 1.4)
        self.answer(both)
        for _ in range(4):
            self.turn(uses(hog=self.cap(), mate=0.0), None)
        self.assertEqual(math.inf, self.cap('mate'))
        for _ in range(3):      # the hog is innocent
            self.turn(uses(hog=self.cap(), mate=0.0), 1.4)
        self.assertEqual(TrialOutcome.UNCLEAR, both.outcome)
        self.assertEqual(
            ['hog'], [one[2] for one in self.held.state()['backs_off']])
        self.turn(uses(hog=0.0, mate=2.0), 1.4)
        self.assertEqual(math.inf, self.cap('mate'))    # to be named again
        self.answer(both)
        self.assertTrue(self.cap('mate') < 2)

    def test_who_is_named_again_is_tried_again(self) -> None:
        one = disturbance()
        self.capped(one)
        less = 0.9 * self.cap()
        for _ in range(21):     # so much is work now
            self.turn(uses(hog=0.0), 1.0)
        self.turn(uses(hog=less), 1.4)
        self.assertEqual(math.inf, self.cap())
        self.answer(one)
        self.assertTrue(self.cap() < less)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.0)
        self.assertEqual(1, self.held.tally.confirmed)

    def test_nor_does_a_victim_of_whom_nothing_is_known(self) -> None:
        one = disturbance()
        self.capped(one)
        before = self.cap()
        for _ in range(20):
            self.turn(uses(hog=self.cap()), None)
        self.assertEqual(('open', before), (one.outcome, self.cap()))

    def test_a_trial_ends_with_its_disturbance(self) -> None:
        one, other = disturbance(), disturbance('shop')
        self.capped(one, other)
        self.disturbances = [other]
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.4)
        self.assertEqual('open', one.outcome)
        self.assertEqual(0, self.held.tally.unclear)


class BackOffTest(CapControlTestCase):

    def test_what_one_victim_feigns_does_not_protect_from_another(
            self) -> None:
        feigns, honest = disturbance('feigns'), disturbance('honest')
        self.capped(feigns)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.4)
        self.assertIs(TrialOutcome.UNCLEAR, feigns.outcome)
        self.assertEqual(math.inf, self.cap())
        self.disturbances = [feigns, honest]
        self.turn(uses(hog=4.0), 1.4, 1.4)
        self.answer(feigns)
        self.assertEqual(math.inf, self.cap())
        self.answer(honest)
        self.assertTrue(self.cap() < 4)
        # Nor does the first get into the cap of the second.
        self.answer(feigns)
        self.assertEqual([], self.held.limited(feigns))

    def test_what_did_not_help_after_a_rest_is_not_limited_at_once(
            self) -> None:
        """That it was limited before gives it no other chance."""
        one = disturbance()
        self.capped(one)
        for _ in range(4):      # it rests before anything was proved
            self.turn(uses(hog=0.0), 1.0)
        self.turn(uses(hog=4.0), 1.4)
        self.assertTrue(self.cap() < 4)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.4)
        self.assertIs(TrialOutcome.UNCLEAR, one.outcome)
        for _ in range(20):
            self.turn(uses(hog=4.0), 1.4)
            self.answer(one)
            self.assertEqual(math.inf, self.cap())

    def test_it_is_forgotten_after_twice_the_time(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.4)
        self.assertEqual(1, len(self.held.state()['backs_off']))
        for _ in range(125):
            self.turn(uses(hog=0.1), 1.0)
        self.assertEqual([], self.held.state()['backs_off'])


class GoodTest(CapControlTestCase):
    """What was harmless once need not be harmless now."""

    def good(self) -> Disturbance:
        """Capped, proved harmless, its cap removed because it rests."""
        one = disturbance()
        self.capped(one)
        for _ in range(8):
            self.turn(uses(hog=self.cap()), 1.0)
        for _ in range(4):
            self.turn(uses(hog=0.01), 1.0)
        self.assertEqual(math.inf, self.cap())
        return one

    def test_less_than_was_good_is_left_alone(self) -> None:
        one = self.good()
        for _ in range(3):
            self.turn(uses(hog=0.2), 1.4)
        self.answer(one)
        self.assertEqual(math.inf, self.cap())

    def test_what_comes_back_keeps_its_floor(self) -> None:
        self.good()
        self.turn(uses(hog=4.0), 1.0)
        self.assertTrue(0.1 < self.cap() < 4.0)
        for _ in range(300):
            self.turn(uses(hog=min(4.0, self.cap())), 1.4)
            self.assertGreaterEqual(self.cap(), 0.1)

    def test_it_is_remembered_until_it_is_limited_again(self) -> None:
        self.good()
        self.assertEqual(['hog'], list(self.held.remembered(self.now)))
        self.turn(uses(hog=4.0), 1.0)
        self.assertEqual({}, self.held.remembered(self.now))

    def test_unless_the_evidence_names_it_again(self) -> None:
        one = self.good()
        for _ in range(21):     # so much is work now
            self.turn(uses(hog=0.2), 1.4)
        self.answer(one, ['hog'])
        self.assertTrue(self.cap() <= 0.2)

    def test_what_was_not_proved_protects_nothing(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(5):      # it rests before anything was proved
            self.turn(uses(hog=0.01), 1.0)
        self.assertEqual(math.inf, self.cap())
        for _ in range(21):
            self.turn(uses(hog=0.2), 1.4)
        self.answer(one)
        self.assertTrue(self.cap() <= 0.2)


class FutileTest(CapControlTestCase):

    def test_a_limit_that_moves_moves_what_is_expected(self) -> None:
        one = disturbance(named=('hog', 'mate'))
        for mate, after_cut in ((0.0, 0.7), (4.0, 0.85)):
            self.begin()
            self.disturbances = [one]
            for _ in range(3):
                self.turn(uses(hog=4.0, mate=mate), 1.4)
            self.answer(one)
            for _ in range(4):
                self.turn(uses(hog=self.cap(), mate=min(
                    mate, self.cap('mate'))), 1.0)
            before = self.cap()
            self.turn(uses(hog=before, mate=min(mate, self.cap('mate'))),
                      1.02)
            assert one.excess is not None
            self.assertAlmostEqual(1.2 * before, self.cap())
            self.assertAlmostEqual(1.2 * 0.02, one.excess)
            self.turn(uses(hog=self.cap(), mate=min(
                mate, self.cap('mate'))), 1.4)
            assert one.excess is not None
            self.assertAlmostEqual(after_cut * 0.4, one.excess)

    def test_beside_a_limit_that_is_new_nothing_is_expected(self) -> None:
        one = disturbance(named=('hog', 'mate'))
        self.disturbances = [one]
        for _ in range(3):
            self.turn(uses(hog=4.0, mate=4.0), 1.4)
        self.answer(one)
        for _ in range(4):
            self.turn(uses(hog=self.cap(), mate=self.cap('mate')), 1.0)
        for _ in range(4):
            self.turn(uses(hog=self.cap(), mate=0.01), 1.0)
        before = self.cap()
        self.turn(uses(hog=before, mate=4.0), 1.02)
        self.assertGreater(self.cap(), before)
        self.assertLess(self.cap('mate'), 4.0)
        self.assertIsNone(one.excess)

    def test_who_is_at_his_floor_for_nothing_is_let_go(self) -> None:
        """The level at which the victim suffers is its own from then on."""
        one = disturbance()
        self.capped(one)
        for _ in range(6):
            self.turn(uses(hog=self.cap()), 1.0)
        self.assertIs(TrialOutcome.CONFIRMED, one.outcome)
        at_floor = 0
        for _ in range(120):    # worse, for a reason of its own
            self.turn(uses(hog=min(4.0, self.cap())), 1.4)
            at_floor += self.cap() == 0.1
        self.assertTrue(0 < at_floor < 30, at_floor)
        self.assertGreater(self.cap(), 4.0)
        self.assertAlmostEqual(0.4, one.shift)

    def test_until_it_gets_worse_with_him(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(6):
            self.turn(uses(hog=self.cap()), 1.0)
        used = []
        for _ in range(200):
            used.append(min(4.0, self.cap()))
            self.turn(uses(hog=used[-1]), 1.4 + 0.1 * (used[-1] - 0.1))
        # 0.065 more than 1.4 are tolerated.
        self.assertTrue(0.4 < sum(used[100:]) / 100 < 1.2,
                        sum(used[100:]) / 100)

    def test_but_not_while_it_helps(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(60):
            self.turn(uses(hog=self.cap()), 1.02 + 0.8 * self.cap())
        self.assertEqual(0.1, self.cap())


class UnitsTest(CapControlTestCase):

    def test_reads_and_writes_are_limited_each(self) -> None:
        one = disturbance(signal='io_wait')
        self.disturbances = [one]
        for _ in range(3):
            self.turn(uses(io_hog=100e6), 1.4)
        self.answer(one)
        for _ in range(4):      # twice the limit: once in each direction
            self.turn(uses(io_hog=2 * self.cap(knob=Knob.IO_BYTES_PER_S)),
                      1.0)
        self.assertIs(TrialOutcome.CONFIRMED, one.outcome)

    def test_all_its_limits_together_take_away_what_is_meant(self) -> None:
        """However its operations are spread over directions and disks."""
        for parts, disks in (([1.0], 1), ([0.5] * 2, 1), ([0.25] * 4, 2)):
            self.begin()
            one = disturbance(signal='io_wait')
            one.raised = 1.13
            one.named = {'hog': Ground('hog', GroundKind.DIRECT, share=0.9)}
            self.disturbances = [one]
            outcomes = []
            for turn in range(30):
                cap = self.cap(knob=Knob.IO_BYTES_PER_S)
                used = sum(min(part * 100e6, cap) for part in parts)
                point = uses(io_hog=used)['hog']
                self.turn({'hog': point._replace(
                    workload=dataclasses.replace(
                        point.workload, disks=('8:0', '8:16')[:disks]))},
                    1 + 0.13 * used / 100e6)
                if turn == 2:
                    self.answer(one)
                outcomes.append(one.outcome)
            self.assertEqual(TrialOutcome.CONFIRMED, outcomes[-1], str(parts))
            self.assertNotIn(TrialOutcome.UNCLEAR, outcomes)

    def test_of_a_vm_they_are_limited_together(self) -> None:
        for instance, disks, limits in (
                ('', (), 2), ('', ('8:0',), 2), ('', ('8:0', '8:16'), 4),
                ('uuid', ('8:0', '8:16'), 1)):
            self.assertEqual(limits, disk_limits(Workload(
                'w', Priority.BACKGROUND, instance=instance, disks=disks)))

    def test_a_cap_that_holds_nothing_is_taken_back(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(cap_control.IGNORED_SAMPLES + 1):
            self.assertTrue(self.cap() < 4)
            self.turn(uses(hog=4.0), 1.4)
        self.assertEqual((math.inf, 'open'), (self.cap(), one.outcome))

    def test_an_unknown_use_changes_nothing(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.0)
        before = self.cap()
        for _ in range(10):
            self.turn(uses(hog=None), 1.0)
        self.assertEqual(before, self.cap())
        self.turn(uses(hog=before), 1.0)
        self.assertEqual(1, len(self.held.limited(one)))

    def test_a_use_that_stays_unknown_ends_the_limit(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(cap_control.IGNORED_SAMPLES):
            self.assertTrue(self.cap() < 4)
            self.turn(uses(hog=None), 1.4)
        self.assertEqual((math.inf, 'open'), (self.cap(), one.outcome))


class GoneTest(CapControlTestCase):

    def test_the_use_of_a_knob_is_its_own(self) -> None:
        for one, knob, use in (
                (uses(hog=4.0), Knob.CPU_CORES, 4.0),
                (uses(io_hog=1e6), Knob.IO_BYTES_PER_S, 1e6)):
            self.assertEqual(use, use_.use_of(knob, one['hog']))
        for knob in set(Knob) - set(use_.KNOB_TO_LIMIT.values()):
            self.assertRaises(KeyError, use_.use_of, knob, one['hog'])

    def test_who_is_gone_is_forgotten_altogether(self) -> None:
        one = disturbance()
        self.capped(one)
        for _ in range(4):
            self.turn(uses(hog=self.cap()), 1.4)
        self.held.keep({'hog'})
        self.assertEqual(1, len(self.held.state()['backs_off']))
        self.held.keep({'other'})
        self.assertEqual([], self.held.state()['backs_off'])
        self.assertEqual([], self.held.state()['good'])
