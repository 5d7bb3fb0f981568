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
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from operator import mul
from typing import Any

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.algorithms.sampling import Sample
from scavenger_openstack.algorithms.sampling import Sampler
from scavenger_openstack.algorithms.signals import CPI
from scavenger_openstack.algorithms.signals import IO_WAIT
from scavenger_openstack.algorithms.signals import llc_misses
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.signals import Signal
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Knob
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import WorkloadRates

NAME = 'perfcloud'

MB = 1e6


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
                    "application's VMs from which there is contention.",
            'min': 0.0, 'max': 3600.0,
            'source': 'PerfCloud, section III-C: 10, read as ms'})
    cpi_threshold: float = dataclasses.field(default=1.0, metadata={
        'help': 'Deviation of the cycles per instruction across an '
                "application's VMs from which there is contention.",
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
        'deprecated_name': 'lift_factor',
        'help': 'A limit is removed when it has been so many times the demand '
                'for remove_intervals.',
        'min': 1.0, 'max': 100.0, 'source': 'not in the paper'})
    remove_intervals: int = dataclasses.field(default=3, metadata={
        'deprecated_name': 'lift_intervals',
        'help': 'Intervals after which a limit that binds nothing is removed.',
        'min': 1, 'max': 1000, 'source': 'not in the paper'})


def deviation(values: Iterable[float]) -> float | None:
    """I(t): standard deviation of a signal across an application's VMs.

    ``None`` for fewer than two VMs.  Source: PerfCloud, section III-A.
    """
    known = list(values)
    if len(known) < 2:
        return None
    mean = math.fsum(known) / len(known)
    return math.sqrt(math.fsum([(value - mean) ** 2 for value in known])
                     / len(known))


def ewma(before: float | None, value: float, alpha: float) -> float:
    """Exponentially weighted moving average.  Source: III-D."""
    return value if before is None else before + alpha * (value - before)


def pearson(x: Sequence[float | None], y: Sequence[float | None]) -> float:
    """Pearson correlation with missing values taken as 0.

    0 when one of the two does not vary, or for fewer than 3 samples.
    Source: PerfCloud, section III-B.
    """
    return pearsons(x, [y])[0]


def pearsons(x: Sequence[float | None],
             others: Sequence[Sequence[float | None]]) -> list[float]:
    """:func:`pearson` of one series with each of several."""
    if len(x) < 3:
        return [0.0 for _ in others]
    a = _centred(x)
    square = sum(map(mul, a, a))
    found = []
    for other in others:
        b = _centred(other)
        norm = math.sqrt(square * sum(map(mul, b, b)))
        found.append(sum(map(mul, a, b)) / norm if norm > 0 else 0.0)
    return found


def _centred(series: Sequence[float | None]) -> list[float]:
    known = [value or 0.0 for value in series]
    mean = math.fsum(known) / len(known)
    return [value - mean for value in known]


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


class _Antagonist:
    """One VM's cap on one resource, in the unit of equation 1."""

    __slots__ = ('cap', 'highest', 'since', 'loose', 'score')

    def __init__(self, use: float, score: float) -> None:
        self.cap = use
        self.highest = use
        self.since = 0
        self.loose = 0
        self.score = score


class _Control:
    """Algorithm 1 for one signal: CPU control or I/O control."""

    def __init__(self, signal: Signal, limit: float,
                 params: Params) -> None:
        self.signal = signal
        self.limit = limit
        self.params = params
        self.level: float | None = None
        self.last = 0.0
        self.application = ''
        self.victim = ''
        self.history: collections.deque[float] = collections.deque(
            maxlen=params.samples)
        self.uses: dict[str, collections.deque[float | None]] = {}
        self.smooth: dict[str, float] = {}
        self.antagonists: dict[str, _Antagonist] = {}
        self.scores: dict[str, float] = {}
        self.began_s: float | None = None
        self.t = 0
        self.blind = 0

    def turn(self, sample: Sample, cores: float) -> None:
        """One interval."""
        self._smooth(sample)
        self._deviate(sample)
        if self.level is None:
            # Fewer than two VMs to compare: hold, then give up.
            self.blind += 1
            if self.blind >= self.params.remove_intervals:
                self.antagonists.clear()
                self.began_s = None
            return
        self.blind = 0
        if self.t % self.params.tau == 0:
            self._identify()
            self._name(sample, cores)
        self.t += 1
        contention = self.level > self.limit
        if contention and self.began_s is None:
            self.began_s = sample.time_s
        elif not contention and not self.antagonists:
            self.began_s = None
        for name, one in list(self.antagonists.items()):
            use = self._capped_use(sample.rates.get(name), cores)
            if use is None:
                del self.antagonists[name]
                continue
            self._move(name, one, use, contention)

    def _move(self, name: str, one: _Antagonist, use: float,
              contention: bool) -> None:
        params = self.params
        if contention:
            if name not in self.scores:
                return
            one.highest = one.cap
            one.since = 0
        else:
            one.since += 1
        one.cap = next_cap(one.cap, one.highest, one.since,
                           contention=contention, beta=params.beta,
                           gamma=params.gamma)
        one.loose = (one.loose + 1
                     if one.cap >= params.remove_factor * use else 0)
        if one.loose >= params.remove_intervals and not contention:
            del self.antagonists[name]

    def _smooth(self, sample: Sample) -> None:
        alpha = self.params.ewma_alpha
        self.smooth = {
            name: ewma(self.smooth.get(name), value, alpha)
            for name, value in sample.values.items()}
        for name, one in sample.rates.items():
            if one.workload.priority is Priority.BACKGROUND:
                past = self.uses.get(name)
                if past is None:
                    past = self.uses[name] = collections.deque(
                        [None] * len(self.history),
                        maxlen=self.params.samples)
                past.append(self._correlated_use(one))
        for name in set(self.uses) - set(sample.rates):
            del self.uses[name]

    def _correlated_use(self, one: WorkloadRates) -> float | None:
        """I/O throughput for io_wait, LLC misses for cpi: III-B."""
        return (self.signal.use(one) if self.signal is IO_WAIT
                else llc_misses(one))

    def _capped_use(self, one: WorkloadRates | None,
                    cores: float) -> float | None:
        """Use of the capped resource in the unit of equation 1."""
        use = None if one is None else self.signal.use(one)
        if use is None:
            return None
        return use / MB if self.signal is IO_WAIT else use / cores

    def _deviate(self, sample: Sample) -> None:
        """I(t) of the application that suffers most."""
        by_application: dict[tuple[str, str], dict[str, float]] = {}
        for name, value in self.smooth.items():
            workload = sample.rates[name].workload
            if (workload.priority is Priority.FOREGROUND
                    and workload.application):
                # Another project may use the same name.
                by_application.setdefault(
                    (workload.project or '', workload.application),
                    {})[name] = value
        self.level = None
        for (_, application), values in by_application.items():
            found = deviation(values.values())
            if found is not None and (self.level is None
                                      or found > self.level):
                self.level, self.application = found, application
                self.victim = max(values, key=values.__getitem__)
        if self.level is not None:
            self.history.append(self.level)
            self.last = self.level

    def _identify(self) -> None:
        """Low-priority VMs whose use correlates: III-B and III-D."""
        history = list(self.history)
        self.scores = {}
        if self.level is None or not self.level > self.limit:
            return
        count = len(history)
        scores = pearsons(history, [
            [*[None] * (count - len(past)), *past][-count:]
            for past in self.uses.values()])
        self.scores = {
            name: score for name, score in zip(self.uses, scores, strict=True)
            if score >= self.params.correlation_threshold}

    def _name(self, sample: Sample, cores: float) -> None:
        """A cap begins at what its antagonist uses: algorithm 1, t = 1."""
        for name, score in self.scores.items():
            use = self._capped_use(sample.rates.get(name), cores)
            if name not in self.antagonists and use:
                self.antagonists[name] = _Antagonist(use, score)


