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


"""What one tick wants: from a sample of a host to its caps.

The core is asked four times in a tick, and never calls out:

1. :meth:`Decider.propose` turns the controllers.  The shell brings the fast
   loop up to date with what they wish.
2. :func:`claim` says which caps are left.  The shell reads their knobs, and
   what each would hold without us.
3. :func:`settle` says what should be in force.  The shell writes it.
4. :meth:`Decider.answer` says what follows from the memory limits that the
   kernel refused.

The agent's slow loop and the replay of a recording both turn this.  Source:
DESIGN 3, the data path.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.decision.arbitrate import Key
from scavenger_openstack.decision import memory_shortage
from scavenger_openstack.decision import orders as orders_
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value

UNUSABLE = (ValueError, LookupError, TypeError, AttributeError,
            OverflowError, RecursionError)
"""What :meth:`Decider.load` may raise for a state that is damaged."""


DETECTOR = 'detector'
"""What ``kind`` of a controller's class is if it names antagonists."""

FAULT_REST_S = 60.0
"""A detector that failed is not asked for so long."""


class Tunable(Protocol):
    """What goes on with other parameters while it runs, but for those that
    ``at_start`` names: they hold from its making on."""

    at_start: frozenset[str]

    def tune(self, params: Any) -> None:
        """Go on with these ``Params``; what was learnt stays."""
        ...


class Controller(Tunable, Protocol):
    """What the loop asks of a regulator or detector.

    A detector says so by a class attribute ``kind = 'detector'``, and
    ``only_observes = True`` if it must not be let loose.
    """

    name: str

    def step(self, now: float, rates: Rates) -> Decision:
        """All caps that are wanted now."""
        ...

    def state(self) -> dict[str, Any]:
        """What has to outlive the process, as JSON."""
        ...

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Take up what :meth:`state` said, as far as it is still true."""
        ...


class Proposal(NamedTuple):
    """What the controllers ask for, before any knob is looked at.

    ``wishes`` are the caps of those that enforce, ``would`` those of
    controllers that observe; all are there while nothing may be limited.
    ``faults`` are those of detectors that failed in this tick, by name.
    ``pauses`` are set for memory limits that were refused before.
    ``anew``: there was no sample before this one to compare it with.
    """

    rates: Rates
    decisions: Mapping[str, Decision]
    faults: Mapping[str, Exception]
    wishes: Sequence[Cap]
    would: Sequence[Cap]
    pauses: Sequence[Cap]
    orders: orders_.Orders
    limited: Collection[Knob]
    held_back: bool
    anew: bool


class Fast(NamedTuple):
    """What the fast loop does now; nothing while it does not run.

    ``sets`` are the groups whose CPU set only it writes, ``floors`` what it
    asks the slow loop for.  Source: DESIGN 7.7.
    """

    sets: tuple[str, ...] = ()
    floors: tuple[Cap, ...] = ()

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset((group, Knob.CPU_SET) for group in self.sets)


NO_FAST = Fast()


class Claims(NamedTuple):
    """What the slow loop is to set, as far as each knob allows it.

    ``caps`` are those whose knobs are to be looked at: what is wished, then
    what operators ask for (``resolved``).
    """

    proposal: Proposal
    fast: Fast
    wishes: Sequence[Cap]
    resolved: orders_.Resolved
    caps: Sequence[Cap]


class Decided(NamedTuple):
    """What one tick decided, and from what.

    ``wanted`` are the caps that should be in force.  ``would`` are the
    caps of controllers that observe; of all, while nothing may be limited.
    ``originals`` is what each knob would hold without us.  ``exempt`` and
    ``refused`` came of the operators' orders.
    """

    rates: Rates
    decisions: Mapping[str, Decision]
    would: Sequence[Cap]
    fast: Fast
    originals: Mapping[Key, Value | None]
    wanted: Mapping[Key, Cap]
    exempt: Collection[str] = frozenset()
    refused: Mapping[str, str] = {}


class Answer(NamedTuple):
    """What follows from refused memory limits: caps that pause, and kills,
    which need the consent of the workload's parent."""

    pauses: Sequence[Cap] = ()
    kills: Sequence[Action] = ()


def claim(proposal: Proposal, fast: Fast = NO_FAST) -> Claims:
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
    return Claims(proposal, fast, wishes, resolved, caps)


def settle(claims: Claims, originals: Mapping[Key, Value | None]) -> Decided:
    """What should be in force.

    :param originals: what each claimed knob would hold without us
    """
    proposal, resolved = claims.proposal, claims.resolved
    rates = proposal.rates
    floors = {one.workload.id: one.workload.floor
              for one in rates.workloads
              } if claims.wishes or resolved.overrides else {}
    return Decided(
        rates=rates, decisions=proposal.decisions, would=proposal.would,
        fast=claims.fast, originals=originals,
        wanted=arbitrate.arbitrate(
            claims.wishes, arbitrate.in_effect(originals, rates.topology),
            floors, overrides=resolved.overrides, exempt=resolved.exempt,
            stopped=proposal.held_back),
        exempt=resolved.exempt, refused=resolved.refused)


