# SPDX-License-Identifier: Apache-2.0

"""Records the events of each tick: logs them, and passes them on."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import time

from oslo_log import log

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent import base
from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent.loop import Tick
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack.decision.changes import knob_of
from scavenger_openstack.decision import removal
from scavenger_openstack.drivers.base import MADE_AGAIN
from scavenger_openstack.events import Event
from scavenger_openstack.events import Evidence
from scavenger_openstack.events import Tracker
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

LOG_LINES = 100
LOG_WINDOW_S = 60.0
"""Most lines that are logged within :data:`LOG_WINDOW_S`; the history has all.
"""

RUNNING = 'running'
"""The state of an agent that may set limits."""
STOPPED = 'stopped: '
"""The begin of the state of an agent that an operator has stopped."""
LOST = 'the watcher could not restore it any more'
NOT_THERE = 'it is no longer there'
WAIT_S = 3.0
"""Time that libvirt may take until it knows why a VM ended: it waits until
QEMU has, and checks that a few times a second."""


class TickEvents:
    """Records the events of each tick.

    :param ended: why the last run of that VM ended, ``None`` while that is not
        known; '' of other workloads
    :param add: stores events
    :param add_lasting: stores entries of incidents that go on, for the
        control plane only
    :param evidence: see :meth:`.events.Tracker.incidents`
    :param wall_s: returns the present UNIX time
    """

    def __init__(self, leases: base.Leases, actuator: Actuator,
                 isolation: base.Isolation,
                 ended: Callable[[str], str | None],
                 add: Callable[[Sequence[Event]], None],
                 add_lasting: Callable[[Sequence[Event]], None]
                 = lambda events: None,
                 evidence: Callable[[str, Incident], Evidence]
                 = lambda controller, incident: (),
                 wall_s: Callable[[], float] = time.time) -> None:
        self._add = add
        self._add_lasting = add_lasting
        self._evidence = evidence
        self._wall_s = wall_s
        self._leases = leases
        self._actuator = actuator
        self._isolation = isolation
        self._ended = ended
        self._tracker = new_tracker()
        self._gone: dict[KnobKey, str] = {}
        self._held: set[KnobKey] = set()
        self._ended_s: dict[KnobKey, float] = {}
        self._lost: Collection[KnobKey] = ()
        self._state = ''
        self._window_s = 0.0
        self._lines = 0
        self.in_force: Mapping[KnobKey, Cap] = {}
        """The limits of the last tick, those of the fast loop among them."""

    def add(self, events: Sequence[Event]) -> None:
        """Log events and pass them on."""
        if events:
            self._log(events)
            self._add(events)

    def _log(self, events: Sequence[Event]) -> None:
        now_s = events[0].time_s
        if not 0 <= now_s - self._window_s < LOG_WINDOW_S:
            if self._lines > LOG_LINES:
                LOG.info('more changes of limits and incidents within %.0f '
                         's: %d; see scavenger-agent history', LOG_WINDOW_S,
                         self._lines - LOG_LINES)
            self._window_s, self._lines = now_s, 0
        for sentence in sentences.sentences([
                event for event in events if isinstance(
                    event, report.Limit | report.Incident
                    | report.Profiling)]):
            self._lines += 1
            if self._lines <= LOG_LINES:
                LOG.info('%s', sentence)

    def begin(self, modes: str) -> None:
        self.add([agent_event(self._wall_s(), 'started', modes,
                              os.getpid())])

    def tick(self, tick: Tick, state: str, cpu_sets: Mapping[str, str],
             kills: Iterable[tuple[float, Action, int]]) -> None:
        """Record the changes since the last tick.

        :param cpu_sets: those that the fast loop has written, by group
        :param kills: of the last ticks, with the time of each
        """
        wall_s = self._wall_s()
        held = self._leases.held()
        pending = self._actuator.pending
        self._gone = {**{key: why for key, why in self._gone.items()
                         if key in pending}, **self._actuator.gone}
        events: list[Event] = []
        if state != self._state:
            events.append(agent_event(wall_s, 'state', state))
            self._state = state
        in_force = self.in_force = limits_in(
            self._actuator.in_force,
            [(group, knob) for group, knob in held if knob is Knob.CPU_SET
             and self._isolation.owns((group, knob))],
            perfiso.Controller.name, cpu_sets)
        # A recording that is played has a clock of its own.
        now = tick.time_s if tick.sample is None else tick.sample.time_s
        events += of_tick(
            self._tracker, now, wall_s,
            # Without a sample it is not known whether an incident is over.
            None if tick.sample is None else tick.incidents, in_force,
            {key: state.original.value for key, state in held.items()},
            lambda cap: self._why(cap, state, tick),
            pending | self._unexplained(tick, held), self._evidence)
        events += [report.Kill(
            sequence=1, time_s=fit.time_s(wall_s),
            workload=fit.name(action.workload), processes=count,
            owner=fit.name(action.owner), reason=fit.sentence(action.reason))
            for time_s, action, count in kills if time_s == tick.time_s]
        self.add(events)
        if lasting := list(self._tracker.lasting(now, wall_s)):
            self._add_lasting(lasting)
        self._lost = tick.lost

    def _why(self, cap: Cap, state: str, tick: Tick) -> str:
        """Return why a limit is not in force any more."""
        key = cap.key
        if state != RUNNING or tick.sample is None:
            return state
        if key in self._gone:
            gone = self._gone[key]
            # Of a VM it is known why its cgroups were made again.
            return (gone if gone != MADE_AGAIN
                    else self._ended(cap.workload) or gone)
        if (key not in self._ended_s
                and cap.workload in _workloads(tick.sample)):
            if key in self._lost or key in tick.lost:
                return LOST
            return (removal.why(cap, tick.decided, tick.orders, str(
                        self._isolation.facts().get('state', '')))
                    if tick.decided else
                    removal.NOT_NEEDED.format(cap.owner))
        return self._ended(cap.workload) or NOT_THERE

    def _unexplained(self, tick: Tick, held: Collection[KnobKey]
                     ) -> set[KnobKey]:
        """Return the limits that ended with their VMs, while the reason is not
        known."""
        ended = self._held.difference(held)
        self._held = set(held)
        if ended and tick.sample is not None:
            present = _workloads(tick.sample)
            self._ended_s.update(((workload, knob), tick.time_s)
                                 for workload, knob in ended
                                 if workload not in present)
        self._ended_s = {key: since_s for key, since_s in self._ended_s.items()
                         if key not in held
                         and tick.time_s - since_s <= 2 * WAIT_S}
        return {(workload, knob)
                for (workload, knob), since_s in self._ended_s.items()
                if tick.time_s - since_s < WAIT_S
                and self._ended(workload) is None}

    def end(self, now: float, problems: int) -> None:
        """Record the limits that the end of the loop removed; the watcher
        restores the rest."""
        wall_s = self._wall_s()
        held = self._leases.held()
        self.add([
            *self._tracker.limits(
                now, wall_s, {},
                {key: state.original.value for key, state in held.items()},
                lambda _: 'the agent ends'),
            *self._tracker.incidents(now, wall_s, {},
                                     evidence=self._evidence),
            agent_event(
                wall_s, 'ended', f'limits not removed: {problems}, '
                'scavenger-restore tries again' if problems else '',
                os.getpid())])


def new_tracker() -> Tracker:
    """Return the tracker of the events of an agent."""
    return Tracker([leftover.OWNER])


def agent_event(wall_s: float, what: str, detail: str = '', pid: int = 0
                ) -> report.AgentEvent:
    """Return the event that the agent ``started``, ``ended``, or has another
    ``state``."""
    return report.AgentEvent(
        sequence=1, time_s=fit.time_s(wall_s),
        what=what,                          # type: ignore[arg-type]
        detail=fit.sentence(detail), pid=pid)


def of_tick(tracker: Tracker, now: float, wall_time_s: float,
            incidents: Mapping[tuple[str, str], Incident] | None,
            in_force: Mapping[KnobKey, Cap],
            originals: Mapping[KnobKey, Value | None],
            why: Callable[[Cap], str] = lambda cap: '',
            pending: Collection[KnobKey] = (),
            evidence: Callable[[str, Incident], Evidence]
            = lambda controller, incident: ()) -> list[Event]:
    """Return the events of one tick: an incident before its limits.

    :param tracker: see its methods for the rest
    :param incidents: those that are open, ``None`` when that is not known
    """
    events: list[Event] = []
    answered = {key: answered_by(cap, incidents) for key, cap
                in in_force.items()} if incidents else {}
    if incidents is not None:
        events += tracker.incidents(
            now, wall_time_s, incidents,
            {name for names in answered.values() for name in names}, evidence)
    return events + tracker.limits(now, wall_time_s, in_force, originals, why,
                                   pending, answered)


def limits_in(in_force: Mapping[KnobKey, Cap], held: Sequence[KnobKey],
              owner: str, cpu_sets: Mapping[str, str]
              ) -> dict[KnobKey, Cap]:
    """Return the limits of the slow loop and, where that has none, the CPU
    sets of the fast loop.

    :param held: the keys of the CPU sets that the fast loop writes
    :param cpu_sets: those that it wrote last, by group
    """
    return {**{key: Cap(*key, cpu_sets[key[0]], owner,
                        'the fast loop keeps CPUs idle for the foreground')
               for key in held if key[0] in cpu_sets}, **in_force}


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
    """Return the ids that limits of all workloads have."""
    return {name for rated in sample.workloads
            for name in rated.workload.limit_ids}
