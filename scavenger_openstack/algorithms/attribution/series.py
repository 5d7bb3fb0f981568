# SPDX-License-Identifier: Apache-2.0

"""What an incident was found in: how victim and suspects went over time."""

from __future__ import annotations

from collections.abc import Iterable

from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.types import Incident

MOST = 9
"""Series of one incident: that of the victim first."""
MOST_SAMPLES = 120

Series = tuple[str, str, list[float], list[float | None]]
"""Workload, what it is, the times of the values by the clock of
:attr:`.types.HostSample.time_s`, and the values; oldest first."""


def of(incident: Incident, samples: Iterable[Points],
       times_s: Iterable[float]) -> list[Series]:
    """The signal of the victim, and what antagonists and suspects used of
    what it lacks.

    :param samples: oldest first
    :param times_s: when each of them ended
    """
    taken = list(samples)[-MOST_SAMPLES:]
    times = list(times_s)[-MOST_SAMPLES:]
    names = dict.fromkeys((*incident.antagonists,
                           *(name for name, _ in incident.suspects)))
    found = [(incident.victim, incident.signal, times, [
        sample[incident.victim].level(incident.signal)
        if incident.victim in sample else None for sample in taken])]
    for name in list(names)[:MOST - 1]:
        used = [_use(incident.signal, sample[name]) if name in sample
                else ('', None) for sample in taken]
        what = next((what for what, value in used if value is not None), '')
        if what:
            found.append((name, what, times, [
                value if one == what else None for one, value in used]))
    return found


def _use(signal: str, point: Point) -> tuple[str, float | None]:
    if signal == 'io_wait':
        return 'io_bytes_per_s', point.io_bytes_per_s
    if signal == 'cpi' and point.misses_per_s is not None:
        return 'llc_misses_per_s', point.misses_per_s
    return 'cpu_cores', point.cores
