# SPDX-License-Identifier: Apache-2.0


"""Which CPUs belong to foreground workloads, and which they share.

Source: Scavenger, section 4.5; DESIGN 7.7.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import WorkloadRates


class Pins(NamedTuple):
    """The CPUs that the pins of the foreground leave.

    :param allowed: those that the background may have; may be empty
    :param shared: those that known foreground may use beside others; all of
        ``allowed`` if none is known to
    :param pinned: how many foreground workloads have pins
    """

    allowed: frozenset[int]
    shared: frozenset[int]
    pinned: int


def usable(topology: Mapping[int, Cpu]) -> frozenset[int]:
    """The CPUs that work may be spread over: not those that the host keeps
    isolated, for pinned guests or a virtual switch, unless it keeps all.
    Not in the paper."""
    return (frozenset(cpu for cpu, place in topology.items()
                      if not place.isolated) or frozenset(topology))


def allowed_cpus(cpus: Iterable[int], confined: Sequence[Collection[int]],
                 dedicated: Iterable[int] = ()) -> frozenset[int]:
    """All CPUs but those that foreground workloads have to themselves.

    ``dedicated`` are the CPUs that their dedicated pins name.  ``confined``
    are the CPUs of each foreground workload of which is only known where it
    may run: if these are a proper part of the host's, each of them that no
    other such workload has is its own.  The result may be empty.  Source:
    Scavenger, section 4.5; DESIGN 7.7.
    """
    every = frozenset(cpus)
    users: dict[int, int] = {}
    for rated in confined:
        within = every.intersection(rated)
        for cpu in within if within != every else ():
            users[cpu] = users.get(cpu, 0) + 1
    return every.difference(
        dedicated, [cpu for cpu, number in users.items() if number == 1])


def of(workloads: Iterable[WorkloadRates], cpus: Iterable[int]) -> Pins:
    """The pins of the foreground among ``workloads``.

    :param cpus: those of the host that are online, and :func:`usable`
    """
    every = frozenset(cpus)
    foreground = [rated[0] for rated in workloads
                  if rated[0].priority is Priority.FOREGROUND]
    confined: list[frozenset[int]] = []
    dedicated: set[int] = set()
    shared: set[int] = set()
    pinned = 0
    for workload in foreground:
        pinned += (workload.allowed_cpus is not None
                   or bool(workload.dedicated_cpus))
        if workload.dedicated_cpus is not None:
            dedicated |= workload.dedicated_cpus
        elif workload.allowed_cpus is not None:
            confined.append(workload.allowed_cpus)
    if not pinned:
        return Pins(every, every, 0)
    allowed = allowed_cpus(every, confined, dedicated)
    for workload in foreground:
        # Where none of a workload's CPUs is online, it may run anywhere.
        shared |= ((workload.allowed_cpus or every) & every) or every
    return Pins(allowed, (allowed & shared) or allowed, pinned)


class CpuSet(NamedTuple):
    """The CPU set of the background: whether none is free, the set, its
    limits, and the numbers behind it as plain JSON values."""

    crowded: bool
    allowed: frozenset[int]
    caps: Sequence[Cap]
    facts: Mapping[str, Any]


def limits(foreground: Iterable[WorkloadRates], groups: Iterable[str],
           topology: Mapping[int, Cpu], owner: str) -> CpuSet:
    """Return the CPUs that the groups of the background may have, and their
    limits, if these are not all.

    :param topology: with at least one usable CPU
    :param owner: of the limits
    """
    every = usable(topology)
    allowed, _, pinned = of(foreground, every)
    crowded = not allowed
    why = (f'{len(every) - len(allowed)} of {len(every)} CPUs belong to '
           f'pinned foreground workloads')
    if crowded:
        allowed = frozenset((max(every),))
        why += ': one CPU, at the quota floor'
    text = format_cpus(allowed)
    limited = crowded or len(allowed) < len(every)
    return CpuSet(crowded, allowed, [
        Cap(group, Knob.CPU_SET, text, owner, why)
        for group in groups] if limited else [],
        {'allowed': text, 'pinned': pinned})
