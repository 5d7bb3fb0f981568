# SPDX-License-Identifier: Apache-2.0

"""The caps of CPI2, each for one victim, and what its incident says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import LIMIT

VictimKey = tuple[str, float]
"""A workload, and when it was made."""


class Capped(NamedTuple):
    """A cap, until when it lasts, and for which victim."""

    until_s: float
    victim: VictimKey
    cap: Cap


def limited(capped: Mapping[str, Capped], victim: VictimKey) -> list[str]:
    """Return the antagonists that are limited for a victim."""
    return [name for name, one in capped.items() if one.victim == victim]


def shown(incident: Incident, names: list[str]) -> Incident:
    """Return an incident with what is done about it now.

    :param names: the antagonists that are limited for it
    """
    return dataclasses.replace(
        incident, antagonists=tuple(dict.fromkeys(
            (*names, *incident.antagonists))),
        action=LIMIT + ', '.join(names) if names else incident.action or (
            'nothing now: the limit has ended' if incident.antagonists
            else 'nothing: no suspect correlates enough'))
