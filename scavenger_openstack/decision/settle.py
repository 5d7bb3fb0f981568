# SPDX-License-Identifier: Apache-2.0


"""From what is proposed to what should be in force: values and functions."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.decision import arbitrate
from scavenger_openstack.decision import orders as orders_
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value


class Proposal(NamedTuple):
    """What the controllers ask for, before any knob is looked at.

    ``wishes`` are the caps of those that enforce, ``would`` those of
    controllers that observe; all are there while nothing may be limited.
    ``observed`` are the names of these controllers.
    ``faults`` are those of detectors that failed in this tick, by name.
    ``pauses`` are set for memory limits that were refused before.
    ``reset``: there was no sample before this one to compare it with.
    ``asks``: of what direct evidence is to be gathered from now on.
    """

    rates: Rates
    decisions: Mapping[str, Decision]
    faults: Mapping[str, Exception]
    wishes: Sequence[Cap]
    would: Sequence[Cap]
    observed: Collection[str]
    pauses: Sequence[Cap]
    orders: orders_.Orders
    limited: Collection[Knob]
    held_back: bool
    reset: bool
    asks: Collection[Ask] = ()


class FastLoopState(NamedTuple):
    """What the fast loop does now; nothing while it does not run.

    ``sets`` are the groups whose CPU set only it writes, ``floors`` what it
    asks the slow loop for.  Source: DESIGN 7.7.
    """

    sets: tuple[str, ...] = ()
    floors: tuple[Cap, ...] = ()

    @property
    def keys(self) -> frozenset[KnobKey]:
        return frozenset((group, Knob.CPU_SET) for group in self.sets)


NO_FAST_LOOP = FastLoopState()


class WishedCaps(NamedTuple):
    """What the slow loop is to set, as far as each knob allows it.

    ``caps`` are those whose knobs are to be looked at: what is wished, then
    what operators ask for (``resolved``).
    """

    proposal: Proposal
    fast: FastLoopState
    wishes: Sequence[Cap]
    resolved: orders_.Resolved
    caps: Sequence[Cap]


class Decided(NamedTuple):
    """What one tick decided, and from what.

    ``wanted`` are the caps that should be in force.  ``would`` are the
    caps of controllers that observe; of all, while nothing may be limited.
    ``observed`` are the names of these controllers, ``limited`` the knobs that
    may be set.  ``originals`` is what each knob would hold without us.
    ``exempt``, ``refused`` and ``unlimited``, the knobs on which an override
    wants no limit, came of the operators' orders.
    """

    rates: Rates
    decisions: Mapping[str, Decision]
    would: Sequence[Cap]
    observed: Collection[str]
    limited: Collection[Knob]
    fast: FastLoopState
    originals: Mapping[KnobKey, Value | None]
    wanted: Mapping[KnobKey, Cap]
    exempt: Collection[str] = frozenset()
    refused: Mapping[str, str] = {}
    unlimited: Collection[KnobKey] = ()


def wish(proposal: Proposal, fast: FastLoopState = NO_FAST_LOOP
         ) -> WishedCaps:
    """What is to be set, once it is known what the fast loop does."""
    wishes, taken = proposal.wishes, fast.keys
    if taken or fast.floors:
        wishes = [*(cap for cap in wishes if cap[:2] not in taken),
                  *fast.floors]
    if proposal.pauses:
        wishes = [*wishes, *proposal.pauses]
    resolved = (
        orders_.Resolved() if proposal.held_back else orders_.resolve(
            proposal.rates.time_s, proposal.rates, proposal.orders,
            proposal.limited, taken))
    caps = wishes
    if resolved.overrides:
        caps = [*wishes, *(cap for cap in resolved.overrides.values() if cap)]
    return WishedCaps(proposal, fast, wishes, resolved, caps)


def settle(wished: WishedCaps, originals: Mapping[KnobKey, Value | None]
           ) -> Decided:
    """What should be in force.

    :param originals: what each of these knobs would hold without us
    """
    proposal, resolved = wished.proposal, wished.resolved
    rates = proposal.rates
    floors = {one.workload.id: one.workload.floor
              for one in rates.workloads
              } if wished.wishes or resolved.overrides else {}
    return Decided(
        rates=rates, decisions=proposal.decisions, would=proposal.would,
        observed=proposal.observed, limited=proposal.limited,
        fast=wished.fast, originals=originals,
        wanted=arbitrate.arbitrate(
            wished.wishes, arbitrate.in_effect(originals, rates.topology),
            floors, overrides=resolved.overrides, exempt=resolved.exempt,
            stopped=proposal.held_back),
        exempt=resolved.exempt, refused=resolved.refused,
        unlimited=[key for key, cap in resolved.overrides.items()
                   if cap is None])
