# SPDX-License-Identifier: Apache-2.0

"""The incidents of the detector: when they begin, and what they answer."""

from __future__ import annotations

import dataclasses
import math
import random

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.tests.unit.algorithms.attribution.shop import HOG
from scavenger_openstack.tests.unit.algorithms.attribution.shop import SHOP
from scavenger_openstack.tests.unit.algorithms.attribution.shop import ShopCase
from scavenger_openstack.tests.unit.algorithms import consistent
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Rates


class IncidentsCase(ShopCase):

    def setUp(self) -> None:
        super().setUp()
        self.incidents = consistent.Incidents(self)

    def turn(self, seconds: int) -> list[Decision]:
        found = []
        for _ in range(seconds):
            found += super().turn(1)
            self.incidents.follow(self.now, self.decision)
        return found


class LimitsTest(IncidentsCase):

    def disk(self, most: float) -> None:
        """The hog reads as a wave goes, and the shop waits for the disk.

        :param most: how many times as long it waits at the highest
        """
        whole = self.rates

        def rates() -> Rates:
            found = whole()
            reads = (1 + math.sin(self.now / 20)) / 2
            return dataclasses.replace(found, workloads=tuple([
                one._replace(
                    cpi=None, io_ops_per_s=100.0, io_bytes_per_s=1e6,
                    io_wait_s_per_op=0.01 * (1 + (most - 1) * reads)
                    * (1 + self.rng.gauss(0, 0.01)))
                if one.workload in SHOP else one._replace(
                    cpi=None, io_ops_per_s=1.0, io_bytes_per_s=(
                        1e8 * reads if one.workload is HOG else 1e4))
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]

    def test_each_has_an_incident_with_a_victim(self) -> None:
        """What rises by a fifth at most does so by less on average."""
        self.controller = attribution.Controller(attribution.Params(
            max_chance=0.5), host='h', boot_id='b')
        self.shop = SHOP[:1]
        self.disk(1.27)
        self.until(lambda decision: decision.caps
                   and decision.incidents[0].antagonists)
        incident = self.incident()
        self.assertEqual(('shop0', 'io_wait', ('hog',)), (
            incident.victim, incident.signal, incident.antagonists))
        self.assertIn('io_wait of shop0 rises to',
                      self.decision.caps[0].reason)
        self.turn(100)

    def test_none_is_left_when_its_victims_are_gone(self) -> None:
        self.shop = SHOP[:2]
        self.until(lambda decision: decision.caps)
        victims = {one.victim for one in self.decision.incidents}
        self.assertEqual({'shop0', 'shop1'}, victims)
        self.shop = SHOP[2:]    # of the same application
        self.turn(1)
        self.assertEqual(((), ()), (self.decision.caps,
                                    self.decision.incidents))
        self.turn(100)


class BeginTest(IncidentsCase):
    """An incident begins with the harm, not when there is evidence of it."""

    def setUp(self) -> None:
        super().setUp()
        self.shop = SHOP[:1]

    def above(self) -> list[float]:
        """When the victim's signal was above the threshold, as drawn."""
        incident = self.incident()
        assert incident.threshold is not None
        (_, _, times_s, values), *_ = self.controller.evidence(incident)
        return [time_s for time_s, value in zip(times_s, values, strict=True)
                if value is not None and value > incident.threshold]

    def test_with_the_first_sample_above_the_threshold(self) -> None:
        """The hog works for minutes, and what it does shows when it rests."""
        began_s = self.now
        self.wants = lambda now: (
            0.0 if began_s + 250 < now <= began_s + 272 else 4.0)
        self.until(lambda decision: decision.incidents)
        begun_s = self.incident().time_s
        self.assertEqual(min(self.above()), begun_s)
        self.assertLessEqual(begun_s, began_s + 5)
        self.assertGreater(self.now, began_s + 250)

    def test_what_the_victim_does_of_itself_is_no_beginning(self) -> None:
        """It is as slow before there is any hog."""
        came_s = self.now + 240
        self.wants = lambda now: 4.0 if now > came_s else 0.0
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one._replace(cpi=2.0) if one.workload in SHOP
                and came_s - 40 < self.now < came_s - 20 else one
                for one in found.workloads]))
        self.until(lambda decision: decision.incidents)
        self.assertLess(min(self.above()), came_s - 20)
        self.assertGreater(self.incident().time_s, came_s)

    def test_one_that_comes_back_is_another(self) -> None:
        """The pause between both is no part of either."""
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(100)
        first = self.incident()
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.incidents, 600)
        ended_s = self.now
        self.turn(100)
        self.wants = lambda now: 4.0
        self.until(lambda decision: decision.incidents, 60)
        again = self.incident()
        self.assertNotEqual(first.id, again.id)
        self.assertGreater(again.time_s, ended_s)
        self.assertEqual('open', again.outcome)
        self.incidents.apart()

    def test_it_ends_when_nothing_is_above_the_threshold(self) -> None:
        """A victim that waits a little more than it did is not disturbed for
        ever."""
        self.controller = attribution.Controller(attribution.Params(
            max_caps_per_min=0))
        self.until(lambda decision: decision.incidents)
        self.wants = lambda now: 0.35   # 0.09 times as much
        last_s = max(self.above())
        self.until(lambda decision: not decision.incidents, 400)
        self.assertLessEqual(self.now - last_s, 320)


