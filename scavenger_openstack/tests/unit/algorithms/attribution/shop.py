# SPDX-License-Identifier: Apache-2.0

"""A shop, what it is disturbed by, and a detector that looks at both."""

from __future__ import annotations

from collections.abc import Callable
import math
import random

import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

SHOP = [Workload(f'shop{n}', Priority.FOREGROUND, application='shop')
        for n in range(3)]
HOG = Workload('hog', Priority.BACKGROUND, floor={Knob.CPU_CORES: 0.1})
BATCH = [Workload(f'batch{n}', Priority.BACKGROUND,
                  floor={Knob.CPU_CORES: 0.1}) for n in range(3)]


class ShopCase(testtools.TestCase):
    """A hog that misses the cache while it runs, and batches that do not.

    ``harm`` is what the victims' cpi gains per core of the hog.
    """

    harm = 0.25
    obeyed = True

    def setUp(self) -> None:
        super().setUp()
        self.controller = attribution.Controller(host='h', boot_id='b')
        self.rng = random.Random(1)
        self.now = 1000.0
        self.decision = Decision()
        self.shop = list(SHOP)
        self.wants: Callable[[float], float] = (
            lambda now: 4.0 if (now // 60) % 2 else 0.1)
        self.throttled = 0.0

    def rates(self) -> Rates:
        rng = self.rng
        cap = min([float(one.value) for one in self.decision.caps
                   if one.workload == 'hog' and self.obeyed] or [math.inf])
        self.used = min(self.wants(self.now), max(cap, 0.1))
        cpi = 1 + self.harm * self.used
        return Rates(self.now, 1.0, (
            *[WorkloadRates(
                one, 1.0, cpu_cores=1.0, run_delay=0.001,
                cpi=cpi * (1 + rng.gauss(0, 0.03)), llc_misses_per_s=5e6 / cpi,
                throttled_share=self.throttled) for one in self.shop],
            WorkloadRates(HOG, 1.0, cpu_cores=self.used, cpi=1.0,
                          run_delay=0.0, llc_misses_per_s=2e7 * self.used),
            *[WorkloadRates(
                one, 1.0, cpu_cores=(self.now // (31 + 9 * n)) % 2 + 0.1,
                cpi=1.0, run_delay=0.0, llc_misses_per_s=1e5)
              for n, one in enumerate(BATCH)]))

    def turn(self, seconds: int) -> list[Decision]:
        found = []
        for _ in range(seconds):
            self.now += 1
            self.decision = self.controller.step(self.now, self.rates())
            found.append(self.decision)
        return found

    def until(self, what: Callable[[Decision], object],
              seconds: int = 600) -> float:
        """Turn until it is so; the seconds that it took."""
        for passed in range(seconds):
            self.turn(1)
            if what(self.decision):
                return passed
        self.fail('never')

    def incident(self) -> Incident:
        return self.decision.incidents[0]
