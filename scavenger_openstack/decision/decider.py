# SPDX-License-Identifier: Apache-2.0


"""What one tick wants: from a sample of a host to its caps.

The core is asked twice in a tick, and never calls out:

1. :meth:`Decider.propose` turns the controllers, by a sample and by what came
   of the last tick.  The shell brings the fast loop up to date with what they
   wish, and reads the knobs of these caps.
2. :func:`.settle.settle` says what should be in force.  The shell writes it.

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

from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision.controller import is_detector
from scavenger_openstack.decision.controller import Tunable
from scavenger_openstack.decision.controller import UNUSABLE
from scavenger_openstack.decision import linger
from scavenger_openstack.decision import memory_shortage
from scavenger_openstack.decision import orders as operator_orders
from scavenger_openstack.decision import rates as decision_rates
from scavenger_openstack.decision.settle import Proposal
from scavenger_openstack import types

FAULT_REST_S = 60.0
"""A detector that failed is not asked for so long."""


class _Tuned:
    """A controller whose limits do not stay because of what its parameters
    were."""

    def __init__(self, controller: Controller, lingers: linger.Linger
                 ) -> None:
        self.at_start = controller.at_start
        self._controller = controller
        self._linger = lingers

    def tune(self, params: Any) -> None:
        self._controller.tune(params)
        self._linger.reset(self._controller.name)


class Decider:
    """The controllers of one host and what stands between them and a knob.

    It remembers the last sample, the limits that stay although they are not
    wanted any more, and the workloads that are paused because a memory limit
    was refused.

    :param controllers: each with its mode; those that are off are left out
    :param limited: the knobs that may be set; caps on others are only shown
    """

    def __init__(self, controllers: Iterable[tuple[Controller, types.Mode]],
                 limited: Collection[types.Knob] = tuple(types.Knob)) -> None:
        self._limited = frozenset(limited)
        self._shown_only = frozenset(types.Knob) - self._limited
        self.controllers = [(controller, mode)
                            for controller, mode in controllers
                            if mode is not types.Mode.OFF]
        self._previous: types.HostSample | None = None
        self._pauses = memory_shortage.Pauses()
        self._linger = linger.Linger()
        self._failed: dict[str, tuple[float, str]] = {}

    @property
    def tunable(self) -> dict[str, Tunable]:
        """The controllers, by name, to continue with other parameters."""
        return {controller.name: _Tuned(controller, self._linger)
                for controller, _ in self.controllers}

    def state(self) -> dict[str, Any]:
        """Return what the controllers keep over a restart, by name."""
        return {controller.name: {**controller.state(),
                                  'enforced': mode is types.Mode.ENFORCE}
                for controller, mode in self.controllers}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Hand each controller what :meth:`state` said of it, as ``observed``
        where none of its limits was in force then, and they are from now on.

        Raises one of :data:`.controller.UNUSABLE` when a state is damaged;
        the other controllers have theirs.
        """
        damaged: Exception | None = None
        for controller, mode in self.controllers:
            if controller.name in state:
                try:
                    kept = state[controller.name]
                    controller.load({**kept, 'observed': (
                        mode is types.Mode.ENFORCE
                        and not kept.get('enforced', True))}, now)
                except UNUSABLE as exc:
                    damaged = exc
        if damaged is not None:
            raise damaged

    def forget_sample(self) -> None:
        """The next sample is to be compared with none."""
        self._previous = None

    def propose(self, sample: types.HostSample, *, held_back: bool = False,
                orders: operator_orders.Orders = operator_orders.NO_ORDERS,
                taken: Collection[types.KnobKey] = (),
                unmet: Mapping[str, int] = {},
                pending: Collection[types.KnobKey] = ()) -> Proposal:
        """Ask every controller, by what happened since the sample before.

        :param held_back: nothing may be limited now
        :param orders: what operators ask for
        :param taken: the knobs that only the fast loop writes
        :param unmet: bytes above memory limits that the kernel refused in
            the last tick, by workload
        :param pending: knobs whose write the kernel has not answered yet
        """
        reset = self._previous is None
        rates = decision_rates.rates(self._previous, sample)
        self._previous = sample
        return self.propose_from(rates, held_back=held_back, orders=orders,
                                 reset=reset, taken=taken, unmet=unmet,
                                 pending=pending)

    def propose_from(self, rates: types.Rates, *, held_back: bool = False,
                     orders: operator_orders.Orders
                     = operator_orders.NO_ORDERS,
                     reset: bool = False,
                     taken: Collection[types.KnobKey] = (),
                     unmet: Mapping[str, int] = {},
                     pending: Collection[types.KnobKey] = ()) -> Proposal:
        """Propose as :meth:`propose` does, where the rates are known
        already."""
        decisions: dict[str, types.Decision] = {}
        faults: dict[str, Exception] = {}
        wishes: list[types.Cap] = []
        would: list[types.Cap] = []
        observed: set[str] = set()
        mode: types.Mode
        for controller, mode in self.controllers:
            decision = self._ask(controller, rates, faults, orders)
            if orders.modes:
                mode = operator_orders.mode(controller.name, mode, orders)
                if mode is types.Mode.OFF:    # it still learns
                    decision = types.Decision()
                    self._linger.reset(controller.name)
            decisions[controller.name] = decision
            caps: Sequence[types.Cap] = decision.caps
            if is_detector(controller):
                caps = _of_background(caps, rates) if caps else caps
            else:
                caps = self._linger.caps(
                    controller.name, decision, rates,
                    are_set=mode is types.Mode.ENFORCE and not held_back)
            if mode is not types.Mode.ENFORCE:
                observed.add(controller.name)
                would.extend(caps)
            elif not self._shown_only:
                wishes.extend(caps)
            else:
                for cap in caps:
                    (would if cap.knob in self._shown_only
                     else wishes).append(cap)
        if held_back:
            observed.update(decisions)
            would.extend(wishes)
            wishes = []
            self._pauses.clear()
        resolved = (
            operator_orders.Resolved() if held_back
            else operator_orders.resolve(
                rates.time_s, rates, orders, self._limited, taken))
        kills: Sequence[types.Action] = ()
        if unmet or self._pauses.caps:
            kills = self._pauses.follow(rates, decisions, wishes, resolved,
                                        unmet, pending)
            wishes += self._pauses.caps
        return Proposal(
            rates=rates, decisions=decisions, faults=faults, wishes=wishes,
            would=would, observed=observed, resolved=resolved,
            limited=self._limited, held_back=held_back, reset=reset,
            kills=kills, asks=tuple(dict.fromkeys(
                ask for decision in decisions.values()
                for ask in decision.asks)))

    def _ask(self, controller: Controller, rates: types.Rates,
             faults: dict[str, Exception], orders: operator_orders.Orders
             ) -> types.Decision:
        """One controller's decision.

        A detector must not take the regulators down with it: one that fails
        wants nothing, so that its caps are removed, and rests.  A regulator
        that fails ends the agent, and the watcher restores.
        """
        now = rates.time_s
        if not is_detector(controller):
            return controller.step(now, rates)
        controller.allow(orders.budget)
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
        return types.Decision(facts={'fault': what})


def _of_background(caps: Iterable[types.Cap], rates: types.Rates
                   ) -> list[types.Cap]:
    """The caps without those of foreground workloads: a detector may name
    one as an antagonist, and none is ever limited."""
    foreground = {rated.workload.id for rated in rates.workloads
                  if rated.workload.priority is types.Priority.FOREGROUND}
    return [cap for cap in caps if cap.workload not in foreground]
