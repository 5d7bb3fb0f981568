# SPDX-License-Identifier: Apache-2.0

"""What is worth a line: a limit or an incident that begins, changes or ends.

Pure: each step compares what is so now with what the last line said.  Each
victim has at most :data:`BURST` lines in :data:`REST_S`, and so has each
limit, but for one that is set again :data:`AGAIN_S` after its last line, and
its removal; what was held back is made up for when there is room, so the last
line is true.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

from scavenger_openstack.agent import names
from scavenger_openstack.agent.profiling.event import ProfilingEvent
from scavenger_openstack.agent import status
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack import amounts
from scavenger_openstack.decision.changes import has_changed
from scavenger_openstack.outcomes import outcome_of
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import more_done
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value

BURST = 4
REST_S = 60.0
AGAIN_S = 5.0
"""A limit that is set again has a line so many seconds after its last one at
the latest: the control plane shows the limits that have had a line."""
CHANGE_SHARE = 0.1
"""A limit that moves by less than this is the same limit: most follow a
noisy mean, and each tick moves them a little."""

NONE: Mapping[KnobKey, tuple[str, ...]] = {}

Times = collections.deque[float]
IncidentKey = tuple[str, str]
"""The controller and the id."""


class AgentEvent(NamedTuple):
    """The agent started, ended, or may set limits no more or again."""

    wall_time_s: float
    what: str
    detail: str = ''
    pid: int = 0


class LimitEvent(NamedTuple):
    """A limit was ``set``, ``changed`` or ``removed``.

    ``lowest`` and ``highest``: what it was since the line before.
    ``since_s`` is the wall time when it was set, or when its owner took it
    over: to the control plane that is another limit.  ``incidents`` are the
    ids of those that it answers.
    """

    wall_time_s: float
    what: str
    workload: str
    knob: Knob
    owner: str
    reason: str
    original: Value | None = None
    value: Value | None = None
    lowest: Value | None = None
    highest: Value | None = None
    since_s: float = 0.0
    why: str = ''
    incidents: tuple[str, ...] = ()


class IncidentEvent(NamedTuple):
    """An incident ``began``, ``changed`` or ``ended``.

    ``begun_s`` is the wall time when the harm began: before there was
    evidence, which is when ``began`` is told.
    """

    wall_time_s: float
    what: str
    controller: str
    incident: Incident
    begun_s: float = 0.0


class KillEvent(NamedTuple):
    """Processes were killed."""

    wall_time_s: float
    action: Action
    processes: int


Event = (AgentEvent | LimitEvent | IncidentEvent | KillEvent
         | ProfilingEvent)


@dataclasses.dataclass(slots=True)
class _Limit:
    """A limit as it is, and what the last line said of it.

    ``moved``: it may have changed since that was looked at last.  ``owned_s``
    and ``owned_wall_s``: when its owner took it over.  ``answers_more``: it
    answers an incident that is not in ``incidents`` of the last line.
    """

    cap: Cap
    original: Value | None
    since_s: float
    lowest: Value
    highest: Value
    seen_s: float
    owned_s: float
    owned_wall_s: float
    present: bool = True
    moved: bool = False
    told: Cap | None = None
    incidents: tuple[str, ...] = ()
    answers_more: bool = False
    times: Times = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=BURST))


@dataclasses.dataclass(slots=True)
class _Incident:
    """``action`` is what the line about its end says was done.  The wall
    clock may be set while an incident lasts: ``begun_s`` stays."""

    incident: Incident
    begun_s: float
    present: bool = True
    told: Incident | None = None
    action: str = ''


class Transitions:
    """Remembers what the lines said; :meth:`limits` and :meth:`incidents`
    return those that are due."""

    def __init__(self) -> None:
        self._limits: dict[KnobKey, _Limit] = {}
        self._incidents: dict[IncidentKey, _Incident] = {}
        self._times: dict[tuple[str, str, str], Times] = {}

    def limits(self, now: float, wall_time_s: float,
               in_force: Mapping[KnobKey, Cap],
               originals: Mapping[KnobKey, Value | None],
               why: Callable[[Cap], str] = lambda cap: '',
               pending: Collection[KnobKey] = (),
               answered: Mapping[KnobKey, tuple[str, ...]] = NONE
               ) -> list[Event]:
        """The lines about limits.

        :param now: CLOCK_BOOTTIME in seconds
        :param in_force: the limits that are written
        :param originals: what each leased knob goes back to; a limit lasts
            until its lease ends
        :param why: why a limit is removed now
        :param pending: what is being written: what came of it is seen, and
            told with the rest of that workload, when that has ended
        :param answered: the ids of the incidents that each limit answers
        """
        for key, cap in in_force.items():
            if key in pending:
                continue
            limit = self._limits.get(key)
            if limit is None:
                self._limits[key] = _Limit(
                    cap, originals.get(key), wall_time_s, cap[2], cap[2], now,
                    now, wall_time_s)
            else:
                limit.seen_s = now
                if not limit.present:
                    limit.present = limit.moved = True
                    limit.original = originals.get(key)
                    limit.since_s = limit.owned_wall_s = wall_time_s
                    limit.owned_s = now
                    limit.lowest = limit.highest = cap[2]
                if cap[3] != limit.cap[3]:
                    limit.moved = True
                    limit.owned_s, limit.owned_wall_s = now, wall_time_s
                limit.cap = cap
                if cap[2] != limit.highest and cap[2] != limit.lowest:
                    limit.moved = True
                    limit.lowest = min(limit.lowest, cap[2], key=_size)
                    limit.highest = max(limit.highest, cap[2], key=_size)
        found: list[Event] = []
        for key, limit in list(self._limits.items()):
            if key in pending:
                continue
            limit.present = limit.seen_s == now or (limit.present
                                                    and key in originals)
            limit.answers_more = key in answered and not set(
                limit.incidents).issuperset(answered[key])
            if limit.present and limit.told is not None and (
                    not (limit.moved or limit.answers_more)
                    or not _due(limit, now)):
                continue    # most of them: no change, or too early for one
            event = self._limit(limit, now, wall_time_s, why,
                                answered.get(key, ()))
            if event is not None:
                found.append(event)
            elif (not limit.present and limit.told is None
                  and not _recent(limit.times, now)):
                del self._limits[key]
        return found

    @staticmethod
    def _limit(limit: _Limit, now: float, wall_time_s: float,
               why: Callable[[Cap], str], incidents: tuple[str, ...]
               ) -> LimitEvent | None:
        cap = limit.cap
        if limit.told is None:
            what = 'set' if limit.present else ''
        elif not limit.present:
            what = 'removed'
        else:
            what = 'changed' if (limit.answers_more or _changed(
                limit, limit.told)) else ''
        limit.moved = False
        # Each limit whose begin had a line has one for its end.
        if not what or (what != 'removed' and not _room(limit.times, now)
                        and now - limit.times[-1] < AGAIN_S):
            return None
        if limit.told is not None and limit.told.owner != cap.owner:
            if what == 'changed':
                limit.since_s = limit.owned_wall_s
            else:       # the line is about the limit that has had one
                cap = limit.told
        if what != 'removed':
            limit.incidents = incidents
        event = LimitEvent(
            wall_time_s, what, cap.workload, cap.knob, cap.owner, cap.reason,
            limit.original, cap.value, limit.lowest, limit.highest,
            limit.since_s, why(cap) if what == 'removed' else '',
            limit.incidents)
        limit.times.append(now)
        limit.told = cap if limit.present else None
        limit.lowest = limit.highest = cap.value
        return event

    def incidents(self, now: float, wall_time_s: float,
                  present: Mapping[IncidentKey, Incident],
                  answered: Collection[str] = ()) -> list[Event]:
        """The lines about incidents; as :meth:`limits`.

        :param answered: the ids of those that a limit answers: each of these
            has a line before the limit has
        """
        for key, incident in present.items():
            one = self._incidents.setdefault(key, _Incident(
                incident, wall_time_s - max(0.0, now - incident.time_s)))
            one.incident = incident
            one.action = more_done(one.action, incident.action)
        found: list[Event] = []
        for key, one in list(self._incidents.items()):
            one.present = key in present
            incident = one.incident
            what = ('began' if one.told is None else
                    'ended' if not one.present else
                    'changed' if has_changed(one.told, incident) else '')
            if what == 'began' and not one.present:
                del self._incidents[key]    # over before there was room
                continue
            if what == 'ended':
                incident = dataclasses.replace(
                    incident, action=one.action, outcome=outcome_of(
                        incident.outcome, ended=True))
            times = self._times.setdefault(
                (key[0], incident.victim, incident.signal),
                collections.deque(maxlen=BURST))
            # Each incident whose begin had a line has one for its end.
            if what and (what == 'ended' or _room(times, now) or (
                    what == 'began' and key[1] in answered)):
                times.append(now)
                found.append(IncidentEvent(wall_time_s, what, key[0],
                                           incident, one.begun_s))
                one.told = incident
                if what == 'ended':
                    del self._incidents[key]
        self._times = {key: times for key, times in self._times.items()
                       if _recent(times, now)}
        return found


def _room(times: Times, now: float) -> bool:
    return len(times) < BURST or now - times[0] >= REST_S


def _due(limit: _Limit, now: float) -> bool:
    """Whether a change may have a line now: another incident that the limit
    answers has one early, and so has another owner, if it has had the limit
    for :data:`AGAIN_S`."""
    return now - limit.times[-1] >= REST_S or _room(limit.times, now) and (
        limit.answers_more
        or limit.told is not None and limit.told.owner != limit.cap.owner
        and now - limit.owned_s >= AGAIN_S)


def _recent(times: Times, now: float) -> bool:
    return bool(times) and now - times[-1] < REST_S


def _changed(limit: _Limit, told: Cap) -> bool:
    """Whether a limit is another than the last line said.  A new reason
    alone is no change: its numbers move all the time.  Nor is it one of a
    limit that follows the load from tick to tick."""
    if limit.cap.owner != told.owner:
        return True
    if told.owner == leftover.OWNER:
        return False
    if isinstance(told.value, str):
        return limit.cap.value != told.value or limit.lowest != limit.highest
    slack = CHANGE_SHARE * told.value
    return (_size(limit.lowest) < told.value - slack
            or _size(limit.highest) > told.value + slack)


def _size(value: Value) -> float:
    """What is less: fewer CPUs, or a smaller number."""
    return float(len(parse_cpus(value)) if isinstance(value, str) else value)


def sentence(event: Event, known: names.Names | None = None) -> str:
    """One event in one line: the same in the log and in the history.

    :param known: names of VMs, to be put beside their UUIDs
    """
    text = _words(event)
    return status.shown(known.beside(text) if known else text).replace(
        '\n', '\\n')


def _words(event: Event) -> str:
    if isinstance(event, LimitEvent):
        return _of_limit(event)
    if isinstance(event, IncidentEvent):
        lasts_s = round(max(0.0, event.wall_time_s - event.begun_s))
        when = {'began': f' {lasts_s} s ago', 'ended': f' after {lasts_s} s'
                }.get(event.what, '') if lasts_s and event.begun_s else ''
        return (f'incident {event.what}{when} ({event.controller}): '
                + status.of_incident(event.incident))
    if isinstance(event, KillEvent):
        count = amounts.counted(event.processes, 'process', 'processes')
        return (f'killed {count} of {event.action.workload}: '
                f'{event.action.reason} ({event.action.owner})')
    if isinstance(event, ProfilingEvent):
        return event.words
    return (f'agent {event.what}' + (f': {event.detail}' if event.detail
                                     else '')
            + (f' (process {event.pid})' if event.pid else ''))


def sentences(events: Sequence[Event]) -> list[str]:
    """The lines of one tick for the log: one for all limits of a workload
    that were set, changed or removed at once."""
    groups: dict[tuple[object, ...], list[Event]] = {}
    for index, event in enumerate(events):
        key = ((event.what, event.workload)
               if isinstance(event, LimitEvent) else (index,))
        groups.setdefault(key, []).append(event)
    return [sentence(group[0]) if len(group) == 1 else
            status.shown(_of_limits([one for one in group if isinstance(
                one, LimitEvent)])).replace('\n', '\\n')
            for group in groups.values()]


def _of_limits(events: Sequence[LimitEvent]) -> str:
    first, removed = events[0], events[0].what == 'removed'
    reasons = dict.fromkeys(event.why for event in events if event.why)
    limits = ', '.join(
        f'{event.knob} ' + (_original(event) if removed else
                            f'= {amounts.of_knob(event.knob, event.value)}')
        for event in events)
    return (f'{len(events)} limits {first.what}: {first.workload} {limits}'
            + (f': {"; ".join(reasons)}' if reasons else '')
            + f' ({", ".join(dict.fromkeys(one.owner for one in events))}); '
            'see scavenger-agent history for each')


def _original(event: LimitEvent) -> str:
    value = amounts.of_knob(event.knob, event.original)
    return f'has {value}' if event.original is None else f'is {value}'


def _of_limit(event: LimitEvent) -> str:
    what = f'limit {event.what}: {event.workload} {event.knob}'
    value, before, lowest, highest = [
        amounts.of_knob(event.knob, one) for one in (
            event.value, event.original, event.lowest, event.highest)]
    spread = ('' if event.lowest == event.highest else
              f', from {lowest} to {highest} since the last line')
    if event.what == 'removed':
        return (f'{what} {_original(event)} again; it was {value}{spread} '
                f'for {event.wall_time_s - event.since_s:.0f} s'
                + (f': {event.why}' if event.why else '')
                + f' ({event.owner})')
    answers = '' if len(event.incidents) < 2 else (
        f', for {len(event.incidents)} incidents')
    return (f'{what} = {value}'
            + (f', before: {before}' if event.what == 'set' else '')
            + f'{spread}{answers}: {event.reason} ({event.owner})')
