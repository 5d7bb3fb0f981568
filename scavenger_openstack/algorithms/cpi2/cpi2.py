# SPDX-License-Identifier: Apache-2.0


"""CPI2: find what suffers, name the antagonist by correlation, cap it hard.

Zhang, Tune, Hagmann, Jnagal, Gokhale, Wilkes.  *CPI2: CPU performance
isolation for shared compute clusters*.  EuroSys 2013.  Sections 3.1 (specs,
in ``specs``), 4.1 (outliers), 4.2 (antagonist correlation), 5 (caps), table
2 (constants, in ``params``).  The same machinery serves any contention signal.

Letters: c_i a sample of the victim's signal, u_i of the suspect's use,
c_threshold the outlier threshold.

As published, with the default of each parameter.  Not in the paper: other
signals than ``cpi``, and a workload's own past (``min_own_samples``).  What
the paper calls best-effort jobs are workloads that may be killed here.  No cap
goes below a workload's floor, which its reason says then; the paper has none.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from operator import mul
from typing import Any

from scavenger_openstack.algorithms.allowance import Allowance
from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.allowance import NOT_ALLOWED
from scavenger_openstack.algorithms.cpi2 import capped
from scavenger_openstack.algorithms.cpi2.params import Params as Params
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms.sampling import CpiSampler
from scavenger_openstack.algorithms.sampling import Sample
from scavenger_openstack.algorithms import series
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack import types

NAME = 'cpi2'

Application = tuple[str, str]
"""Project ('' for none) and name: another project may use the same."""

SHOWN = 5
"""Suspects that an incident tells of: CPI2, figure 8."""


def threshold(spec: specs.Spec, params: Params) -> float:
    """Outlier threshold of the signal, in the signal's unit.

    Source: CPI2, section 4.1.
    """
    return spec.mean + params.outlier_sigmas * spec.stddev


def hard_caps(params: Params, *, best_effort: bool = False
              ) -> Mapping[types.Knob, float]:
    """Return what is left to an antagonist, by knob.

    0.01 CPU-s/s to best-effort jobs and 0.1 to others; the cap on a disk is
    not in the paper.  Source: CPI2, section 5.
    """
    return {types.Knob.CPU_CORES: params.cap_best_effort_cores if best_effort
            else params.cap_cores,
            types.Knob.IO_BYTES_PER_S: params.cap_io_bytes_per_s}


def correlation(c: Sequence[float], u: Sequence[float],
                c_threshold: float) -> float:
    """Antagonist correlation of a victim and a suspect, -1 to 1.

    ``c`` and ``u`` are time-aligned; the uses are normalised to add up to
    1.  Without any use it is 0.  Source: CPI2, section 4.2.
    """
    return _weighted([_weight(c_i, c_threshold) for c_i in c], u)


def _weight(c_i: float, c_threshold: float) -> float:
    """Return what a suspect's use while the victim is at ``c_i`` tells about
    it."""
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
    for sample in samples:
        value = sample.values.get(victim)
        if value is None:
            continue
        weight = _weight(value, c_threshold)
        for name, use in sample.uses.items():
            weights.setdefault(name, []).append(weight)
            used.setdefault(name, []).append(use)
    return sorted([(name, _weighted(weights[name], u))
                   for name, u in used.items() if name != victim],
                  key=lambda item: (-item[1], item[0]))


class _Victim:
    __slots__ = ('history', 'flagged', 'incident', 'outlier_s')

    def __init__(self) -> None:
        self.history = specs.Statistics()
        self.flagged: collections.deque[float] = collections.deque()
        self.incident: types.Incident | None = None
        self.outlier_s = 0.0


class Controller:
    """CPI2 on one host.

    A cap is named for ``cap_s`` and is then gone; a victim that still
    suffers gets another round.  Specs come from all hosts (:meth:`compare`)
    or from outside (``specs_of``, by application and CPU model), else from
    the application's tasks on this host, else, where that is asked for, from
    the workload's own past, which stands still while its incident is open.
    Source: CPI2, section 3.1; DESIGN 7.12.
    """

    name = NAME
    kind = 'detector'
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
        self._sampler = CpiSampler(
            self._signal, duration_s=max(params.sample_s, interval_s),
            interval_s=max(params.period_s, interval_s))
        self._samples: collections.deque[Sample] = collections.deque(
            maxlen=max(2, round(params.correlation_window_s
                                / params.period_s)))
        self._victims: dict[types.RunKey, _Victim] = {}
        self._waiting: dict[types.RunKey, float] = {}
        self._capped: dict[capped.CappedKey, capped.Capped] = {}
        self._allowance = Allowance()
        self._applications: dict[str, Application | None] = {}
        self._analysed_s = float('-inf')
        self._time_s = float('-inf')
        self.analyses = 0

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params

    def compare(self, received: specs.Specs) -> None:
        """Compare workloads with these specs, where there is one."""
        self._specs = received

    def allow(self, budget: Budget | None) -> None:
        """The new limits that the fleet governor lets this host set."""
        self._allowance.give(budget)

    def evidence(self, incident: types.Incident) -> list[series.Series]:
        """The victim's signal and what suspects used, over the correlation
        window.  Source: CPI2, figures 8 to 11."""
        samples = list(self._samples)
        return series.of(
            incident, [sample.time_s for sample in samples],
            [sample.values.get(incident.victim) for sample in samples],
            lambda name: (str(self._signal.knob),
                          [sample.uses.get(name) for sample in samples]))

    def step(self, now: float, rates: types.Rates) -> types.Decision:
        """All caps that should be in force, and the open incidents."""
        if now > self._time_s:
            self._time_s = now
            self._follow_cpu_model(rates.cpu_model or '')
            sample = self._sampler.add(now, rates)
            if sample is not None:
                self._samples.append(sample)
                self._judge(sample)
            self._analyse(now)
        alive = {rated.workload.run for rated in rates.workloads}
        self._capped = {
            (run, victim): limit
            for (run, victim), limit in self._capped.items()
            if now < limit.until_s and run in alive
            and victim in self._victims}
        return types.Decision(
            tuple({run: limit.cap for (run, _), limit
                   in self._capped.items()}.values()),
            self._incidents(now),
            {'signal': self._signal.name, 'samples': len(self._samples),
             'analyses': self.analyses, 'victims': len(self._waiting)})

    def _follow_cpu_model(self, cpu_model: str) -> None:
        """Forget what was learnt on another CPU: CPI2, section 3.1."""
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
            tasks = {key[0]: victim.history
                     for key, victim in self._victims.items()
                     if self._applications.get(key[0]) == application}
            of_all = specs.of_application(
                tasks, min_tasks=self.params.min_tasks,
                min_samples=self.params.min_samples)
            if of_all is not None:
                return of_all
        own = [victim.history for key, victim in self._victims.items()
               if key[0] == name]
        return specs.of_own(
            own[0], min_samples=self.params.min_own_samples) if own else None

    def _judge(self, sample: Sample) -> None:
        """Flag outliers; what has enough of them waits for analysis."""
        params, now = self.params, sample.time_s
        self._applications = {
            name: (rated.workload.project or '', rated.workload.application)
            if rated.workload.application else None
            for name, rated in sample.rates.items()}
        alive = {}
        for name, rated in sample.rates.items():
            if rated.workload.priority is types.Priority.FOREGROUND:
                key = (name, rated.workload.created_s)
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
                    value if limit is None else min(value, limit),
                    sample.uses.get(key[0])
                    if self._signal.knob is types.Knob.CPU_CORES else None)
            flagged = victim.flagged
            while flagged and flagged[0] <= now - params.outlier_window_s:
                flagged.popleft()
            if limit is None or value <= limit:
                continue
            flagged.append(now)
            victim.outlier_s = now
            if len(flagged) >= params.outliers:
                self._waiting.setdefault(key, limit)

    def _analyse(self, now: float) -> None:
        """Analyse at most one victim at a time: CPI2, section 4.2."""
        if (not self._waiting or now - self._analysed_s
                < self.params.analysis_interval_s):
            return
        self._analysed_s = now
        self.analyses += 1
        key = next(iter(self._waiting))
        limit = self._waiting.pop(key)
        victim = self._victims[key]
        latest = self._samples[-1]
        protected = latest.rates[key[0]].workload.protected     # section 5
        suspects = rank(key[0], self._samples, limit)
        antagonist = ''
        for name, score in suspects:
            if score < self.params.correlation_threshold:
                break
            rates = latest.rates.get(name)
            if (rates is not None
                    and rates.workload.priority is types.Priority.BACKGROUND
                    and not capped.is_held(self._capped, name,
                                           latest.uses.get(name))):
                antagonist = name
                break
        may_limit = bool(antagonist and protected and (
            any(name == antagonist for (name, _), _ in self._capped)
            or self._allowance.take(now)))
        start = (victim.incident.time_s if victim.incident else
                 victim.flagged[0] if victim.flagged else now)
        victim.incident = types.Incident(
            id=types.incident_id(self._host, self._boot_id, key[0],
                                 self._signal.name, start),
            time_s=start, host=self._host, victim=key[0],
            signal=self._signal.name, value=latest.values.get(key[0]),
            threshold=limit, cause='unknown',
            suspects=tuple(suspects[:SHOWN]),
            antagonists=(antagonist,) if antagonist else (),
            action='' if may_limit or not antagonist else
            NOT_ALLOWED if protected else types.UNPROTECTED)
        victim.flagged.clear()
        if may_limit:
            self._cap(latest.rates[antagonist].workload,
                      dict(suspects)[antagonist], key, now)

    def _cap(self, antagonist: types.Workload, score: float,
             victim: types.RunKey, now: float) -> None:
        params, knob = self.params, self._signal.knob
        value = hard_caps(params, best_effort=antagonist.killable)[knob]
        floor = antagonist.floor.get(knob, 0.0)
        binds = (f'; its floor, {floor:g}, is kept, {value:g} would be left '
                 'without it' if floor > value else '')
        self._capped[antagonist.run, victim] = capped.Capped(
            now + params.cap_s, types.Cap(
                antagonist.id, knob, max(value, floor), NAME,
                f'{self._signal.name} of {victim[0]} rises with its use: '
                f'correlation {score:.2f}, {params.correlation_threshold:g} '
                f'is enough; for {params.cap_s:g} s{binds}'))

    def _incidents(self, now: float) -> tuple[types.Incident, ...]:
        """Those that are open: a victim that was quiet for long enough has
        none, if nothing is limited for it."""
        caps = []
        for key, victim in self._victims.items():
            names = capped.limited(self._capped, key)
            if (not names and now - victim.outlier_s
                    >= self.params.outlier_window_s):
                victim.incident = None
            if victim.incident is not None:
                caps.append(capped.shown(victim.incident, names))
        return tuple(caps)

    def state(self) -> dict[str, Any]:
        """The learnt statistics; plain JSON values."""
        return {'signal': self._signal.name, 'cpu_model': self._cpu_model,
                'histories': [[*key, list(victim.history)] for key, victim
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
