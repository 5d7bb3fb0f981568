# SPDX-License-Identifier: Apache-2.0


"""What was named, and what did it: detectors on a simulated host.

They observe, so that all of them see the same host.  The truth is that of
the plant: an antagonist is one whose absence helps.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import papers
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.scenario import Scenario
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value

OURS = 'ours'
CONTROLLERS = (*papers.PAPERS, OURS)

CURVE = 'cpi2'
"""The detector of which precision is shown against its threshold."""

LEAST_SCORE = 0.1
"""Correlations below this are not looked at for that."""

VICTIM = 0.2
"""By how much slower its mean request has to be for a service to count as
a victim whose antagonists have to be named."""

FELT = 0.02
"""What a service is so much faster without is rightly named."""

ANTAGONIST = 'antagonist'

SPECIFIED = ('cpi', 'io_wait')
"""Signals of which a detector of ours takes specs from other hosts."""

TIME_STEP_S = 5.0
"""Onset and naming are told with this resolution."""


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One scenario of one seed; ``enforce``: of ours, what it limits is, as
    its experiments need."""

    scenario: Scenario
    seed: int
    enforce: bool = False

    def drawn(self) -> Drawn:
        return self.scenario.draw(self.seed)


@dataclasses.dataclass(slots=True)
class Run:
    """What one run of a host gave: truths, what was measured, and what a
    detector that observes decided from it."""

    results: dict[str, Result]
    series: dict[str, list[tuple[float, float]]]
    rates: list[Rates]
    decisions: list[Decision]


def play(drawn: Drawn, tenants: Iterable[Tenant],
         detector: attribution.Controller | None = None, *,
         enforce: bool = False) -> Run:
    """Run a host with some of its tenants.

    :param enforce: set the limits of the detector
    """
    simulator = Simulator(drawn.machine, tenants, seed=drawn.seed,
                          step_s=drawn.step_s, keep=True,
                          floors=bench.FLOORS)
    before = simulator.sample()
    rates: list[Rates] = []
    decisions: list[Decision] = []
    in_force: dict[KnobKey, Value] = {}
    warm = False
    while simulator.now < drawn.duration_s - 1e-9:
        simulator.advance(drawn.interval_s)
        sample = simulator.sample()
        rates.append(rates_.rates(before, sample))
        before = sample
        if detector is not None:
            decisions.append(detector.step(rates[-1].time_s, rates[-1]))
            simulator.ask(decisions[-1].asks)
            if enforce:
                in_force = set_limits(simulator, in_force,
                                      decisions[-1].caps)
        if not warm and simulator.now >= drawn.warmup_s - 1e-9:
            simulator.plant.reset_truth()
            warm = True
    guests = [*simulator.plant.guests, *simulator.plant.gone]
    return Run({guest.spec.id: guest.truth.result() for guest in guests},
               {guest.spec.id: guest.truth.series for guest in guests},
               rates, decisions)


def record(task: Task) -> dict[str, Any]:
    """Let every detector look at one host.

    Returns ``scenario``, ``seed``, ``victims`` (id -> by how much slower,
    0.2 is a fifth), ``onset_s`` (id -> when it first was a victim's),
    ``antagonists`` (those that have to be named), ``named`` (controller ->
    [victim, antagonist, time_s, signal, cause, right]), ``caps``
    (controller -> most at a time) and ``suspected`` by :data:`CURVE`
    ([victim, suspect, its highest correlation, right]).

    :raises ConfigError: this seed draws what cannot be.
    """
    drawn = task.drawn()
    foreground = [tenant for tenant in drawn.tenants
                  if tenant.priority is Priority.FOREGROUND
                  and tenant.role != ANTAGONIST]
    alone = play(drawn, foreground)
    ours = attribution.Controller(interval_s=drawn.interval_s)
    ours.compare({
        specs.key(None, application, drawn.machine.cpu_model, signal): spec
        for signal in SPECIFIED
        for application, spec in papers.application_specs(
            alone.rates, cpi2.Params(signal=signal), drawn).items()})
    run = play(drawn, drawn.tenants, None if task.enforce else ours)
    decided = run.decisions if not task.enforce else play(
        drawn, drawn.tenants, ours, enforce=True).decisions
    felt = slower(alone.results, run.results)
    victims = {name: by for name, by in felt.items()
               if run.results[name].mean_s is not None}
    antagonists = [tenant.id for tenant in drawn.tenants
                   if tenant.role == ANTAGONIST]
    rightly: dict[str, dict[str, float]] = {}

    def right(victim: str, name: str) -> bool:
        """Return whether a victim is better off without that workload."""
        if name in antagonists:
            return felt.get(victim, 0.0) >= FELT
        if name not in rightly:
            rightly[name] = slower(play(drawn, [
                tenant for tenant in drawn.tenants if tenant.id != name]
            ).results, run.results)
        return rightly[name].get(victim, 0.0) >= FELT

    named: dict[str, list[list[Any]]] = {}
    caps: dict[str, int] = {}
    scores: dict[tuple[str, str], float] = {}
    for name in CONTROLLERS:
        decisions: Iterable[Decision] = decided
        if name != OURS:
            step: Callable[[float, Rates], Decision] = papers.paper(
                name, drawn, alone.rates).step
            if name == CURVE:
                step = _noting(step, scores)
            decisions = (step(rates.time_s, rates) for rates in run.rates)
        named[name], caps[name] = watch(
            zip([rates.time_s for rates in run.rates], decisions,
                strict=True), right)
    return {'scenario': task.scenario.name, 'seed': task.seed,
            'victims': victims, 'onset_s': {
                victim: onset_s(alone.series[victim], run.series[victim],
                                drawn.warmup_s)
                for victim, by in victims.items() if by >= VICTIM},
            'antagonists': antagonists, 'named': named, 'caps': caps,
            'suspected': [[*pair, score, right(*pair)]
                          for pair, score in scores.items()
                          if score >= LEAST_SCORE]}


