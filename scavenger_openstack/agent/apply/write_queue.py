# SPDX-License-Identifier: Apache-2.0


"""What one tick has to do, in queues that do not wait for one another.

Which queue a knob is in, its driver says: see
:meth:`scavenger_openstack.drivers.base.Knobs.queue`.
"""

from __future__ import annotations

import collections
import dataclasses

from scavenger_openstack.drivers import base
from scavenger_openstack.knobs import SWITCHES
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value

TIGHTEN, LOOSEN, REMOVE = 'tighten', 'loosen', 'remove'

_SLOW = {base.RECLAIM: TIGHTEN, base.DRAIN: REMOVE}
"""All that may take long in these queues; in any other it is everything."""


@dataclasses.dataclass(slots=True)
class WriteQueue:
    """What one queue has to do in a tick, in this order."""

    tighten: list[Cap] = dataclasses.field(default_factory=list)
    remove: list[KnobKey] = dataclasses.field(default_factory=list)
    loosen: list[Cap] = dataclasses.field(default_factory=list)
    prepare: list[KnobKey] = dataclasses.field(default_factory=list)
    """Knobs whose limits are about to be removed, here and elsewhere."""

    def keys(self) -> list[KnobKey]:
        return [*((cap.workload, cap.knob)
                  for cap in (*self.tighten, *self.loosen)), *self.remove]

    def apart(self) -> list[WriteQueue]:
        """A queue for each removal, the first of which prepares all of them.

        For a queue that has nothing else to do.
        """
        found = [WriteQueue(remove=[key]) for key in self.remove]
        found[0].prepare = self.remove
        return found


def by_name() -> collections.defaultdict[str, WriteQueue]:
    """No work yet for any queue."""
    return collections.defaultdict(WriteQueue)


def at(queue: str, what: str) -> str:
    """Where that is done; '' is at once, in the tick itself."""
    return queue if _SLOW.get(queue, what) == what else ''


def tightens(cap: Cap, current: Value | None) -> bool:
    """Whether the cap takes something away from what is in force."""
    if current is None or cap.knob in SWITCHES:
        return True
    if cap.knob is Knob.CPU_SET:
        return not parse_cpus(str(current)) <= parse_cpus(str(cap.value))
    return float(cap.value) < float(current)
