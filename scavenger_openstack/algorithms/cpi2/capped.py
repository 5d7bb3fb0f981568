# SPDX-License-Identifier: Apache-2.0

"""The caps of CPI2, each for one victim, and what its incident says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

from scavenger_openstack.algorithms.signals import OBEYED
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import RunKey

CappedKey = tuple[RunKey, RunKey]
"""An antagonist, and the victim that it is limited for."""


class Capped(NamedTuple):
    """A cap, and until when it lasts."""

    until_s: float
    cap: Cap


def limited(capped: Mapping[CappedKey, Capped], victim: RunKey
            ) -> list[str]:
    """Return the antagonists that are limited for a victim."""
    return [name for (name, _), disturbed in capped if disturbed == victim]


def is_held(capped: Mapping[CappedKey, Capped], name: str, use: float | None
            ) -> bool:
    """Whether a limit throttles a suspect already, as far as is known.

    The paper expects that such a one does not correlate any more, section 5;
    for as long as the window has what it used before, it does.
    """
    values = [float(limit.cap.value) for ((antagonist, _), _), limit
              in capped.items() if antagonist == name]
    return bool(values) and (use is None or use <= OBEYED * min(values))


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
