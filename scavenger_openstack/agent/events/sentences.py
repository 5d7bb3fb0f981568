# SPDX-License-Identifier: Apache-2.0

"""Events as sentences, the same in the log, in the history and in the status.
"""

from __future__ import annotations

from collections.abc import Sequence
import datetime

from scavenger_openstack.agent import names
from scavenger_openstack import amounts
from scavenger_openstack.events import Event
from scavenger_openstack import grounds
from scavenger_openstack.types import printable
from scavenger_openstack.wire import report


def line(event: Event, vm_names: names.Names) -> str:
    """Return an event for people to read, with its time in UTC."""
    try:
        when = datetime.datetime.fromtimestamp(
            event.time_s, datetime.UTC).isoformat(' ', 'seconds')
    except (ValueError, OverflowError, OSError):
        when = f'{event.time_s:.0f} s'
    return f'{when}  {sentence(event, vm_names)}'


def sentence(event: Event, vm_names: names.Names | None = None) -> str:
    """Return an event in one line.

    :param vm_names: names of VMs, to be put beside their UUIDs
    """
    if isinstance(event, report.Limit):
        text = _of_limit(event)
    elif isinstance(event, report.Incident):
        text = _of_incident(event)
    elif isinstance(event, report.Kill):
        count = amounts.counted(event.processes, 'process', 'processes')
        text = (f'killed {count} of {event.workload}: {event.reason} '
                f'({event.owner})')
    elif isinstance(event, report.Profiling):
        text = (f'profiling {event.what}: {event.workload}'
                + (f' after {event.seconds:.1f} s'
                   if event.what != 'began' else '')
                + (f': {event.detail}' if event.detail else ''))
    elif isinstance(event, report.AgentEvent):
        text = (f'agent {event.what}'
                + (f': {event.detail}' if event.detail else '')
                + (f' (process {event.pid})' if event.pid else ''))
    elif isinstance(event, report.Statistics):
        text = f'statistics of {event.application}: {event.signal}'
    else:
        text = f'{event.entry_type}: not known to this release'
    return printable(vm_names.beside(text) if vm_names else text)


def sentences(events: Sequence[Event]) -> list[str]:
    """Return the lines of one tick for the log: one for all limits of a
    workload that were set, changed or removed at once."""
    groups: dict[tuple[object, ...], list[Event]] = {}
    for index, event in enumerate(events):
        key = ((event.what, event.workload)
               if isinstance(event, report.Limit) else (index,))
        groups.setdefault(key, []).append(event)
    return [sentence(group[0]) if len(group) == 1 else
            printable(_of_limits([event for event in group if isinstance(
                event, report.Limit)]))
            for group in groups.values()]


def of_incident(incident: report.Incident) -> str:
    """Return what is so of an incident."""
    value, threshold = [
        'unknown' if number is None else amounts.of_number(number)
        for number in (incident.value, incident.threshold)]
    named, earlier = (', '.join(
        suspect.workload for suspect in incident.suspects
        if suspect.antagonist and suspect.earlier is is_earlier)
        for is_earlier in (False, True))
    evidence = '; '.join(
        amounts.of_ground(grounds.Ground(
            ground.workload, grounds.GroundKind(ground.kind), ground.share,
            ground.waited_s, ground.window_s, tuple(ground.threads),
            ground.chance, ground.before, ground.after),
            incident.victim, incident.signal)
        for ground in incident.grounds)
    return (f'victim {incident.victim}, cause {incident.cause}: '
            f'{incident.signal} {value}, threshold {threshold}; '
            f'antagonists: {named or "none named"}'
            + (f'; named earlier: {earlier}' if earlier else '')
            + f'; action: {incident.action or "none"}; outcome: '
            + incident.outcome
            + (f'; grounds: {evidence}' if evidence else ''))


def _of_incident(event: report.Incident) -> str:
    lasts_s = round(max(0.0, event.time_s - event.begun_s))
    when = {'began': f' {lasts_s} s ago', 'ended': f' after {lasts_s} s'
            }.get(event.what, '') if lasts_s and event.begun_s else ''
    return (f'incident {event.what}{when} ({event.controller}): '
            + of_incident(event))


def _of_limits(events: Sequence[report.Limit]) -> str:
    first, is_removed = events[0], events[0].what == 'removed'
    reasons = dict.fromkeys(event.why for event in events if event.why)
    limits = ', '.join(
        f'{event.knob} ' + (_original(event) if is_removed else
                            f'= {amounts.of_knob(event.knob, event.value)}')
        for event in events)
    return (f'{len(events)} limits {first.what}: {first.workload} {limits}'
            + (f': {"; ".join(reasons)}' if reasons else '')
            + f' ({", ".join(dict.fromkeys(event.owner for event in events))})'
            '; see scavenger-agent history for each')


def _original(event: report.Limit) -> str:
    value = amounts.of_knob(event.knob, event.original)
    return f'has {value}' if event.original is None else f'is {value}'


def _of_limit(event: report.Limit) -> str:
    what = f'limit {event.what}: {event.workload} {event.knob}'
    value, before, lowest, highest = [
        amounts.of_knob(event.knob, amount) for amount in (
            event.value, event.original, event.lowest, event.highest)]
    spread = ('' if event.lowest == event.highest else
              f', from {lowest} to {highest} since the last line')
    if event.what == 'removed':
        return (f'{what} {_original(event)} again; it was {value}{spread} '
                f'for {event.time_s - event.since_s:.0f} s'
                + (f': {event.why}' if event.why else '')
                + f' ({event.owner})')
    answers = '' if len(event.incidents) < 2 else (
        f', for {len(event.incidents)} incidents')
    return (f'{what} = {value}'
            + (f', before: {before}' if event.what == 'set' else '')
            + f'{spread}{answers}: {event.reason} ({event.owner})')
