# SPDX-License-Identifier: Apache-2.0

"""Interference profiles without injection, estimated from incidents.

An incident says which resource was short, what its victim lost, and which
part of that each antagonist held.  What antagonists of one application did is
what it *caused*; how much others used while victims of it suffered is what it
*tolerated*.  Nothing is known of the time in which no incident was open, so
that the first is of the times at which it harmed, and the second is an upper
bound.

Source: iBench, section IV, says what the two are; to take them from incidents
is ours, and so are the constants.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.algorithms import profiles
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.algorithms.signals import MEMORY_WAIT
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.wire.profile import SOI_NAMES

SOIS_OF: Mapping[str, tuple[str, ...]] = {
    'core': ('integer',),
    'cache': ('llc_capacity', 'llc_bandwidth'),
    'memory_bandwidth': ('memory_bandwidth',),
    'disk': ('storage_bandwidth',),
    'link': ('network_bandwidth',),
    'memory': ('memory_capacity',)}
"""Cause of an incident -> the SoIs that it tells of.  Who waits for a core
does not say for which of its units: that is the integer units, which all code
uses."""

CAUSES_OF = {soi: cause for cause, sois in SOIS_OF.items() for soi in sois}

USES: Mapping[str, tuple[str, str]] = {
    'core': ('cpu_cores', 'cpu'),
    'link': ('net_tx_bytes_per_s', 'network')}
"""Cause -> the evidence that tells how much others used, and the resource of
the host's capacity that it is a share of."""

SHARES = ('run_delay', LINK_USE, MEMORY_WAIT)
"""Signals that are a share of the victim's time, or of the link's."""

HELD = (GroundKind.DIRECT, GroundKind.SHARE)
"""Kinds of grounds whose share is that of the resource's time or use."""

ENOUGH = 3
"""Incidents from which an SoI is estimated.  PerfCloud, section III-B, takes
as many samples."""

T = TypeVar('T')

MOST = 100
"""The newest incidents of one SoI that count."""
MOST_OF_HOST = 10
"""The newest of one host and cause, of one target: a host that has many does
not decide for all others."""


class Target(NamedTuple):
    """The target of a profile; ``kind``: application or flavor."""

    kind: str
    target: str
    project: str


class Series(NamedTuple):
    """One series of an incident's evidence."""

    workload: str
    signal: str
    values: Sequence[float | None]


class Incident(NamedTuple):
    """The part of an incident that tells about profiles.

    ``capacity``: what the host has, by resource.  ``targets``: what each
    workload that it names is of.  ``host``: a number of its own.
    """

    cause: str
    victim: str
    signal: str
    value: float | None
    threshold: float | None
    grounds: Sequence[Ground]
    evidence: Sequence[Series]
    capacity: Mapping[str, float]
    targets: Mapping[str, Sequence[Target]]
    host: int = 0


class Estimated(NamedTuple):
    """A profile, out of how many incidents, and why SoIs are not in it."""

    profile: profiles.Profile
    incidents: int
    missing: Mapping[str, str]


class _Evidence:
    """The evidence of the incidents about one target, by SoI; the newest
    first."""

    def __init__(self) -> None:
        self.incidents = 0
        self.caused: dict[str, list[float]] = collections.defaultdict(list)
        self.tolerated: dict[str, list[tuple[float, float]]]
        self.tolerated = collections.defaultdict(list)
        self._of_hosts: collections.Counter[tuple[str, int]]
        self._of_hosts = collections.Counter()

    def takes(self, incident: Incident) -> bool:
        """Whether another incident of its host counts."""
        return self._of_hosts[incident.cause, incident.host] < MOST_OF_HOST

    def count(self, incident: Incident) -> None:
        """Count one of which something was taken."""
        self.incidents += 1
        self._of_hosts[incident.cause, incident.host] += 1


def estimate(incidents: Iterable[Incident]) -> dict[Target, Estimated]:
    """Return the profile of each target of which the incidents say enough.

    :param incidents: the newest first
    """
    of_target: dict[Target, _Evidence] = collections.defaultdict(_Evidence)
    for incident in incidents:
        sois = SOIS_OF.get(incident.cause, ())
        parts = held_parts(incident.grounds) if sois else {}
        lost = loss(incident.signal, incident.value, incident.threshold)
        used = use_of_others(incident)
        named: set[Target] = set()
        for target, part in _by_target(parts, incident.targets).items():
            if lost is not None and of_target[target].takes(incident):
                _add(of_target[target].caused, sois, min(1.0, part * lost))
                named.add(target)
        if parts and used is not None:
            for target in incident.targets.get(incident.victim, ()):
                if of_target[target].takes(incident):
                    _add(of_target[target].tolerated, sois, used)
                    named.add(target)
        for target in named:
            of_target[target].count(incident)
    return {target: estimated for target, evidence in of_target.items()
            if (estimated := _estimated(evidence)) is not None}


