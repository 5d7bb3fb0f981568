# SPDX-License-Identifier: Apache-2.0

"""What happened on a host: which changes of a limit or an incident count.

Pure.  An event is an entry of :mod:`.wire.report`, the same in the log, on
disk, in the history and in reports.  Each victim has at most :data:`BURST`
events in :data:`REST_S`, and so has each limit, but for one that is set again
:data:`AGAIN_S` after its last event, and its removal; what was held back is
made up for when there is room, so the last event is true.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import get_args

from scavenger_openstack import grounds
from scavenger_openstack.outcomes import Outcome
from scavenger_openstack.outcomes import outcome_of
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import more_done
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report
from scavenger_openstack.wire.report import AnyEntry as Event

BURST = 4
REST_S = 60.0
AGAIN_S = 5.0
"""A limit that is set again has an event so many seconds after its last one
at the latest: the control plane shows the limits that have had one."""
CHANGE_SHARE = 0.1
"""A limit that moves by less than this is the same limit: most follow a
noisy mean, and each tick moves them a little."""
LASTS_S = 300.0
"""An open incident is reported again as often; after a kill it may look that
much shorter."""

MOST_SERIES = 9
MOST_SAMPLES = 120
MOST_SUSPECTS = 64

_OUTCOMES = frozenset(get_args(report.Outcome))

NONE: Mapping[KnobKey, tuple[str, ...]] = {}

Evidence = Sequence[tuple[str, str, Sequence[float], Sequence[float | None]]]
"""Workload, what the values are, their times (CLOCK_BOOTTIME), and values;
oldest first."""

Times = collections.deque[float]
IncidentKey = tuple[str, str]
"""The controller and the id."""


def incident_changed(before: Incident, now: Incident) -> bool:
    """Whether more than the numbers of an incident differ: cause,
    antagonists, action, outcome or, materially, grounds."""
    return ((before.cause, before.action, before.outcome)
            != (now.cause, now.action, now.outcome)
            or frozenset(before.antagonists) != frozenset(now.antagonists)
            or grounds.differ(before.grounds, now.grounds))


def limit_changed(before: Cap, now: Cap, share: float = 0.0) -> bool:
    """Whether a limit has another owner or another value.  A new reason alone
    is no change: its numbers move all the time.

    :param share: by which a number may differ and count as the same
    """
    return before[3] != now[3] or value_changed(before[2], now[2], share)


def value_changed(before: Value, now: Value, share: float = 0.0) -> bool:
    """Whether the value of a limit differs by more than a share of it."""
    if isinstance(before, str) or isinstance(now, str):
        return before != now
    slack = share * before
    return not before - slack <= now <= before + slack


@dataclasses.dataclass(slots=True)
class _Limit:
    """A limit as it is, and what the last event had of it.

    ``moved``: it may have changed since that was compared last.  ``owned_s``
    and ``owned_wall_s``: when its owner took it over.
    """

    cap: Cap
    original: Value | None
    since_s: float
    lowest: Value
    highest: Value
    read_s: float
    owned_s: float
    owned_wall_s: float
    present: bool = True
    moved: bool = False
    reported: Cap | None = None
    incidents: tuple[str, ...] = ()
    answers_more: bool = False
    times: Times = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=BURST))


@dataclasses.dataclass(slots=True)
class _Incident:
    """``action`` is what the event about its end has as done.  The wall clock
    may be set while an incident lasts: ``begun_s`` stays."""

    incident: Incident
    begun_s: float
    present: bool = True
    reported: Incident | None = None
    reported_s: float = 0.0
    action: str = ''


class Tracker:
    """Remembers what the events had; :meth:`limits` and :meth:`incidents`
    return those that are due.

    :param following: owners whose limits follow the load from tick to tick:
        another value of these is no event
    """

    def __init__(self, following: Collection[str] = ()) -> None:
        self._following = following
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
        """Return the events about limits.

        :param now: CLOCK_BOOTTIME in seconds
        :param in_force: the limits that are written
        :param originals: what each leased knob goes back to; a limit lasts
            until its lease ends
        :param why: why a limit is removed now
        :param pending: what is being written: it has events after that
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
                limit.read_s = now
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
        events: list[Event] = []
        for key, limit in list(self._limits.items()):
            if key in pending:
                continue
            limit.present = limit.read_s == now or (limit.present
                                                    and key in originals)
            limit.answers_more = key in answered and not set(
                limit.incidents).issuperset(answered[key])
            if limit.present and limit.reported is not None and (
                    not (limit.moved or limit.answers_more)
                    or not _due(limit, now)):
                continue    # most of them: no change, or too early for one
            event = self._limit(limit, now, wall_time_s, why,
                                answered.get(key, ()))
            if event is not None:
                events.append(event)
            elif (not limit.present and limit.reported is None
                  and not _recent(limit.times, now)):
                del self._limits[key]
        return events

    def _limit(self, limit: _Limit, now: float, wall_time_s: float,
               why: Callable[[Cap], str], incidents: tuple[str, ...]
               ) -> report.Limit | None:
        cap = limit.cap
        if limit.reported is None:
            what = 'set' if limit.present else ''
        elif not limit.present:
            what = 'removed'
        else:
            what = 'changed' if (limit.answers_more or self._changed(
                limit, limit.reported)) else ''
        limit.moved = False
        # Each limit whose begin had an event has one for its end.
        if not what or (what != 'removed' and not _room(limit.times, now)
                        and now - limit.times[-1] < AGAIN_S):
            return None
        if limit.reported is not None and limit.reported.owner != cap.owner:
            if what == 'changed':
                limit.since_s = limit.owned_wall_s
            else:       # the event is about the limit that has had one
                cap = limit.reported
        if what != 'removed':
            limit.incidents = incidents
        event = limit_event(
            wall_time_s, what, cap, since_s=limit.since_s,
            original=limit.original, lowest=limit.lowest,
            highest=limit.highest, why=why(cap) if what == 'removed' else '',
            incidents=limit.incidents)
        limit.times.append(now)
        limit.reported = cap if limit.present else None
        limit.lowest = limit.highest = cap.value
        return event

    def _changed(self, limit: _Limit, reported: Cap) -> bool:
        if limit.cap.owner == reported.owner in self._following:
            return False
        return limit_changed(reported, limit.cap, CHANGE_SHARE) or any(
            value_changed(reported.value, value, CHANGE_SHARE)
            for value in (limit.lowest, limit.highest))

    def incidents(self, now: float, wall_time_s: float,
                  present: Mapping[IncidentKey, Incident],
                  answered: Collection[str] = (),
                  evidence: Callable[[str, Incident], Evidence]
                  = lambda controller, incident: ()) -> list[Event]:
        """Return the events about incidents; as :meth:`limits`.

        :param answered: the ids of those that a limit answers: each of these
            has an event before the limit has
        :param evidence: the measurements of a controller and its incident,
            for a begin, an end, and a limit that was judged
        """
        for key, incident in present.items():
            state = self._incidents.setdefault(key, _Incident(
                incident, wall_time_s - max(0.0, now - incident.time_s)))
            state.incident = incident
            state.action = more_done(state.action, incident.action)
        events: list[Event] = []
        for key, state in list(self._incidents.items()):
            state.present = key in present
            incident = state.incident
            what = ('began' if state.reported is None else
                    'ended' if not state.present else
                    'changed' if incident_changed(state.reported, incident)
                    else '')
            if what == 'began' and not state.present:
                del self._incidents[key]    # over before there was room
                continue
            if what == 'ended':
                incident = dataclasses.replace(
                    incident, action=state.action, outcome=outcome_of(
                        incident.outcome, ended=True))
            times = self._times.setdefault(
                (key[0], incident.victim, incident.signal),
                collections.deque(maxlen=BURST))
            # Each incident whose begin had an event has one for its end.
            if what and (what == 'ended' or _room(times, now) or (
                    what == 'began' and key[1] in answered)):
                times.append(now)
                events.append(incident_event(
                    wall_time_s, what, key[0], incident, state.begun_s,
                    evidence(key[0], incident) if what != 'changed'
                    or incident.outcome != Outcome.OPEN else ()))
                state.reported, state.reported_s = incident, now
                if what == 'ended':
                    del self._incidents[key]
        self._times = {key: times for key, times in self._times.items()
                       if _recent(times, now)}
        return events

    def lasting(self, now: float, wall_time_s: float) -> Iterator[Event]:
        """Generate an entry for each open incident that has had none for
        :data:`LASTS_S`: the control plane sees by these that it goes on."""
        for (controller, _), state in self._incidents.items():
            if state.reported and now - state.reported_s >= LASTS_S:
                state.reported_s = now
                yield incident_event(wall_time_s, 'changed', controller,
                                     state.reported, state.begun_s)