def set_limits(simulator: Simulator, in_force: Mapping[KnobKey, Value],
               caps: Iterable[Cap]) -> dict[KnobKey, Value]:
    """Set these limits, and no others; return them."""
    wanted = {cap[:2]: cap.value for cap in caps}
    for key in in_force.keys() - wanted.keys():
        simulator.remove(*key)
    for key, value in wanted.items():
        if in_force.get(key) != value:
            simulator.write(*key, value)
    return wanted


def slower(base: Mapping[str, Result],
           run: Mapping[str, Result]) -> dict[str, float]:
    """By how much slower each tenant of both runs is in the second: a service
    by its mean request, a batch by its work."""
    by_tenant = {}
    for name, result in run.items():
        before = base.get(name)
        if before is not None and before.mean_s and result.mean_s:
            by_tenant[name] = result.mean_s / before.mean_s - 1
        elif before is not None and before.mean_s is None:
            by_tenant[name] = max([was / is_ - 1 for was, is_ in (
                (before.cpu_work, result.cpu_work),
                (before.io_ops_per_s, result.io_ops_per_s)) if is_ > 0],
                default=0.0)
    return by_tenant


def onset_s(base: Sequence[tuple[float, float]],
            run: Sequence[tuple[float, float]], after_s: float
            ) -> float | None:
    """Return when a service is first slowed by :data:`VICTIM`, over some
    steps."""
    before, now, ended_s = 0.0, 0.0, after_s + TIME_STEP_S
    for (time_s, base_value), (_, run_value) in zip(base, run, strict=False):
        if time_s <= after_s:
            continue
        if time_s > ended_s:
            if now >= (1 + VICTIM) * before > 0:
                return ended_s - TIME_STEP_S
            before, now, ended_s = 0.0, 0.0, ended_s + TIME_STEP_S
        before += base_value
        now += run_value
    return None


def watch(decisions: Iterable[tuple[float, Decision]],
          right: Callable[[str, str], bool]) -> tuple[list[list[Any]], int]:
    """Return what a detector named first when, and its most caps.

    :param decisions: each with its time in seconds
    """
    named: dict[tuple[str, str], list[Any]] = {}
    caps = 0
    for time_s, decision in decisions:
        caps = max(caps, len(decision.caps))
        for incident in decision.incidents:
            for name in incident.antagonists:
                key = (incident.victim, name)
                if key not in named:
                    named[key] = [*key, time_s, incident.signal,
                                  incident.cause]
    return [[*row, right(row[0], row[1])] for row in named.values()], caps


def _noting(step: Callable[[float, Rates], Decision],
            highest: dict[tuple[str, str], float]
            ) -> Callable[[float, Rates], Decision]:
    """The same detector, of which the highest score is noted of the
    background workload that each analysis suspects most.  Source: CPI2,
    section 7.2.

    :param highest: victim and suspect -> score
    """
    def noted(now: float, rates: Rates) -> Decision:
        decision = step(now, rates)
        background = {workload.id for workload, *_ in rates.workloads
                      if workload.priority is Priority.BACKGROUND}
        for incident in decision.incidents:
            for name, score in incident.suspects:
                if name in background:
                    pair = incident.victim, name
                    highest[pair] = max(score, highest.get(pair, score))
                    break
        return decision

    return noted
