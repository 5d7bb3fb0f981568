# SPDX-License-Identifier: Apache-2.0

"""What an incident was found in: how victim and suspects went over time."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence

from scavenger_openstack.types import Incident

MOST = 9
"""Series of one incident: that of the victim first."""
MOST_SAMPLES = 120

Values = Sequence[float | None]

Series = tuple[str, str, list[float], list[float | None]]
"""Workload, what it is, the times of the values by the clock of
:attr:`.types.HostSample.time_s`, and the values; oldest first."""


def of(incident: Incident, times_s: Sequence[float], levels: Values,
       used: Callable[[str], tuple[str, Values]]) -> list[Series]:
    """The signal of the victim, and what antagonists and suspects used of
    what it lacks.

    :param times_s: of each sample, oldest first
    :param levels: the victim's signal in each
    :param used: by name, what it is that a workload used, and how much of it
        in each; one of which nothing is known has no series
    """
    times = list(times_s[-MOST_SAMPLES:])
    series: list[Series] = [(incident.victim, incident.signal, times,
                             list(levels[-MOST_SAMPLES:]))]
    for name in list(dict.fromkeys((
            *incident.antagonists,
            *(name for name, _ in incident.suspects))))[:MOST - 1]:
        what, values = used(name)
        if any(value is not None for value in values):
            series.append((name, what, times, list(values[-MOST_SAMPLES:])))
    return series
