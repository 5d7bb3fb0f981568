# SPDX-License-Identifier: Apache-2.0

"""Counters of the kernel itself, which play those of a CPU."""

from __future__ import annotations

from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.perf_event import Event

CLOCK, FAULTS = 0, 2
PLAYED = (Event('cycles', perf_event.SOFTWARE, CLOCK),
          Event('ref_cycles', perf_event.SOFTWARE, CLOCK),
          Event('instructions', perf_event.SOFTWARE, CLOCK),
          Event('llc_misses', perf_event.SOFTWARE, FAULTS))
