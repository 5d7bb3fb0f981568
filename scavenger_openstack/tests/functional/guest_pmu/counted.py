# SPDX-License-Identifier: Apache-2.0


"""Cgroups of version 2 on a machine with a PMU, and looks at them.

The guest's clock is made of instructions: each takes 2**N ns, and a cycle
one, so cycles per instruction are 2**N whatever runs.  Two events that this
PMU does not have are played by two that it has, so that every field of a
sample is counted by hardware.
"""

from __future__ import annotations

import pathlib
import re
import time

import fixtures

from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.perf_event import Event
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

CYCLES, INSTRUCTIONS = 0, 1
PLAYED = (Event('cycles', perf_event.HARDWARE, CYCLES),
          Event('ref_cycles', perf_event.HARDWARE, CYCLES),
          Event('instructions', perf_event.HARDWARE, INSTRUCTIONS),
          Event('llc_misses', perf_event.HARDWARE, INSTRUCTIONS))
"""Misses are instructions: what they come to is known."""

LOOK_S = 0.3


def cpi() -> int:
    """What the guest was started with."""
    text = pathlib.Path('/proc/cmdline').read_text()
    return 2 ** int(re.findall(r'pmu_shift=(\d+)', text)[0])


def grown(before: WorkloadSample, after: WorkloadSample, field: str
          ) -> float:
    """How much a counter that is known grew."""
    return float(getattr(after, field) - getattr(before, field))


class PmuTestCase(tree.GuestTestCase):
    """One workload ``a`` below a background parent, and counters."""

    def setUp(self) -> None:
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.cgroups = self.driver()

    def counting(self, events: tuple[Event, ...] = PLAYED, **settings: object
             ) -> perf.Perf:
        found = perf.Perf(perf.Settings(**settings),  # type: ignore[arg-type]
                          events=events)
        self.addCleanup(found.close)
        return found

    def look(self, counters: perf.Perf) -> HostSample:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return HostSample(
            host='guest', boot_id='1', time_s=now, wall_time_s=now,
            workloads=counters.add(self.cgroups.sample(), now))

    def looks(self, counters: perf.Perf, seconds: float = LOOK_S
              ) -> tuple[HostSample, HostSample]:
        """Two looks, so far from each other."""
        first = self.look(counters)
        time.sleep(seconds)
        return first, self.look(counters)

    def rate_of(self, counters: perf.Perf, seconds: float = LOOK_S,
                who: str = '') -> WorkloadRates:
        """The rates of one workload over a while."""
        return next(one for one in rates.rates(
            *self.looks(counters, seconds)).workloads
            if one.workload.id == (who or self.job))

    def sample_of(self, sample: HostSample, who: str = '') -> WorkloadSample:
        return next(one for one in sample.workloads
                    if one.workload.id == (who or self.job))

    def assertNear(self, expected: float, found: float | None,
                   share: float = 0.01) -> None:
        assert found is not None
        self.assertBetween(expected * (1 - share), found,
                           expected * (1 + share))
