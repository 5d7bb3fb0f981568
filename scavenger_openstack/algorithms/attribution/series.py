# SPDX-License-Identifier: Apache-2.0

"""What an incident was found in: how victim and suspects went over time."""

from __future__ import annotations

from collections.abc import Iterable

from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms import series
from scavenger_openstack.types import Incident

def of(incident: Incident, samples: Iterable[Points],
       times_s: Iterable[float]) -> list[series.Series]:
    """As :func:`.algorithms.series.of`, out of what attribution keeps.

    :param samples: oldest first
    :param times_s: when each of them ended
    """
    taken = list(samples)[-series.MOST_SAMPLES:]
    times = list(times_s)[-series.MOST_SAMPLES:]

    def used(name: str) -> tuple[str, series.Values]:
        uses = [_use(incident.signal, sample[name]) if name in sample
                else ('', None) for sample in taken]
        what = next((what for what, value in uses if value is not None), '')
        return what, [value if one == what else None for one, value in uses]

    return series.of(
        incident, times,
        [sample[incident.victim].level(incident.signal)
         if incident.victim in sample else None for sample in taken], used)


def _use(signal: str, point: Point) -> tuple[str, float | None]:
    if signal == 'io_wait':
        return 'io_bytes_per_s', point.io_bytes_per_s
    if signal == 'cpi' and point.misses_per_s is not None:
        return 'llc_misses_per_s', point.misses_per_s
    return 'cpu_cores', point.cores
