# SPDX-License-Identifier: Apache-2.0

"""The incidents of a disturbance: one for each victim, and what is done."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from scavenger_openstack.algorithms.attribution.cap_control import CapControl
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.use import KNOB_TO_LIMIT
from scavenger_openstack.algorithms import series
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import UNPROTECTED

NOTHING = 'nothing now'
NO_OTHER = 'nothing: no other workload has a part in it'

FOREGROUND = 'nothing: foreground work is never limited; move one of them'
QUIET = 'nothing now: nothing disturbs any more; it waits to end'

THE_HOST_DOES = "nothing: the host's own threads are not limited"

SHOWN = 5
"""Suspects that an incident tells of."""


def incidents(now: float, disturbance: Disturbance, caps: CapControl,
              quiet_s: float, background: AbstractSet[str],
              examined: Sequence[str], host: str, boot_id: str
              ) -> list[Incident]:
    """Return the open incidents; the id of each stays until it ends.

    :param quiet_s: what disturbed in the last so many seconds is shown, apart
        from what disturbs now
    :param background: the workloads that may be limited
    :param examined: those of the experiment for these victims
    """
    action = (LIMIT + ', '.join(examined) if examined
              else _action(now, disturbance, caps, background)
              if disturbance.begun_s else '')
    disturbing = disturbance.disturbing(now)
    shown = [*disturbing, *(name for name in disturbance.disturbed(
        now, quiet_s) if name not in disturbing)]
    return [Incident(
        id=incident_id(host, boot_id, name, disturbance.signal, begun_s),
        time_s=begun_s, host=host, victim=name, signal=disturbance.signal,
        value=disturbance.values.get(name),
        threshold=disturbance.members[name],
        cause=disturbance.cause, suspects=tuple(disturbance.scores[:SHOWN]),
        antagonists=tuple(name for name in disturbing if name != THE_HOST),
        action=action, outcome=disturbance.outcome,
        grounds=(*(disturbance.named[name] for name in shown), *(
            Ground(suspect, GroundKind.EXPERIMENT) for suspect in examined)),
        named_earlier=tuple(name for name in shown[len(disturbing):]
                            if name != THE_HOST))
        for name, begun_s in disturbance.begun_s.items()]


def _action(now: float, disturbance: Disturbance, caps: CapControl,
            background: AbstractSet[str]) -> str:
    limited = caps.limited(disturbance)
    if limited:
        return LIMIT + ', '.join(limited)
    knob = KNOB_TO_LIMIT.get(disturbance.signal)
    if not disturbance.named or knob is None:
        return NO_OTHER
    if not disturbance.disturbing(now):
        return QUIET
    if background.isdisjoint(disturbance.named):
        return THE_HOST_DOES if disturbance.named.keys() == {
            THE_HOST} else FOREGROUND
    if not disturbance.protected:
        return UNPROTECTED
    reasons = [
        f'{name} {reason}' for name in disturbance.named
        if (antagonist := caps.antagonists.get((name, knob))) is not None
        and (reason := antagonist.why_unlimited(now, disturbance.pair))]
    return ': '.join((NOTHING, ', '.join(reasons))) if reasons else NOTHING


def evidence_of(incident: Incident, samples: Iterable[Points],
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
        return what, [value if name == what else None for name, value in uses]

    return series.of(
        incident, times,
        [sample[incident.victim].level(incident.signal)
         if incident.victim in sample else None for sample in taken], used)


def _use(signal: str, point: Point) -> tuple[str, float | None]:
    if signal == 'io_wait':
        return 'io_bytes_per_s', point.io_bytes_per_s
    if signal == 'cpi' and point.misses_per_s is not None:
        return 'llc_misses_per_s', point.misses_per_s
    if signal == LINK_USE:
        return 'net_tx_bytes_per_s', point.tx_bytes_per_s
    return 'cpu_cores', point.cores
