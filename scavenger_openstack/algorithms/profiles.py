# SPDX-License-Identifier: Apache-2.0

"""Interference profiles, and how well workloads fit beside each other.

Source: iBench (Delimitrou and Kozyrakis, IISWC 2013), sections IV and V-A.
How several residents add up, and that slack is no harm, is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import math
from typing import NamedTuple

from scavenger_openstack.wire.profile import Estimate as Estimate
from scavenger_openstack.wire.profile import SOI_NAMES

NAMES = frozenset(SOI_NAMES)


class Profile(NamedTuple):
    """What a workload tolerates and causes, by the name of the SoI.

    A SoI that was not measured is left out.

    :ivar tolerated: intensity of the SoI at which the workload breaks its
        QoS: 1 when no intensity does, 0 when the least does
    :ivar caused: share of its rate alone that a probe of the SoI loses
        beside the workload
    """

    tolerated: Mapping[str, Estimate]
    caused: Mapping[str, Estimate]


NOTHING = Profile({}, {})
"""The profile of what was never measured, and of an empty host."""


def check(profile: Profile) -> None:
    """Return if names and numbers are those of a profile.

    :raises ValueError: a sentence that names the entry.
    """
    for side, estimates in zip(Profile._fields, profile, strict=True):
        for name, (value, low, high) in estimates.items():
            if name not in NAMES:
                raise ValueError(f'{side}: there is no source of '
                                 f'interference {name!a:.80}')
            # One comparison that no NaN passes.
            if not 0 <= low <= value <= high <= 1:
                raise ValueError(
                    f'{side}: {name}: low {low:g}, value {value:g} and high '
                    f'{high:g} must be in this order, from 0 to 1')


def values(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return the values alone, by the name of the SoI."""
    return {name: estimate.value for name, estimate in estimates.items()}


def distance(tolerated: Mapping[str, float], caused: Mapping[str, float]
             ) -> float:
    """Return ``||tolerated - caused||_1`` over the SoIs that both have.

    Source: iBench, equation (1).
    """
    return math.fsum(abs(tolerated[name] - caused[name])
                     for name in tolerated.keys() & caused.keys())


def excess(tolerated: Mapping[str, float], caused: Mapping[str, float]
           ) -> float:
    """Return by how much ``caused`` is above ``tolerated``, over the SoIs
    that both have.

    Equation (1) without the part that hurts nothing (ours): what is
    tolerated and not caused is slack, and a host with much of it is no
    worse than a host with little.
    """
    return math.fsum(max(0.0, caused[name] - tolerated[name])
                     for name in tolerated.keys() & caused.keys())


def harm(newcomer_tolerates: Mapping[str, float],
         newcomer_causes: Mapping[str, float],
         residents_tolerate: Mapping[str, float],
         residents_cause: Mapping[str, float]) -> float:
    """Return the excess of both directions: of what a newcomer causes over
    what the residents tolerate, and of what these cause over what it does.
    """
    return (excess(residents_tolerate, newcomer_causes)
            + excess(newcomer_tolerates, residents_cause))


def together(profiles: Iterable[Profile]) -> Profile:
    """Return the profile of workloads that run on the same host (ours).

    What they cause adds up, to 1 at most, since the effect of an SoI is
    linear in its intensity (iBench, section IV-A).  What they tolerate is
    what may still be added before the first of them breaks its QoS: the
    least of what each tolerates less what the others cause.  No workload
    disturbs itself.  A workload in which an SoI was not measured has no
    part in that entry.
    """
    residents = list(profiles)
    caused: dict[str, Estimate] = {}
    tolerated: dict[str, Estimate] = {}
    for name in SOI_NAMES:
        causes = [resident.caused.get(name) for resident in residents]
        sums = _sums(causes)
        if any(causes):
            caused[name] = Estimate(*(min(1.0, number) for number in sums))
        left = [_left(resident.tolerated[name], sums, own)
                for resident, own in zip(residents, causes, strict=True)
                if name in resident.tolerated]
        if left:
            tolerated[name] = Estimate(*map(min, zip(*left, strict=True)))
    return Profile(tolerated, caused)


def _sums(causes: Iterable[Estimate | None]) -> Estimate:
    measured = [estimate for estimate in causes if estimate is not None]
    return Estimate(*(math.fsum(numbers) for numbers in zip(
        *measured, strict=True))) if measured else Estimate(0.0, 0.0, 0.0)


def _left(tolerated: Estimate, caused: Estimate, own: Estimate | None
          ) -> Estimate:
    """Return what a workload tolerates besides what the others cause."""
    others = caused if own is None else Estimate(
        *(whole - part for whole, part in zip(caused, own, strict=True)))
    value = max(0.0, tolerated.value - others.value)
    # Least is left where the others cause most; a rounding error must not
    # put the value outside of its interval.
    return Estimate(value,
                    min(value, max(0.0, tolerated.low - others.high)),
                    max(value, tolerated.high - others.low))
