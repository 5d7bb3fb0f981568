# SPDX-License-Identifier: Apache-2.0


"""CPI2: find what suffers, name the antagonist by correlation, cap it hard.

Zhang, Tune, Hagmann, Jnagal, Gokhale, Wilkes.  *CPI2: CPU performance
isolation for shared compute clusters*.  EuroSys 2013.  Sections 3.1 (specs,
in ``specs``), 4.1 (outliers), 4.2 (antagonist correlation), 5 (caps), table
2 (constants).  The same machinery serves any contention signal.

Letters: c_i a sample of the victim's signal, u_i of the suspect's use,
c_threshold the outlier threshold.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from operator import mul
from typing import Any

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms.sampling import Sample
from scavenger_openstack.algorithms.sampling import Sampler
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Knob
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

NAME = 'cpi2'

Application = tuple[str, str]
"""Project ('' for none) and name: another project may use the same."""

SHOWN = 5
"""Suspects that an incident tells of: CPI2, figures 8 and 11."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Table 2 of the paper, row by row.  Times in seconds."""

    signal: str = dataclasses.field(default='cpi', metadata={
        'help': 'Contention signal that is watched: cpi, run_delay or '
                'io_wait. Hosts without hardware counters have no cpi.',
        'choices': tuple(SIGNALS),
        'source': 'CPI2 watches cpi; the others are not in the paper'})
    sample_s: float = dataclasses.field(default=10.0, metadata={
        'help': 'Seconds of each sampling period that are measured. More '
                'smooths more.',
        'min': 0.1, 'max': 3600.0, 'source': 'CPI2, table 2'})
    period_s: float = dataclasses.field(default=60.0, metadata={
        'help': 'Seconds from one sample to the next. Less notices '
                'interference sooner and more noise.',
        'min': 0.1, 'max': 3600.0, 'source': 'CPI2, table 2'})
    outlier_sigmas: float = dataclasses.field(default=2.0, metadata={
        'help': 'Standard deviations above the mean of its spec from which '
                'a sample is an outlier. More raises fewer alarms.',
        'min': 0.0, 'max': 100.0, 'source': 'CPI2, section 4.1, table 2'})
    outliers: int = dataclasses.field(default=3, metadata={
        'help': 'Outliers within outlier_window_s that make a workload a '
                'victim. More raises fewer and later alarms.',
        'min': 1, 'max': 1000, 'source': 'CPI2, section 4.1, table 2'})
    outlier_window_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds in which outliers are counted.',
        'min': 1.0, 'max': 86400.0,
        'source': 'CPI2, section 4.1, table 2'})
    correlation_window_s: float = dataclasses.field(default=600.0, metadata={
        'help': 'Seconds of samples that victim and suspects are compared '
                'over.',
        'min': 1.0, 'max': 86400.0, 'source': 'CPI2, section 4.2'})
    correlation_threshold: float = dataclasses.field(default=0.35, metadata={
        'help': 'Antagonist correlation, -1 to 1, from which a suspect is '
                'named. More names fewer innocents and misses more '
                'antagonists.',
        'min': 0.0, 'max': 1.0, 'source': 'CPI2, section 4.2, table 2'})
    analysis_interval_s: float = dataclasses.field(default=1.0, metadata={
        'help': 'Least seconds between two analyses on a host.',
        'min': 0.0, 'max': 3600.0, 'source': 'CPI2, section 4.2'})
    cap_cores: float = dataclasses.field(default=0.1, metadata={
        'help': 'CPU left to an antagonist, in cores. Lower protects more '
                'and delays batch work.',
        'min': 0.001, 'max': 1024.0, 'source': 'CPI2, section 5, table 2'})
    cap_io_bytes_per_s: float = dataclasses.field(default=1e6, metadata={
        'help': 'Disk throughput left to an antagonist that is named by '
                'io_wait, in bytes per second.',
        'min': 1.0, 'max': 1e12, 'source': 'not in the paper'})
    cap_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds that a limit lasts. Longer protects longer if the '
                'antagonist goes on, and delays batch work for nothing if '
                'it does not.',
        'min': 1.0, 'max': 86400.0, 'source': 'CPI2, section 5, table 2'})
    min_tasks: int = dataclasses.field(default=specs.MIN_TASKS, metadata={
        'help': 'Tasks of an application from which their samples make a '
                'spec; below, each workload is compared with its own past.',
        'min': 1, 'max': 100000, 'source': 'CPI2, section 3.1'})
    min_samples: int = dataclasses.field(
        default=specs.MIN_SAMPLES, metadata={
            'help': 'Samples of each of these tasks that a spec needs.',
            'min': 2, 'max': 1000000, 'source': 'CPI2, section 3.1'})
    min_own_samples: int = dataclasses.field(
        default=specs.MIN_OWN_SAMPLES, metadata={
            'help': 'Samples of its own past that a workload is compared '
                    'with at least.',
            'min': 2, 'max': 1000000,
            'source': 'not in the paper; DESIGN 7.12'})


