# SPDX-License-Identifier: Apache-2.0

"""What operators ask of a host, and what of it counts here and now.

A limit that an operator asks for takes the place of what the controllers want;
it keeps to the workload's floor, and none is for a foreground workload.
Source: DESIGN 7.5.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
from types import MappingProxyType
from typing import NamedTuple

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.knobs import OF_GROUPS
from scavenger_openstack.knobs import OVERRIDABLE
from scavenger_openstack import types
from scavenger_openstack.wire import fit

OWNER = 'operator'

_CAREFUL = (types.Mode.OFF, types.Mode.OBSERVE, types.Mode.ENFORCE)


class Override(NamedTuple):
    """A limit that an operator asks for, ``None`` for no limit at all.

    ``instance`` is the UUID of a VM, '' to go by the name of the workload or
    group, which is that of :func:`.fit.name`.  ``until_s`` is CLOCK_BOOTTIME.
    """

    id: str
    workload: str
    instance: str
    knob: types.Knob
    value: types.Value | None
    reason: str
    until_s: float


class Overrides(tuple[Override, ...]):
    """The overrides of a host, in order; the last of one knob counts.

    What of them is for a workload is found without looking at the others.
    """

    @functools.cached_property
    def indexes(self) -> Mapping[tuple[str, bool], Sequence[int]]:
        """Where the overrides of each name are, by UUID if that is true."""
        places: dict[tuple[str, bool], list[int]] = {}
        for index, override in enumerate(self):
            places.setdefault((override.instance or override.workload,
                               bool(override.instance)), []).append(index)
        return places

    @functools.cached_property
    def ends_s(self) -> float:
        """The time at which the first of them ends, CLOCK_BOOTTIME."""
        return min((override.until_s for override in self), default=math.inf)

    @functools.cached_property
    def without_target(self) -> Mapping[str, str]:
        """As :attr:`Resolved.refused` on a host without workloads."""
        return {_name(override): _target(override, ())[1]
                for override in self}


class ProfilingOrder(NamedTuple):
    """The profile of a workload is to be measured: see
    :class:`.wire.report.ProfilingOrder`.  ``until_s`` is CLOCK_BOOTTIME."""

    id: str
    workload: str
    instance: str
    form: str
    seconds: float
    until_s: float


class Orders(NamedTuple):
    """The orders of operators for this host.

    ``stopped`` says why nothing may be limited, '' when it may.  ``modes`` are
    by controller; they make it more careful, never less.  ``parameters`` are
    by ``section.option``, as they were asked for.

    ``foreground`` and ``background`` are the instances whose priority an
    operator gave, the latter with the floor that the flavor of each sets.
    ``denied`` are others that were to be background, which the file of this
    host does not allow.  ``unless_flavor`` are those of ``foreground`` that
    have it from project or aggregate, or from what the conductor knows of
    their flavor: the flavor in the definition of the VM is above that.
    ``applications`` are the names by instance, ``unprotected`` those whose
    flavor wants nothing limited for their sake; see :mod:`.tags`.

    ``exempt`` are the instances and projects, as :func:`.fit.project` writes
    them, that only an override may limit.
    ``budget`` is for new limits of detectors.  ``specs`` are those of all
    hosts.  ``profiling`` is what is to be measured; no limit depends on it.
    """

    stopped: str = ''
    modes: Mapping[str, types.Mode] = {}
    parameters: Mapping[str, float | str] = {}
    foreground: frozenset[str] = frozenset()
    background: Mapping[str, types.Floor] = {}
    denied: frozenset[str] = frozenset()
    unless_flavor: frozenset[str] = frozenset()
    applications: Mapping[str, str] = {}
    unprotected: frozenset[str] = frozenset()
    exempt: frozenset[str] = frozenset()
    overrides: Overrides = Overrides()
    budget: Budget | None = None
    specs: Specs = MappingProxyType({})
    profiling: ProfilingOrder | None = None


NO_ORDERS = Orders()


class Resolved(NamedTuple):
    """The orders that count now.

    ``overrides`` are as for :func:`.arbitrate.arbitrate`, ``exempt`` are ids
    of workloads and of groups, ``refused`` says of the other overrides, by
    ``override ID``, why they do not count.
    """

    overrides: Mapping[types.KnobKey, types.Cap | None] = {}
    exempt: frozenset[str] = frozenset()
    refused: Mapping[str, str] = {}


def mode(name: str, own: types.Mode, orders: Orders) -> types.Mode:
    """The mode of a controller: the more careful of its own and what an
    operator asks for."""
    return min(own, orders.modes.get(name, own), key=_CAREFUL.index)


def refused_modes(own: Mapping[str, types.Mode],
                  asked: Mapping[str, types.Mode]) -> dict[str, str]:
    """The modes that operators ask for and that are not followed, as ``mode
    NAME``, and why.

    :param own: the modes that the host's file says, of all its controllers
    """
    refused: dict[str, str] = {}
    for name, mode in asked.items():
        if name not in own:
            refused[f'mode {name}'] = ('no controller of that name runs on '
                                       'this host')
        elif _CAREFUL.index(own[name]) < _CAREFUL.index(mode):
            refused[f'mode {name}'] = (
                f'the file of this host says {own[name]}, and what is set '
                'here can only be more careful than that; set '
                f'[{name}] mode = {mode} in the file and restart the agent')
    return refused


def resolve(now: float, rates: types.Rates, orders: Orders,
            limited: Collection[types.Knob] = tuple(types.Knob),
            taken: Collection[types.KnobKey] = ()) -> Resolved:
    """Return the orders that count now.

    :param now: CLOCK_BOOTTIME in seconds
    :param limited: the knobs that may be set on this host
    :param taken: the knobs that only the fast loop writes
    """
    if not orders.overrides and not orders.exempt:
        return Resolved()
    workloads = [rated.workload for rated in rates.workloads]
    named = _by_name(workloads)
    overrides = orders.overrides
    caps: dict[types.KnobKey, types.Cap | None] = {}
    refused = dict(overrides.without_target)
    if now >= overrides.ends_s:
        refused = {_name(override): refused[_name(override)]
                   for override in overrides if now < override.until_s}
    for index in sorted(index for name in named
                        for index in overrides.indexes.get(name, ())):
        override = overrides[index]
        if now >= override.until_s:
            continue
        refused.pop(_name(override), None)
        near = named[override.instance or override.workload,
                     bool(override.instance)]
        target, why = _target(override, near)
        if not why and override.knob not in limited:
            why = (f'{override.knob} is not limited on this host; see [agent] '
                   'protect and the modes in its file')
        if not why and (target, override.knob) in taken:
            why = ('blind isolation moves this CPU set many times a second; '
                   'set [perfiso] mode = observe first')
        if why:
            refused[_name(override)] = why
            continue
        caps[target, override.knob] = None if override.value is None else _cap(
            override, override.value, target, near)
    return Resolved(caps, exempt(workloads, orders), refused)


def exempt(workloads: Iterable[types.Workload], orders: Orders
           ) -> frozenset[str]:
    """The ids of workloads that only an override may limit, and of groups
    that hold one; all background work is one for limits that it shares."""
    if not orders.exempt:
        return frozenset()
    return frozenset(
        name for workload in workloads
        if workload.instance in orders.exempt
        or fit.project(workload.project) in orders.exempt
        for name in workload.limit_ids)


def _by_name(workloads: Iterable[types.Workload]
             ) -> Mapping[tuple[str, bool], list[types.Workload]]:
    """Those that a name of an override may mean, by UUID if that is true."""
    by_name: dict[tuple[str, bool], list[types.Workload]] = {}
    for workload in workloads:
        for name in {fit.name(workload.id), fit.name(workload.group_id)}:
            by_name.setdefault((name, False), []).append(workload)
        if workload.instance:
            by_name.setdefault((workload.instance, True), []).append(workload)
    return by_name


def _name(override: Override) -> str:
    return f'override {override.id}'


def _target(override: Override, workloads: Collection[types.Workload]
            ) -> tuple[str, str]:
    """The id that an override is for, and why it is none."""
    if override.knob not in OVERRIDABLE:
        return '', (f'{override.knob} has no floor; one of '
                    + ', '.join(sorted(OVERRIDABLE)))
    meant = [workload for workload in workloads
             if (workload.instance == override.instance if override.instance
                 else override.workload == fit.name(
                     _limited(override.knob, workload)))]
    if not meant:
        return '', ('no such group on this host' if override.knob in OF_GROUPS
                    and any(override.workload == fit.name(workload.id)
                            for workload in workloads)
                    else 'no such workload on this host')
    targets = {_limited(override.knob, workload) for workload in meant}
    if len(targets) > 1:
        return '', (f'{len(targets)} cgroups of this host are reported by '
                    'this name; rename all but one')
    if any(workload.priority is not types.Priority.BACKGROUND
           for workload in meant):
        return '', 'it is foreground, which is never limited'
    return targets.pop(), ''


def _limited(knob: types.Knob, workload: types.Workload) -> str:
    """The id of what a knob of a workload is set on."""
    return workload.group_id if knob in OF_GROUPS else workload.id


def _cap(override: Override, value: types.Value, target: str,
         workloads: Collection[types.Workload]) -> types.Cap:
    reason = f'{override.reason} (override {override.id})'
    if override.knob not in OF_GROUPS and not isinstance(value, str):
        default = DEFAULT_FLOORS[override.knob]
        floor = max(workload.floor.get(override.knob, default)
                    for workload in workloads if workload.id == target)
        if value < floor:
            value, reason = floor, (f'{reason}; raised to the floor, '
                                    f'{floor:.15g}')
    return types.Cap(target, override.knob, value, OWNER, reason)
