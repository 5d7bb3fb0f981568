# SPDX-License-Identifier: Apache-2.0


"""From what is proposed to what should be in force: values and functions."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.decision import arbitrate
from scavenger_openstack.decision.orders import Resolved
from scavenger_openstack import types


class Proposal(NamedTuple):
    """The wishes of the controllers, before any knob is read.

    ``wishes`` are the caps of those that enforce, and the pauses that follow
    from refused memory limits; ``would`` are the caps of controllers that
    observe, and all caps while nothing may be limited.
    ``observed`` are the names of these controllers.
    ``faults`` are those of detectors that failed in this tick, by name.
    ``resolved`` is what of the operators' orders counts.
    ``kills`` follow from refused memory limits, too.
    ``reset``: there was no sample before this one to compare it with.
    ``asks``: of what direct evidence is to be gathered from now on.
    """

    rates: types.Rates
    decisions: Mapping[str, types.Decision]
    faults: Mapping[str, Exception]
    wishes: Sequence[types.Cap]
    would: Sequence[types.Cap]
    observed: Collection[str]
    resolved: Resolved
    limited: Collection[types.Knob]
    held_back: bool
    reset: bool
    kills: Sequence[types.Action] = ()
    asks: Collection[types.Ask] = ()

    @property
    def caps(self) -> Sequence[types.Cap]:
        """The caps whose knobs are to be read: what is wished, then what
        operators ask for."""
        overrides = self.resolved.overrides
        return [*self.wishes, *(cap for cap in overrides.values() if cap)
                ] if overrides else self.wishes


class FastLoopState(NamedTuple):
    """The sets and floors of the fast loop; nothing while it does not run.

    ``sets`` are the groups whose CPU set only it writes, ``floors`` what it
    asks the slow loop for.  Source: DESIGN 7.7.
    """

    sets: tuple[str, ...] = ()
    floors: tuple[types.Cap, ...] = ()

    @property
    def keys(self) -> frozenset[types.KnobKey]:
        return frozenset((group, types.Knob.CPU_SET) for group in self.sets)


NO_FAST_LOOP = FastLoopState()


class Decided(NamedTuple):
    """The decision of one tick, and what it was made from.

    ``wanted`` are the caps that should be in force.  ``would`` are the
    caps of controllers that observe; of all, while nothing may be limited.
    ``observed`` are the names of these controllers, ``limited`` the knobs that
    may be set.  ``originals`` is what each knob would hold without us.
    ``exempt``, ``refused`` and ``unlimited``, the knobs on which an override
    wants no limit, came of the operators' orders.
    """

    rates: types.Rates
    decisions: Mapping[str, types.Decision]
    would: Sequence[types.Cap]
    observed: Collection[str]
    limited: Collection[types.Knob]
    fast: FastLoopState
    originals: Mapping[types.KnobKey, types.Value | None]
    wanted: Mapping[types.KnobKey, types.Cap]
    exempt: Collection[str] = frozenset()
    refused: Mapping[str, str] = {}
    unlimited: Collection[types.KnobKey] = ()


def settle(proposal: Proposal,
           originals: Mapping[types.KnobKey, types.Value | None],
           fast: FastLoopState = NO_FAST_LOOP) -> Decided:
    """Return what should be in force.

    :param originals: what each of the proposal's knobs, and of the fast
        loop's floors, would hold without us
    :param fast: what the fast loop does from this tick on
    """
    rates, resolved, taken = proposal.rates, proposal.resolved, fast.keys
    wishes, overrides = proposal.wishes, resolved.overrides
    if taken or fast.floors:
        wishes = [*(cap for cap in wishes if cap[:2] not in taken),
                  *fast.floors]
        overrides = {key: cap for key, cap in overrides.items()
                     if key not in taken}
    floors = {rated.workload.id: rated.workload.floor
              for rated in rates.workloads} if wishes or overrides else {}
    return Decided(
        rates=rates, decisions=proposal.decisions, would=proposal.would,
        observed=proposal.observed, limited=proposal.limited, fast=fast,
        originals=originals,
        wanted=arbitrate.arbitrate(
            wishes, arbitrate.in_effect(originals, rates.topology), floors,
            overrides=overrides, exempt=resolved.exempt,
            stopped=proposal.held_back),
        exempt=resolved.exempt, refused=resolved.refused,
        unlimited=[key for key, cap in overrides.items() if cap is None])
