# SPDX-License-Identifier: Apache-2.0

"""Why a limit is in force no more, of a workload that is still there."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision.orders import OWNER
from scavenger_openstack.decision.settle import Decided
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority

OVERRIDE_ENDED = 'the override has ended'
UNLIMITED = 'an override wants no limit'
EXEMPT = 'it is exempt from limits'
FOREGROUND = 'it is foreground now'
RECLAIMED = 'its memory is below the limit, or no limit is needed'
FAST_LOOP = 'blind isolation moves this CPU set now'
TIGHTER = 'its own limit is now at least as tight'
NOT_NEEDED = '{} no longer needs it'
MODE = 'the mode of {} is {} now'
OBSERVES = '{} sets no limits now'
ISOLATION = 'blind isolation: {}'
CPUS_AGAIN = 'enough CPUs are idle for the foreground again'
FAILED = '{} failed, see the log: {}'

CONTROLLER_OF: Mapping[str, str] = {leftover.OWNER: scavenger.NAME}
"""Owners of limits that are parts of a controller."""


class Removed(NamedTuple):
    """A limit that was in force, and what this tick knows.

    ``name`` is the controller that wanted it, ``decision`` what that wants
    now; ``isolation`` is the state of the fast loop.
    """

    cap: Cap
    name: str
    decision: Decision
    decided: Decided
    orders: Orders
    isolation: str


def why(cap: Cap, decided: Decided, orders: Orders, isolation: str) -> str:
    """Return the first cause that holds.

    :param cap: the limit that was in force
    :param decided: what this tick wants
    :param orders: what operators ask for
    :param isolation: the state of the fast loop
    """
    name = cap.owner.partition('+')[0]      # of two that had one wish
    name = CONTROLLER_OF.get(name, name)
    removed = Removed(cap, name, decided.decisions.get(name, Decision()),
                      decided, orders, isolation)
    for cause in CAUSES:
        if reason := cause(removed):
            return reason
    return NOT_NEEDED.format(name)


def _of_override(removed: Removed) -> str:
    cap, decided = removed.cap, removed.decided
    return (OVERRIDE_ENDED if cap.owner == OWNER else
            UNLIMITED if cap[:2] in decided.unlimited else '')


def _of_workload(removed: Removed) -> str:
    cap, decided = removed.cap, removed.decided
    if cap.workload in decided.exempt:
        return EXEMPT
    return FOREGROUND if any(
        rated.workload.id == cap.workload
        and rated.workload.priority is Priority.FOREGROUND
        for rated in decided.rates.workloads) else ''


def _of_controller(removed: Removed) -> str:
    name, modes = removed.name, removed.orders.modes
    if name == perfiso.Controller.name:
        return (CPUS_AGAIN if removed.cap.knob is Knob.CPU_CORES
                and removed.isolation.startswith('running')
                else ISOLATION.format(removed.isolation))
    if name in removed.decided.observed:
        return (MODE.format(name, modes[name]) if name in modes
                else OBSERVES.format(name))
    fault = removed.decision.facts.get('fault', '')
    return FAILED.format(name, fault) if fault else ''


def _of_need(removed: Removed) -> str:
    key, decided, decision = (removed.cap[:2], removed.decided,
                              removed.decision)
    if removed.cap.knob is Knob.PAUSED:
        return RECLAIMED
    return (FAST_LOOP if key in decided.fast.keys else
            decision.removal_reasons[key]
            if key in decision.removal_reasons else
            TIGHTER if key not in decided.wanted and any(
                cap[:2] == key for cap in decision.caps) else '')


CAUSES: tuple[Callable[[Removed], str], ...] = (
    _of_override, _of_workload, _of_controller, _of_need)
"""What operators did comes before what the controller found."""