class Decider:
    """The controllers of one host and what stands between them and a knob.

    It remembers the last sample, and the workloads that are paused because
    a memory limit was refused.

    :param controllers: each with its mode; those that are off are left out
    :param limited: the knobs that may be set; caps on others are only shown
    """

    def __init__(self, controllers: Iterable[tuple[Controller, Mode]],
                 limited: Collection[Knob] = tuple(Knob)) -> None:
        self._limited = frozenset(limited)
        self._shown_only = frozenset(Knob) - self._limited
        self.controllers = [(controller, mode)
                            for controller, mode in controllers
                            if mode is not Mode.OFF]
        self._previous: HostSample | None = None
        self._pauses: dict[str, Cap] = {}
        self._paused_runs: dict[str, float] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def state(self) -> dict[str, Any]:
        """What the controllers keep over a restart, by name."""
        return {controller.name: controller.state()
                for controller, _ in self.controllers}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Hand each controller what :meth:`state` said of it.

        Raises one of :data:`UNUSABLE` when a state is damaged; controllers
        before that one have theirs.
        """
        for controller, _ in self.controllers:
            if controller.name in state:
                controller.load(state[controller.name], now)

    def forget_sample(self) -> None:
        """The next sample is to be compared with none."""
        self._previous = None

    def propose(self, sample: HostSample, *, held_back: bool = False,
                orders: orders_.Orders = orders_.NONE) -> Proposal:
        """Ask every controller, by what happened since the sample before.

        :param held_back: nothing may be limited now
        :param orders: what operators ask for
        """
        anew = self._previous is None
        rates = rates_.rates(self._previous, sample)
        self._previous = sample
        return self.propose_from(rates, held_back=held_back, orders=orders,
                                 anew=anew)

    def propose_from(self, rates: Rates, *, held_back: bool = False,
                     orders: orders_.Orders = orders_.NONE,
                     anew: bool = False) -> Proposal:
        """As :meth:`propose`, where the rates are known already."""
        decisions: dict[str, Decision] = {}
        faults: dict[str, Exception] = {}
        wishes: list[Cap] = []
        would: list[Cap] = []
        mode: Mode
        for controller, mode in self.controllers:
            decision = self._ask(controller, rates, faults, orders)
            if orders.modes:
                mode = orders_.mode(controller.name, mode, orders)
                if mode is Mode.OFF:    # it still learns
                    decision = Decision()
            decisions[controller.name] = decision
            if mode is not Mode.ENFORCE:
                would.extend(decision.caps)
            elif not self._shown_only:
                wishes.extend(decision.caps)
            else:
                for cap in decision.caps:
                    (would if cap.knob in self._shown_only
                     else wishes).append(cap)
        if held_back:
            would.extend(wishes)
            wishes = []
            self._pauses.clear()
        if self._pauses:
            self._forget_pauses(rates)
        return Proposal(
            rates=rates, decisions=decisions, faults=faults, wishes=wishes,
            would=would, pauses=tuple(self._pauses.values()), orders=orders,
            limited=self._limited, held_back=held_back, anew=anew)

    def _ask(self, controller: Controller, rates: Rates,
             faults: dict[str, Exception], orders: orders_.Orders
             ) -> Decision:
        """One controller's decision.

        A detector must not take the regulators down with it: one that fails
        wants nothing, so that its caps are lifted, and rests.  A regulator
        that fails ends the agent, and the watcher restores.
        """
        now = rates.time_s
        if getattr(controller, 'kind', '') != DETECTOR:
            return controller.step(now, rates)
        if hasattr(controller, 'allow'):
            controller.allow(orders.budget)
        if hasattr(controller, 'compare'):
            controller.compare(orders.specs)
        name = controller.name
        failed_s, what = self._failed.get(name, (-math.inf, ''))
        if not 0 <= now - failed_s < FAULT_REST_S:
            self._failed.pop(name, None)
            try:
                return controller.step(now, rates)
            except Exception as exc:
                faults[name] = exc
                what = f'{type(exc).__name__}: {exc}'
                self._failed[name] = now, what
        return Decision(facts={'fault': what})

    def _forget_pauses(self, rates: Rates) -> None:
        """Of workloads that have ended, or were made again, as at a hard
        reboot: what runs now has been refused nothing.  Foreground is not
        paused for anything."""
        runs = {one[0].id: one[0].created_s for one in rates.workloads
                if one[0].priority is Priority.BACKGROUND}
        self._pauses = {
            workload: cap for workload, cap in self._pauses.items()
            if workload in runs
            and runs[workload] == self._paused_runs.get(workload)}

    def answer(self, decided: Decided, unmet: Mapping[str, int],
               pending: Collection[Key]) -> Answer:
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
        waiting = {workload: cap for workload, cap in self._pauses.items()
                   if (key := (workload, Knob.MEMORY_BYTES)) in pending
                   and key in decided.wanted
                   and not orders_.is_asked_for(decided.wanted, workload)}
        if not unmet:
            self._pauses = waiting
            return Answer(tuple(waiting.values()))
        workloads = decided.rates.workloads
        pauses, kills = memory_shortage.answer(unmet, max(
            (one.shortage_bytes for one in decided.decisions.values()),
            default=0.0), workloads)
        self._pauses = waiting | {
            workload: Cap(workload, Knob.PAUSED, 1, scavenger.NAME,
                          f'{unmet[workload]} bytes that the foreground '
                          'needs could not be reclaimed')
            for workload in pauses}
        self._paused_runs = {one[0].id: one[0].created_s for one in workloads
                             if one[0].id in self._pauses}
        why = (f'the foreground needs {sum(unmet.values())} bytes that '
               'could not be reclaimed')
        return Answer(
            tuple(self._pauses.values()),
            [Action(workload, 'kill', scavenger.NAME, why)
             for workload in kills if workload not in decided.exempt])
