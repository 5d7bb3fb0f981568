# SPDX-License-Identifier: Apache-2.0


"""PerfCloud: deviation across an application's VMs, and caps like CUBIC.

Lama, Wang, Zhou, Cheng.  *Performance Isolation of Data-Intensive Scale-out
Applications in a Multi-tenant Cloud* (PerfCloud).  Sections III-A
(detection), III-B (Pearson correlation), III-C (equation 1), III-D and
algorithm 1.

Letters: I(t) the deviation, its threshold in script I; c_i(t) the cap of
antagonist i, C_max its cap at the last decrease, T_i the intervals since
then; beta, gamma, tau as in the paper.  Units in equation 1, on which gamma
depends: CPU as a share of the host, I/O in MB/s, T in intervals (DESIGN
7.10).

Not as in the paper, which has one high-priority application on a host: each
application has an algorithm 1 of its own, and the tightest cap counts; for VMs
with ``scavenger:protect=false``, an application apart, nothing is capped.
``io_wait`` has the time of service in it, the paper's wait is that in the
queue.  A VM below 0.25 cores, or 5 operations per second, is not compared.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from operator import mul
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.allowance import Allowance
from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.allowance import NOT_ALLOWED
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.algorithms.sampling import Sample
from scavenger_openstack.algorithms.sampling import Sampler
from scavenger_openstack.algorithms import series
from scavenger_openstack.algorithms.signals import CPI
from scavenger_openstack.algorithms.signals import io_bytes
from scavenger_openstack.algorithms.signals import IO_WAIT
from scavenger_openstack.algorithms.signals import llc_misses
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.signals import Signal
from scavenger_openstack import types

NAME = 'perfcloud'

MB = 1e6

CORRELATED = {CPI: ('llc_misses_per_s', llc_misses),
              IO_WAIT: ('io_bytes_per_s', io_bytes)}
"""What a suspect's series is of, by signal: PerfCloud, section III-B."""

Application = tuple[str, str, bool]
"""Project ('' for none), name, and whether its VMs are protected."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned."""

    interval_s: float = dataclasses.field(default=5.0, metadata={
        'help': 'Seconds of one interval. More smooths more and answers '
                'later.',
        'min': 0.1, 'max': 3600.0, 'source': 'PerfCloud, section III-D'})
    ewma_alpha: float = dataclasses.field(default=0.5, metadata={
        'help': 'Weight of the newest interval in the moving average. Less '
                'smooths more.',
        'min': 0.01, 'max': 1.0,
        'source': 'PerfCloud, section III-D, gives no number'})
    io_wait_threshold_s: float = dataclasses.field(
        default=0.010, metadata={
            'help': 'Deviation of the seconds per disk operation across an '
                    "application's VMs above which there is contention. Set "
                    'it to the largest that your host shows without '
                    'contention: scavenger-replay --thresholds.',
            'min': 0.0, 'max': 3600.0,
            'source': 'PerfCloud, section III-C: 10, read as ms'})
    cpi_threshold: float = dataclasses.field(default=1.0, metadata={
        'help': 'Deviation of the cycles per instruction across an '
                "application's VMs above which there is contention. Set it "
                'to the largest that your host shows without contention: '
                'scavenger-replay --thresholds.',
        'min': 0.0, 'max': 1000.0, 'source': 'PerfCloud, section III-C'})
    correlation_threshold: float = dataclasses.field(default=0.8, metadata={
        'help': 'Pearson correlation from which a VM is an antagonist.',
        'min': 0.0, 'max': 1.0, 'source': 'PerfCloud, section III-D'})
    samples: int = dataclasses.field(default=12, metadata={
        'help': 'Intervals that are correlated, at the most; three are '
                'enough to begin.',
        'min': 3, 'max': 1000,
        'source': 'PerfCloud, section III-B: as few as three'})
    beta: float = dataclasses.field(default=0.8, metadata={
        'help': 'Part of the limit that is taken away while there is '
                'contention, each interval.',
        'min': 0.01, 'max': 0.99, 'source': 'PerfCloud, section III-C'})
    gamma: float = dataclasses.field(default=0.005, metadata={
        'help': 'Speed at which a limit grows again. More frees sooner.',
        'min': 1e-6, 'max': 1.0, 'source': 'PerfCloud, section III-C'})
    tau: int = dataclasses.field(default=1, metadata={
        'help': 'Intervals from one search for antagonists to the next.',
        'min': 1, 'max': 1000,
        'source': 'PerfCloud, algorithm 1, gives no number'})
    remove_factor: float = dataclasses.field(default=2.0, metadata={
        'help': 'A limit is removed when it has been so many times the demand '
                'for remove_intervals.',
        'min': 1.0, 'max': 100.0, 'source': 'not in the paper'})
    remove_intervals: int = dataclasses.field(default=3, metadata={
        'help': 'Intervals after which a limit that binds nothing is removed.',
        'min': 1, 'max': 1000, 'source': 'not in the paper'})


