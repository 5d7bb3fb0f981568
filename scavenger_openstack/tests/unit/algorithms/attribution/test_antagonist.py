# SPDX-License-Identifier: Apache-2.0


"""The states of an antagonist: the table, and that nothing else happens."""

from __future__ import annotations

import random

import testtools

from scavenger_openstack.algorithms.attribution.antagonist import Change
from scavenger_openstack.algorithms.attribution.antagonist import Event
from scavenger_openstack.algorithms.attribution.antagonist import State
from scavenger_openstack.algorithms.attribution.antagonist import TABLE
from scavenger_openstack.algorithms.attribution.antagonist import UNLIMITED
from scavenger_openstack.tests.unit.algorithms.attribution import cap_cases

LIMITED = {State.ON_TRIAL, State.CONFIRMED, State.LOOSENING}
SETS = {Change.SET, Change.SET_GOOD}
MOVES = [(state, event, after, change) for state, events in TABLE.items()
         for event, (after, change) in events.items()]


class TableTest(testtools.TestCase):

    def reached(self, first: State, backward: bool = False) -> set[State]:
        found = {first}
        for _ in State:
            found |= {before if backward else after
                      for before, _, after, _ in MOVES
                      if (after if backward else before) in found}
        return found

    def test_each_state_is_reached_and_left(self) -> None:
        self.assertEqual(set(State), self.reached(State.SUSPECTED))
        self.assertEqual(set(State), self.reached(State.SUSPECTED, True))

    def test_nothing_is_there_in_vain(self) -> None:
        self.assertEqual(set(Event), {event for _, event, _, _ in MOVES})
        self.assertEqual(set(Change), {change for *_, change in MOVES})

    def test_why_there_is_no_limit_in_the_others(self) -> None:
        self.assertEqual(set(State), LIMITED | UNLIMITED.keys())
        self.assertEqual(set(), LIMITED & UNLIMITED.keys())

    def test_there_is_a_limit_in_three_states(self) -> None:
        for before, event, after, change in MOVES:
            self.assertEqual(before not in LIMITED and after in LIMITED,
                             change in SETS, f'{before}: {event}')
            self.assertEqual(
                before in LIMITED and after not in LIMITED,
                change is Change.REMOVE, f'{before}: {event}')

    def test_a_new_limit_is_a_trial(self) -> None:
        """What was not tried is confirmed by nothing but its trial."""
        self.assertEqual({(State.ON_TRIAL, Event.HELPED),
                          (State.REMEMBERED, Event.RETURNS)},
                         {(before, event) for before, event, after, _ in MOVES
                          if after is State.CONFIRMED
                          and event is not Event.SUFFERS})
        self.assertEqual({State.ON_TRIAL}, {
            after for _, event, after, _ in MOVES if event is Event.NAMED})

    def test_what_is_on_trial_is_not_adapted(self) -> None:
        self.assertEqual(set(), TABLE[State.ON_TRIAL].keys() & {
            Event.SUFFERS, Event.AT_EASE, Event.IN_VAIN})


class WalkTest(cap_cases.CapControlTestCase):

    def test_state_and_limit_go_together(self) -> None:
        """Whatever workloads use and victims suffer, phase by phase."""
        rng = random.Random(1)
        seen = set()
        for _ in range(20):
            self.begin()
            both = [cap_cases.disturbance(named=['hog', 'mate']),
                    cap_cases.disturbance('shop')]
            for _ in range(60):
                use, level = rng.choice([0.0, 0.3, 4.0]), rng.choice([1, 1.4])
                mate, obeys = rng.choice([0.0, 2.0]), rng.random() < 0.8
                self.disturbances = both[:rng.choice([0, 1, 2, 2, 2, 2])]
                for _ in range(rng.randint(1, 15)):
                    self.turn(cap_cases.uses(
                        hog=min(use, self.cap()) if obeys else use,
                        mate=min(mate, self.cap('mate'))),
                        *[level for _ in self.disturbances])
                    self.check()
                    for one in self.disturbances:
                        self.answer(one, rng.choice([(), ['hog']]))
                    self.check()
                    seen |= {one.state for one
                             in self.held.antagonists.values()}
                if rng.random() < 0.05:
                    self.held.leave(self.now, {'hog'})
                    self.check()
                if rng.random() < 0.05:
                    self.now += 3600    # what is remembered is forgotten
        self.assertEqual(set(State) - {State.EXAMINED}, seen)

    def check(self) -> None:
        good = {tuple(one[:2]) for one in self.held.state()['good']}
        for key, one in self.held.antagonists.items():
            self.assertEqual(one.state in LIMITED, one.limit is not None)
            self.assertEqual(one.state is not State.SUSPECTED,
                             bool(one.trials))
            if one.state in LIMITED:
                self.assertEqual(one.state is State.ON_TRIAL,
                                 any(one.trials.values()))
            if one.state is State.REMEMBERED:
                self.assertIn(key, good)
