# SPDX-License-Identifier: Apache-2.0

"""The detector on what should not be: odd numbers, times, and workloads
that are gone."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import json
import math
from typing import Any

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.algorithms.attribution.shop import HOG
from scavenger_openstack.tests.unit.algorithms.attribution.shop import SHOP
from scavenger_openstack.tests.unit.algorithms.attribution.shop import ShopCase
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates


class OddInputTest(ShopCase):

    def test_times_that_do_not_go_on(self) -> None:
        self.until(lambda decision: decision.caps)
        caps: tuple[Cap, ...] = self.decision.caps
        for now in (self.now, self.now - 500, math.nan, math.inf, -1.0):
            found = self.controller.step(now, self.rates())
            self.assertEqual(caps, found.caps, repr(now))

    def test_a_gap_longer_than_the_window(self) -> None:
        self.turn(300)
        self.now += 5000
        self.turn(4)
        self.assertEqual(0, self.decision.facts['samples'])
        self.until(lambda decision: decision.caps)

    def test_another_cpu_model(self) -> None:
        """No base holds on it: all is learnt again."""
        whole = self.rates
        model = 'one'
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            whole(), cpu_model=model)
        self.until(lambda decision: decision.caps)
        self.turn(60)
        model = 'other'
        self.turn(1)
        self.assertEqual(0, self.decision.facts['samples'])
        self.turn(10)
        self.assertEqual(((), ()), (self.decision.caps,
                                    self.decision.incidents))
        self.until(lambda decision: decision.caps)

    def test_numbers_that_are_none(self) -> None:
        for odd in (None, math.nan, math.inf, -1.0):
            found = self.rates()
            self.now += 1
            self.controller.step(self.now, dataclasses.replace(
                found, time_s=self.now, workloads=tuple([
                    WorkloadRates(one.workload, 1.0, odd, odd, odd, odd, odd,
                                  odd, odd, odd, odd)
                    for one in found.workloads])))
        self.until(lambda decision: decision.caps)

    def test_nothing_is_there(self) -> None:
        for _ in range(20):
            self.now += 1
            decision = self.controller.step(self.now, Rates(
                self.now, 1.0, ()))
        self.assertEqual(((), ()), (decision.caps, decision.incidents))

    def test_a_damaged_state(self) -> None:
        for state in ({'good': [['hog']]}, {'backs_off': 3},
                      {'backs_off': [[['a'], 'odd', 'hog', 1, 2]]},
                      {'backs_off': [[['a'], 'cpi', 'hog', math.inf, 2]]},
                      {'tally': {'confirmed': 'x'}},
                      {'tally': {'odd': 1}}, {'instances': 3},
                      {'instances': [['hog', 'x']]}):
            self.assertRaises((ValueError, TypeError), attribution.Controller(
                ).load, {'saved_s': 0.5, **state}, 1.0)

    def test_a_state_of_a_later_time(self) -> None:
        """Of another boot: nothing of it would ever end."""
        state = {'good': [['hog', 'cpu_cores', ['', 'shop'], 'cpi', 1.0, True,
                           5000.0, None]],
                 'backs_off': [[['', 'shop'], 'cpi', 'hog', 5000.0, 300.0]],
                 'tally': {'confirmed': 2, 'refuted': 1, 'unclear': 0}}
        self.turn(1)
        for saved_s in (None, 'x', math.nan, -1.0, self.now + 1):
            other = attribution.Controller()
            other.load({**state, 'saved_s': saved_s}, self.now)
            other.step(self.now, self.rates())
            found = other.state()
            self.assertEqual(([], [], state['tally']), (
                found['good'], found['backs_off'], found['tally']),
                str(saved_s))
        other = attribution.Controller()
        other.load({**state, 'saved_s': self.now}, self.now)
        self.assertEqual({**state, 'saved_s': self.now, 'instances': [],
                          'searches': {'host_rests_s': 0.0, 'rests': []},
                          'best_waits': {}}, other.state())

    def test_windows_that_hold_too_few_samples_or_too_many(self) -> None:
        for window_s, sample_s in ((55.0, 5.0), (600.0, 60.0),
                                   (86400.0, 5.0)):
            self.assertRaisesRegex(
                ValueError, 'a window holds 12 to 600', attribution.Params,
                window_s=window_s, sample_s=sample_s)


class UnknownTest(ShopCase):
    """Unknown is None, never 0."""

    def only(self, **fields: Callable[..., Any]) -> None:
        """Rates in which nothing but cores and these fields is known."""
        whole = self.rates

        def rates() -> Rates:
            found = whole()
            return dataclasses.replace(found, workloads=tuple([
                WorkloadRates(one.workload, 1.0, cpu_cores=one.cpu_cores,
                              **{name: make(one) for name, make
                                 in fields.items()})
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]

    def assertNoTiming(self, seconds: int) -> None:
        """Only an experiment may name something."""
        for decision in self.turn(seconds):
            self.assertLessEqual(
                {ground.kind for incident in decision.incidents
                 for ground in incident.grounds}, {GroundKind.EXPERIMENT})

    def test_nothing_but_use_is_known(self) -> None:
        self.only()
        for decision in self.turn(900):
            self.assertEqual(((), ()), (decision.caps, decision.incidents))
        self.assertEqual(0, self.controller.analyses)

    def test_a_signal_that_is_known_only_while_nothing_disturbs(
            self) -> None:
        self.only(run_delay=lambda one: (
            0.0 if self.used < 1 and one.workload in SHOP else None))
        for decision in self.turn(900):
            self.assertEqual(((), ()), (decision.caps, decision.incidents))

    def test_a_signal_that_is_known_only_while_something_works(self) -> None:
        self.only(run_delay=lambda one: (
            0.5 if self.used > 1 and one.workload in SHOP else None))
        self.assertNoTiming(900)

    def test_delay_accounting_is_off(self) -> None:
        """No io_wait, no run_delay; bytes are known: no verdict."""
        self.only(io_bytes_per_s=lambda one: (
            100e6 * self.used if one.workload is HOG else 1e6),
            io_ops_per_s=lambda one: 100.0)
        for decision in self.turn(900):
            self.assertEqual(((), ()), (decision.caps, decision.incidents))

    def test_a_suspect_of_which_too_little_is_known(self) -> None:
        """Its use of the cache is unknown in every other minute."""
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one._replace(llc_misses_per_s=None)
                if one.workload is HOG and (self.now // 90) % 2 else one
                for one in found.workloads]))
        self.assertNoTiming(900)

    def test_victims_of_which_nothing_is_heard_any_more(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(60)
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one._replace(cpi=None, run_delay=None)
                if one.workload in SHOP else one
                for one in found.workloads]))
        self.turn(400)
        self.assertEqual(((), ()), (self.decision.caps,
                                    self.decision.incidents))


class AnotherTest(ShopCase):
    """Neither caps nor guilt pass on to another program."""

    def other(self, hog: Workload) -> None:
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one._replace(workload=hog) if one.workload is HOG else one
                for one in found.workloads]))

    def test_who_is_made_foreground_is_not_limited(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(60)
        self.other(dataclasses.replace(HOG, priority=Priority.FOREGROUND))
        for decision in self.turn(300):
            self.assertEqual((), decision.caps)

    def test_what_is_foreground_after_a_restart_is_not_limited(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.caps, 100)
        self.wants = lambda now: 4.0
        state = self.controller.state()
        self.assertEqual(['hog'], [name for name, *_ in state['good']])
        self.controller = attribution.Controller(host='h', boot_id='b')
        self.controller.load(state, self.now)
        self.other(dataclasses.replace(HOG, priority=Priority.FOREGROUND))
        for decision in self.turn(10):
            self.assertEqual((), decision.caps)
        self.assertEqual([], self.controller.state()['good'])

    def test_who_is_made_again_is_innocent(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(60)
        self.harm = 0.0
        self.other(dataclasses.replace(HOG, created_s=7.0))
        for decision in self.turn(300):
            self.assertEqual((), decision.caps)
        self.assertEqual([], self.controller.state()['good'])


class RebootTest(ShopCase):
    """A hard reboot makes no other instance of it."""

    def setUp(self) -> None:
        super().setUp()
        whole = self.rates
        self.hog: Workload | None = dataclasses.replace(
            HOG, created_s=1.0, instance='hog')
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one if self.hog is None or one.workload is not HOG
                else one._replace(workload=self.hog)
                for one in found.workloads
                if self.hog is not None or one.workload is not HOG]))

    def reboot(self, away_s: int) -> None:
        hog = self.hog
        assert hog is not None
        if away_s:
            self.hog = None
            for decision in self.turn(away_s):
                self.assertEqual((), decision.caps)
        self.hog = dataclasses.replace(hog, created_s=hog.created_s + 1)

    def test_only_background_is_remembered(self) -> None:
        assert self.hog is not None
        for priority, names in ((Priority.FOREGROUND, []),
                                (Priority.BACKGROUND, ['hog'])):
            hog = self.hog = dataclasses.replace(self.hog, priority=priority)
            for self.hog in (hog, None):
                self.turn(5)
                self.assertEqual(names, [name for name, _ in self.controller
                                         .state()['instances']])
            self.hog = hog

    def test_its_cap_awaits_it(self) -> None:
        self.wants = lambda now: 4.0 if (now // 60) % 2 else 0.1
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        for away_s in (0, 1, 7, 60, 900):
            self.turn(60)
            before, = self.decision.caps
            self.reboot(away_s)
            self.turn(2 * 5)
            after, = self.decision.caps
            self.assertEqual(before[:2], after[:2])
            self.assertLessEqual(float(after.value),
                                 1.5 * float(before.value), away_s)
            self.assertIn('hog', self.incident().antagonists)

    def test_it_is_forgotten_in_the_end(self) -> None:
        self.controller = attribution.Controller(attribution.Params(
            remember_s=100.0))
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(60)
        self.harm = 0.0
        self.reboot(102)
        state = self.controller.state()
        self.assertEqual(([], [], []), (
            state['good'], state['backs_off'], state['instances']))
        for decision in self.turn(300):
            self.assertEqual((), decision.caps)

    def test_what_did_not_help_is_not_tried_again_at_once(self) -> None:
        self.until(lambda decision: decision.caps)
        whole = self.rates

        def rates() -> Rates:
            found = whole()
            return dataclasses.replace(found, workloads=tuple([
                one._replace(cpi=2.0 * (1 + self.rng.gauss(0, 0.02)))
                if one.workload in SHOP else one
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]
        self.until(lambda decision: not decision.caps, 60)
        before = self.controller.state()['backs_off']
        self.assertEqual(1, len(before))
        self.reboot(20)
        self.turn(1)
        self.assertEqual(before, self.controller.state()['backs_off'])

    def test_a_restart_of_the_agent_while_it_reboots(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.caps, 100)
        state = json.loads(json.dumps(self.controller.state()))
        self.assertEqual(1, len(state['good']))
        self.controller = attribution.Controller()
        self.controller.load(state, self.now)
        self.assertEqual(self.controller.state(), state)
        self.reboot(20)
        self.turn(1)
        self.assertEqual(state['good'], self.controller.state()['good'])

    def test_one_that_comes_back_as_foreground(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(60)
        self.reboot(20)
        assert self.hog is not None
        self.hog = dataclasses.replace(self.hog,
                                       priority=Priority.FOREGROUND)
        for decision in self.turn(300):
            self.assertEqual((), decision.caps)
        self.assertEqual([], self.controller.state()['good'])


class BudgetTest(ShopCase):

    def test_those_who_suffer_take_turns(self) -> None:
        """Twenty victims of a hog that nothing holds, two analyses each."""
        self.controller = attribution.Controller(
            attribution.Params(max_analyses_per_min=24))
        self.obeyed = False
        self.shop = [Workload(f'vm{n}', Priority.FOREGROUND)
                     for n in range(20)]
        most = before = 0
        for decision in self.turn(900):
            analyses = int(decision.facts['analyses'])
            most, before = max(most, analyses - before), analyses
        self.assertEqual(2, most)
        self.assertEqual(20, len({one.victim for one
                                  in self.decision.incidents}))
