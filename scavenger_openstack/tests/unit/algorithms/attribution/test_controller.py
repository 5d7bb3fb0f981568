# SPDX-License-Identifier: Apache-2.0


"""The detector on a host of a few lines, whose truth is known."""

from __future__ import annotations

import dataclasses
import re

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms import attribution
from scavenger_openstack.tests.unit.algorithms.attribution.shop import HOG
from scavenger_openstack.tests.unit.algorithms.attribution.shop import SHOP
from scavenger_openstack.tests.unit.algorithms.attribution.shop import ShopCase
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload


class NamingTest(ShopCase):

    def test_the_hog_is_named_and_limited(self) -> None:
        self.until(lambda decision: decision.caps)
        cap, = self.decision.caps
        self.assertEqual(('hog', Knob.CPU_CORES, 'attribution'),
                         (cap.workload, cap.knob, cap.owner))
        self.assertTrue(0.1 <= float(cap.value) < 1.0, cap)
        told = re.match('cpi of shop0, shop1, shop2 rises to (.*) times its '
                        'undisturbed value with its use;', cap.reason)
        assert told is not None, cap.reason
        self.assertAlmostEqual(2 / 1.025, float(told[1]), 1)
        self.assertEqual({'shop0', 'shop1', 'shop2'}, {
            one.victim for one in self.decision.incidents})
        incident = self.incident()
        self.assertEqual(('cpi', ('hog',), 'limit hog'), (
            incident.signal, incident.antagonists, incident.action))
        self.assertEqual('hog', incident.suspects[0][0])
        self.assertEqual('memory_bandwidth', incident.cause)
        assert incident.threshold is not None
        self.assertAlmostEqual(1.13, incident.threshold, 1)

    def test_the_evidence_of_an_incident(self) -> None:
        """The series of victim and antagonist go together, as they did."""
        self.until(lambda decision: decision.caps)
        incident = self.incident()
        victim, hog, *rest = self.controller.evidence(incident)
        self.assertEqual([(incident.victim, 'cpi'), ('hog',
                                                        'llc_misses_per_s')],
                         [victim[:2], hog[:2]])
        self.assertEqual({(self.now - 5, self.now)}, {
            (times[-2], times[-1]) for _, _, times, _ in (victim, hog, *rest)})
        pairs = [(one, two) for one, two in zip(victim[3], hog[3],
                                                strict=True)
                 if one is not None and two is not None]
        self.assertGreater(min(one for one, two in pairs if two > 4e7),
                           max(one for one, two in pairs if two < 4e6))

    def test_the_incident_stays_the_same(self) -> None:
        self.until(lambda decision: decision.incidents)
        first = {one.id for one in self.decision.incidents}
        self.assertEqual(3, len(first))
        self.assertGreater(self.decision.facts['disturbances'], 0)
        for decision in self.turn(200):
            self.assertEqual(first, {one.id for one in decision.incidents})

    def test_without_hardware_counters(self) -> None:
        """Grade C: cpi and misses are not there, run_delay is."""
        whole = self.rates

        def rates() -> Rates:
            found = whole()
            return dataclasses.replace(found, workloads=tuple([
                one._replace(cpi=None, llc_misses_per_s=None,
                             run_delay=0.1 * self.used
                             if one.workload in SHOP else 0.0)
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]
        self.until(lambda decision: decision.caps)
        self.until(lambda decision: any(
            incident.antagonists for incident in decision.incidents))
        self.assertEqual(('run_delay', 'core', ('hog',)), (
            self.incident().signal, self.incident().cause,
            self.incident().antagonists))

    def disk(self, quiet_s: float, busy_s: float) -> None:
        """From now on the hog reads, and the shop waits for the disk."""
        whole = self.rates

        def rates() -> Rates:
            found = whole()
            reads = self.wants(self.now) > 1
            return dataclasses.replace(found, workloads=tuple([
                one._replace(
                    cpi=None, io_ops_per_s=100.0, io_bytes_per_s=1e6,
                    io_wait_s_per_op=busy_s if reads else quiet_s)
                if one.workload in SHOP else one._replace(
                    cpi=None, io_ops_per_s=1.0, io_bytes_per_s=(
                        1e8 if reads and one.workload is HOG else 1e4))
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]

    def test_a_wait_for_the_disk(self) -> None:
        self.disk(0.0, 0.002)
        self.until(lambda decision: decision.caps)
        self.assertEqual(('io_wait', 'disk', ('hog',)), (
            self.incident().signal, self.incident().cause,
            self.incident().antagonists))

    def test_a_wait_of_almost_nothing_is_none(self) -> None:
        """It is infinitely more than none at all."""
        self.disk(0.0, 1e-7)
        for decision in self.turn(600):
            self.assertEqual(((), ()), (decision.caps, decision.incidents))

    def test_one_task_in_the_application(self) -> None:
        self.shop = SHOP[:1]
        self.until(lambda decision: decision.caps)
        self.assertEqual(['shop0'], [one.victim for one
                                     in self.decision.incidents])

    def test_a_suspect_that_appears_in_the_middle(self) -> None:
        whole = self.rates
        came_s = self.now + 300
        self.wants = lambda now: 4.0 if now > came_s + 5 else 0.0

        def rates() -> Rates:
            found = whole()
            return found if self.now >= came_s else dataclasses.replace(
                found, workloads=tuple([
                    one for one in found.workloads
                    if one.workload is not HOG]))

        self.rates = rates  # type: ignore[method-assign]
        for decision in self.turn(300):
            self.assertEqual((), decision.incidents)
        self.assertLess(self.until(lambda decision: decision.caps), 60)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_a_task_that_came_while_all_were_disturbed(self) -> None:
        self.until(lambda decision: decision.incidents)
        self.wants = lambda now: 4.0
        self.obeyed = False
        self.shop.append(Workload('new', Priority.FOREGROUND,
                                  application='shop'))
        self.until(lambda decision: 'new' in [
            one.victim for one in decision.incidents], 60)
        self.assertEqual(('hog',), [
            one.antagonists for one in self.decision.incidents
            if one.victim == 'new'][0])

    def test_its_own_limit(self) -> None:
        self.harm = 0.0
        self.turn(100)
        self.throttled = 0.4
        self.until(lambda decision: decision.incidents, 60)
        self.assertEqual({('throttled_share', 'own_limit', ())}, {
            (one.signal, one.cause, one.antagonists)
            for one in self.decision.incidents})
        self.assertIn('no other workload', self.incident().action)
        for decision in self.turn(120):
            self.assertEqual((), decision.caps)
        self.throttled = 0.0
        self.until(lambda decision: not decision.incidents, 400)


class LimitingTest(ShopCase):

    def test_it_helps_and_is_adapted(self) -> None:
        self.until(lambda decision: decision.caps)
        self.assertEqual('open', self.incident().outcome)
        self.wants = lambda now: 4.0
        self.until(lambda decision: self.incident().outcome != 'open', 60)
        self.assertEqual('confirmed', self.incident().outcome)
        self.assertEqual({'confirmed': 1, 'refuted': 0, 'unclear': 0},
                         self.decision.facts['tried'])
        used = []
        for _ in range(900):
            self.turn(1)
            used.append(self.used)
        # 0.2 cores are what 5 % more cpi allow.
        self.assertTrue(0.1 < sum(used[300:]) / 600 < 0.35,
                        sum(used[300:]) / 600)
        self.assertLess(max(used[300:]), 0.6)

    def test_removed_when_it_rests_and_met_again_at_its_good_cap(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(400)
        good = float(self.decision.caps[0].value)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.caps, 60)
        self.turn(100)
        self.wants = lambda now: 4.0
        # Two samples: it need not be named again.
        self.assertLess(self.until(lambda decision: decision.caps), 10)
        again = float(self.decision.caps[0].value)
        self.assertTrue(0.6 * good <= again <= 1.4 * good, (good, again))
        self.assertEqual(1, self.decision.facts['tried']['confirmed'])

    def test_met_again_after_the_incident_was_over(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(100)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.incidents, 600)
        self.wants = lambda now: 4.0
        self.assertLess(self.until(lambda decision: decision.caps), 10)
        self.assertEqual(3, len(self.decision.incidents))

    def test_less_than_was_harmless_is_not_limited(self) -> None:
        """The victim suffers by itself, and it rests under its good cap."""
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(300)
        good = float(self.decision.caps[0].value)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.caps, 60)
        self.wants = lambda now: 0.7 * good
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one._replace(cpi=(one.cpi or 0) * 1.5)
                if one.workload.application else one
                for one in found.workloads]))
        for decision in self.turn(120):
            self.assertEqual((), decision.caps)

    def test_a_base_that_was_too_high_is_lowered(self) -> None:
        """When it is seen how well they do without the hog."""
        self.until(lambda decision: decision.caps)
        disturbance = next(iter(self.controller._disturbances.values()))
        disturbance.base *= 1.5
        disturbance.own = [factor * 1.5 for factor in disturbance.own]
        self.wants = lambda now: 4.0
        used = []
        for _ in range(900):
            self.turn(1)
            used.append(self.used)
        self.assertLess(sum(used[300:]) / 600, 0.6)

    def test_no_cap_outlives_its_victims(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        self.turn(20)
        self.shop.clear()
        self.assertLess(self.until(lambda decision: not decision.caps), 10)
        for decision in self.turn(100):
            self.assertEqual(((), ()), (decision.caps, decision.incidents))

    def test_the_incident_ends_after_five_quiet_minutes(self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 0.0
        self.until(lambda decision: not decision.caps, 100)
        took = self.until(lambda decision: not decision.incidents, 400)
        self.assertGreater(took, 200)

    def test_a_cap_that_is_not_in_force_proves_nothing(self) -> None:
        """In observe mode, or when the write failed."""
        self.obeyed = False
        self.until(lambda decision: decision.caps)
        cap, = self.decision.caps
        self.wants = lambda now: 4.0
        for decision in self.turn(300):
            self.assertEqual((cap.value,), tuple(
                one.value for one in decision.caps))
        self.assertEqual('open', self.incident().outcome)
        self.assertEqual({'confirmed': 0, 'refuted': 0, 'unclear': 0},
                         self.decision.facts['tried'])

    def test_a_cap_that_does_not_help_is_removed_and_not_soon_again(
            self) -> None:
        self.until(lambda decision: decision.caps)
        self.wants = lambda now: 4.0
        whole = self.rates

        def rates() -> Rates:
            found = whole()     # from now on it is something else
            return dataclasses.replace(found, workloads=tuple([
                one._replace(cpi=2.0 * (1 + self.rng.gauss(0, 0.02)))
                if one.workload in SHOP else one
                for one in found.workloads]))

        self.rates = rates  # type: ignore[method-assign]
        self.until(lambda decision: not decision.caps, 60)
        self.assertIn(self.incident().outcome, ('unclear', 'refuted'))
        for decision in self.turn(290):
            self.assertEqual((), decision.caps)

    def test_who_is_gone_is_not_limited(self) -> None:
        self.until(lambda decision: decision.caps)
        found = self.rates()
        self.now += 1
        decision = self.controller.step(self.now, dataclasses.replace(
            found, time_s=self.now, workloads=tuple([
                one for one in found.workloads if one.workload is not HOG])))
        self.assertEqual((), decision.caps)

    def test_what_nothing_is_limited_for(self) -> None:
        """What disturbs it is found and shown."""
        self.shop = [dataclasses.replace(one, protected=False)
                     for one in SHOP]
        self.until(lambda decision: decision.incidents)
        for decision in self.turn(300):
            self.assertEqual((), decision.caps)
        self.assertEqual(('hog',), self.incident().antagonists)
        self.assertIn('scavenger:protect', self.incident().action)
        self.assertEqual(0, self.decision.facts['tried']['confirmed'])

    def test_some_of_an_application_are_protected(self) -> None:
        """Their incidents alone lead to a limit."""
        self.shop[0] = dataclasses.replace(SHOP[0], protected=False)
        self.until(lambda decision: decision.caps
                   and len(decision.incidents) == 3)
        self.assertEqual({'shop0': False, 'shop1': True, 'shop2': True}, {
            one.victim: one.action == 'limit hog'
            for one in self.decision.incidents})
        cap, = self.decision.caps
        self.assertIn('cpi of shop1, shop2', cap.reason)

    def test_of_one_flavor_and_image_each_is_alone(self) -> None:
        """They need not do the same, and one that suffers is not lost among
        many."""
        image = '70a599e0-31e7-49b7-b260-868f441e862b'
        self.shop = [dataclasses.replace(
            one, application=f'p/m1.small@{image}') for one in SHOP]
        self.until(lambda decision: decision.caps)
        cap, = self.decision.caps
        self.assertRegex(cap.reason, 'cpi of shop[0-2][^,]')

    def test_not_protected_any_more(self) -> None:
        """What was limited for it is free at the next sample."""
        self.until(lambda decision: decision.caps)
        self.shop = [dataclasses.replace(one, protected=False)
                     for one in SHOP]
        self.turn(10)
        for decision in self.turn(300):
            self.assertEqual((), decision.caps)

    def test_the_governor_allows_none(self) -> None:
        """Until its lease has ended, and the time for another one."""
        self.controller.allow(Budget(0, self.now + 900, 1.0))
        self.until(lambda decision: decision.incidents)
        for decision in self.turn(60):
            self.assertEqual((), decision.caps)
        self.controller.allow(Budget(1, self.now + 960, 2.0))
        self.until(lambda decision: decision.caps)

    def test_so_many_new_caps_in_a_minute(self) -> None:
        self.controller = attribution.Controller(attribution.Params(
            max_caps_per_min=0))
        self.until(lambda decision: decision.incidents)
        for decision in self.turn(120):
            self.assertEqual((), decision.caps)
        self.assertEqual('nothing now', self.incident().action)
