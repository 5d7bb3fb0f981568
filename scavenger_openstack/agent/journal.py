# SPDX-License-Identifier: Apache-2.0

"""What is different since the last tick, for the log and the history."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import os
import time

from scavenger_openstack.agent.apply import actuator as actuator_
from scavenger_openstack.agent.apply import originals
from scavenger_openstack.agent import base
from scavenger_openstack.agent import history as history_
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import transitions
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision import orders as orders_
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey

RUNNING = 'running'
"""The state of an agent that may set limits."""
NOT_ASKED = 'no controller asks for it now'
EXEMPT = 'it is exempt from limits'
UNLIMITED = 'an override wants no limit'
OVER = 'the override has ended'
LOST = 'the watcher could not restore it any more'
NOT_THERE = 'it is no longer there'
WAIT_S = 3.0
"""So long libvirt may take to say why a VM ended: it waits until QEMU has, and
looks for that a few times a second."""


class Journal:
    """Writes what happened in each tick.

    :param ended: why the last run of that VM ended, ``None`` while that is not
        known; '' of other workloads
    :param told: gets what is written, too
    """

    def __init__(self, history: history_.History, leases: base.Leases,
                 actuator: actuator_.Actuator,
                 isolation: base.Isolation,
                 ended: Callable[[str], str | None],
                 told: Callable[[Sequence[transitions.Event]], None]
                 = lambda events: None) -> None:
        self._history = history
        self._told = told
        self._leases = leases
        self._actuator = actuator
        self._isolation = isolation
        self._ended = ended
        self._transitions = transitions.Transitions()
        self._gone: dict[KnobKey, str] = {}
        self._held: set[KnobKey] = set()
        self._went: dict[KnobKey, float] = {}
        self._lost: Collection[KnobKey] = ()
        self._state = ''

    def _add(self, events: Sequence[transitions.Event]) -> None:
        self._history.add(events)
        self._told(events)

    def begin(self, modes: str) -> None:
        self._add([transitions.AgentEvent(
            time.time(), 'started', modes, os.getpid())])

    def tick(self, tick: loop_.Tick, state: str, cpu_set: str | None,
             kills: Iterable[tuple[float, Action, int]]) -> None:
        """Log and write what is different since the last one.

        :param cpu_set: what the fast loop has set
        :param kills: of the last ticks, with the time of each
        """
        wall_s = time.time()
        held = self._leases.held()
        pending = self._actuator.pending
        self._gone = {**{key: why for key, why in self._gone.items()
                         if key in pending}, **self._actuator.gone}
        events: list[transitions.Event] = []
        if state != self._state:
            events.append(transitions.AgentEvent(wall_s, 'state', state))
            self._state = state
        events += self._transitions.limits(
            tick.time_s, wall_s, transitions.limits_in(
                self._actuator.in_force,
                [key for key in held if key[1] is Knob.CPU_SET
                 and self._isolation.owns(key)],
                perfiso.Controller.name, cpu_set),
            {key: one.original for key, one in held.items()},
            lambda cap: self._why(cap, state, tick),
            pending | self._unexplained(tick, held))
        if tick.sample is not None:     # not known is not over
            events += self._transitions.incidents(
                tick.time_s, wall_s, tick.incidents)
        events += [transitions.KillEvent(wall_s, action, count)
                   for time_s, action, count in kills
                   if time_s == tick.time_s]
        self._add(events)
        self._lost = tick.lost

    def _why(self, cap: Cap, state: str, tick: loop_.Tick) -> str:
        """Why there is no limit any more."""
        key = cap[:2]
        if state != RUNNING or tick.sample is None:
            return state
        if key in self._gone:
            gone = self._gone[key]
            # Of a VM it is known why its files are others.
            return (gone if gone != originals.MADE_AGAIN
                    else self._ended(key[0]) or gone)
        if key not in self._went and key[0] in _workloads(tick.sample):
            decided = tick.decided
            return (LOST if key in self._lost or key in tick.lost
                    else OVER if cap.owner == orders_.OWNER
                    else UNLIMITED if decided and key in decided.unlimited
                    else EXEMPT if decided and key[0] in decided.exempt
                    else NOT_ASKED)
        return self._ended(key[0]) or NOT_THERE

    def _unexplained(self, tick: loop_.Tick, held: Collection[KnobKey]
                     ) -> set[KnobKey]:
        """The limits that went with their VMs, while it is not known why."""
        ended = self._held.difference(held)
        self._held = set(held)
        if ended and tick.sample is not None:
            here = _workloads(tick.sample)
            self._went.update((key, tick.time_s) for key in ended
                              if key[0] not in here)
        self._went = {key: since_s for key, since_s in self._went.items()
                      if key not in held
                      and tick.time_s - since_s <= 2 * WAIT_S}
        return {key for key, since_s in self._went.items()
                if tick.time_s - since_s < WAIT_S
                and self._ended(key[0]) is None}

    def end(self, now: float, problems: int) -> None:
        """What the loop's end removed; what is left is the watcher's."""
        wall_s = time.time()
        held = self._leases.held()
        self._add([
            *self._transitions.limits(
                now, wall_s, {},
                {key: one.original for key, one in held.items()},
                lambda _: 'the agent ends'),
            transitions.AgentEvent(
                wall_s, 'ended', f'limits not removed: {problems}, '
                'scavenger-restore tries again' if problems else '',
                os.getpid())])


def _workloads(sample: HostSample) -> set[str]:
    """The ids of all that are there, and of their groups."""
    return {name for one in sample.workloads
            for name in (one.workload.id, one.workload.group)}
