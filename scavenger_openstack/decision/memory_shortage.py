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

"""What to do when the kernel refuses a memory limit: freeze, or kill.

Source: Scavenger, section 4.2; DESIGN 7.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import math

from scavenger_openstack.types import Priority
from scavenger_openstack.types import WorkloadRates


def answer(unmet: Mapping[str, int], shortage: float,
           workloads: Sequence[WorkloadRates],
           ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whom to pause and whom to kill when memory limits were refused.

    ``unmet``: bytes that each workload has above the limit which the kernel
    refused.  ``shortage``: bytes by which the background as a whole is above
    what the foreground leaves; a refusal without one is a race of peers and
    no reason to kill.  Killed are those that opted in (``killable``): the
    refused ones first, then the newest, until what they use covers the
    shortage; one whose use is unknown is left alone.  Every refused
    workload that is not killed is paused.  Returns ``(pause, kill)``.
    Source: Scavenger, section 4.2 ("pauses or kills ... a subset of
    tasks"); DESIGN 7.9.
    """
    present = {one.workload.id for one in workloads
               if one.workload.priority is Priority.BACKGROUND}
    refused = [name for name, size in unmet.items()
               if name in present and size > 0]
    kill: list[str] = []
    for one in sorted(workloads, key=lambda one: (
            one.workload.id not in refused, -one.workload.created_s,
            one.workload.id)):
        if not (refused and shortage > 0):      # NaN is no shortage
            break
        used = _known(one)
        if used and one.workload.killable and one.workload.id in present:
            kill.append(one.workload.id)
            shortage -= used
    return tuple(name for name in refused if name not in kill), tuple(kill)


def _known(one: WorkloadRates) -> int:
    """Bytes that it is known to use; 0 for what is no such number."""
    used = one.memory_bytes
    return used if used is not None and 0 <= used < math.inf else 0