def threshold(spec: specs.Spec, params: Params) -> float:
    """Outlier threshold of the signal, in the signal's unit.

    Source: CPI2, section 4.1.
    """
    return spec.mean + params.outlier_sigmas * spec.stddev


def hard_caps(params: Params) -> Mapping[Knob, float]:
    """What is left to an antagonist, by knob.  Source: CPI2, section 5."""
    return {Knob.CPU_CORES: params.cap_cores,
            Knob.IO_BYTES_PER_S: params.cap_io_bytes_per_s}


def correlation(c: Sequence[float], u: Sequence[float],
                c_threshold: float) -> float:
    """Antagonist correlation of a victim and a suspect, -1 to 1.

    ``c`` and ``u`` are time-aligned; the uses are normalised to add up to
    1.  Without any use it is 0.  Source: CPI2, section 4.2.
    """
    return _weighted([_weight(c_i, c_threshold) for c_i in c], u)


def _weight(c_i: float, c_threshold: float) -> float:
    """What a suspect's use while the victim is at ``c_i`` says of it."""
    if c_i > c_threshold:
        return 1 - c_threshold / c_i
    return c_i / c_threshold - 1 if c_i < c_threshold else 0.0


def _weighted(weights: Sequence[float], u: Sequence[float]) -> float:
    total = sum(u)
    return sum(map(mul, weights, u)) / total if total > 0 else 0.0


def rank(victim: str, samples: Iterable[Sample],
         c_threshold: float) -> list[tuple[str, float]]:
    """All but the victim with the correlation, highest first."""
    weights: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    for one in samples:
        value = one.values.get(victim)
        if value is None:
            continue
        weight = _weight(value, c_threshold)
        for name, use in one.uses.items():
            weights.setdefault(name, []).append(weight)
            used.setdefault(name, []).append(use)
    return sorted([(name, _weighted(weights[name], u))
                   for name, u in used.items() if name != victim],
                  key=lambda one: (-one[1], one[0]))


class _Victim:
    __slots__ = ('history', 'flagged', 'incident', 'outlier_s')

    def __init__(self) -> None:
        self.history = specs.Statistics()
        self.flagged: collections.deque[float] = collections.deque()
        self.incident: Incident | None = None
        self.outlier_s = 0.0


