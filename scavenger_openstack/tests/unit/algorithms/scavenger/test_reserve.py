# SPDX-License-Identifier: Apache-2.0


"""The reserve of memory and network, sample by sample."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import testtools

from scavenger_openstack.algorithms.scavenger.members import Members
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PAPER
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PEAK
from scavenger_openstack.algorithms.scavenger.params import RESERVE_RULES
from scavenger_openstack.algorithms.scavenger.reserve import headroom
from scavenger_openstack.algorithms.scavenger.reserve import is_low
from scavenger_openstack.algorithms.scavenger.reserve import reason
from scavenger_openstack.algorithms.scavenger.reserve import Reserve
from scavenger_openstack.algorithms.scavenger.reserve import Resource

CAPACITY = 1000.0
ONE = ('/one', 1.0)
TWO = ('/two', 1.0)


def reserve(c: float = 2.0, size: int = 4) -> Reserve:
    return Reserve(c=c, size=size, min_headroom=0.02)


def resource(size: int = 4, blind_ticks: int = 3,
             rule: str = RESERVE_PAPER) -> Resource:
    return Resource(c=2.0, size=size, min_headroom=0.02, rule=rule,
                    peak_size=9, blind_ticks=blind_ticks)


class EquationsTest(testtools.TestCase):

    def test_headroom(self) -> None:
        # 2 x 15 is more than 2 % of 1000; 2 x 5 and 0 are less.
        for sigma, wanted in ((15.0, 30.0), (5.0, 20.0), (0.0, 20.0)):
            self.assertEqual(wanted, headroom(
                sigma, CAPACITY, c=2.0, min_headroom=0.02))

    def test_low(self) -> None:
        self.assertFalse(is_low(80.0, 100.0, 10.0, c=2.0))
        self.assertTrue(is_low(79.9, 100.0, 10.0, c=2.0))


class ReserveTest(testtools.TestCase):

    def test_learning(self) -> None:
        rule = reserve()
        for x in (100, 140, 100):
            rule.observe(x, CAPACITY)
            self.assertTrue(rule.learning)
            self.assertIsNone(rule.mu)
        rule.observe(140, CAPACITY)
        # mean 120, squares 4 x 400 over 3
        self.assertFalse(rule.learning)
        self.assertEqual(120, rule.mu)
        self.assertAlmostEqual(math.sqrt(1600 / 3), rule.sigma or 0.0)
        self.assertAlmostEqual(2 * math.sqrt(1600 / 3),
                               rule.headroom(CAPACITY))

    def test_never_below_nothing(self) -> None:
        # What leaves was measured at more than the sum has shown.
        rule = reserve(c=0.0)
        for x in (100, 100, 100):
            rule.observe(x, CAPACITY)
        rule.shift(-500)
        rule.observe(10, CAPACITY)
        # The samples' mean is -297.5: mu 0, headroom 20.
        self.assertEqual((0, 20), (rule.mu, rule.headroom(CAPACITY)))

    def test_the_last_sample_of_a_model_may_violate_it(self) -> None:
        rule = reserve(c=1.0)
        for x in (0, 0, 0):
            self.assertFalse(rule.observe(x, CAPACITY))
        # Mean 100, deviation 200: 400 is above 300.
        self.assertTrue(rule.observe(400, CAPACITY))
        self.assertEqual((400, 1), (rule.mu, rule.violations))
        self.assertEqual(200, rule.sigma)

    def test_violations_over_c(self) -> None:
        for seed in range(20):
            dice = random.Random(seed)
            curve = [max(0, dice.gauss(200, 40)) for _ in range(200)]
            counts = []
            for c in (0.0, 0.5, 1.0, 2.0, 3.0, 6.0):
                rule = reserve(c=c, size=10)
                for x in curve:
                    rule.observe(x, CAPACITY)
                counts.append(rule.violations)
            self.assertEqual(max(counts), counts[0])
            self.assertEqual(0, counts[-1])


    def test_recent_sigma(self) -> None:
        """It follows the samples; mu does not."""
        rule = Reserve(c=2.0, size=4, min_headroom=0.0,
                       rule='paper_recent_sigma')
        for x in (100, 140, 100, 140, 120, 120, 120, 120):
            rule.observe(x, CAPACITY)
        self.assertEqual((120, 0), (rule.mu, rule.sigma))
        # What is above what was kept before it, is a violation.
        self.assertTrue(rule.observe(121, CAPACITY))
        self.assertEqual((121, 0.5), (rule.mu, rule.sigma))


class LockUpTest(testtools.TestCase):
    """A link that is idle for ten hours after a minute with bursts."""

    def test_each_rule(self) -> None:
        # Bursts of 800 in 20 of 60 s: mu 267, sigma 380, mu - 2 sigma < 0.
        curve = ([800.0] * 5 + [0.0] * 10) * 4 + [0.0] * 36000
        uppers = {}
        for name in RESERVE_RULES:
            rule = Reserve(c=2.0, size=60, min_headroom=0.02, rule=name,
                           peak_size=3600)
            for x in curve:
                rule.observe(x, CAPACITY)
            uppers[name] = rule.upper(CAPACITY)
        self.assertGreater(uppers.pop(RESERVE_PAPER) or 0.0, CAPACITY)
        self.assertEqual({RESERVE_PEAK: 20.0, 'paper_recent_sigma': 20.0},
                         uppers)


class MembersTest(testtools.TestCase):

    def test_present_at_the_first_look(self) -> None:
        members = Members(4)
        self.assertEqual((0, 0, 0), members.update([(ONE, 10.0, 99.0)]))

    def test_newcomer_is_promised_its_allotment(self) -> None:
        members = Members(3)
        members.update([])
        for _ in range(2):
            self.assertEqual((10, 99, 0), members.update([(ONE, 10.0, 99.0)]))
        # The third sample: now it is part of the sum.
        self.assertEqual((0, 0, 10), members.update([(ONE, 10.0, 99.0)]))
        self.assertEqual((0, 0, 0), members.update([(ONE, 10.0, 99.0)]))

    def test_without_allotment_twice_its_use(self) -> None:
        members = Members(4)
        members.update([])
        self.assertEqual((10, 20, 0), members.update([(ONE, 10.0, None)]))
        self.assertEqual((30, 60, 0), members.update([(ONE, 30.0, None)]))
        self.assertEqual((5, 60, 0), members.update([(ONE, 5.0, None)]))

    def test_an_allotment_that_is_no_number(self) -> None:
        for bad in (math.nan, math.inf):
            members = Members(4)
            members.update([])
            self.assertEqual((10, 20, 0), members.update([(ONE, 10.0, bad)]))

    def test_departure(self) -> None:
        members = Members(3)
        members.update([(ONE, 10.0, None), (TWO, 7.0, None)])
        self.assertEqual((0, 0, -10), members.update([(TWO, 7.0, None)]))
        # A newcomer that leaves was never part of the sum.
        members.update([(TWO, 7.0, None), (ONE, 10.0, None)])
        self.assertEqual((0, 0, 0), members.update([(TWO, 7.0, None)]))

    def test_departure_by_the_weighted_mean(self) -> None:
        members = Members(3)
        members.update([(ONE, 10.0, None)])
        members.update([(ONE, 30.0, None)])
        # alpha = 2 / (3 + 1): 10 + (30 - 10) / 2
        self.assertEqual((0, 0, -20), members.update([]))

    def test_made_again_under_its_id(self) -> None:
        members = Members(3)
        members.update([(ONE, 10.0, 99.0)])
        self.assertEqual((5, 40, -10),
                         members.update([(('/one', 2.0), 5.0, 40.0)]))


class ResourceTest(testtools.TestCase):

    def feed(self, found: Resource, *xs: float | None) -> None:
        for x in xs:
            found.observe(x, CAPACITY, ())

    def test_off_where_nothing_is_known(self) -> None:
        found = resource()
        self.feed(found, None, math.nan, None, None, None)
        self.assertEqual('off', found.rule)
        self.assertEqual({'rule': 'off', 'why': 'not measurable here'},
                         found.facts())
        for capacity in (0.0, -1.0, math.nan, math.inf, None):
            found.observe(1.0, capacity, ())
        self.assertEqual('off', found.rule)

    def test_budget(self) -> None:
        found = resource()
        self.feed(found, 100, 140, 100)
        # Learning: what is used now, and 2 % of 1000.
        self.assertEqual(('learning', 120, 880),
                         (found.rule, found.reserved(), found.budget()))
        self.feed(found, 140)
        upper = 120 + 2 * math.sqrt(1600 / 3)
        self.assertEqual('holding', found.rule)
        self.assertAlmostEqual(upper, found.reserved())
        self.assertAlmostEqual(1000 - upper, found.budget())
        self.feed(found, 990)
        self.assertEqual(0, found.budget())

    def test_newcomer(self) -> None:
        found = resource()
        for _ in range(4):
            found.observe(100.0, CAPACITY, [(ONE, 100.0, None)])
        # It uses 50 and may come to use 300: 100 + 20 + 300 are kept, and
        # what it uses is no violation.
        for _ in range(3):
            self.assertFalse(found.observe(
                150.0, CAPACITY, [(ONE, 100.0, None), (TWO, 50.0, 300.0)]))
            self.assertEqual((420, 150), (found.reserved(), found.x))
        found.observe(150.0, CAPACITY,
                      [(ONE, 100.0, None), (TWO, 50.0, 300.0)])
        self.assertEqual((170, 150), (found.reserved(), found.reserve.mu))
        # And when it goes, so does its part.
        found.observe(100.0, CAPACITY, [(ONE, 100.0, None)])
        self.assertEqual((120, 100), (found.reserved(), found.reserve.mu))
        self.assertEqual(0, found.reserve.violations)

    def test_highest_use(self) -> None:
        found = resource(rule=RESERVE_PEAK)
        self.feed(found, 100, 140, 100, 120)
        self.assertEqual((160, 840), (found.reserved(), found.budget()))
        self.feed(found, 300)
        self.assertEqual((320, 1), (found.reserved(),
                                    found.reserve.violations))
        # It counts for nine samples more, one of them missing.
        self.feed(found, *[100] * 4, None, *[100] * 4)
        self.assertEqual(320, found.reserved())
        self.feed(found, 100)
        self.assertEqual(120, found.reserved())

    def test_newcomer_and_the_highest_use(self) -> None:
        """What is new is kept by itself, and part of all of it later."""
        found = resource(rule=RESERVE_PEAK)
        for x in (100.0, 160.0, 100.0, 100.0):
            found.observe(x, CAPACITY, [(ONE, 100.0, None)])
        for _ in range(3):
            found.observe(150.0, CAPACITY,
                          [(ONE, 100.0, None), (TWO, 50.0, 300.0)])
            self.assertEqual(160 + 20 + 300, found.reserved())
        found.observe(150.0, CAPACITY,
                      [(ONE, 100.0, None), (TWO, 50.0, 300.0)])
        self.assertEqual(210 + 20, found.reserved())
        found.observe(100.0, CAPACITY, [(ONE, 100.0, None)])
        self.assertEqual(160 + 20, found.reserved())
        self.assertEqual(0, found.reserve.violations)

    def test_doubt(self) -> None:
        found = resource()
        self.feed(found, 100, 100, 100, 100)
        # In range: a sample like any other.
        found.observe(110.0, CAPACITY, (), certain=False)
        self.assertEqual(0, found.reserve.violations)
        # Above: held back three times, then it counts.
        answers = [found.observe(500.0, CAPACITY, (), certain=False)
                   for _ in range(4)]
        self.assertEqual([False, False, False, True], answers)
        self.assertEqual(500, found.reserve.mu)

    def test_doubt_teaches_nothing(self) -> None:
        found = resource()
        for _ in range(3):
            found.observe(500.0, CAPACITY, (), certain=False)
        self.assertEqual(0, len(found.reserve.window))

    def test_state_without_a_signal(self) -> None:
        found = resource()
        self.feed(found, 100, 100, 100, 100)
        found.observe(150.0, CAPACITY, [(ONE, 50.0, 300.0)])
        self.feed(found, None, None)
        other = resource()
        other.load(json.loads(json.dumps(found.state())))
        # 100 + 20 + 300 are kept, also before the next signal comes.
        self.assertEqual((420, 420), (found.reserved(), other.reserved()))
        self.feed(other, None)
        self.assertEqual('holding', other.rule)
        self.feed(other, None)
        self.assertEqual('blind', other.rule)

    def test_garbage_state(self) -> None:
        good: dict[str, Any] = json.loads(json.dumps(
            self._learnt().state()))
        for path, value in (
                (('x',), None), (('capacity',), 'x'), (('members',), [[1]]),
                (('reserve', 'mu'), math.nan), (('reserve', 'sigma'), None),
                (('reserve', 'window'), {}), (('reserve', 'peaks'), {}),
                (('reserve', 'peaks', 'largest'), 7),
                (('reserve', 'peaks', 'largest'), [math.inf]),
                (('reserve', 'peaks', 'filled'), -1),
                (('reserve', 'violations'), -1)):
            state = json.loads(json.dumps(good))
            place = state
            for name in path[:-1]:
                place = place[name]
            place[path[-1]] = value
            self.assertRaises((KeyError, TypeError, ValueError),
                              resource().load, state)

    def _learnt(self) -> Resource:
        found = resource()
        for x in (100, 140, 100, 140):
            found.observe(x, CAPACITY, [(ONE, x / 2, None)])
        return found


class ReasonTest(testtools.TestCase):

    def test_counts(self) -> None:
        """One workload is no plural."""
        facts = {'x': 2.0, 'upper': 3.0, 'level': 1.0, 'headroom': 1.0,
                 'allotments': 1.0, 'budget': 4.0, 'samples': 1,
                 'reserve_rule': RESERVE_PEAK}
        for rule, count, end in (('learned', 1, ' for 1 workload'),
                                 ('learned', 2, ' for 2 workloads')):
            self.assertTrue(reason({**facts, 'rule': rule}, 'memory', 'GiB',
                                   1.0, count).endswith(end))
        self.assertIn(', 1 sample)', reason(
            {**facts, 'rule': 'learning'}, 'memory', 'GiB', 1.0, 1))

    def test_level(self) -> None:
        """It is named for what it is."""
        facts = {'x': 2.0, 'upper': 3.0, 'level': 1.5, 'headroom': 1.0,
                 'allotments': 0.5, 'budget': 4.0, 'samples': 9,
                 'rule': 'holding'}
        for rule, word in ((RESERVE_PEAK, 'highest'),
                           (RESERVE_PAPER, 'mean')):
            self.assertIn(f'keeps 3.00 ({word} 1.50 + headroom 1.00', reason(
                {**facts, 'reserve_rule': rule}, 'memory', 'GiB', 1.0, 1))
