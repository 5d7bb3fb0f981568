# SPDX-License-Identifier: Apache-2.0



"""How victims recover, and what their antagonists keep, once they are capped.

A fresh install enforces on a simulated host.  Beside it, from the moment of
the first cap of its detector on, the antagonists are held at a fifth of what
they use (a static cap) or at CPI2's hard cap, with the antagonists known.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics
from typing import Any
from typing import NamedTuple

import detection

from scavenger_openstack.agent.loop import Tick
from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.laboratory import bench
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

Wanted = Mapping[KnobKey, float]
CapPolicy = Callable[[float, Rates], tuple[Wanted, Sequence[Ask]]]
"""The limits that are to be in force, and what direct evidence is asked of."""

STATIC = 0.2
"""Of what an antagonist uses, left to it: PerfCloud, section IV-B."""

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)
"""Among these is the best static cap, found with hindsight: the loosest
under which the victims are back."""

SETTLE_S = 15.0
"""After the first cap, not judged: three samples, as a trial takes."""

SHORTEST_S = 60.0
"""Of what is judged."""

BACK = 0.1
"""A victim that is slower than undisturbed by no more is back."""

BACK_STEPS = 3
"""Samples of 5 s in a row that have to be so."""

DISK_DEPTH = 0.2
"""Operations under way from which a batch works by the disk."""


class Played(NamedTuple):
    """Truths from ``warmup_s`` on, and all along for the series."""

    results: dict[str, Result]
    series: dict[str, list[tuple[float, float]]]
    caps: list[tuple[float, Wanted]]
    rates: list[Rates]


def play(drawn: Drawn, tenants: Iterable[Tenant],
         controller: CapPolicy | None = None,
         policy: bench.Policy | None = None) -> Played:
    """Run a host; what a controller wants is in force from then on.

    :param policy: of an agent that looks after the host; the caps are then
        those of its detector
    """
    simulator = Simulator(drawn.machine, tenants, seed=drawn.seed,
                          step_s=drawn.step_s, keep=True,
                          floors=bench.FLOORS)
    before = simulator.sample()
    caps: list[tuple[float, Wanted]] = []
    ticks: list[Rates] = []
    held: Wanted = {}
    loop, each = bench.agent(simulator, policy or bench.Policy(),
                             drawn.interval_s)
    if loop is not None:
        loop.tick(simulator.now)
    warm = False
    while simulator.now < drawn.duration_s - 1e-9:
        simulator.advance(drawn.interval_s, each)
        sample = simulator.sample()
        ticks.append(rates_.rates(before, sample))
        before = sample
        if controller is not None:
            wanted, asks = controller(simulator.now, ticks[-1])
            simulator.ask(asks)
            if wanted != held:
                caps.append((simulator.now, wanted))
            held = _enforce(simulator, held, wanted)
        if loop is not None:
            wanted = _detected(loop.tick(simulator.now))
            if wanted != held:
                caps.append((simulator.now, wanted))
            held = wanted
        if not warm and simulator.now >= drawn.warmup_s - 1e-9:
            simulator.plant.reset_truth()
            warm = True
    guests = [*simulator.plant.guests, *simulator.plant.gone]
    return Played(
        {guest.spec.id: guest.truth.result() for guest in guests},
        {guest.spec.id: guest.truth.series for guest in guests},
        caps, ticks)


def _enforce(simulator: Simulator, held: Wanted, wanted: Wanted
             ) -> dict[KnobKey, float]:
    there = {guest.spec.id for guest in simulator.plant.guests}
    for key, value in wanted.items():
        if held.get(key) != value and key[0] in there:
            simulator.write(*key, value)
    for key in held:
        if key not in wanted and key[0] in there:
            simulator.remove(*key)
    return dict(wanted)


def _detected(tick: Tick) -> Wanted:
    """Return the limits of the detector that are in force."""
    return {key: float(cap.value) for key, cap in (
        tick.decided.wanted if tick.decided else {}).items()
        if cap.owner == attribution.Controller.name}


def constant(limits: Wanted, after_s: float) -> CapPolicy:
    """Fixed caps from a moment on."""
    def step(now: float, rates: Rates) -> tuple[Wanted, Sequence[Ask]]:
        there = {rated.workload.id for rated in rates.workloads}
        return {key: max(value, bench.FLOORS[key[1]])
                for key, value in limits.items()
                if now >= after_s and key[0] in there}, ()
    return step


def record(task: detection.Task) -> dict[str, Any]:
    """Return what caps do on one host.

    Returns ``scenario``, ``seed`` and, where victims suffer by 20 % or more,
    ``first_cap_s`` (of the detector, early enough to be judged; else the end
    of the warm-up, since the regulators held the host until then),
    ``back_s`` (from then until all victims together are back, ``None``:
    never), and by policy (``none``, ``ours``, ``static``, ``best``, ``hard``)
    ``slower`` (mean over the victims, 0.2 is a fifth) and ``work`` (mean
    over the antagonists, as a share of what they did without caps).

    :raises ConfigError: this seed draws what cannot be.
    """
    drawn = task.drawn()
    result: dict[str, Any] = {'scenario': task.scenario.name,
                              'seed': task.seed}
    foreground = [tenant for tenant in drawn.tenants
                  if tenant.priority is Priority.FOREGROUND]
    antagonists = [tenant for tenant in drawn.tenants
                   if tenant.role == detection.ANTAGONIST]
    ours = bench.POLICIES['ours']
    first = play(drawn, drawn.tenants, policy=ours)
    began_s = next((time_s for time_s, caps in first.caps if caps), math.inf)
    if began_s > drawn.duration_s - SETTLE_S - SHORTEST_S:
        began_s = drawn.warmup_s
    judged = drawn._replace(warmup_s=float(int(began_s + SETTLE_S)))
    alone = play(judged, foreground)
    none = play(judged, drawn.tenants)
    victims = [name for name, by in _slower(alone, none).items()
               if by >= detection.VICTIM]
    if not victims:
        return result
    full = {_key(tenant): _full(none.rates, _key(tenant))
            for tenant in antagonists}
    hard_caps = cpi2.hard_caps(cpi2.Params())
    hard = {key: hard_caps[key[1]] for key in full}
    runs = {
        'none': none, 'ours': play(judged, drawn.tenants, policy=ours),
        'static': play(judged, drawn.tenants, constant(
            {key: STATIC * use for key, use in full.items()}, began_s)),
        'hard': play(judged, drawn.tenants, constant(hard, began_s))}
    runs['best'] = _best(lambda share: play(
        judged, drawn.tenants, constant(
            {key: share * use for key, use in full.items()}, began_s)),
        lambda run: _mean([_slower(alone, run).get(victim, 0.0)
                           for victim in victims]) <= BACK)
    result |= {
        'first_cap_s': began_s,
        'back_s': back_s(alone, runs['ours'], victims, began_s),
        'slower': {name: _mean([_slower(alone, run).get(victim, 0.0)
                                for victim in victims])
                   for name, run in runs.items()},
        'work': {name: _mean([_work(run, none, tenant)
                              for tenant in antagonists])
                 for name, run in runs.items()}}
    return result


def _best(cap: Callable[[float], Played],
          back: Callable[[Played], bool]) -> Played:
    """The run under the loosest of :data:`SHARES` that brings them back,
    under the tightest when none does.  More helps none of them."""
    low, high = 0, len(SHARES) - 1
    best = cap(SHARES[low])
    while low < high:
        middle = (low + high + 1) // 2
        run = cap(SHARES[middle])
        if back(run):
            low, best = middle, run
        else:
            high = middle - 1
    return best


def _slower(base: Played, run: Played) -> dict[str, float]:
    return detection.slower(base.results, run.results)


def _key(tenant: Tenant) -> KnobKey:
    return tenant.id, (Knob.IO_BYTES_PER_S if tenant.queue_depth > DISK_DEPTH
                       else Knob.CPU_CORES)


def _full(ticks: Iterable[Rates], key: KnobKey) -> float:
    """Return what a workload uses while it works: its 90th percentile."""
    uses = sorted([
        (rated.cpu_cores if key[1] is Knob.CPU_CORES
         else rated.io_bytes_per_s) or 0.0
        for rates in ticks for rated in rates.workloads
        if rated.workload.id == key[0]])
    return uses[int(0.9 * len(uses))] if uses else 0.0


def _work(run: Played, none: Played, tenant: Tenant) -> float:
    """Return the share of its work without caps that a tenant got done."""
    own, all_ = run.results[tenant.id], none.results[tenant.id]
    if _key(tenant)[1] is Knob.CPU_CORES:
        return own.cpu_work / all_.cpu_work if all_.cpu_work else 1.0
    return (own.io_ops_per_s / all_.io_ops_per_s if all_.io_ops_per_s
            else 1.0)


def back_s(alone: Played, run: Played, victims: Sequence[str],
           began_s: float) -> float | None:
    """Return the time from the first cap until the victims are back in
    seconds, ``None`` if never."""
    width = detection.TIME_STEP_S
    sums: dict[int, list[float]] = {}
    for name in victims:
        for place, played in enumerate((alone, run)):
            for time_s, value in played.series.get(name, ()):
                if time_s > began_s:
                    sums.setdefault(int((time_s - began_s - 1e-9) // width),
                                    [0.0, 0.0])[place] += value
    row = 0
    for step in sorted(sums):
        before, now = sums[step]
        row = row + 1 if now <= (1 + BACK) * before else 0
        if row == BACK_STEPS:
            return (step + 1 - BACK_STEPS) * width
    return None


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 1.0
