# SPDX-License-Identifier: Apache-2.0

"""What to do when the kernel refuses a memory limit: freeze, or kill.

Source: Scavenger, section 4.2; DESIGN 7.9.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision import orders as orders_
from scavenger_openstack.decision.settle import Decided
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import WorkloadRates


class Answer(NamedTuple):
    """What follows from refused memory limits: caps that pause, and kills,
    which need the consent of the workload's parent."""

    pauses: Sequence[Cap] = ()
    kills: Sequence[Action] = ()


def pause_or_kill(unmet: Mapping[str, int], shortage: float,
                  workloads: Sequence[WorkloadRates],
                  ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which to pause and which to kill when memory limits were refused.

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


class Pauses:
    """The workloads that are paused because a memory limit was refused."""

    def __init__(self) -> None:
        self._paused: dict[str, Cap] = {}
        self._runs: dict[str, float] = {}

    @property
    def caps(self) -> Sequence[Cap]:
        """What pauses them."""
        return tuple(self._paused.values())

    def clear(self) -> None:
        self._paused.clear()

    def forget_ended(self, rates: Rates) -> None:
        """Of workloads that have ended, or were made again, as at a hard
        reboot: what runs now has been refused nothing.  Foreground is not
        paused for anything."""
        if not self._paused:
            return
        runs = {one[0].id: one[0].created_s for one in rates.workloads
                if one[0].priority is Priority.BACKGROUND}
        self._paused = {
            workload: cap for workload, cap in self._paused.items()
            if workload in runs
            and runs[workload] == self._runs.get(workload)}

    def answer(self, decided: Decided, unmet: Mapping[str, int],
               pending: Collection[KnobKey]) -> Answer:
        """Memory that the kernel did not take back: pause, or kill.

        A workload is paused until it is not refused any more, or has no
        memory limit any more; the next proposals ask for that.  An
        operator's limit that is refused pauses and kills nothing: it was
        asked for that workload, not for what the foreground needs.

        :param unmet: bytes above the refused limit, by workload
        :param pending: knobs whose write the kernel has not answered yet
        """
        unmet = {workload: size for workload, size in unmet.items()
                 if not orders_.is_asked_for(decided.wanted, workload)}
        # What waits for the kernel stays as it is until that has answered.
        waiting = {workload: cap for workload, cap in self._paused.items()
                   if (key := (workload, Knob.MEMORY_BYTES)) in pending
                   and key in decided.wanted
                   and not orders_.is_asked_for(decided.wanted, workload)}
        if not unmet:
            self._paused = waiting
            return Answer(tuple(waiting.values()))
        workloads = decided.rates.workloads
        pauses, kills = pause_or_kill(unmet, max(
            (one.shortage_bytes for one in decided.decisions.values()),
            default=0.0), workloads)
        self._paused = waiting | {
            workload: Cap(workload, Knob.PAUSED, 1, scavenger.NAME,
                          f'{unmet[workload]} bytes that the foreground '
                          'needs could not be reclaimed')
            for workload in pauses}
        self._runs = {one[0].id: one[0].created_s for one in workloads
                      if one[0].id in self._paused}
        why = (f'the foreground needs {sum(unmet.values())} bytes that '
               'could not be reclaimed')
        return Answer(
            self.caps,
            [Action(workload, 'kill', scavenger.NAME, why)
             for workload in kills if workload not in decided.exempt])


def _known(one: WorkloadRates) -> int:
    """Bytes that it is known to use; 0 for what is no such number."""
    used = one.memory_bytes
    return used if used is not None and 0 <= used < math.inf else 0
