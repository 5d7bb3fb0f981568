# SPDX-License-Identifier: Apache-2.0

"""What to do when the kernel refuses a memory limit: freeze, or kill.

Source: Scavenger, section 4.2; DESIGN 7.9.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.decision.orders import Resolved
from scavenger_openstack import types


def pause_or_kill(unmet: Mapping[str, int], shortage: float,
                  workloads: Sequence[types.WorkloadRates],
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
    present = {rated.workload.id for rated in workloads
               if rated.workload.priority is types.Priority.BACKGROUND}
    refused = [name for name, size in unmet.items()
               if name in present and size > 0]
    kill: list[str] = []
    for rated in sorted(workloads, key=lambda rated: (
            rated.workload.id not in refused, -rated.workload.created_s,
            rated.workload.id)):
        if not (refused and shortage > 0):      # NaN is no shortage
            break
        used = number(rated.memory_bytes)
        if used and rated.workload.killable and rated.workload.id in present:
            kill.append(rated.workload.id)
            shortage -= used
    return tuple(name for name in refused if name not in kill), tuple(kill)


class Pauses:
    """The workloads that are paused because a memory limit was refused."""

    def __init__(self) -> None:
        self._paused: dict[str, types.Cap] = {}
        self._runs: dict[str, float] = {}

    @property
    def caps(self) -> Sequence[types.Cap]:
        """Return the caps that pause workloads."""
        return tuple(self._paused.values())

    def clear(self) -> None:
        self._paused.clear()

    def follow(self, rates: types.Rates,
               decisions: Mapping[str, types.Decision],
               wishes: Collection[types.Cap], resolved: Resolved,
               unmet: Mapping[str, int], pending: Collection[types.KnobKey]
               ) -> Sequence[types.Action]:
        """Pause where memory could not be reclaimed; return the kills, which
        need the consent of the workload's parent.

        A workload is paused until it is not refused any more, or has no
        memory limit any more, is foreground, or was made again, as at a hard
        reboot.  An operator's limit that is refused pauses and kills
        nothing: it was asked for that workload, not for what the foreground
        needs.

        :param unmet: bytes above the limit that was refused, by workload
        :param pending: knobs whose write the kernel has not answered yet
        """
        runs = {rated.workload.id: rated.workload.created_s
                for rated in rates.workloads
                if rated.workload.priority is types.Priority.BACKGROUND}
        limited = {cap.workload for cap in wishes
                   if cap.knob is types.Knob.MEMORY_BYTES
                   and resolved.overrides.get(cap[:2]) is None
                   and cap.workload in runs}
        unmet = {workload: size for workload, size in unmet.items()
                 if workload in limited}
        # What waits for the kernel stays as it is until that has answered.
        waiting = {workload: cap for workload, cap in self._paused.items()
                   if workload in limited
                   and (workload, types.Knob.MEMORY_BYTES) in pending
                   and runs[workload] == self._runs[workload]}
        pauses, kills = pause_or_kill(unmet, max(
            (decision.shortage_bytes for decision in decisions.values()),
            default=0.0), rates.workloads)
        self._paused = waiting | {
            workload: types.Cap(workload, types.Knob.PAUSED, 1, scavenger.NAME,
                                f'{unmet[workload]} bytes that the foreground '
                                'needs could not be reclaimed')
            for workload in pauses}
        self._runs = {workload: runs[workload] for workload in self._paused}
        why = (f'the foreground needs {sum(unmet.values())} bytes that '
               'could not be reclaimed')
        return [types.Action(workload, 'kill', scavenger.NAME, why)
                for workload in kills if workload not in resolved.exempt]
