# SPDX-License-Identifier: Apache-2.0

"""The writes of one tick, in queues that do not wait for one another.

The driver decides in which queue a knob is: see
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
"""The only change that may take long in these queues; in any other queue each
may."""


@dataclasses.dataclass(slots=True)
class WriteQueue:
    """The work of one queue in a tick, in this order."""

    tighten: list[Cap] = dataclasses.field(default_factory=list)
    remove: list[KnobKey] = dataclasses.field(default_factory=list)
    loosen: list[Cap] = dataclasses.field(default_factory=list)
    prepare: list[KnobKey] = dataclasses.field(default_factory=list)
    """Knobs whose limits are about to be removed, here and elsewhere."""

    def keys(self) -> list[KnobKey]:
        return [*(cap.key for cap in (*self.tighten, *self.loosen)),
                *self.remove]

    def apart(self) -> list[WriteQueue]:
        """Return a queue for each removal; the first prepares all of them.

        Only for a queue that has nothing else to do.
        """
        queues = [WriteQueue(remove=[key]) for key in self.remove]
        queues[0].prepare = self.remove
        return queues


def by_name() -> collections.defaultdict[str, WriteQueue]:
    """Return a mapping from names to queues, which are empty at first."""
    return collections.defaultdict(WriteQueue)


def at(queue: str, change: str) -> str:
    """Return the queue in which a change of a knob of ``queue`` is made; '' is
    at once, in the tick itself."""
    return queue if _SLOW.get(queue, change) == change else ''


def tightens(cap: Cap, current: Value | None) -> bool:
    """Return whether the cap is lower than the value in force."""
    if current is None or cap.knob in SWITCHES:
        return True
    if cap.knob is Knob.CPU_SET:
        return not parse_cpus(str(current)) <= parse_cpus(str(cap.value))
    return float(cap.value) < float(current)


def inside(wanted: Mapping[KnobKey, Cap], in_force: Mapping[KnobKey, Cap]
           ) -> dict[KnobKey, Cap]:
    """Return the limits, with no quota above that of a group around it.

    The quota of the group is the lower one of that in force and that wanted:
    so the kernel accepts either order of writes, if the inner quota is
    tightened first.  The innermost groups come first.
    """
    bounded: dict[KnobKey, Cap] = {}
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
        bounded[workload, knob] = cap
    return {**dict(sorted(bounded.items(), key=lambda item: -item[0][0].count(
        '/'))), **{key: cap for key, cap in wanted.items()
                   if key not in bounded}}
