# SPDX-License-Identifier: Apache-2.0


"""What holds for the reserve of one resource, whatever the foreground does.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.scavenger.members import Members
from scavenger_openstack.algorithms.scavenger.members import Use
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PEAK
from scavenger_openstack.algorithms.scavenger.params import RESERVE_RULES
from scavenger_openstack.algorithms.scavenger.peaks import BLOCKS
from scavenger_openstack.algorithms.scavenger.reserve import Reserve
from scavenger_openstack.algorithms.scavenger.reserve import Resource
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import RunKey

CAPACITY = 1000.0
SIZES = st.integers(2, 5)
XS = strategies.amounts(CAPACITY)
CURVES = st.lists(XS, min_size=1, max_size=20)
CS = strategies.amounts(6.0)
SHARES = strategies.amounts(0.3)
RULES = st.sampled_from(RESERVE_RULES)
GUESTS: tuple[RunKey, ...] = (('/one', 1.0), ('/two', 2.0), ('/three', 3.0))


class Seen(NamedTuple):
    """What one tick sees: the sum, and what is part of it."""

    x: Any
    uses: list[Use]


@st.composite
def seen(draw: st.DrawFn, number: st.SearchStrategy[Any] = XS) -> Seen:
    return Seen(draw(number), [
        (key, draw(number), draw(st.one_of(st.none(), number)))
        for key in GUESTS if draw(st.integers(0, 2))])


def resource(size: int, rule: str, c: float = 2.0,
             min_headroom: float = 0.02, blind_ticks: int = 3) -> Resource:
    return Resource(c=c, size=size, min_headroom=min_headroom, rule=rule,
                    peak_size=size + 3, blind_ticks=blind_ticks)


class ReserveProperties(testtools.TestCase):

    @given(SIZES, CS, SHARES, CURVES)
    def test_by_the_paper(self, size: int, c: float, min_headroom: float,
                          xs: list[float]) -> None:
        """mu moves at a violation and after ``size`` low samples, at once
        and at no other time; sigma only then, too."""
        rule = Reserve(c=c, size=size, min_headroom=min_headroom)
        low = 0
        for tick, x in enumerate(xs):
            mu, sigma, violations = rule.mu, rule.sigma, rule.violations
            violation = rule.observe(x, CAPACITY)
            last = xs[:tick + 1][-size:]
            if mu is None or sigma is None:
                self.assertEqual(len(last) < size, rule.learning)
                modelled = len(last) == size
            else:
                low = low + 1 if x < mu - c * sigma else 0
                modelled = low == size
            if modelled:
                low, mu, sigma = 0, statistics.fmean(last), rule.sigma
                self.assertAlmostEqual(statistics.stdev(last), sigma or 0.0)
            if mu is None or sigma is None:
                continue
            upper = mu + max(c * sigma, min_headroom * CAPACITY)
            if not math.isclose(x, upper):
                self.assertEqual(x > upper, violation)
            self.assertAlmostEqual(x if violation else mu, rule.mu or 0.0)
            self.assertEqual(violations + violation, rule.violations)
            if not modelled:
                self.assertEqual(sigma, rule.sigma)

    @given(SIZES, st.integers(1, 9), CS, SHARES, CURVES)
    def test_by_the_highest_use(
            self, size: int, peak_size: int, c: float, min_headroom: float,
            xs: list[float]) -> None:
        """The highest of the last samples, whatever c is; a violation is
        what was above that and the least headroom."""
        rule = Reserve(c=c, size=size, min_headroom=min_headroom,
                       rule=RESERVE_PEAK, peak_size=peak_size)
        for tick, x in enumerate(xs):
            upper, violations = rule.upper(CAPACITY), rule.violations
            violation = rule.observe(x, CAPACITY)
            self.assertEqual(tick + 1 < size, rule.learning)
            self.assertEqual(upper is not None and x > upper, violation)
            self.assertEqual(violations + violation, rule.violations)
            if not rule.learning:
                self.assertEqual(max(xs[:tick + 1][-peak_size - 1:]),
                                 rule.level)
                self.assertEqual(min_headroom * CAPACITY,
                                 rule.headroom(CAPACITY))

    @given(SIZES, st.integers(1, 200), CS, st.lists(XS, max_size=20), XS)
    def test_no_past_counts_for_longer_than_its_time(
            self, size: int, peak_size: int, c: float, past: list[float],
            x: float) -> None:
        """... with any c, after anything: it does not lock up."""
        rule = Reserve(c=c, size=size, min_headroom=0.02,
                       rule=RESERVE_PEAK, peak_size=peak_size)
        for one in past:
            rule.observe(one, CAPACITY)
        longest = peak_size + 2 * (peak_size // BLOCKS + 1)
        for _ in range(max(size, longest)):
            rule.observe(x, CAPACITY)
        self.assertEqual(x, rule.level)

    @given(SIZES, CS, SHARES, CURVES, RULES, RULES)
    def test_another_rule_goes_on_with_what_was_learnt(
            self, size: int, c: float, min_headroom: float,
            xs: list[float], one: str, two: str) -> None:
        """... live, and over a restart."""
        first, live, restarted = (Reserve(
            c=c, size=size, min_headroom=min_headroom, rule=rule,
            peak_size=7) for rule in (one, one, two))
        for x in xs:
            first.observe(x, CAPACITY)
            live.observe(x, CAPACITY)
        live.change_rule(two)
        restarted.load(json.loads(json.dumps(first.state())))
        self.assertEqual(first.learning, live.learning)
        self.assertEqual((live.level, live.headroom(CAPACITY)),
                         (restarted.level, restarted.headroom(CAPACITY)))
        if not live.learning and one != two:
            fresh = Reserve(c=c, size=size, min_headroom=min_headroom,
                            rule=two, peak_size=7)
            for x in xs[-8:] if two == RESERVE_PEAK else xs[-size:]:
                fresh.observe(x, CAPACITY)
            if not fresh.violations:
                self.assertEqual(fresh.level, live.level)

    @given(SIZES, SHARES, CURVES, CS, CS)
    def test_more_c_is_more_headroom_and_no_new_violation(
            self, size: int, min_headroom: float, xs: list[float],
            one: float, two: float) -> None:
        less, more = (Reserve(c=c, size=size, min_headroom=min_headroom)
                      for c in sorted((one, two)))
        for x in xs:
            violations = [less.observe(x, CAPACITY),
                          more.observe(x, CAPACITY)]
            # They see the same until the first violation of the smaller.
            self.assertGreaterEqual(*violations)
            if violations[0] or (less.low_samples, less.mu) != (
                    more.low_samples, more.mu):
                break
            self.assertGreaterEqual(more.headroom(CAPACITY),
                                    less.headroom(CAPACITY))

    @given(RULES, SIZES, CS, SHARES, CURVES, XS)
    def test_a_constant_comes_to_rest(
            self, name: str, size: int, c: float, min_headroom: float,
            before: list[float], x: float) -> None:
        """At most one violation, at most one new phase, then nothing."""
        rule = Reserve(c=c, size=size, min_headroom=min_headroom, rule=name,
                       peak_size=size)
        for one in before:
            rule.observe(one, CAPACITY)
        violations = rule.violations
        for _ in range(2 * size):
            rule.observe(x, CAPACITY)
        at_rest = (rule.mu, rule.sigma, rule.violations)
        self.assertLessEqual(rule.violations - violations, 1)
        for _ in range(3 * size):
            self.assertFalse(rule.observe(x, CAPACITY))
            self.assertEqual(at_rest, (rule.mu, rule.sigma, rule.violations))


class MembersProperties(testtools.TestCase):

    @given(SIZES, st.lists(st.frozensets(st.sampled_from(GUESTS)),
                           min_size=1, max_size=20),
           st.tuples(XS, XS, XS))
    def test_everything_counts_exactly_once(
            self, size: int, present: list[frozenset[RunKey]],
            uses: tuple[float, ...]) -> None:
        """In the model, or as a newcomer: never in both, never in none."""
        use = dict(zip(GUESTS, uses, strict=True))
        members = Members(size)
        model = sum(use[key] for key in present[0])
        for keys in present:
            found = members.update([(key, use[key], None)
                                    for key in sorted(keys)])
            model += found.shift
            self.assertAlmostEqual(sum(use[key] for key in keys),
                                   model + found.new_use)
            self.assertGreaterEqual(found.promised, found.new_use)

    @given(SIZES, st.lists(seen(strategies.weird(XS)), max_size=20))
    def test_weird_uses(self, size: int, curve: list[Seen]) -> None:
        members = Members(size)
        for tick in curve:
            found = members.update(tick.uses)
            self.assertTrue(all(map(math.isfinite, found)), str(found))
            self.assertTrue(found.promised >= found.new_use >= 0)
            json.dumps(members.state(), allow_nan=False)


class ResourceProperties(testtools.TestCase):

    @given(SIZES, RULES, CS, SHARES,
           st.lists(seen(), min_size=1, max_size=20))
    def test_reserve_and_budget_are_the_capacity(
            self, size: int, rule: str, c: float, min_headroom: float,
            curve: list[Seen]) -> None:
        found = resource(size, rule, c, min_headroom)
        for tick in curve:
            found.observe(tick.x, CAPACITY, tick.uses)
            level = found.reserve.level
            self.assertTrue(level is None or level >= 0)
            self.assertGreaterEqual(
                found.reserved(), found.arrivals.promised
                + found.reserve.headroom(CAPACITY))
            self.assertGreaterEqual(found.reserve.headroom(CAPACITY),
                                    min_headroom * CAPACITY)
            self.assertEqual(max(0.0, CAPACITY - found.reserved()),
                             found.budget())
            # What the foreground uses now is its own, always.
            self.assertGreaterEqual(found.reserved() + 1e-9, tick.x)

    @given(SIZES, RULES, st.integers(0, 4),
           st.lists(st.one_of(XS, st.sampled_from((
               None, math.nan, math.inf, -math.inf))), max_size=25))
    def test_holds_then_is_blind(self, size: int, rule: str,
                                 blind_ticks: int, xs: list[Any]) -> None:
        found = resource(size, rule, blind_ticks=blind_ticks)
        known = missing = 0
        for x in xs:
            before = found.reserved()
            found.observe(x, CAPACITY, ())
            if x is None or not math.isfinite(x):
                missing += 1
                self.assertEqual(before, found.reserved())
            else:
                known, missing = known + 1, 0
            self.assertEqual(
                'off' if not known else
                'blind' if missing > blind_ticks else
                'learning' if known < size else 'holding', found.rule)

    @given(SIZES, RULES, st.lists(st.tuples(
        seen(strategies.weird(XS)), strategies.weird(st.just(CAPACITY)),
        st.booleans()), max_size=20))
    def test_weird_numbers(self, size: int, rule: str, curve: Any) -> None:
        found = resource(size, rule)
        for tick, capacity, certain in curve:
            found.observe(tick.x, capacity, tick.uses, certain=certain)
            for number in (found.reserved(), found.budget()):
                self.assertTrue(0 <= number < math.inf, str(number))
            json.dumps([found.facts(), found.state()], allow_nan=False)

    @given(SIZES, RULES, XS, st.lists(XS, min_size=2, max_size=12),
           st.floats(1e-6, 0.3))
    def test_a_guest_that_came_and_went_leaves_no_trace(
            self, size: int, rule: str, x: float, guest: list[float],
            min_headroom: float) -> None:
        found = resource(size, rule, min_headroom=min_headroom)
        for _ in range(size):
            found.observe(x, CAPACITY, ())
        before = found.reserved()
        for _ in guest:
            found.observe(x + guest[0], CAPACITY,
                          [(GUESTS[0], guest[0], 2 * CAPACITY)])
        found.observe(x, CAPACITY, ())
        self.assertAlmostEqual(before, found.reserved())
        self.assertEqual(0, found.reserve.violations)

    @given(SIZES, RULES, st.lists(seen(), min_size=1, max_size=12),
           st.lists(seen(), max_size=12))
    def test_goes_on_from_its_state(
            self, size: int, rule: str, curve: list[Seen],
            more: list[Seen]) -> None:
        """... but for a run of low samples, which begins again."""
        one, two = resource(size, rule), resource(size, rule)
        for tick in curve:
            one.observe(tick.x, CAPACITY, tick.uses)
        two.load(json.loads(json.dumps(one.state(), allow_nan=False)))
        one.reserve.low_samples = 0
        for tick in more:
            for each in (one, two):
                each.observe(tick.x, CAPACITY, tick.uses)
            self.assertEqual(one.facts(), two.facts())