def loss(signal: str, value: float | None, threshold: float | None
         ) -> float | None:
    """Return the share of its rate that a victim lost, 0 to 1, ``None`` where
    that is not known.

    A signal that is a share is that loss.  One that is a time rises as the
    rate falls; it is compared with the threshold, which is above what it is
    undisturbed, so that the loss is not overstated.
    """
    if value is None or not 0 <= value < math.inf:
        return None
    if signal in SHARES:
        return min(1.0, value)
    if threshold is None or not 0 < threshold < math.inf:
        return None
    return max(0.0, 1 - threshold / value) if value > 0 else 0.0


def held_parts(grounds: Iterable[Ground]) -> dict[str, float]:
    """Return the part of the harm that each workload is the cause of, 0 to 1.

    Direct evidence says it; an experiment shows by how much the signal fell.
    A correlation is none: it says nothing of the amount.
    """
    parts: dict[str, float] = {}
    order = list(GroundKind)
    for ground in sorted(grounds, key=lambda ground: order.index(
            ground.kind), reverse=True):        # the strongest last
        part = None
        if ground.kind in HELD:
            part = ground.share
        elif (ground.kind is GroundKind.EXPERIMENT
              and ground.before is not None and ground.after is not None
              and ground.before > 0):
            part = 1 - ground.after / ground.before
        if part is not None and math.isfinite(part):
            parts[ground.workload] = min(1.0, max(0.0, part))
    return parts


def use_of_others(incident: Incident) -> tuple[float, float] | None:
    """Return how much of the resource others used while the victim suffered,
    as shares of the whole: usually, and at the least.

    Of a CPU and a link that is in the evidence.  Of a disk it is the share of
    the time that others held it while the victim waited, of a cache their
    share of its misses; of memory nothing says it, so it is ``None``.
    """
    if incident.cause in USES:
        return _used(incident)
    shares = []
    for ground in incident.grounds:
        if (ground.kind not in HELD or ground.share is None
                or ground.workload == incident.victim):
            continue
        if incident.cause == 'disk':
            if not ground.window_s or ground.waited_s is None:
                continue
            shares.append(ground.share * min(
                1.0, ground.waited_s / ground.window_s))
        elif incident.cause in ('cache', 'memory_bandwidth'):
            shares.append(ground.share)
    if not shares:
        return None
    used = min(1.0, sum(shares))
    return used, used


def _used(incident: Incident) -> tuple[float, float] | None:
    signal, resource = USES[incident.cause]
    whole = incident.capacity.get(resource)
    suffered = next((series.values for series in incident.evidence
                     if series.workload == incident.victim
                     and series.signal == incident.signal), None)
    others = [series.values for series in incident.evidence
              if series.workload != incident.victim
              and series.signal == signal]
    if (not whole or suffered is None or not others
            or incident.threshold is None):
        return None
    uses = []
    for place, value in enumerate(suffered):
        if value is None or value < incident.threshold:
            continue
        amounts = [amount for values in others if place < len(values)
                   and (amount := values[place]) is not None]
        if amounts:
            uses.append(min(1.0, max(0.0, sum(amounts) / whole)))
    return (statistics.median(uses), min(uses)) if uses else None


def _by_target(parts: Mapping[str, float],
               targets: Mapping[str, Sequence[Target]]
               ) -> dict[Target, float]:
    """Return what the workloads of each target are the cause of together."""
    sums: dict[Target, float] = {}
    for workload, part in parts.items():
        if workload != THE_HOST:
            for target in targets.get(workload, ()):
                sums[target] = sums.get(target, 0.0) + part
    return sums


def _add(samples: dict[str, list[T]], sois: Sequence[str], sample: T
         ) -> None:
    for soi in sois:
        if len(samples[soi]) < MOST:
            samples[soi].append(sample)


def _estimated(evidence: _Evidence) -> Estimated | None:
    caused = {
        soi: profiles.Estimate(statistics.median(samples), min(samples),
                               max(samples))
        for soi, samples in evidence.caused.items()
        if len(samples) >= ENOUGH}
    tolerated = {
        soi: profiles.Estimate(
            min(usual for usual, _ in samples),
            min(least for _, least in samples),
            statistics.median(usual for usual, _ in samples))
        for soi, samples in evidence.tolerated.items()
        if len(samples) >= ENOUGH}
    if not caused and not tolerated:
        return None
    counts = {soi: max(len(evidence.caused.get(soi, ())),
                       len(evidence.tolerated.get(soi, ())))
              for soi in SOI_NAMES}
    return Estimated(
        profiles.Profile(tolerated, caused), evidence.incidents, {
            soi: _why_missing(soi, counts[soi]) for soi in SOI_NAMES
            if soi not in caused and soi not in tolerated})


def _why_missing(soi: str, count: int) -> str:
    if soi not in CAUSES_OF:
        return 'no incident tells of it; it has to be measured'
    return (f'incidents that tell of it: {count}, of the {ENOUGH} that it '
            'takes')
