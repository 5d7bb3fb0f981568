# SPDX-License-Identifier: Apache-2.0


"""What holds for every split of a budget."""

from __future__ import annotations

import math
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.tests.unit.algorithms import strategies

LARGEST = 1e12
CLOSE = 1e-9
"""Of the sums that a share is computed from: rounding errors."""


class Claim(NamedTuple):
    demand: float
    weight: float
    floor: float


CLAIMS = st.lists(st.builds(
    Claim, strategies.amounts(LARGEST),
    st.one_of(st.sampled_from((1.0, 2.0)), st.floats(0.01, 1024.0)),
    strategies.amounts(LARGEST / 8)), min_size=1, max_size=7)
BUDGETS = strategies.amounts(3 * LARGEST)


def shares_of(budget: float, claims: list[Claim]) -> list[float]:
    return split(budget, *([one[place] for one in claims]
                           for place in range(3)))


def needs(claims: list[Claim]) -> list[float]:
    return [max(one.demand, one.floor) for one in claims]


class SplitProperties(testtools.TestCase):

    @given(BUDGETS, CLAIMS)
    def test_floors_first_and_the_whole_budget(
            self, budget: float, claims: list[Claim]) -> None:
        shares = shares_of(budget, claims)
        floors = [one.floor for one in claims]
        if budget <= math.fsum(floors):
            self.assertEqual(floors, shares)
        else:
            self.assertTrue(math.isclose(budget, math.fsum(shares),
                                         rel_tol=CLOSE))
        for share, floor in zip(shares, floors, strict=True):
            self.assertGreaterEqual(share, floor)

    @given(BUDGETS, CLAIMS)
    def test_nothing_has_more_than_it_needs_while_something_lacks(
            self, budget: float, claims: list[Claim]) -> None:
        shares = shares_of(budget, claims)
        slack = CLOSE * (budget + LARGEST)
        lacks = [share < need - slack for share, need
                 in zip(shares, needs(claims), strict=True)]
        if any(lacks):
            for share, need in zip(shares, needs(claims), strict=True):
                self.assertLessEqual(share, need)
        elif budget > math.fsum(needs(claims)):
            for share, need in zip(shares, needs(claims), strict=True):
                self.assertGreaterEqual(share, need)

    @given(BUDGETS, CLAIMS)
    def test_who_lacks_has_by_weight_as_much_as_any(
            self, budget: float, claims: list[Claim]) -> None:
        shares = shares_of(budget, claims)
        slack = CLOSE * (budget + LARGEST)
        lines = [(share / one.weight, slack / one.weight, share, need, one)
                 for share, need, one in zip(shares, needs(claims), claims,
                                             strict=True)]
        for mine, my_slack, share, need, _ in lines:
            if share >= need - slack:
                continue
            for other, other_slack, theirs, _, one in lines:
                if theirs > one.floor:
                    self.assertGreaterEqual(mine + my_slack + other_slack,
                                            other)

    @given(st.floats(0.0, LARGEST), CLAIMS)
    def test_what_nothing_needs_goes_by_weight(
            self, rest: float, claims: list[Claim]) -> None:
        budget = math.fsum(needs(claims)) + rest
        weights = math.fsum(one.weight for one in claims)
        for share, need, one in zip(shares_of(budget, claims), needs(claims),
                                    claims, strict=True):
            self.assertTrue(abs(need + rest * one.weight / weights - share)
                            <= CLOSE * (budget + LARGEST))

    @given(BUDGETS, CLAIMS, st.data())
    def test_the_order_of_the_workloads_does_not_matter(
            self, budget: float, claims: list[Claim],
            data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(claims))))
        shares = shares_of(budget, claims)
        self.assertEqual([shares[place] for place in order],
                         shares_of(budget, [claims[place]
                                            for place in order]))

    @given(BUDGETS, BUDGETS, CLAIMS)
    def test_more_budget_is_never_less_for_anything(
            self, one: float, two: float, claims: list[Claim]) -> None:
        less, more = sorted((one, two))
        slack = CLOSE * (more + LARGEST)
        for before, after in zip(shares_of(less, claims),
                                 shares_of(more, claims), strict=True):
            self.assertGreaterEqual(after + slack, before)

    @given(BUDGETS, CLAIMS, BUDGETS)
    def test_who_asks_for_more_gets_no_less(
            self, budget: float, claims: list[Claim], more: float) -> None:
        shares = shares_of(budget, claims)
        first = claims[0]._replace(demand=claims[0].demand + more)
        self.assertGreaterEqual(
            shares_of(budget, [first, *claims[1:]])[0]
            + CLOSE * (budget + LARGEST), shares[0])

    @given(BUDGETS, CLAIMS, st.sampled_from((0.0, -1.0, math.nan, math.inf)))
    def test_who_weighs_nothing_gets_his_floor(
            self, budget: float, claims: list[Claim], weight: float) -> None:
        nothing = Claim(LARGEST, weight, 5.0)
        shares = shares_of(budget, [*claims, nothing])
        self.assertEqual(5.0, shares[-1])
        self.assertTrue(math.isclose(
            math.fsum(shares), max(budget, math.fsum(
                one.floor for one in [*claims, nothing])), rel_tol=CLOSE))

    @given(BUDGETS, CLAIMS, st.sampled_from((0.0, -1.0, math.nan, math.inf)))
    def test_when_nothing_weighs_anything_all_weigh_the_same(
            self, budget: float, claims: list[Claim], weight: float) -> None:
        self.assertEqual(
            shares_of(budget, [one._replace(weight=1.0) for one in claims]),
            shares_of(budget, [one._replace(weight=weight)
                               for one in claims]))

    @given(BUDGETS, CLAIMS)
    def test_a_demand_or_budget_that_is_no_number_is_0(
            self, budget: float, claims: list[Claim]) -> None:
        unknown = [one._replace(demand=math.nan) for one in claims]
        nothing = [one._replace(demand=0.0) for one in claims]
        self.assertEqual(shares_of(budget, nothing),
                         shares_of(budget, unknown))
        self.assertEqual([one.floor for one in claims],
                         shares_of(math.nan, claims))

    @given(BUDGETS, CLAIMS)
    def test_endless_demand_is_shared_by_weight(
            self, budget: float, claims: list[Claim]) -> None:
        endless = [one._replace(demand=math.inf, floor=0.0)
                   for one in claims]
        weights = math.fsum(one.weight for one in claims)
        for share, one in zip(shares_of(budget, endless), claims,
                              strict=True):
            self.assertTrue(math.isclose(share, budget * one.weight / weights,
                                         rel_tol=CLOSE))