def deviation(values: Iterable[float]) -> float | None:
    """I(t): standard deviation of a signal across an application's VMs.

    ``None`` for fewer than two VMs.  Source: PerfCloud, section III-A.
    """
    levels = list(values)
    if len(levels) < 2:
        return None
    mean = math.fsum(levels) / len(levels)
    return math.sqrt(math.fsum([(value - mean) ** 2 for value in levels])
                     / len(levels))


def ewma(before: float | None, value: float, alpha: float) -> float:
    """Exponentially weighted moving average.  Source: III-D."""
    return value if before is None else before + alpha * (value - before)


def pearsons(x: Sequence[float | None],
             others: Sequence[Sequence[float | None]]) -> list[float]:
    """Return the Pearson correlation of one series with each of several.

    Missing values are taken as 0.  It is 0 where one of the two does not
    vary, or for fewer than 3 samples.  Source: PerfCloud, section III-B.
    """
    if len(x) < 3:
        return [0.0 for _ in others]
    a = _centred(x)
    square = sum(map(mul, a, a))
    antagonists = []
    for other in others:
        b = _centred(other)
        norm = math.sqrt(square * sum(map(mul, b, b)))
        antagonists.append(sum(map(mul, a, b)) / norm if norm > 0 else 0.0)
    return antagonists


def _centred(series: Sequence[float | None]) -> list[float]:
    values = [value or 0.0 for value in series]
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def next_cap(c: float, C_max: float, T: float, *, contention: bool,
             beta: float, gamma: float) -> float:
    """c_i(t + 1), in the unit of ``c``: share of the host, or MB/s.

    Contention takes the part beta away.  Without it the cap follows a cubic
    in T, the intervals since the last decrease: it grows fast from
    (1 - beta) C_max, hardly near C_max (after K = cbrt(C_max beta / gamma)
    intervals), then faster and faster.  Source: PerfCloud, equation 1.
    """
    if contention:
        return (1 - beta) * c
    return gamma * (T - math.cbrt(C_max * beta / gamma)) ** 3 + C_max


class _Interval(NamedTuple):
    """The use of the low-priority VMs in one interval, on average.

    :param correlated: what is correlated, where that is known
    :param capped: what is capped, in the unit of equation 1, of each that is
        there
    :param made_s: when each of these was made
    """

    time_s: float
    correlated: Mapping[str, float]
    capped: Mapping[str, float | None]
    made_s: Mapping[str, float]


@dataclasses.dataclass(slots=True)
class _Antagonist:
    """One VM's cap on one resource, in the unit of equation 1."""

    cap: float
    highest: float
    score: float
    made_s: float
    since: int = 0
    loose: int = 0


