# SPDX-License-Identifier: Apache-2.0

"""Experiments: what is named by them, what is not, and what they cost."""

from __future__ import annotations

import dataclasses
import random

import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.attribution import experiment
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.algorithms.attribution.shop import BATCH
from scavenger_openstack.tests.unit.algorithms.attribution.shop import ShopCase
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates


class ChanceTest(testtools.TestCase):

    def test_all_orders(self) -> None:
        self.assertEqual(1 / 256, experiment.chance([1.0] * 8))
        self.assertEqual(1.0, experiment.chance([0.0] * 8))
        self.assertEqual(1.0, experiment.chance([-1.0] * 8))
        self.assertEqual(2 / 256, experiment.chance([1.0] * 7 + [0.0]))

    def test_innocents_are_as_guilty_as_it_says(self) -> None:
        """Of 400 that do nothing a hundredth at most looks so guilty."""
        dice = random.Random(1)
        chances = [experiment.chance([dice.gauss(0, 1) for _ in range(8)])
                   for _ in range(400)]
        self.assertLessEqual(sum([one <= 0.0125 for one in chances]), 12)

    def test_halves(self) -> None:
        self.assertEqual([['b'], ['a', 'c']], experiment.halves(
            {'a': 1.0, 'b': 5.0, 'c': 0.5}))
        self.assertEqual([['a', 'b'], ['c', 'd']], experiment.halves(
            dict.fromkeys('abcd', 1.0)))
        self.assertEqual([], experiment.halves({}))


class SearchCase(ShopCase):
    """The hog never rests; what the shop is undisturbed is known from other
    hosts."""

    def setUp(self) -> None:
        super().setUp()
        self.wants = lambda now: 4.0
        self.controller.compare({
            specs.key(None, 'shop', '', 'cpi'): specs.Spec(
                1.02, 0.03, 1000, 10, 'directive')})

    def limits(self, seconds: int, workload: str) -> int:
        """Seconds of these for which a workload is limited."""
        return sum([any(cap.workload == workload for cap in decision.caps)
                    for decision in self.turn(seconds)])


class SearchTest(SearchCase):

    def test_what_never_rests_is_named(self) -> None:
        """In a minute, with the numbers."""
        seconds = self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents))
        self.assertLessEqual(seconds, 60)
        incident = self.incident()
        self.assertEqual((('hog',), 'cpi'),
                         (incident.antagonists, incident.signal))
        ground, = incident.grounds
        self.assertIs(GroundKind.TRIAL, ground.kind)
        assert ground.before and ground.after and ground.chance
        self.assertLess(ground.after, ground.before)
        self.assertLess(ground.chance, 0.0125)
        self.turn(100)
        self.assertEqual('confirmed', self.incident().outcome)

    def test_an_incident_tells_of_it(self) -> None:
        """From its first limit on, and by which grounds."""
        self.until(lambda decision: decision.caps)
        incident = self.incident()
        self.assertEqual(LIMIT + 'hog', incident.action)
        self.assertEqual([('hog', GroundKind.TRIAL, None)], [
            (one.workload, one.kind, one.after) for one in incident.grounds])
        self.assertEqual((), incident.antagonists)
        self.assertEqual(['hog'], self.decision.facts['examined'])

    def test_without_harm_there_is_none(self) -> None:
        self.harm = 0.0
        for decision in self.turn(900):
            self.assertEqual((), decision.caps)

    def test_no_floor_is_broken(self) -> None:
        self.wants = lambda now: 0.15
        self.harm = 10.0
        for decision in self.turn(100):
            for cap in decision.caps:
                self.assertGreaterEqual(float(cap.value), 0.1)

    def test_nothing_foreground_is_limited(self) -> None:
        """What becomes foreground within an experiment is let go at once."""
        self.until(lambda decision: decision.caps)
        self.foreground('hog')
        for decision in self.turn(300):
            self.assertNotIn('hog', {cap.workload for cap in decision.caps})

    def foreground(self, name: str) -> None:
        rates = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            host := rates(), workloads=tuple(
                one._replace(workload=dataclasses.replace(
                    one.workload, priority=Priority.FOREGROUND))
                if one.workload.id == name else one
                for one in host.workloads))

    def test_a_restart_in_the_middle(self) -> None:
        """Nothing is in force and nothing was counted."""
        self.until(lambda decision: decision.caps)
        state = self.controller.state()
        self.assertEqual({'confirmed': 0, 'refuted': 0, 'unclear': 0},
                         state['tally'])
        self.controller = attribution.Controller(host='h', boot_id='b')
        self.controller.load(state, self.now)
        self.turn(1)
        self.assertEqual((), self.decision.caps)


class ObservedTest(SearchCase):

    obeyed = False

    def test_it_says_what_it_would_do(self) -> None:
        """Where limits are not set, nothing is learnt of them."""
        self.until(lambda decision: decision.facts['would_examine'])
        self.assertIn('hog', self.decision.facts['would_examine'])
        for decision in self.turn(600):
            self.assertEqual((), tuple(
                name for incident in decision.incidents
                for name in incident.antagonists))


class HostileTest(SearchCase):

    def test_a_victim_that_feigns(self) -> None:
        """It suffers whatever anyone does, and costs less each hour."""
        self.harm, rates = 0.0, self.rates

        def feigned() -> Rates:
            host = rates()
            return dataclasses.replace(host, workloads=tuple(
                one._replace(cpi=self.rng.gauss(1.6, 0.05))
                if one.workload in self.shop else one
                for one in host.workloads))

        self.rates = feigned  # type: ignore[method-assign]
        first = self.limits(3600, 'hog')
        self.assertTrue(0 < first < 0.05 * 3600, first)
        self.assertLess(self.limits(3 * 3600, 'hog'), 1.5 * first)
        for decision in self.turn(600):
            self.assertEqual([], [
                incident.antagonists for incident in decision.incidents
                if incident.antagonists])

    def test_noise_in_step_with_the_turns(self) -> None:
        """A victim that is worse in every other turn: not in the order."""
        self.harm, rates = 0.0, self.rates

        def noisy() -> Rates:
            host = rates()
            return dataclasses.replace(host, workloads=tuple(
                one._replace(cpi=1.9 if (self.now // 2) % 2 else 1.3)
                if one.workload in self.shop else one
                for one in host.workloads))

        self.rates = noisy  # type: ignore[method-assign]
        named = [incident.antagonists for decision in self.turn(3600)
                 for incident in decision.incidents if incident.antagonists]
        self.assertEqual([], named)

    def test_a_suspect_that_plays_dead(self) -> None:
        """It rests while experiments go on: that clears it of nothing."""
        self.wants = lambda now: 0.1 if self.decision.facts.get(
            'examined') else 4.0
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents), 3600)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_innocents_are_let_go(self) -> None:
        """Ten that use as much, of which one disturbs."""
        rates = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            host := rates(), workloads=tuple(
                one._replace(cpu_cores=1.0, llc_misses_per_s=6e7)
                if one.workload in BATCH and not any(
                    cap.workload == one.workload.id
                    for cap in self.decision.caps)
                else one._replace(cpu_cores=0.3, llc_misses_per_s=2e7)
                if one.workload in BATCH else one
                for one in host.workloads))
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents))
        self.assertEqual(('hog',), self.incident().antagonists)
