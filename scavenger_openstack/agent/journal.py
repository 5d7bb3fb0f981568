# SPDX-License-Identifier: Apache-2.0

"""What is different since the last tick, for the log and the history."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import time

from scavenger_openstack.agent.apply import actuator as actuator_
from scavenger_openstack.agent import base
from scavenger_openstack.agent import history as history_
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import transitions
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision.changes import knob_of
from scavenger_openstack.decision import removal
from scavenger_openstack.drivers.base import MADE_AGAIN
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

RUNNING = 'running'
"""The state of an agent that may set limits."""
STOPPED = 'stopped: '
"""How that of one begins that an operator has stopped."""
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
        self.in_force: Mapping[KnobKey, Cap] = {}
        """The limits of the last tick, those of the fast loop among them."""

    def add(self, events: Sequence[transitions.Event]) -> None:
        """Log, write and hand on what happened."""
        self._history.add(events)
        self._told(events)

    def begin(self, modes: str) -> None:
        self.add([transitions.AgentEvent(
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
        in_force = self.in_force = limits_in(
            self._actuator.in_force,
            [key for key in held if key[1] is Knob.CPU_SET
             and self._isolation.owns(key)],
            perfiso.Controller.name, cpu_set)
        events += of_tick(
            # A recording that is played has a clock of its own.
            self._transitions,
            tick.time_s if tick.sample is None else tick.sample.time_s,
            wall_s,
            # Not known is not over.
            None if tick.sample is None else tick.incidents, in_force,
            {key: state.original.value for key, state in held.items()},
            lambda cap: self._why(cap, state, tick),
            pending | self._unexplained(tick, held))
        events += [transitions.KillEvent(wall_s, action, count)
                   for time_s, action, count in kills
                   if time_s == tick.time_s]
        self.add(events)
        self._lost = tick.lost

    def _why(self, cap: Cap, state: str, tick: loop_.Tick) -> str:
        """Why there is no limit any more."""
        key = cap[:2]
        if state != RUNNING or tick.sample is None:
            return state
        if key in self._gone:
            gone = self._gone[key]
            # Of a VM it is known why its files are others.
            return (gone if gone != MADE_AGAIN
                    else self._ended(key[0]) or gone)
        if key not in self._went and key[0] in _workloads(tick.sample):
            if key in self._lost or key in tick.lost:
                return LOST
            return (removal.why(cap, tick.decided, tick.orders, str(
                        self._isolation.facts().get('state', '')))
                    if tick.decided else
                    removal.NOT_NEEDED.format(cap.owner))
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
        self.add([
            *self._transitions.limits(
                now, wall_s, {},
                {key: state.original.value for key, state in held.items()},
                lambda _: 'the agent ends'),
            *self._transitions.incidents(now, wall_s, {}),
            transitions.AgentEvent(
                wall_s, 'ended', f'limits not removed: {problems}, '
                'scavenger-restore tries again' if problems else '',
                os.getpid())])


def of_tick(before: transitions.Transitions, now: float, wall_time_s: float,
            incidents: Mapping[tuple[str, str], Incident] | None,
            in_force: Mapping[KnobKey, Cap],
            originals: Mapping[KnobKey, Value | None],
            why: Callable[[Cap], str] = lambda cap: '',
            pending: Collection[KnobKey] = ()) -> list[transitions.Event]:
    """Return the lines of one tick: an incident before its limits.

    :param before: what was told; see its methods for the rest
    :param incidents: those that are open, ``None`` when that is not known
    """
    events: list[transitions.Event] = []
    answered = {key: answered_by(cap, incidents) for key, cap
                in in_force.items()} if incidents else {}
    if incidents is not None:
        events += before.incidents(
            now, wall_time_s, incidents,
            {name for names in answered.values() for name in names})
    return events + before.limits(now, wall_time_s, in_force, originals, why,
                                  pending, answered)


def limits_in(in_force: Mapping[KnobKey, Cap], held: Sequence[KnobKey],
              owner: str, cpu_set: str | None) -> dict[KnobKey, Cap]:
    """The limits of the slow loop and, where that has none, CPU sets that
    the fast loop moves.

    :param held: the CPU sets that the fast loop writes
    :param cpu_set: what it wrote last, ``None`` when it wrote nothing yet
    """
    if not held or cpu_set is None:
        return dict(in_force)
    return {**{key: Cap(*key, cpu_set, owner,
                        'the fast loop keeps CPUs idle for the foreground')
               for key in held}, **in_force}


def answered_by(cap: Cap, incidents: Mapping[tuple[str, str], Incident]
                ) -> tuple[str, ...]:
    """Return the ids of the incidents that a limit answers: all that name its
    workload, else the one that has evidence against it."""
    own = {name: incident for (controller, name), incident
           in incidents.items() if controller == cap.owner
           and knob_of(incident) in (None, cap.knob)}
    return tuple(name for name, incident in own.items()
                 if cap.workload in incident.antagonists) or tuple(
        name for name, incident in own.items() if cap.workload in (
            ground.workload for ground in incident.grounds))[:1]


def _workloads(sample: HostSample) -> set[str]:
    """The ids of all that are there, and of their groups."""
    return {name for rated in sample.workloads
            for name in (rated.workload.id, rated.workload.group)}
