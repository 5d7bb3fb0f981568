# SPDX-License-Identifier: Apache-2.0

"""Limits that a regulator wants no more stay for a while.

Tighten at once, loosen slowly: a need that comes and goes each second is one
need.  None of it is in a paper.

It is for regulators only: how a detector's limits go is in its own states.
What an operator changes, and what the controller gives a reason for
(:attr:`.types.Decision.removal_reasons`), is removed at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math

from scavenger_openstack.algorithms.back_off import HoldTimes
from scavenger_openstack.algorithms.back_off import Stay
from scavenger_openstack.knobs import OF_NETWORK
from scavenger_openstack import types

HOLD_TIMES: Mapping[types.Knob, HoldTimes] = {
    # It costs background work CPU time that nothing else needs.
    types.Knob.CPU_CORES: HoldTimes(10.0, 60.0),
    # These cost little while nothing is short.
    **dict.fromkeys((types.Knob.CPU_IDLE, types.Knob.LLC_WAYS,
                     types.Knob.IO_OPS_PER_S, types.Knob.IO_BYTES_PER_S,
                     *OF_NETWORK), HoldTimes(60.0, 900.0))}
"""By knob.  Not memory, for whose limits workloads are paused or killed; not
CPU sets, which follow what is pinned; not pauses."""


@dataclasses.dataclass(slots=True)
class _HeldLimit:
    """The last value of a limit that is or was wanted; of one that is not,
    when its workload was made."""

    cap: types.Cap
    stay: Stay
    created_s: float = 0.0


class Linger:
    """The limits of the regulators, from one tick to the next."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool],
                         dict[types.KnobKey, _HeldLimit]] = {}
        self._rates = self._before = types.Rates(-math.inf, 0.0, ())

    def reset(self, name: str) -> None:
        """Let the limits of a regulator go that it does not want."""
        for set_ in False, True:
            self._kept.pop((name, set_), None)

    def caps(self, name: str, decision: types.Decision, rates: types.Rates, *,
             are_set: bool) -> tuple[types.Cap, ...]:
        """Return what a regulator wants, and what it wanted a while ago.

        What was only shown then is not set now because of that.

        :param name: of the regulator
        :param are_set: whether its limits are set, and not only shown
        """
        if rates is not self._rates:
            self._rates, self._before = rates, self._rates
        self._kept.pop((name, not are_set), None)
        kept = self._kept.setdefault((name, are_set), {})
        wanted = set()
        for cap in decision.caps:
            key = cap[:2]
            wanted.add(key)
            held = kept.get(key)
            if held is None:
                if cap.knob not in HOLD_TIMES:
                    continue
                held = kept[key] = _HeldLimit(cap, Stay(HOLD_TIMES[cap.knob]))
            held.cap = cap
            if held.stay.unwanted_since_s < math.inf or not held.stay.on:
                held.stay.want(rates.time_s)
        if len(kept) <= len(wanted) and kept.keys() <= wanted:
            return decision.caps
        return (*decision.caps, *self._left(
            kept, kept.keys() - wanted, decision.removal_reasons))

    def _left(self, kept: dict[types.KnobKey, _HeldLimit],
              left: Iterable[types.KnobKey],
              removal_reasons: Mapping[types.KnobKey, str]) -> list[types.Cap]:
        """The limits that stay, of those that are not wanted."""
        now, present = self._rates.time_s, _present(self._rates)
        before = _present(self._before)
        caps = []
        for key in sorted(left):
            held = kept[key]
            stay = held.stay
            if stay.unwanted_since_s > now:
                held.created_s = before.get(key[0], math.nan)
            if present.get(key[0]) != held.created_s or stay.is_reset(now):
                del kept[key]   # gone, foreground, another one; or long ago
            elif stay.release(now, at_once=key in removal_reasons):
                caps.append(held.cap._replace(reason=(
                    f'{held.cap.reason}; not needed for '
                    f'{now - stay.unwanted_since_s:.0f} s, will be removed '
                    f'at {stay.stay_s:.0f} s')))
        return caps


def _present(rates: types.Rates) -> dict[str, float]:
    """Return when each background workload was made; 0 for groups of some,
    and for all together."""
    background = [rated.workload for rated in rates.workloads
                  if rated.workload.priority is types.Priority.BACKGROUND]
    return {**({types.THE_BACKGROUND: 0.0} if background else {}),
            **{workload.group: 0.0 for workload in background
               if workload.group},
            **{workload.id: workload.created_s for workload in background}}