class _Loop:
    """Algorithm 1 for one application: CPU control or I/O control.

    ``intervals`` are those in which there was a deviation, with it: each
    value of a suspect's series belongs to that of the victims' at its place.
    """

    def __init__(self, samples: int) -> None:
        self.level: float | None = None
        self.victim = ''
        self.intervals: collections.deque[tuple[float, _Interval]] = (
            collections.deque(maxlen=samples))
        self.antagonists: dict[str, _Antagonist] = {}
        self.scores: dict[str, float] = {}
        self.began_s: float | None = None
        self.t = self.missing = 0

    def turn(self, values: Mapping[str, float], interval: _Interval,
             limit: float, params: Params, may_limit: Callable[[], bool]
             ) -> None:
        """One interval; ``values`` are the signal of each of the VMs."""
        self.antagonists = {
            name: antagonist for name, antagonist in self.antagonists.items()
            if interval.made_s.get(name) == antagonist.made_s}
        level = deviation(values.values())
        if level is None:
            # Fewer than two VMs to compare: hold, until this one is dropped.
            self.missing += 1
            return
        self.missing = 0
        self.level = level
        self.victim = max(values, key=values.__getitem__)
        self.intervals.append((level, interval))
        contention = level > limit
        if self.t % params.tau == 0:
            self.scores = (self._identify(params.correlation_threshold)
                           if contention else {})
            for name, score in self.scores.items():
                use = interval.capped[name]
                if name not in self.antagonists and use and may_limit():
                    # It begins at what is used: algorithm 1, t = 1.
                    self.antagonists[name] = _Antagonist(
                        use, use, score, interval.made_s[name])
        self.t += 1
        if contention and self.began_s is None:
            self.began_s = interval.time_s
        elif not contention and not self.antagonists:
            self.began_s = None
        for name in list(self.antagonists):
            self._move(name, interval.capped[name], contention, params)

    def _identify(self, least: float) -> dict[str, float]:
        """Low-priority VMs whose use correlates: III-B and III-D."""
        names = list(self.intervals[-1][1].capped)
        scores = pearsons(
            [level for level, _ in self.intervals],
            [[interval.correlated.get(name) for _, interval in self.intervals]
             for name in names])
        return {name: score for name, score
                in zip(names, scores, strict=True) if score >= least}

    def _move(self, name: str, use: float | None, contention: bool,
              params: Params) -> None:
        antagonist = self.antagonists[name]
        if contention:
            if name not in self.scores:
                return
            antagonist.highest, antagonist.since = antagonist.cap, 0
        else:
            antagonist.since += 1
        antagonist.cap = next_cap(
            antagonist.cap, antagonist.highest, antagonist.since,
            contention=contention, beta=params.beta, gamma=params.gamma)
        antagonist.loose = (
            antagonist.loose + 1 if use is None
            or antagonist.cap >= params.remove_factor * use else 0)
        if antagonist.loose >= params.remove_intervals and not contention:
            del self.antagonists[name]

    def why_none(self) -> str:
        """Why nothing is limited."""
        if not self.scores:
            return 'nothing: no suspect correlates enough'
        capped = self.intervals[-1][1].capped
        if any(capped.get(name) for name in self.scores):
            return NOT_ALLOWED
        return 'nothing: what correlates uses nothing now, as far as is known'

    def evidence(self, incident: types.Incident, what: str
                 ) -> list[series.Series]:
        return series.of(
            incident, [interval.time_s for _, interval in self.intervals],
            [level for level, _ in self.intervals],
            lambda name: (what, [interval.correlated.get(name)
                                 for _, interval in self.intervals]))


class _Control:
    """CPU control or I/O control: one signal, application by application."""

    def __init__(self, signal: Signal, limit: float, every_s: float) -> None:
        self.signal, self.limit = signal, limit
        self.used, correlated = CORRELATED[signal]
        self.sampler = Sampler(signal, duration_s=every_s,
                               interval_s=every_s, correlated=correlated)
        self.smooth: tuple[Mapping[str, float], ...] = ({}, {}, {})
        self.loops: dict[Application, _Loop] = {}

    def turn(self, sample: Sample, cores: float, params: Params,
             may_limit: Callable[[], bool]) -> None:
        """One interval of all applications.

        :param may_limit: whether one more limit may be set, which counts it
        """
        self.smooth = signals, uses, correlated = tuple(
            {name: ewma(before.get(name), value, params.ewma_alpha)
             for name, value in now.items()}
            for before, now in zip(self.smooth, (
                sample.values, sample.uses, sample.correlated), strict=True))
        applications: dict[Application, dict[str, float]] = {}
        capped: dict[str, float | None] = {}
        made_s: dict[str, float] = {}
        unit = MB if self.signal is IO_WAIT else cores
        for name, rates in sample.rates.items():
            workload = rates.workload
            if workload.priority is types.Priority.BACKGROUND:
                use = uses.get(name)
                capped[name] = None if use is None else use / unit
                made_s[name] = workload.created_s
            elif workload.application and name in signals:
                # Another project may use the same name.
                applications.setdefault(
                    (workload.project or '', workload.application,
                     workload.protected), {})[name] = signals[name]
        interval = _Interval(sample.time_s, correlated, capped, made_s)
        for key, values in applications.items():
            if key not in self.loops and len(values) > 1:
                self.loops[key] = _Loop(params.samples)
        for key, loop in list(self.loops.items()):
            loop.turn(applications.get(key, {}), interval, self.limit, params,
                      may_limit if key[-1] else _named_only)
            if loop.missing >= params.remove_intervals:
                del self.loops[key]

    def caps(self, cores: float, alive: Collection[types.RunKey]
             ) -> Iterator[types.Cap]:
        scale = MB if self.signal is IO_WAIT else cores
        for (_, application, protected), loop in self.loops.items():
            for name, antagonist in (
                    loop.antagonists.items() if protected else ()):
                if (name, antagonist.made_s) not in alive:
                    continue
                yield types.Cap(
                    name, self.signal.knob,
                    max(0.0, antagonist.cap * scale), NAME,
                    f'deviation of {self.signal.name} across {application} '
                    f'is {loop.level:.3g} (threshold {self.limit:g}), '
                    f'correlation {antagonist.score:.2f}')

    def incidents(self, host: str, boot_id: str) -> Iterator[types.Incident]:
        for (project, application, protected), loop in self.loops.items():
            if loop.began_s is not None:
                yield types.Incident(
                    id=types.incident_id(host, boot_id, repr((
                        project, application, protected)),
                        self.signal.name, loop.began_s),
                    time_s=loop.began_s, host=host, victim=loop.victim,
                    signal=self.signal.name, value=loop.level,
                    threshold=self.limit, cause='unknown',
                    suspects=tuple(sorted(loop.scores.items(),
                                          key=lambda item: -item[1])),
                    antagonists=tuple(loop.antagonists),
                    action=loop.why_none() if not loop.antagonists else
                    types.LIMIT + ', '.join(loop.antagonists) if protected
                    else types.UNPROTECTED)

    def facts(self) -> dict[str, Any]:
        levels = [loop.level for loop in self.loops.values()
                  if loop.level is not None and not loop.missing]
        return {'deviation': max(levels, default=None),
                'threshold': self.limit,
                'antagonists': len({name for loop in self.loops.values()
                                    for name in loop.antagonists})}


