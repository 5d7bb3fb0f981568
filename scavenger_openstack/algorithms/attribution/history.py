# SPDX-License-Identifier: Apache-2.0


"""What each workload did and suffered, sample by sample, for some minutes.

A sample is the mean of some ticks.  A signal counts by what it is a ratio
to, so that the mean is the ratio of the sums; see
:mod:`scavenger_openstack.algorithms.sampling`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.sampling import SLACK_S
from scavenger_openstack.algorithms.sampling import weight
from scavenger_openstack.algorithms.sharing import link_of
from scavenger_openstack.algorithms.signals import LEAST_SENT_BYTES_PER_S
from scavenger_openstack.algorithms.signals import LEAST_WAIT_S
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.algorithms.signals import MEMORY_WAIT
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

LEAST_CORES = 0.01
"""CPU time used and waited for, in cores, below which the share that is
waited tells nothing."""

OP_BYTES = 16384
"""What an operation costs a disk besides its bytes, in bytes."""

THROTTLED = 'throttled_share'

ORDER = (*SIGNALS, THROTTLED, LINK_USE, MEMORY_WAIT)
"""What a victim may suffer from: the order of :attr:`Point.levels`."""

Levels = Sequence[float | None]


class Point(NamedTuple):
    """One workload in one sample; ``None`` is not measured.

    ``levels`` are those of :data:`ORDER`, in a form that can be averaged:
    ``run_delay``, which has no upper bound, is the share of its runnable
    time that a workload waits, 0 to 1; ``io_wait`` is at least
    :data:`.signals.LEAST_WAIT_S`.  ``disk`` is bytes per second, each
    operation counted as :data:`OP_BYTES` more.  ``instructions`` are in
    cycles of the host at one CPI: cores over cpi.  ``waited`` is CPU time
    that it waited for, in cores, whatever little it uses.
    ``tx_bytes_per_s`` is what it sends.
    """

    workload: Workload
    levels: Levels
    cores: float | None
    misses_per_s: float | None
    disk: float | None
    io_bytes_per_s: float | None
    io_ops_per_s: float | None
    instructions: float
    waited: float | None = None
    tx_bytes_per_s: float | None = None

    def level(self, signal: str) -> float | None:
        """One of :data:`ORDER`."""
        return self.levels[_PLACES[signal]]

    @property
    def busy(self) -> float:
        """Seconds per second that it runs, or waits for CPUs or disks."""
        return ((self.cores or 0.0) + (self.waited or 0.0)
                + (self.level('io_wait') or 0.0) * (self.io_ops_per_s or 0.0))


Points = dict[str, Point]
"""The points of one moment, by name of the workload."""

_PLACES = {signal: place for place, signal in enumerate(ORDER)}

_FIELDS = [(WorkloadRates._fields.index(signal.field), signal)
           for signal in SIGNALS.values()]

_UNKNOWN: Levels = (None,) * len(ORDER)


class _Sums:
    """Sums of what was known in some ticks, and in how many it was."""

    __slots__ = ('workload', 'ticks', 'values', 'weights', 'sums', 'known',
                 'instructions')

    def __init__(self) -> None:
        self.ticks = 0
        self.values = [0.0] * len(SIGNALS)
        self.weights = [0.0] * len(SIGNALS)
        self.sums = [0.0] * 9
        self.known = [0] * 9
        self.instructions = 0.0

    def add(self, rated: WorkloadRates, link_use: float | None,
            memory_wait: float | None) -> None:
        self.workload = rated.workload
        self.ticks += 1
        sums, counts = self.sums, self.known
        for index, total in enumerate((
                rated.cpu_cores, rated.llc_misses_per_s, rated.io_bytes_per_s,
                rated.io_ops_per_s, rated.throttled_share,
                None if rated.run_delay is None or rated.cpu_cores is None
                else rated.run_delay * rated.cpu_cores,
                rated.net_tx_bytes_per_s)):
            if total is not None and 0 <= total < math.inf:
                sums[index] += total
                counts[index] += 1
        if link_use is not None:
            sums[7] += link_use
            counts[7] += 1
        if memory_wait is not None and 0 <= memory_wait < math.inf:
            sums[8] += memory_wait
            counts[8] += 1
        if rated.cpi and number(rated.cpi):
            self.instructions += (number(rated.cpu_cores) or 0.0) / rated.cpi
        # Most workloads have no value in most ticks: asked first, and cheap.
        for index, (field, signal) in enumerate(_FIELDS):
            if rated[field] is not None:
                value = signal.value(rated)
                if value is not None:
                    share = weight(signal, rated)
                    self.values[index] += value * share
                    self.weights[index] += share

    def point(self) -> Point:
        (cores, misses, io_bytes, io_ops, throttled, waited, tx, link_use,
         memory_wait) = [
            total / count if count else None
            for total, count in zip(self.sums, self.known, strict=True)]
        cpi, _, wait_s = [
            value / share if share > 0 else None for value, share
            in zip(self.values, self.weights, strict=True)]
        return Point(
            self.workload,
            (cpi, _waiting_share(cores, waited),
             None if wait_s is None else max(LEAST_WAIT_S, wait_s),
             throttled,
             link_use if (tx or 0.0) >= LEAST_SENT_BYTES_PER_S else None,
             memory_wait),
            cores, misses,
            None if io_bytes is None or io_ops is None
            else io_bytes + OP_BYTES * io_ops,
            io_bytes, io_ops, self.instructions / self.ticks, waited, tx)


def _waiting_share(cores: float | None, waited: float | None
                   ) -> float | None:
    """Share of its runnable time that a workload waits; ``None`` of one that
    hardly runs."""
    if cores is None or waited is None or cores + waited < LEAST_CORES:
        return None
    return waited / (cores + waited)


def _link_uses(rates: Rates) -> dict[str, float]:
    """The used share of each link.

    Where a link does not count itself, it is what is known to be sent.
    """
    uses = {}
    for link, capacity in rates.links.items():
        used = rates.link_tx_bytes_per_s.get(link)
        if used is None:
            sent = [rated.net_tx_bytes_per_s for rated in rates.workloads
                    if rated.net_tx_bytes_per_s is not None
                    and link_of(rated.workload, rates.link_of) == link]
            used = sum(sent) if sent else None
        if used is not None and capacity > 0:
            uses[link] = min(1.0, used / capacity)
    return uses


def _link_use(workload: Workload, links: Mapping[str, str],
              uses: Mapping[str, float]) -> float | None:
    """Return the use of the link of a victim: only foreground is one."""
    return (uses.get(link_of(workload, links) or '')
            if workload.priority is Priority.FOREGROUND else None)


class History:
    """The last samples, oldest first.

    :param sample_s: ticks of so many seconds make a sample
    :param samples: how many are kept
    """

    def __init__(self, *, sample_s: float, samples: int) -> None:
        self._sample_s = sample_s
        self.samples: collections.deque[Points] = collections.deque(
            maxlen=samples)
        self.times: collections.deque[float] = collections.deque(
            maxlen=samples)
        """When each of them ended."""
        self.free: collections.deque[bool] = collections.deque(
            maxlen=samples)
        """Whether no several were examined meanwhile: by our limits they
        work and rest together."""
        self._free = True
        self._began_s = -math.inf
        self._sums: dict[str, _Sums] = {}
        self._levels: dict[str, list[collections.deque[float | None]]] = {}

    def levels(self, name: str, signal: str) -> Levels:
        """One of :data:`ORDER` of a workload, sample by sample.

        ``None`` also where it was not there.  They are kept, since few
        workloads are asked about, and those again and again.
        """
        kept = self._levels.get(name)
        if kept is None and self.samples:
            kept = self._levels[name] = [
                collections.deque(column, self.samples.maxlen)
                for column in zip(*_levels_of(name, self.samples),
                                  strict=True)]
        return kept[_PLACES[signal]] if kept else ()

    def add(self, now: float, rates: Rates, *, free: bool = True) -> bool:
        """Take one tick; say whether it has completed a sample.

        :param free: no several workloads are examined together
        After a gap longer than a sample, what was begun is thrown away.
        """
        began_s = now - rates.interval_s
        if not -SLACK_S < began_s - self._began_s <= self._sample_s:
            self._began_s = began_s
            self._sums, self._free = {}, True
        self._free &= free
        links = _link_uses(rates)
        waits = {answer.workload: answer.waited_s / answer.window_s
                 for answer in rates.direct
                 if answer.resource is Resource.MEMORY
                 and answer.window_s > 0}
        for rated in rates.workloads:
            sums = self._sums.get(rated.workload.id)
            if sums is None:
                sums = self._sums[rated.workload.id] = _Sums()
            sums.add(rated, _link_use(rated.workload, rates.link_of, links)
                     if links else None,
                     waits.get(rated.workload.id) if waits else None)
        if now - self._began_s < self._sample_s - SLACK_S:
            return False
        sample = {name: sums.point() for name, sums in self._sums.items()}
        self.samples.append(sample)
        self.times.append(now)
        self.free.append(self._free)
        for name, kept in list(self._levels.items()):
            if name in sample:
                for column, level in zip(kept, sample[name].levels,
                                         strict=True):
                    column.append(level)
            else:
                del self._levels[name]
        self._began_s = now
        self._sums, self._free = {}, True
        return True

    def forget_before(self, name: str, created_s: float) -> None:
        """Another workload had this name before; what that did goes."""
        self._sums.pop(name, None)
        self._levels.pop(name, None)
        for sample in self.samples:
            if (name in sample
                    and sample[name].workload.created_s != created_s):
                del sample[name]

    def clear(self) -> None:
        """Forget everything."""
        self.samples.clear()
        self.times.clear()
        self.free.clear()
        self._levels = {}
        self._sums = {}
        self._began_s = -math.inf


def _levels_of(name: str, samples: Iterable[Points]) -> Iterable[Levels]:
    for sample in samples:
        yield sample[name].levels if name in sample else _UNKNOWN


def onset_s(levels: Iterable[tuple[float, float | None]], threshold: float, *,
            now: float, quiet_s: float, after_s: float) -> float:
    """Return the time of the first sample above a threshold since when there
    was no pause of ``quiet_s``: an incident ends by the same rule.

    :param levels: time in seconds and level of each sample while an
        antagonist was at work, the newest first
    :param now: the answer where no sample of the last ``quiet_s`` is above
    :param after_s: samples up to then are of an earlier incident
    """
    begun_s = now
    for time_s, level in levels:
        if time_s <= after_s or begun_s - time_s >= quiet_s:
            break
        if level is not None and level > threshold:
            begun_s = time_s
    return begun_s