class Controller:
    """CPI2 on one host.

    A cap is named for ``cap_s`` and is then gone; a victim that still
    suffers gets another round.  Specs come from all hosts (:meth:`compare`)
    or from outside (``specs_of``, by application and CPU model), else from
    the application's tasks on this host, else from the workload's own past,
    which stands still while its incident is open.  Source: DESIGN 7.12.
    """

    name = NAME
    kind = 'detector'
    only_observes = True
    params_type = Params
    at_start = frozenset({'signal', 'sample_s', 'period_s',
                          'correlation_window_s'})

    def __init__(self, params: Params | None = None, *,
                 interval_s: float = 1.0, host: str = '',
                 boot_id: str = '',
                 specs_of: Mapping[tuple[Application, str],
                                   specs.Spec] | None = None) -> None:
        self.params = params = params or Params()
        self._host = host
        self._boot_id = boot_id
        self._cpu_model = ''
        self.specs_of = dict(specs_of or {})
        self._specs: specs.Specs = {}
        self._signal = SIGNALS[params.signal]
        self._sampler = Sampler(
            self._signal, duration_s=max(params.sample_s, interval_s),
            interval_s=max(params.period_s, interval_s))
        self._samples: collections.deque[Sample] = collections.deque(
            maxlen=max(2, round(params.correlation_window_s
                                / params.period_s)))
        self._victims: dict[tuple[str, float], _Victim] = {}
        self._waiting: dict[tuple[str, float], float] = {}
        self._capped: dict[str, tuple[float, Cap]] = {}
        self._applications: dict[str, Application | None] = {}
        self._analysed_s = float('-inf')
        self._time_s = float('-inf')
        self.analyses = 0

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params

    def compare(self, found: specs.Specs) -> None:
        """Compare workloads with these specs, where there is one."""
        self._specs = found

    def allow(self, budget: Budget | None) -> None:
        """It only observes."""

    def evidence(self, incident: Incident) -> tuple[()]:
        """No series are kept."""
        return ()

    def step(self, now: float, rates: Rates) -> Decision:
        """All caps that should be in force, and the open incidents."""
        if now > self._time_s:
            self._time_s = now
            self._follow_cpu_model(rates.cpu_model or '')
            sample = self._sampler.add(now, rates)
            if sample is not None:
                self._samples.append(sample)
                self._judge(sample)
            self._analyse(now)
        alive = {one.workload.id for one in rates.workloads}
        self._capped = {name: (until_s, cap) for name, (until_s, cap)
                        in self._capped.items()
                        if now < until_s and name in alive}
        return Decision(
            tuple(cap for _, cap in self._capped.values()),
            tuple(one.incident for one in self._victims.values()
                  if one.incident is not None),
            {'signal': self._signal.name, 'samples': len(self._samples),
             'analyses': self.analyses, 'victims': len(self._waiting)})

    def _follow_cpu_model(self, cpu_model: str) -> None:
        """What was learnt on another CPU says nothing: CPI2, section 3.1."""
        if cpu_model in ('', self._cpu_model):
            return
        if self._cpu_model:
            self._samples.clear()
            self._victims.clear()
            self._waiting.clear()
        self._cpu_model = cpu_model

    def spec(self, name: str, application: Application | None
             ) -> specs.Spec | None:
        """The spec that a workload is compared with, ``None`` so far."""
        if application:
            given = self._specs.get(
                specs.key(*application, self._cpu_model, self._signal.name)
            ) or self.specs_of.get((application, self._cpu_model))
            if given is not None:
                return given
            tasks = {key[0]: one.history
                     for key, one in self._victims.items()
                     if self._applications.get(key[0]) == application}
            found = specs.of_application(
                tasks, min_tasks=self.params.min_tasks,
                min_samples=self.params.min_samples)
            if found is not None:
                return found
        own = [one.history for key, one in self._victims.items()
               if key[0] == name]
        return specs.of_own(
            own[0], min_samples=self.params.min_own_samples) if own else None

    def _judge(self, sample: Sample) -> None:
        """Flag outliers; what has enough of them waits for analysis."""
        params, now = self.params, sample.time_s
        self._applications = {
            name: (one.workload.project or '', one.workload.application)
            if one.workload.application else None
            for name, one in sample.rates.items()}
        alive = {}
        for name, one in sample.rates.items():
            if one.workload.priority is Priority.FOREGROUND:
                key = (name, one.workload.created_s)
                alive[key] = self._victims.get(key) or _Victim()
        self._victims = alive
        self._waiting = {key: at for key, at in self._waiting.items()
                         if key in alive}
        for key, victim in alive.items():
            value = sample.values.get(key[0])
            if value is None:
                continue
            spec = self.spec(key[0], self._applications[key[0]])
            limit = None if spec is None else threshold(spec, params)
            if victim.incident is None:
                # Outliers count as just not being one: a normal that moves
                # is followed, and a disturbance does not become normal.
                victim.history = victim.history.add(
                    value if limit is None else min(value, limit))
            flagged = victim.flagged
            while flagged and flagged[0] <= now - params.outlier_window_s:
                flagged.popleft()
            if limit is None or value <= limit:
                if now - victim.outlier_s >= params.outlier_window_s:
                    victim.incident = None      # quiet for long enough
                continue
            flagged.append(now)
            victim.outlier_s = now
            if len(flagged) >= params.outliers:
                self._waiting.setdefault(key, limit)

    def _analyse(self, now: float) -> None:
        """At most one victim at a time: CPI2, section 4.2."""
        if (not self._waiting or now - self._analysed_s
                < self.params.analysis_interval_s):
            return
        self._analysed_s = now
        self.analyses += 1
        key = next(iter(self._waiting))
        limit = self._waiting.pop(key)
        victim = self._victims[key]
        latest = self._samples[-1]
        suspects = rank(key[0], self._samples, limit)
        antagonist = ''
        for name, score in suspects:
            if score < self.params.correlation_threshold:
                break
            rates = latest.rates.get(name)
            if (rates is not None and name not in self._capped
                    and rates.workload.priority is Priority.BACKGROUND):
                antagonist = name
                break
        start = victim.incident.time_s if victim.incident else now
        victim.incident = Incident(
            id=incident_id(self._host, self._boot_id, key[0],
                           self._signal.name, start),
            time_s=start, host=self._host, victim=key[0],
            signal=self._signal.name, value=latest.values.get(key[0]),
            threshold=limit, cause='unknown',
            suspects=tuple(suspects[:SHOWN]),
            antagonists=(antagonist,) if antagonist else (),
            action=LIMIT + antagonist if antagonist else
            'nothing: no suspect correlates enough')
        victim.flagged.clear()
        if antagonist:
            self._cap(antagonist, dict(suspects)[antagonist], key[0], now)

    def _cap(self, name: str, score: float, victim: str, now: float) -> None:
        params, knob = self.params, self._signal.knob
        self._capped[name] = now + params.cap_s, Cap(
            name, knob, hard_caps(params)[knob], NAME,
            f'{self._signal.name} of {victim} rises with its use: '
            f'correlation {score:.2f}, {params.correlation_threshold:g} is '
            f'enough; for {params.cap_s:g} s')

    def state(self) -> dict[str, Any]:
        """The learnt statistics; plain JSON values."""
        return {'signal': self._signal.name, 'cpu_model': self._cpu_model,
                'histories': [[*key, list(one.history)] for key, one
                              in self._victims.items()]}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from learnt statistics; what is unreadable is left out."""
        if state.get('signal') != self._signal.name:
            return
        self._cpu_model = str(state.get('cpu_model', ''))
        for name, created_s, history in state.get('histories', ()):
            victim = _Victim()
            victim.history = specs.from_json(history)
            self._victims[str(name), float(created_s)] = victim
