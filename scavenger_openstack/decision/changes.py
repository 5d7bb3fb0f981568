# SPDX-License-Identifier: Apache-2.0

"""What changed from one decision to the next.

A recording holds these changes and a replay prints them, so that both can be
compared line by line.  What counts as a change is decided in :mod:`.events`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.algorithms.signals import KNOB_TO_LIMIT
from scavenger_openstack.decision.settle import Decided
from scavenger_openstack.events import incident_changed
from scavenger_openstack.events import limit_changed
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import WOULD

K = TypeVar('K')

WouldKey = tuple[str, str, Knob]
"""The controller that would set it, the workload, the knob."""


class IncidentChange(NamedTuple):
    """An incident that is new, has changed, or has ended."""

    controller: str
    incident: Incident
    ended: bool


class Changed(NamedTuple):
    """Caps by key, ``None`` for one that is no longer wanted."""

    wanted: Mapping[KnobKey, Cap | None] = {}
    would: Mapping[WouldKey, Cap | None] = {}
    incidents: tuple[IncidentChange, ...] = ()


def of_caps(before: Mapping[K, Cap], after: Mapping[K, Cap],
            ) -> dict[K, Cap | None]:
    """Return the caps that changed, ``None`` for one that has gone."""
    changed: dict[K, Cap | None] = {}
    for key, cap in after.items():
        old = before.get(key)
        if old is None or limit_changed(old, cap):
            changed[key] = cap
    for key in before:
        if key not in after:
            changed[key] = None
    return changed


def of_incidents(before: Mapping[tuple[str, str], Incident],
                 after: Mapping[tuple[str, str], Incident],
                 ) -> tuple[IncidentChange, ...]:
    """Return the incidents by controller and id that began, changed or
    ended: the numbers of an open incident move all the time."""
    return (*(IncidentChange(key[0], incident, False)
              for key, incident in after.items()
              if key not in before
              or incident_changed(before[key], incident)),
            *(IncidentChange(key[0], incident, True)
              for key, incident in before.items() if key not in after))


class Changes:
    """What was decided last, to compare the next decision with."""

    def __init__(self) -> None:
        self.wanted: Mapping[KnobKey, Cap] = {}
        self.would: Mapping[WouldKey, Cap] = {}
        self.incidents: Mapping[tuple[str, str], Incident] = {}

    def of(self, decided: Decided) -> Changed:
        """Return what is different now from the last decision."""
        would = would_by_key(decided.would)
        incidents = incidents_by_key(decided.decisions)
        changed = Changed(of_caps(self.wanted, decided.wanted),
                          of_caps(self.would, would),
                          of_incidents(self.incidents, incidents))
        self.wanted, self.would = decided.wanted, would
        # Grounds are compared with those of the last change: they drift.
        keys = {(incident.controller, incident.incident.id)
                for incident in changed.incidents}
        self.incidents = {
            key: incident if key in keys
            or incident.grounds is self.incidents[key].grounds
            else dataclasses.replace(
                incident, grounds=self.incidents[key].grounds)
            for key, incident in incidents.items()}
        return changed

    def of_none(self) -> Changed:
        """Return what changes where nothing could be decided, and nothing
        may be limited."""
        changed = Changed(of_caps(self.wanted, {}))
        self.wanted = {}
        return changed


def would_by_key(caps: Iterable[Cap]) -> dict[WouldKey, Cap]:
    return {(cap[3], cap[0], cap[1]): cap for cap in caps}


def incidents_by_key(decisions: Mapping[str, Decision],
                     ) -> dict[tuple[str, str], Incident]:
    return {(name, incident.id): incident
            for name, decision in decisions.items()
            for incident in decision.incidents}


def reported_incidents(decided: Decided) -> dict[tuple[str, str], Incident]:
    """Return incidents as :func:`incidents_by_key`, for operators: an action
    names the workloads that are limited, and has that none is.

    Controllers do not know of that, and recordings hold their incidents.
    """
    return {
        key: incident if not incident.action.startswith(LIMIT)
        else dataclasses.replace(incident, action=_reported_action(
            decided, key[0], incident))
        for key, incident in incidents_by_key(decided.decisions).items()}


def knob_of(incident: Incident) -> Knob | None:
    """Return the knob that answers an incident, ``None`` where it is not
    known."""
    knob = KNOB_TO_LIMIT.get(incident.signal)
    name = incident.signal.partition(' ')[0]    # of a device, perhaps
    return (knob if knob is not None
            else Knob(name) if name in set(Knob) else None)


def _reported_action(decided: Decided, controller: str, incident: Incident
                 ) -> str:
    knob = knob_of(incident)
    if controller in decided.observed or (
            knob is not None and knob not in decided.limited):
        return WOULD + incident.action
    names = incident.action.removeprefix(LIMIT).split(', ')
    limited = [name for name in names if name not in decided.exempt and (
        knob is None or (name, knob) not in decided.unlimited)]
    return (LIMIT + ', '.join(limited) if limited
            else WOULD + incident.action)
