# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Counters of the kernel itself, which play those of a CPU."""

from __future__ import annotations

from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.perf_event import Event

CLOCK, FAULTS = 0, 2
PLAYED = (Event('cycles', perf_event.SOFTWARE, CLOCK),
          Event('ref_cycles', perf_event.SOFTWARE, CLOCK),
          Event('instructions', perf_event.SOFTWARE, CLOCK),
          Event('llc_misses', perf_event.SOFTWARE, FAULTS))
