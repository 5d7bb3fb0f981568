# SPDX-License-Identifier: Apache-2.0

"""Interference profiles, and how well workloads fit beside each other.

Source: iBench (Delimitrou and Kozyrakis, IISWC 2013), sections IV and V-A.
How several residents add up, and that slack is no harm, is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import math
from typing import NamedTuple

from scavenger_openstack.wire.profile import Estimate as Estimate
from scavenger_openstack.wire.profile import SOI_NAMES

NAMES = frozenset(SOI_NAMES)


class Profile(NamedTuple):
    """The levels that a workload tolerates and causes, by the name of the SoI.

    A SoI that was not measured is left out.

    :ivar tolerated: intensity of the SoI at which the workload breaks its
        QoS: 1 when no intensity does, 0 when the least does
    :ivar caused: share of its rate alone that a probe of the SoI loses
        beside the workload
    """

    tolerated: Mapping[str, Estimate]
    caused: Mapping[str, Estimate]


def distance(tolerated: Mapping[str, float], caused: Mapping[str, float]
             ) -> float:
    """Return ``||tolerated - caused||_1`` over the SoIs that both have.

    Source: iBench, equation (1).
    """
    return math.fsum(abs(tolerated[name] - caused[name])
                     for name in tolerated.keys() & caused.keys())


class Levels(NamedTuple):
    """The values of a profile in the order of :data:`SOI_NAMES`, with which
    many hosts are compared; what was not measured hurts nothing: it is
    tolerated to 1, and causes 0."""

    tolerated: tuple[float, ...]
    caused: tuple[float, ...]


def levels(tolerated: Mapping[str, float], caused: Mapping[str, float]
           ) -> Levels:
    """Return the levels of values by the name of the SoI."""
    return Levels(tuple(tolerated.get(name, 1.0) for name in SOI_NAMES),
                  tuple(caused.get(name, 0.0) for name in SOI_NAMES))


def harm(newcomer: Levels, residents: Levels) -> float:
    """Return how much a newcomer and the residents of a host harm each other,
    0 or more: what either causes above what the other tolerates.

    Equation (1) without the part that hurts nothing (ours): what is
    tolerated and not caused is slack, and a host with much of it is no
    worse than a host with little.
    """
    amount = 0.0
    # A loop, since a scheduler calls this for each host.
    for caused, tolerated in zip(newcomer.caused, residents.tolerated,
                                 strict=True):
        if caused > tolerated:
            amount += caused - tolerated
    for caused, tolerated in zip(residents.caused, newcomer.tolerated,
                                 strict=True):
        if caused > tolerated:
            amount += caused - tolerated
    return amount


def keys(*, project: str, application: str = '', flavors: Iterable[str] = (),
         image: str = '') -> Iterator[tuple[str, str, str]]:
    """Yield (kind, target, project) of the profiles that an instance may
    have, the best first: of its application, else its flavor, else its
    image; of its own project before that of every project, which is ''.

    :param flavors: name and id of its flavor
    """
    for kind, targets in (('application', [application]),
                          ('flavor', flavors), ('image', [image])):
        for target in targets:
            if target:
                if project:
                    yield kind, target, project
                yield kind, target, ''


def together(residents: Iterable[tuple[Mapping[str, float],
                                       Mapping[str, float]]]
             ) -> tuple[dict[str, float], dict[str, float]]:
    """Return what workloads on the same host tolerate and cause (ours).

    What they cause adds up, to 1 at most, since the effect of an SoI is
    linear in its intensity (iBench, section IV-A).  What they tolerate is
    what may still be added before the first of them breaks its QoS: the
    least of what each tolerates less what the others cause.  No workload
    disturbs itself.  A workload in which an SoI was not measured has no
    part in that entry.

    :param residents: what each tolerates and causes
    """
    residents = list(residents)
    sums: dict[str, float] = {}
    for _, caused in residents:
        for name, value in caused.items():
            sums[name] = sums.get(name, 0.0) + value
    least: dict[str, float] = {}
    # A loop, since a summary has this for each host.
    for tolerated, caused in residents:
        for name, value in tolerated.items():
            left = value - (sums.get(name, 0.0) - caused.get(name, 0.0))
            if left < least.get(name, math.inf):
                least[name] = left
    return ({name: max(0.0, left) for name, left in least.items()},
            {name: min(1.0, total) for name, total in sums.items()})