def _limits(params: Params) -> list[tuple[Signal, float]]:
    """The signals, and the deviation of each that is contention."""
    return [(CPI, params.cpi_threshold),
            (IO_WAIT, params.io_wait_threshold_s)]


class Controller:
    """PerfCloud on one host: CPU control and I/O control side by side."""

    name = NAME
    kind = 'detector'
    only_observes = True
    params_type = Params
    at_start = frozenset({'interval_s', 'samples'})

    def __init__(self, params: Params | None = None, *,
                 interval_s: float = 1.0, host: str = '',
                 boot_id: str = '') -> None:
        self.params = params = params or Params()
        self._host = host
        self._boot_id = boot_id
        every_s = max(params.interval_s, interval_s)
        self._controls = [
            (Sampler(signal, duration_s=every_s, interval_s=every_s),
             _Control(signal, limit, params))
            for signal, limit in _limits(params)]
        self._time_s = -math.inf
        self._decision = Decision()

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params
        for (_, control), (_, limit) in zip(
                self._controls, _limits(params), strict=True):
            control.params, control.limit = params, limit

    def compare(self, found: Specs) -> None:
        """It compares the VMs of one application with each other."""

    def allow(self, budget: Budget | None) -> None:
        """It only observes."""

    def evidence(self, incident: Incident) -> tuple[()]:
        """No series are kept."""
        return ()

    def step(self, now: float, rates: Rates) -> Decision:
        """All caps that should be in force, and the open incidents."""
        if not self._time_s < now < math.inf:
            return self._decision
        self._time_s = now
        cores = float(len(rates.topology)) or math.fsum(
            number(one.workload.vcpus) or 0.0
            for one in rates.workloads) or 1.0
        for sampler, control in self._controls:
            sample = sampler.add(now, rates)
            if sample is not None:
                control.turn(sample, cores)
        alive = {one.workload.id for one in rates.workloads}
        self._decision = Decision(
            tuple(cap for _, control in self._controls
                  for cap in self._caps(control, cores)
                  if cap.workload in alive),
            tuple(found for _, control in self._controls
                  for found in self._incidents(control)),
            {control.signal.name: {
                'deviation': control.level, 'threshold': control.limit,
                'antagonists': len(control.antagonists)}
             for _, control in self._controls})
        return self._decision

    def _caps(self, control: _Control, cores: float) -> list[Cap]:
        scale = MB if control.signal.knob is Knob.IO_BYTES_PER_S else cores
        return [Cap(name, control.signal.knob, max(0.0, one.cap * scale),
                    NAME,
                    f'deviation of {control.signal.name} across '
                    f'{control.application} is {control.last:.3g} '
                    f'(threshold {control.limit:g}), correlation '
                    f'{one.score:.2f}')
                for name, one in control.antagonists.items()]

    def _incidents(self, control: _Control) -> list[Incident]:
        if control.began_s is None:
            return []
        start, names = control.began_s, ', '.join(control.antagonists)
        return [Incident(
            id=incident_id(self._host, self._boot_id, control.application,
                           control.signal.name, start),
            time_s=start, host=self._host, victim=control.victim,
            signal=control.signal.name, value=control.last,
            threshold=control.limit, cause='unknown',
            suspects=tuple(sorted(control.scores.items(),
                                  key=lambda one: -one[1])),
            antagonists=tuple(control.antagonists),
            action=LIMIT + names if names
            else 'nothing: no suspect correlates enough')]

    def state(self) -> dict[str, Any]:
        """Nothing outlives the process: two minutes teach it all again."""
        return {}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """See :meth:`state`."""