def _room(times: Times, now: float) -> bool:
    return len(times) < BURST or now - times[0] >= REST_S


def _due(limit: _Limit, now: float) -> bool:
    """Whether a change may have an event now: another incident that the limit
    answers has one early, and so has another owner, if it has had the limit
    for :data:`AGAIN_S`."""
    return now - limit.times[-1] >= REST_S or _room(limit.times, now) and (
        limit.answers_more
        or limit.reported is not None
        and limit.reported.owner != limit.cap.owner
        and now - limit.owned_s >= AGAIN_S)


def _recent(times: Times, now: float) -> bool:
    return bool(times) and now - times[-1] < REST_S


def _size(value: Value) -> float:
    """Return what orders values: the number of CPUs, or the number."""
    return float(len(parse_cpus(value)) if isinstance(value, str) else value)


def limit_event(time_s: float, what: str, cap: Cap, *, since_s: float = 0.0,
                original: Value | None = None, lowest: Value | None = None,
                highest: Value | None = None, why: str = '',
                incidents: Sequence[str] = ()) -> report.Limit:
    """Return the event that a limit was ``set``, ``changed`` or ``removed``.

    :param time_s: UNIX time, as ``since_s`` is
    """
    return report.Limit(
        sequence=1, time_s=fit.time_s(time_s), workload=fit.name(cap.workload),
        knob=Knob(cap.knob).value, what=what,       # type: ignore[arg-type]
        since_s=fit.time_s(since_s), owner=fit.name(cap.owner),
        value=fit.value(cap.value), original=fit.value(original),
        lowest=fit.value(lowest), highest=fit.value(highest),
        reason=fit.sentence(cap.reason), why=fit.sentence(why),
        incidents=[name for name in map(fit.incident, incidents)
                   if name][:report.MAX_ANSWERED])