class FlappingTest(IncidentsCase):

    def test_one_that_rests_again_and_again_keeps_its_limit(self) -> None:
        """It works for half a minute of each minute."""
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0 if now % 60 < 30 else 0.0
        limited = [bool(decision.caps) for decision in self.turn(1800)]
        self.assertLessEqual(sum(
            now and not before for before, now
            in zip(limited, limited[1:], strict=False)), 4)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.caps, 330)


class RandomTest(IncidentsCase):
    """Hosts on which all that may happen does, in an hour or so each."""

    SEEDS = range(8)
    PHASES = 40

    def phase(self, dice: random.Random) -> None:
        """For some time the hog works like that, for those victims."""
        level = dice.choice((0.0, 1.0, 4.0, 4.0))
        period_s = dice.choice((20, 40, 60))
        shape = dice.choice((
            lambda now: level,
            lambda now: level if now // period_s % 2 else 0.0,
            lambda now: level * (1 + math.sin(6.3 * now / period_s)) / 2))
        self.wants = shape
        self.obeyed = dice.random() < 0.8
        self.harm = dice.choice((0.0, 0.05, 0.08, 0.25))
        self.io_harm = dice.choice((0.0, 0.28, 1.0))
        self.throttled = dice.choice((0.0, 0.0, 0.0, 0.4))
        if dice.random() < 0.3:
            self.shop = [
                dataclasses.replace(one, created_s=dice.choice((0.0, 1.0)))
                for one in dice.sample(SHOP, dice.randrange(1, 4))]

    def test_nothing_contradicts_itself(self) -> None:
        whole, limits = self.rates, 0

        def rates() -> Rates:
            """With a disk that the shop and the hog use as well."""
            found = whole()
            part = self.used / 4
            return dataclasses.replace(found, workloads=tuple([
                one._replace(
                    io_ops_per_s=100.0, io_bytes_per_s=1e6,
                    io_wait_s_per_op=0.01 * (1 + self.io_harm * part)
                    * (1 + self.rng.gauss(0, 0.01)))
                if one.workload in self.shop else one._replace(
                    io_ops_per_s=1.0, io_bytes_per_s=(
                        1e8 * part if one.workload is HOG else 1e4))
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]
        for seed in self.SEEDS:
            dice, self.rng = random.Random(seed), random.Random(seed)
            self.controller = attribution.Controller(attribution.Params(
                quiet_s=40.0, window_s=300.0, back_off_s=30.0,
                remember_s=200.0), host='h', boot_id=str(seed))
            self.incidents = consistent.Incidents(self)
            self.now, self.decision = 1000.0, Decision()
            for _ in range(self.PHASES):
                self.phase(dice)
                limits += any(decision.caps for decision
                              in self.turn(dice.randrange(20, 150)))
            self.wants, self.throttled = lambda now: 0.0, 0.0
            self.turn(450)
            self.assertEqual(((), ()), (self.decision.caps,
                                        self.decision.incidents))
            self.incidents.apart()
        self.assertGreater(limits, 3 * len(self.SEEDS))
