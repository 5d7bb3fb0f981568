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



"""What one tick wants: from the rates of a host to its caps.

The agent's slow loop and the replay of a recording both turn this; what
they know of the outside comes in as arguments.  Source: DESIGN 3, the data
path.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.algorithms import arbitrate
from scavenger_openstack.algorithms.arbitrate import Key
from scavenger_openstack.algorithms import orders as orders_
from scavenger_openstack.algorithms import rates as rates_
from scavenger_openstack.algorithms import refusal
from scavenger_openstack.algorithms import scavenger
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value

UNUSABLE = (ValueError, LookupError, TypeError, AttributeError,
            OverflowError, RecursionError)
"""What :meth:`Decider.load` may raise for a state that is damaged."""


DETECTOR = 'detector'
"""What ``kind`` of a controller's class is if it names antagonists."""

FAULT_REST_S = 60.0
"""A detector that failed is not asked for so long."""


class Controller(Protocol):
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


class Decided(NamedTuple):
    """What one tick decided, and from what.

    ``wanted`` are the caps that should be in force.  ``would`` are the
    caps of controllers that observe; of all, while nothing may be limited.
    ``left`` is what the fast loop left over of ``wishes``, or ``wishes``
    itself.  ``originals`` is what each knob would hold without us.
    ``faults`` are those of detectors that failed in this tick, by name.
    ``exempt`` and ``refused`` came of the operators' orders.
    """

    rates: Rates
    decisions: Mapping[str, Decision]
    wishes: Sequence[Cap]
    left: Sequence[Cap]
    would: list[Cap]
    originals: Mapping[Key, Value | None]
    wanted: Mapping[Key, Cap]
    faults: Mapping[str, Exception] = {}
    exempt: Collection[str] = frozenset()
    refused: Mapping[str, str] = {}


def left_over(wishes: Iterable[Cap], owns: Callable[[Key], bool],
              floors: Iterable[Cap]) -> list[Cap]:
    """What the slow loop still writes while a fast loop runs.

    ``owns`` says which knobs only the fast loop writes; ``floors`` is what
    it asks the slow loop for.  Source: DESIGN 7.7.
    """
    return [cap for cap in wishes
            if not owns((cap.workload, cap.knob))] + list(floors)


class Decider:
    """The controllers of one host and what stands between them and a knob.

    It remembers the last sample, and whom a refused limit has paused.

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
        self.previous: HostSample | None = None
        self.pauses: dict[str, Cap] = {}
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

    def rates(self, sample: HostSample) -> Rates:
        """What happened since the sample before."""
        rates = rates_.rates(self.previous, sample)
        self.previous = sample
        return rates

    def decide(self, now: float, rates: Rates, *, held_back: bool,
               originals: Callable[[Sequence[Cap]],
                                   Mapping[Key, Value | None]],
               follow: Callable[[list[Cap], Rates, bool], list[Cap]]
               | None = None,
               orders: orders_.Orders = orders_.NONE,
               taken: Callable[[Key], bool] = lambda key: False) -> Decided:
        """Ask every controller and settle what should be in force.

        :param now: time of the sample in seconds
        :param held_back: nothing may be limited now
        :param originals: what each wished knob would hold without us
        :param follow: brings the fast loop up to date with the wishes, the
            rates and ``held_back``; returns the wishes that it leaves over
        :param orders: what operators ask for
        :param taken: whether only the fast loop writes that knob
        """
        decisions: dict[str, Decision] = {}
        faults: dict[str, Exception] = {}
        wishes: list[Cap] = []
        would: list[Cap] = []
        mode: Mode
        for controller, mode in self.controllers:
            decision = self._ask(controller, now, rates, faults, orders)
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
            self.pauses.clear()
        if self.pauses:
            self._forget_pauses(rates)
        left = wishes if follow is None else follow(wishes, rates, held_back)
        claims = [*left, *self.pauses.values()] if self.pauses else left
        asked = (orders_.Resolved() if held_back else orders_.resolve(
            now, rates, orders, self._limited, taken))
        floors = {w.workload.id: w.workload.floor
                  for w in rates.workloads
                  } if claims or asked.overrides else {}
        found = originals([*claims, *(
            cap for cap in asked.overrides.values() if cap)]
            if asked.overrides else claims)
        return Decided(rates, decisions, wishes, left, would, found,
                       arbitrate.arbitrate(
                           claims, arbitrate.in_effect(found, rates.topology),
                           floors, overrides=asked.overrides,
                           exempt=asked.exempt, stopped=held_back),
                       faults, asked.exempt, asked.refused)

    def _ask(self, controller: Controller, now: float, rates: Rates,
             faults: dict[str, Exception], orders: orders_.Orders
             ) -> Decision:
        """One controller's decision.

        A detector must not take the regulators down with it: one that fails
        wants nothing, so that its caps are lifted, and rests.  A regulator
        that fails ends the agent, and the watcher restores.
        """
        if getattr(controller, 'kind', '') != DETECTOR:
            return controller.step(now, rates)
        if hasattr(controller, 'allow'):
            controller.allow(orders.budget)
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
        reboot: what runs now has been refused nothing."""
        runs = {one[0].id: one[0].created_s for one in rates.workloads}
        self.pauses = {
            workload: cap for workload, cap in self.pauses.items()
            if workload in runs
            and runs[workload] == self._paused_runs.get(workload)}

    def answer(self, decided: Decided, unmet: Mapping[str, int],
               pending: Collection[Key]) -> list[Action]:
        """Memory that the kernel did not take back: pause, or kill.

        A workload is paused until it is not refused any more, or has no
        memory limit any more; see :attr:`pauses`.  Returns the kills, which
        need the consent of the workload's parent.

        :param unmet: bytes above the refused limit, by workload
        :param pending: knobs whose write the kernel has not answered yet
        """
        # What waits for the kernel stays as it is until that has answered.
        waiting = {workload: cap for workload, cap in self.pauses.items()
                   if (key := (workload, Knob.MEMORY_BYTES)) in pending
                   and key in decided.wanted}
        if not unmet:
            self.pauses = waiting
            return []
        workloads = decided.rates.workloads
        decision = decided.decisions.get(scavenger.NAME, Decision())
        pauses, kills = refusal.answer(
            unmet, refusal.shortage_of(decision.facts.get('memory', {}),
                                       workloads), workloads)
        self.pauses = waiting | {
            workload: Cap(workload, Knob.PAUSED, 1, scavenger.NAME,
                          f'{unmet[workload]} bytes that the foreground '
                          'needs could not be reclaimed')
            for workload in pauses}
        self._paused_runs = {one[0].id: one[0].created_s for one in workloads
                             if one[0].id in self.pauses}
        why = (f'the foreground needs {sum(unmet.values())} bytes that '
               'could not be reclaimed')
        return [Action(workload, 'kill', scavenger.NAME, why)
                for workload in kills if workload not in decided.exempt]
