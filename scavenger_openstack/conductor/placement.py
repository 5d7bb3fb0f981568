# SPDX-License-Identifier: Apache-2.0

"""What Placement has of a host: its background inventory and its traits.

Pure: what was reported and what was written in, what to write out.  A host's
provider ``<host>:background`` has two resource classes, made of what its
agent reports.  Placement only decides where new instances go, so this is
allowed to be late and must not be too much:

* less is offered at once, more only as it lasts (``smooth_s``);
* a small change is not written, and none sooner than ``interval_s`` after
  the one before: each write costs nova-compute and the scheduler a conflict;
* a host is offered for no more than it has by Nova's own inventory of it;
* a host that is silent, or of which something is not known, offers nothing
  new: what is allocated stays, the rest is reserved.

None of this is in the papers.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
from typing import NamedTuple

from scavenger_openstack.algorithms import placing

VCPU, MEMORY_MIB = placing.VCPU, placing.MEMORY_MIB
CLASSES = VCPU, MEMORY_MIB

PARTS = {VCPU: ('VCPU', 'PCPU'), MEMORY_MIB: ('MEMORY_MB',)}
"""What Nova calls that of a host's own provider."""

GRADE = 'CUSTOM_SCAVENGER_GRADE_'
INTERFERENCE = 'CUSTOM_INTERFERENCE_ACTIVE'
TRAITS = GRADE + 'A', GRADE + 'B', GRADE + 'C', INTERFERENCE

SUFFIX = ':background'
BYTES_PER_MIB = 2 ** 20

MOST = 2.0 ** 31 - 1
"""Placement takes no more of a class."""


@dataclasses.dataclass(frozen=True)
class Params:
    """The options of section ``[placement]``.

    :param smooth_s: time constant with which more is offered
    :param step: share of what is written by which it has to change
    :param interval_s: least time between two writes for a host
    :param silent_s: a report that is older says nothing
    """

    smooth_s: float
    step: float
    interval_s: float
    silent_s: float


class HostReport(NamedTuple):
    """What a host's last report says, by resource class.

    ``offer`` is what its background work may have in all: what that uses,
    and what is left besides.  A class that is missing is not known.
    ``grade`` is A, B, C or '' for unknown; ``interference`` whether an
    incident is open.
    """

    time_s: float
    offer: Mapping[str, float]
    grade: str = ''
    interference: bool = False


class Amount(NamedTuple):
    """One class of an inventory; ``total - reserved`` can be allocated."""

    total: int
    reserved: int

    @property
    def offered(self) -> int:
        return self.total - self.reserved

    def inventory(self) -> dict[str, float]:
        """Return the inventory as Placement takes it."""
        return {'total': self.total, 'reserved': self.reserved,
                'min_unit': 1, 'max_unit': self.total, 'step_size': 1,
                'allocation_ratio': 1.0}


Inventory = Mapping[str, Amount]


class State(NamedTuple):
    """What is remembered of a host between two looks at it.

    ``level`` is the smoothed offer as of ``level_s``; ``written`` what
    Placement has since ``written_s``, empty when that is not known.
    """

    level: Mapping[str, float] = {}
    level_s: float = -math.inf
    written: Inventory = {}
    written_s: float = -math.inf


def offer(headroom: Mapping[str, float], used: Mapping[str, float]
          ) -> dict[str, float]:
    """Return what background work may have in all, by resource class.

    :param headroom: what is left besides, by ``cpu`` (cores) and ``memory``
        (bytes), as an agent reports it
    :param used: what the background uses, in the same way.  Without it that
        counts as nothing: better to offer too little
    """
    amounts = {}
    for name, resource, unit in ((VCPU, 'cpu', 1),
                                 (MEMORY_MIB, 'memory', BYTES_PER_MIB)):
        if resource in headroom:
            amounts[name] = min(MOST, (headroom[resource]
                                       + used.get(resource, 0)) / unit)
    return amounts


def within(report: HostReport | None, root: Inventory) -> HostReport | None:
    """Return what a host says, with no more on offer than it has in all by
    what Nova has written for it.

    :param root: of the host's own provider; a class that is not in there
        bounds nothing
    """
    if report is None:
        return None
    offered = {}
    for name, value in report.offer.items():
        totals = [root[part].total for part in PARTS[name] if part in root]
        offered[name] = min([value, sum(totals)] if totals else [value])
    return report._replace(offer=offered)


def smoothed(state: State, report: HostReport | None, now: float,
             params: Params) -> State:
    """Return the state with the level as of ``now``: down at once, up slowly.

    :param report: ``None`` for a host that has never reported
    """
    silent = report is None or now - report.time_s > params.silent_s
    passed_s = now - state.level_s
    # 1 for the first time of all.
    share = 1 - math.exp(-max(0.0, passed_s) / params.smooth_s)
    level = {}
    for name in CLASSES:
        target = (0.0 if silent or report is None
                  else report.offer.get(name, 0.0))
        before = state.level.get(name, target)
        level[name] = (target if target <= before
                       else before + share * (target - before))
    return state._replace(level=level, level_s=now)


def amount(level: float, allocated: int) -> Amount:
    """Return what to write for a level, in whole units.

    Placement takes no total of 0, and what is allocated shall not seem to
    be too much: the total covers it, and the rest is reserved.
    """
    can = max(0, math.floor(level))
    total = max(can, allocated, 1)
    return Amount(total, total - can)


def inventory(state: State, allocated: Mapping[str, int]) -> Inventory:
    """Return what to write for a state, whether or not that is due."""
    return {name: amount(state.level.get(name, 0.0), allocated.get(name, 0))
            for name in CLASSES}


def plan(state: State, allocated: Mapping[str, int], now: float,
         params: Params) -> Inventory | None:
    """Return what to write now, ``None`` for nothing.

    :param allocated: what instances hold of the provider, by class
    """
    wanted = inventory(state, allocated)
    if wanted == state.written:
        return None
    if not state.written:
        return wanted
    if now - state.written_s < params.interval_s:
        return None
    for name in CLASSES:
        old, new = state.written[name].offered, wanted[name].offered
        if abs(new - old) > params.step * max(old, new):
            return wanted
    return None


def written(state: State, inventory: Inventory, now: float) -> State:
    """The state after that was written."""
    return state._replace(written=dict(inventory), written_s=now)


def traits(report: HostReport | None, now: float, params: Params
           ) -> frozenset[str]:
    """Return the :data:`TRAITS` that a host has: none when it is silent."""
    if report is None or now - report.time_s > params.silent_s:
        return frozenset()
    present = {GRADE + report.grade} & set(TRAITS)
    if report.interference:
        present.add(INTERFERENCE)
    return frozenset(present)


def with_traits(has: Iterable[str], wanted: frozenset[str]
                ) -> list[str] | None:
    """Return all traits that a provider shall have, ``None`` if it has them.

    Traits of other programs stay.
    """
    present = set(has)
    after = (present - set(TRAITS)) | wanted
    return None if after == present else sorted(after)
