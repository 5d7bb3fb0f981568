# SPDX-License-Identifier: Apache-2.0

"""What waits for CPUs without an incident, and why it has none."""

from __future__ import annotations

import dataclasses

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.tests.unit.algorithms.attribution.shop import HOG
from scavenger_openstack.tests.unit.algorithms.attribution.shop import SHOP
from scavenger_openstack.tests.unit.algorithms.attribution.shop import ShopCase
from scavenger_openstack.types import Rates


class SufferingTest(ShopCase):

    def setUp(self) -> None:
        super().setUp()
        # No experiment tells, either.
        self.controller = attribution.Controller(attribution.Params(
            max_caps_per_min=0), host='h', boot_id='b')
        self.shop = SHOP[:1]
        self.cores = 0.5
        self.wants = lambda now: 4.0    # and the shop waits half of its time
        whole = self.rates

        def rates() -> Rates:
            found = whole()
            return dataclasses.replace(found, workloads=tuple([
                one._replace(cpi=None, llc_misses_per_s=None,
                             cpu_cores=self.cores if one.workload in SHOP
                             else one.cpu_cores,
                             run_delay=0.25 * self.used
                             if one.workload in SHOP else 0.0)
                for one in found.workloads
                if self.used or one.workload is not HOG]))

        self.rates = rates  # type: ignore[method-assign]

    def told(self, seconds: int = 5) -> str:
        """What is told of the shop, '' if nothing is."""
        self.turn(seconds)
        told = dict(self.decision.facts['suffering'])
        self.assertLessEqual(told.keys(), {'shop0'})
        return told.get('shop0', '')

    def test_a_hog_that_never_rests(self) -> None:
        """It is not named, and that is said."""
        told = self.told()
        for number in ('50%', '5 s', '60 s'):
            self.assertIn(number, told)
        self.assertIn(' 600 s', self.told(895))
        self.assertEqual((), self.decision.incidents)

    def test_it_is_named(self) -> None:
        """Then there is an incident, and nothing else is said."""
        began_s = self.now
        self.wants = lambda now: (
            0.1 if began_s + 250 < now <= began_s + 272 else 4.0)
        self.assertNotEqual('', self.told(200))
        self.until(lambda decision: decision.incidents)
        self.assertEqual('', self.told())

    def test_what_hardly_runs(self) -> None:
        self.cores = 0.04
        self.assertNotEqual('', self.told(300))
        self.cores = 0.004      # it hardly runs
        self.assertEqual('', self.told(30))

    def test_background_does_not_suffer(self) -> None:
        """Whatever it waits."""
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one._replace(cpu_cores=0.5, run_delay=1.0)
                for one in found.workloads]))
        self.assertNotEqual('', self.told())

    def test_without_background(self) -> None:
        whole = self.rates
        self.rates = lambda: dataclasses.replace(  # type: ignore[method-assign]
            found := whole(), workloads=tuple([
                one for one in found.workloads if one.workload in SHOP]))
        self.assertIn('no background', self.told())

    def test_what_does_not_wait(self) -> None:
        self.wants = lambda now: 0.1
        self.assertEqual('', self.told(300))
