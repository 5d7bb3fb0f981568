# SPDX-License-Identifier: Apache-2.0

"""Experiments: what is named by them, what is not, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
import random

import testtools

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.attribution import experiment
from scavenger_openstack.algorithms.attribution.experiment import Experiment
from scavenger_openstack.algorithms.attribution.experiment import Suspect
from scavenger_openstack.algorithms.attribution.looks import Looks
from scavenger_openstack.algorithms.attribution.search import Search
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.algorithms.attribution.shop import BATCH
from scavenger_openstack.tests.unit.algorithms.attribution.shop import ShopCase
from scavenger_openstack.types import Decision
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Knob
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates


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
        weights = {'a': 1.0, 'b': 5.0, 'c': 0.5}
        self.assertEqual([['b'], ['a', 'c']], experiment.halves(
            weights, weights))
        self.assertEqual([['a'], ['c']], experiment.halves(weights, 'ac'))
        weights = dict.fromkeys('abcd', 1.0)
        self.assertEqual([['a', 'b'], ['c', 'd']], experiment.halves(
            weights, weights))
        self.assertEqual([], experiment.halves(weights, ''))

    def test_numbers_that_cannot_be(self) -> None:
        for wrong in math.nan, math.inf, -math.inf:
            self.assertEqual(1.0, experiment.chance([1.0] * 7 + [wrong]))


class TurnsTest(testtools.TestCase):
    """One suspect that uses a core while it works, ticks of one second."""

    def setUp(self) -> None:
        super().setUp()
        self.now = 0.0

    def play(self, works: Callable[[float], float],
             level: Callable[[float, float], float], seed: str = ''
             ) -> Experiment:
        """The experiment at its end.

        :param works: what it wants to use, by time
        :param level: the victims' signal, by time and what it uses
        """
        done = Experiment({'hog': Suspect(1.0, 1.0)}, 3.0, seed)
        limits = False
        for self.now in map(float, range(1000)):
            used = min(works(self.now), 0.3 if limits else 1.0)
            if not done.step(self.now, level(self.now, used), {'hog': used},
                             {'hog': 0.4}):
                return done
            self.assertFalse(done.waits and done.limits)
            limits = done.limits
        self.fail('it goes on')

    def test_turns_take_48_s(self) -> None:
        result = self.play(lambda now: 1.0, lambda now, used: 1 + used
                           ).result()
        assert result is not None
        self.assertEqual(48.0, self.now)
        self.assertAlmostEqual(2.0, result.free)
        self.assertAlmostEqual(1.3, result.limited)

    def test_turns_wait_while_it_rests(self) -> None:
        """Another one disturbs as much meanwhile."""
        done = self.play(lambda now: 0.02 if now // 20 % 2 else 1.0,
                         lambda now, used: 2.0 if now // 20 % 2 else 1 + used)
        result = done.result()
        assert result is not None
        self.assertEqual((set(), set()), (done.unheld(), done.idle()))
        self.assertAlmostEqual(2.0, result.free)
        self.assertAlmostEqual(1.3, result.limited)
        self.assertEqual(1 / 256, result.chance)

    def test_what_rests_under_each_limit_is_not_judged(self) -> None:
        """And holds the others up for a bounded time."""
        done = Experiment({'hog': Suspect(1.0, 1.0)}, 3.0, '')
        for now in range(1000):
            if not done.step(float(now), 1.0, {
                    'hog': 0.0 if done.limits else 1.0}, {'hog': 0.4}):
                break
        self.assertEqual(experiment.LONGEST * 48, now)
        self.assertIsNone(done.result())

    def test_work_in_step_with_the_harm_proves_nothing(self) -> None:
        """An innocent that uses little whenever the victim is well: turns with
        a limit are of the same times as those without."""
        dice = random.Random(1)
        guilty = 0
        for seed in range(200):
            busy = [dice.random() < 0.5 for _ in range(1000)]
            result = self.play(
                lambda now: 1.0 if busy[int(now)] else 0.2,  # noqa: B023
                lambda now, _: 2.0 if busy[int(now)] else 1.0,  # noqa: B023
                str(seed)).result()
            guilty += result is not None and result.chance <= 0.0125
        self.assertLessEqual(guilty, 8)

    def test_suspects_together_wait_for_the_likelier(self) -> None:
        done = Experiment({'hog': Suspect(1.0, 9.0), 'mate': Suspect(
            1.0, 1.0)}, 3.0, '')
        for now, used in enumerate([{'hog': 1.0, 'mate': 0.0}] * 5
                                   + [{'hog': 0.0, 'mate': 1.0}] * 3):
            done.step(float(now), 1.0, used, {})
            self.assertEqual(now >= 5, done.waits)


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
        self.assertIs(GroundKind.EXPERIMENT, ground.kind)
        assert ground.before and ground.after and ground.chance
        self.assertLess(ground.after, ground.before)
        self.assertLess(ground.chance, 0.0125)
        self.turn(100)
        self.assertEqual('confirmed', self.incident().outcome)

    def test_little_harm_is_enough(self) -> None:
        """That limits help in half of the turns does not end the search."""
        self.harm = 0.06        # 1.24, and 1.07 with a limit: 1.08 is usual
        seconds = self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents), 120)
        self.assertLessEqual(seconds, 75)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_two_that_alternate(self) -> None:
        """One of them always works, so nothing varies; in the end both are
        named."""
        rates = self.rates
        mate = Workload('mate', Priority.BACKGROUND,
                        floor={Knob.CPU_CORES: 0.1})
        self.wants = lambda now: 4.0 if now // 40 % 2 else 0.02

        def both() -> Rates:
            limits = {cap.workload: float(cap.value)
                      for cap in self.decision.caps}
            used = min(limits.get('mate', 4.0),
                       0.02 if self.now // 40 % 2 else 4.0)
            host = rates()
            return dataclasses.replace(host, workloads=(
                *(one._replace(cpi=(one.cpi or 0) + self.harm * used)
                  if one.workload in self.shop else one
                  for one in host.workloads),
                WorkloadRates(mate, 1.0, cpu_cores=used, cpi=1.0,
                              run_delay=0.0, llc_misses_per_s=2e7 * used)))

        self.rates = both  # type: ignore[method-assign]
        named: set[str] = set()
        kinds = set()
        for decision in self.turn(600):
            for incident in decision.incidents:
                named |= set(incident.antagonists)
                kinds |= {ground.kind for ground in incident.grounds
                          if incident.antagonists}
        self.assertEqual({'hog', 'mate'}, named)
        self.assertIn(GroundKind.EXPERIMENT, kinds)

    def test_an_incident_tells_of_it(self) -> None:
        """From its first limit on, and by which grounds."""
        self.until(lambda decision: decision.caps)
        incident = self.incident()
        self.assertEqual(LIMIT + 'hog', incident.action)
        self.assertEqual([('hog', GroundKind.EXPERIMENT, None)], [
            (one.workload, one.kind, one.after) for one in incident.grounds])
        self.assertEqual((), incident.antagonists)
        self.assertEqual(['hog'], self.decision.facts['examined'])

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

    def test_one_that_rests_under_each_limit(self) -> None:
        """It is not judged, and tried again first."""
        search = Search('cpi', {'shop0': 1.0}, {
            name: Suspect(1.0, 1.0) for name in ('hog', 'mate')},
            [['hog'], ['mate']], 0.05, 3.0, lambda: True, '')
        limits: dict[str, float] = {}
        now = 0.0
        while not search.over:
            now += 1
            self.assertLess(now, 1000)
            limits = search.step(now, Rates(now, 1.0, (
                WorkloadRates(self.shop[0], 1.0, cpu_cores=1.0, cpi=1.0),
                *(WorkloadRates(Workload(name, Priority.BACKGROUND), 1.0,
                                cpu_cores=1.0 if name not in limits
                                else 0.0 if name == 'hog' else limits[name])
                  for name in ('hog', 'mate')))))
        self.assertIsNone(search.finding)
        self.assertEqual([['hog']], search.left)

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


class BoundsTest(SearchCase):
    """``batch`` uses as much as the hog each, and disturbs nothing."""

    def setUp(self) -> None:
        super().setUp()
        self.batch: list[Workload] = []
        rates = self.rates

        def more() -> Rates:
            host = rates()
            caps = {cap.workload: float(cap.value)
                    for cap in self.decision.caps}
            return dataclasses.replace(host, workloads=(
                *host.workloads, *(WorkloadRates(
                    one, 1.0, cpu_cores=min(4.0, caps.get(one.id, 4.0)),
                    cpi=1.0, run_delay=0.0, llc_misses_per_s=2e7 * min(
                        4.0, caps.get(one.id, 4.0))) for one in self.batch)))

        self.rates = more  # type: ignore[method-assign]

    def beside(self, number: int) -> None:
        """From now on there are so many."""
        self.batch = [Workload(f'other{one}', Priority.BACKGROUND,
                               floor={Knob.CPU_CORES: 0.1})
                      for one in range(number)]

    def new_limits(self, seconds: int) -> list[set[str]]:
        """The workloads that are limited in each tick and were not before."""
        limited: set[str] = set()
        new = []
        for decision in self.turn(seconds):
            now = {cap.workload for cap in decision.caps}
            new.append(now - limited)
            limited |= now
        return new

    def test_each_suspect_is_paid_for(self) -> None:
        self.beside(14)
        self.controller.tune(attribution.Params(max_caps_per_min=1))
        for at, new in enumerate(self.new_limits(200)):
            self.assertLessEqual(len(new), 1, f'{at} s')

    def test_no_lease_of_the_governor_ends_it(self) -> None:
        self.until(lambda decision: decision.caps)
        self.controller.allow(Budget(0, math.inf, 1.0))
        for decision in self.turn(60):
            self.assertEqual((), decision.caps)

    def test_what_cannot_be_searched_for_costs_nothing(self) -> None:
        """A victim that hardly runs has no signal in a tick."""
        rates = self.rates
        small = Workload('small', Priority.FOREGROUND)
        self.harm = 0.0
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            host := rates(), workloads=(*host.workloads, WorkloadRates(
                small, 1.0, cpu_cores=0.05, run_delay=1.0,
                throttled_share=0.0)))
        self.turn(300)
        self.harm = 0.25
        self.wants = lambda now: 4.0
        self.assertLessEqual(self.until(lambda decision: decision.caps), 60)

    def test_another_of_its_name(self) -> None:
        """What was measured of the one before counts for nothing."""
        self.until(lambda decision: decision.caps)
        self.turn(30)
        rates = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            host := rates(), workloads=tuple(
                one._replace(workload=dataclasses.replace(
                    one.workload, created_s=5.0))
                if one.workload.id == 'hog' else one
                for one in host.workloads))
        for decision in self.turn(20):
            self.assertNotIn('hog', {
                name for incident in decision.incidents
                for name in incident.antagonists})
            self.assertNotIn('hog', {cap.workload for cap in decision.caps})

    def test_another_that_is_gone_clears_nothing(self) -> None:
        """What was examined together with it is examined again."""
        search = Search('cpi', {'shop0': 1.0}, {
            name: Suspect(1.0, 1.0) for name in ('hog', 'mate', 'other')},
            [['hog', 'mate'], ['other']], 0.05, 3.0, lambda: True, '')
        search.forget(['mate'])
        self.assertEqual((['hog'], [['other']]),
                         (search.names, search.groups))

    def test_no_suspect_has_two_limits(self) -> None:
        """Direct evidence names what is in an experiment for another."""
        self.until(lambda decision: decision.caps)
        rates = self.rates
        web = Workload('web', Priority.FOREGROUND)

        def both() -> Rates:
            host = rates()
            asked = ('web', Resource.CPU) in self.decision.asks
            return dataclasses.replace(host, workloads=(
                *host.workloads, WorkloadRates(
                    web, 1.0, cpu_cores=0.5, run_delay=1.0,
                    throttled_share=0.0)), direct=(DirectEvidence(
                        'web', Resource.CPU, 2.0, 1.0, {'hog': 0.9}),
                        ) if asked else ())

        self.rates = both  # type: ignore[method-assign]
        named = False
        for decision in self.turn(60):
            keys = [cap[:2] for cap in decision.caps]
            self.assertEqual(len(set(keys)), len(keys), str(keys))
            named |= 'hog' in {name for incident in decision.incidents
                               if incident.victim == 'web'
                               for name in incident.antagonists}
        self.assertTrue(named)

    def test_churn_beside_does_not_end_it(self) -> None:
        """Something small comes and goes, and the hog is named all the same.
        """
        rates = self.rates
        cron = Workload('cron', Priority.BACKGROUND)
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            host := rates(), workloads=(*host.workloads, *(
                [WorkloadRates(cron, 1.0, cpu_cores=0.3, cpi=1.0,
                               llc_misses_per_s=6e6)]
                if self.now % 25 else [])))
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents), 120)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_one_that_cannot_be_limited(self) -> None:
        """It is likelier than the hog, and operators have exempted it."""
        self.beside(1)
        rates = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            host := rates(), workloads=tuple(
                one._replace(cpu_cores=8.0, llc_misses_per_s=1.6e8)
                if one.workload.id == 'other0' else one
                for one in host.workloads))
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents), 300)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_alike_ones(self) -> None:
        """One of ten disturbs; in the end it is found."""
        self.beside(9)
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents), 7200)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_many_alike_ones_are_suspects(self) -> None:
        self.beside(30)
        self.until(lambda decision: decision.facts['examined'])

    def feign(self, every_s: float) -> None:
        """From now on the shop says that it suffers, whatever is limited, and
        is another application after so many seconds."""
        self.harm, rates = 0.0, self.rates
        self.controller.compare({
            specs.key(None, f'shop{number}', '', 'cpi'): specs.Spec(
                1.02, 0.03, 1000, 10, 'directive')
            for number in range(1000)})

        def feigned() -> Rates:
            host, number = rates(), self.now // every_s
            return dataclasses.replace(host, workloads=tuple(
                one._replace(cpi=1.7, workload=dataclasses.replace(
                    one.workload, id=f'{one.workload.id}-{number:.0f}',
                    application=f'shop{number:.0f}'))
                if one.workload in self.shop else one
                for one in host.workloads))

        self.rates = feigned  # type: ignore[method-assign]

    def test_many_that_feign(self) -> None:
        """All searches in vain together take a share of the time."""
        self.feign(100.0)
        limited = self.limits(7200, 'hog')
        self.assertTrue(0 < limited < 0.1 * 7200, limited)

    def test_rests_outlive_the_process(self) -> None:
        self.feign(math.inf)
        self.until(lambda decision: decision.caps)
        self.until(lambda decision: not decision.facts['examined'])
        state = self.controller.state()
        self.controller = attribution.Controller(host='h', boot_id='b')
        self.controller.load(state, self.now)
        self.feign(math.inf)
        self.assertEqual(0, self.limits(280, 'hog'))

    def test_what_may_not_be_limited_opens_no_incident(self) -> None:
        self.controller.tune(attribution.Params(max_caps_per_min=0))
        for decision in self.turn(120):
            self.assertEqual((), decision.incidents)

    def test_the_harm_ends(self) -> None:
        self.until(lambda decision: decision.caps)
        self.harm = 0.0
        self.turn(21)       # the mean of three samples, and the one begun
        for decision in self.turn(100):
            self.assertEqual((), decision.caps)

    def test_a_clock_that_stands(self) -> None:
        """No limit of an experiment outlives the ticks that count it."""
        self.until(lambda decision: decision.caps)
        self.now -= 500
        self.turn(1)
        self.assertEqual((), self.decision.caps)

    def test_a_limit_that_acts_late(self) -> None:
        """Half a second after it was asked for."""
        rates, before = self.rates, Decision()

        def late() -> Rates:
            nonlocal before
            now = self.decision
            self.decision = before
            first = rates()
            self.decision, before = now, now
            second = rates()
            return dataclasses.replace(first, workloads=tuple(
                one._replace(cpu_cores=(
                    (one.cpu_cores or 0) + (two.cpu_cores or 0)) / 2)
                for one, two in zip(first.workloads, second.workloads,
                                    strict=True)))

        self.rates = late  # type: ignore[method-assign]
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents), 120)
        ground, = self.incident().grounds
        self.assertEqual(('hog', GroundKind.EXPERIMENT),
                         (ground.workload, ground.kind))


class LooksTest(testtools.TestCase):

    def test_all_looks_take_one_chance_together(self) -> None:
        looks = Looks(5.0, 600.0)
        pair = ('', 'shop'), 'cpi'
        parts = [looks.part(float(now), pair) for now in range(0, 86400, 5)]
        self.assertLessEqual(sum(parts), 1.0)
        # One in each window at least, so that something new is seen.
        gaps = [at for at, part in enumerate(parts) if part > 0]
        self.assertLessEqual(max(5 * (two - one) for one, two in zip(
            gaps, gaps[1:], strict=False)), 600)

    def test_innocents_are_seldom_named(self) -> None:
        """An hour beside ten that work and rest as they like."""
        named = 0
        for seed in range(12):
            dice = random.Random(seed)
            busy = [True] * 11
            controller = attribution.Controller(attribution.Params(
                max_caps_per_min=0), host='h', boot_id=str(seed))
            seen: set[str] = set()
            for now in range(0, 3600, 5):
                busy = [one != (dice.random() < 5 / 90) for one in busy]
                decision = controller.step(float(now + 1), Rates(
                    float(now + 1), 5.0, (WorkloadRates(
                        Workload('web', Priority.FOREGROUND), 5.0,
                        cpu_cores=1.0, run_delay=0.0,
                        cpi=(1.6 if busy[10] else 1.0)
                        * (1 + dice.gauss(0, 0.03))), *(WorkloadRates(
                            Workload(f'batch{n}', Priority.BACKGROUND), 5.0,
                            cpu_cores=2.0 if busy[n] else 0.1, cpi=1.0,
                            run_delay=0.0) for n in range(10)))))
                seen |= {name for incident in decision.incidents
                         for name in incident.antagonists}
            named += bool(seen)
        self.assertLessEqual(named, 2)