def _named_only() -> bool:
    """Name antagonists of what is not protected, and limit none."""
    return True


def _limits(params: Params) -> list[tuple[Signal, float]]:
    """The signals, and the deviation of each that is contention."""
    return [(CPI, params.cpi_threshold),
            (IO_WAIT, params.io_wait_threshold_s)]


class Controller:
    """PerfCloud on one host: CPU control and I/O control side by side."""

    name = NAME
    kind = 'detector'
    params_type = Params
    at_start = frozenset({'interval_s', 'samples'})

    def __init__(self, params: Params | None = None, *,
                 interval_s: float = 1.0, host: str = '',
                 boot_id: str = '') -> None:
        self.params = params = params or Params()
        self._host = host
        self._boot_id = boot_id
        every_s = max(params.interval_s, interval_s)
        self._controls = [_Control(signal, limit, every_s)
                          for signal, limit in _limits(params)]
        self._allowance = Allowance()
        self._time_s = -math.inf
        self._decision = types.Decision()

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params
        for control, (_, limit) in zip(
                self._controls, _limits(params), strict=True):
            control.limit = limit

    def compare(self, specs: Specs) -> None:
        """It compares the VMs of one application with each other."""

    def allow(self, budget: Budget | None) -> None:
        """The new limits that the fleet governor lets this host set."""
        self._allowance.give(budget)

    def evidence(self, incident: types.Incident) -> list[series.Series]:
        """The deviation, which the victim has most part in, and what
        antagonists and suspects used, in the intervals that were compared."""
        return next((loop.evidence(incident, control.used)
                     for control in self._controls
                     for loop in control.loops.values()
                     if (control.signal.name, loop.victim, loop.began_s) == (
                         incident.signal, incident.victim, incident.time_s)),
                    [])

    def step(self, now: float, rates: types.Rates) -> types.Decision:
        """All caps that should be in force, and the open incidents."""
        if not self._time_s < now < math.inf:
            return self._decision
        self._time_s = now
        cores = float(len(rates.topology)) or math.fsum(
            number(rated.workload.vcpus) or 0.0
            for rated in rates.workloads) or 1.0
        for control in self._controls:
            sample = control.sampler.add(now, rates)
            if sample is not None:
                control.turn(sample, cores, self.params,
                             lambda: self._allowance.take(now))
        alive = {rated.workload.run for rated in rates.workloads}
        caps: dict[types.KnobKey, types.Cap] = {}
        for cap in [cap for control in self._controls
                    for cap in control.caps(cores, alive)]:
            caps[cap[:2]] = min(caps.get(cap[:2], cap), cap,
                                key=lambda cap: float(cap.value))
        self._decision = types.Decision(
            tuple(caps.values()),
            tuple([incident for control in self._controls for incident
                   in control.incidents(self._host, self._boot_id)]),
            {control.signal.name: control.facts()
             for control in self._controls})
        return self._decision

    def state(self) -> dict[str, Any]:
        """Nothing outlives the process: two minutes teach it all again."""
        return {}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """See :meth:`state`."""
