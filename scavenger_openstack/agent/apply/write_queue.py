# SPDX-License-Identifier: Apache-2.0


"""What one tick has to do, in queues that do not wait for one another.

Which queue a knob is in, its driver says: see
:meth:`scavenger_openstack.drivers.base.Knobs.queue`.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
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


def inside(wanted: Mapping[KnobKey, Cap], in_force: Mapping[KnobKey, Cap]
           ) -> dict[KnobKey, Cap]:
    """The same limits, but no quota above that of a group around it.

    Neither the one in force nor the one wanted: so whichever is written
    first, the kernel takes it, if that inside is tightened before.  The
    innermost come first.
    """
    found: dict[KnobKey, Cap] = {}
    for (workload, knob), cap in wanted.items():
        if knob is not Knob.CPU_CORES or not workload.startswith('/'):
            continue
        group = workload
        while group := group.rpartition('/')[0]:
            for limits in (in_force, wanted):
                around = limits.get((group, knob))
                if around is not None and float(around.value) < float(
                        cap.value):
                    cap = cap._replace(
                        value=around.value, owner=around.owner,
                        reason=f'{cap.reason}; no more than {group} has')
        found[workload, knob] = cap
    return {**dict(sorted(found.items(), key=lambda item: -item[0][0].count(
        '/'))), **{key: cap for key, cap in wanted.items()
                   if key not in found}}