def incident_event(time_s: float, what: str, controller: str,
                   incident: Incident, begun_s: float,
                   evidence: Evidence = ()) -> report.Incident:
    """Return the event that an incident ``began``, ``changed`` or ``ended``.

    :param begun_s: UNIX time when the harm began: before there was evidence
    """
    scores = dict(incident.suspects)
    # The sums of an incident count for all that disturbed while it lasted.
    antagonists = *incident.antagonists, *incident.named_earlier
    return report.Incident(
        sequence=1, time_s=fit.time_s(time_s), id=incident.id,
        what=what,                          # type: ignore[arg-type]
        begun_s=fit.time_s(min(time_s, begun_s)),
        victim=fit.name(incident.victim),
        signal=fit.name(incident.signal), value=fit.number(incident.value),
        threshold=fit.number(incident.threshold),
        cause=fit.maybe_name(incident.cause),
        controller=fit.maybe_name(controller),
        action=fit.sentence(incident.action),
        outcome=(incident.outcome if incident.outcome in _OUTCOMES
                 else 'unclear'),
        suspects=[report.Suspect(
            workload=fit.name(name), score=fit.number(scores.get(name)),
            antagonist=name in antagonists,
            earlier=name in incident.named_earlier)
            for name in dict.fromkeys((*antagonists, *scores))][
                :MOST_SUSPECTS],
        grounds=[report.Ground(
            workload=fit.maybe_name(ground.workload),
            kind=ground.kind.value, share=fit.share(ground.share, -1.0),
            waited_s=fit.amount(ground.waited_s),
            window_s=fit.amount(ground.window_s),
            threads=[fit.thread(name) for name in ground.threads[
                :report.MAX_THREADS]],
            chance=fit.share(ground.chance),
            before=fit.number(ground.before), after=fit.number(ground.after))
            for ground in incident.grounds[:report.MAX_GROUNDS]],
        evidence=[report.Series(
            workload=fit.name(workload), signal=fit.name(signal),
            times_s=_times(begun_s - incident.time_s, times[-MOST_SAMPLES:]),
            # What is not finite has no JSON but null.
            values=list(values[-MOST_SAMPLES:]))
            for workload, signal, times, values in evidence[:MOST_SERIES]])


def _times(offset_s: float, times: Sequence[float]) -> list[float]:
    """Return ascending times as UNIX times that calendars have."""
    unix_s = [offset_s + at_s for at_s in times]
    ends = unix_s[:1] + unix_s[-1:]
    return (unix_s if ends == list(map(fit.time_s, ends))
            else list(map(fit.time_s, unix_s)))
