# SPDX-License-Identifier: Apache-2.0


"""One simulated host under one policy: set up, run, judge.

A policy is what looks after the background: nothing, a fixed split, or the
agent's own loop with some of the controllers.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import NamedTuple

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision import rates as decision_rates
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.laboratory.agent_parts import InlineExecutor
from scavenger_openstack.laboratory.agent_parts import SimulatedIsolation
from scavenger_openstack.laboratory.agent_parts import SimulatedLeases
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

FLOORS = dict(DEFAULT_FLOORS)


class Allocation(NamedTuple):
    """A constant split: what all of the background has together.

    Shares of the machine's CPUs, memory, link and disk; ``None`` for no
    limit.  ``idle``: it runs only where nothing else wants to.
    """

    cpus: float | None = None
    memory: float | None = None
    link: float | None = None
    disk: float | None = None
    idle: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """What looks after the background.

    :param params: of Scavenger, ``None`` without it
    :param isolation: whether the fast loop runs
    :param allocation: constant limits that are set at the start
    :param background: without it the foreground is alone
    :param paper: the detector of a paper that sets limits, by its name in
        :data:`.papers.PAPERS`; its limits keep no floors, of which the
        papers have none
    """

    params: scavenger.Params | None = None
    isolation: bool = False
    allocation: Allocation | None = None
    background: bool = True
    paper: str = ''


def scavenger_alone() -> scavenger.Params:
    """The rules of the paper, without ``cpu.idle`` and what goes with it.

    With the least headroom and the smoothing, least deviation and gate of
    the IPC, which are ours.
    """
    return scavenger.Params(use_cpu_idle=False)


POLICIES: Mapping[str, Policy] = {
    'alone': Policy(background=False),
    'none': Policy(),
    'static': Policy(allocation=Allocation(0.5, 0.5, 0.5, 0.5)),
    'scavenger': Policy(params=scavenger_alone()),
    'perfiso': Policy(isolation=True),
    'cpi2': Policy(paper='cpi2'),
    'perfcloud': Policy(paper='perfcloud'),
    'ours': Policy(params=scavenger.Params(), isolation=True),
}
"""By name.  ``static`` gives the background half of everything."""


class Outcome(NamedTuple):
    """The results of each tenant: the truth that no controller sees.

    ``violations`` counts the times at which more memory was wanted than
    there was, ``violation_s`` how long; ``writes`` those of the agent.
    """

    tenants: dict[str, Result]
    violations: int
    violation_s: float
    kills: int
    writes: int


def run(drawn: Drawn, policy: Policy, *, detector: Controller | None = None,
        ticks: list[Rates] | None = None) -> Outcome:
    """Simulate one scenario of one seed under one policy.

    :param detector: of a policy of a paper
    :param ticks: to which what happened in each interval is added
    """
    tenants = [tenant for tenant in drawn.tenants
               if policy.background
               or tenant.priority is Priority.FOREGROUND]
    warm = drawn.warmup_s <= 0
    simulator = Simulator(
        drawn.machine, tenants, seed=drawn.seed,
        floors={} if policy.paper else FLOORS,
        step_s=drawn.step_s if warm else drawn.warmup_step_s)
    fast = policy.isolation and drawn.step_s < drawn.interval_s
    isolation = SimulatedIsolation(simulator) if fast else None
    loop = None
    if (policy.params is not None or isolation is not None
            or detector is not None):
        leases = SimulatedLeases(simulator)
        controllers: list[tuple[Controller, Mode]] = []
        if policy.params is not None:
            controllers.append((scavenger.Controller(
                policy.params, interval_s=drawn.interval_s,
                host='simulated', boot_id='simulation'), Mode.ENFORCE))
        if detector is not None:
            controllers.append((detector, Mode.ENFORCE))
        loop = Loop(simulator, controllers, leases,
                    Actuator(simulator, leases, 0.0, InlineExecutor()),
                    pathlib.Path('/nonexistent/stop'),
                    require_watcher=False, isolation=isolation)
    each = isolation.each() if isolation is not None else None
    if loop is not None:
        loop.tick(simulator.now)
    before = simulator.sample() if ticks is not None else None
    while simulator.now < drawn.duration_s - 1e-9:
        if policy.allocation is not None:
            allocate(simulator, policy.allocation, drawn)
        simulator.advance(drawn.interval_s, each)
        if loop is not None:
            loop.tick(simulator.now)
        if ticks is not None:
            sample = simulator.sample()
            ticks.append(decision_rates.rates(before, sample))
            before = sample
        if not warm and simulator.now >= drawn.warmup_s - 1e-9:
            simulator.plant.reset_truth()
            simulator.plant.change_step(drawn.step_s)
            warm = True
    plant = simulator.plant
    return Outcome(
        {guest.spec.id: guest.truth.result()
         for guest in [*plant.guests, *plant.gone]},
        plant.violations, plant.violation_s, len(simulator.kills),
        loop.counters['writes'] if loop is not None else 0)


def allocate(simulator: Simulator, allocation: Allocation,
             drawn: Drawn) -> None:
    """Put a constant split in force, for those that are there by now.

    Each background tenant has the part of its vCPUs, but not below its
    floors; where the CPUs are not limited, neither are they bound.
    """
    machine = drawn.machine
    background = [guest.spec for guest in simulator.plant.guests
                  if guest.spec.priority is Priority.BACKGROUND]
    if not background:
        return
    vcpus = sum([spec.vcpus for spec in background])
    disk_ops = 1 / (machine.disk_service_s + sum(
        [spec.io_bytes for spec in background]) / len(background)
        / machine.disk_bytes_per_s)
    if allocation.idle:
        _set(simulator, GROUP, Knob.CPU_IDLE, 1)
    if allocation.cpus is not None:
        count = min(machine.cpus,
                    max(1, round(allocation.cpus * machine.cpus)))
        # Whole cores, as the agent takes them.
        core = {cpu: where.core for cpu, where in machine.topology().items()}
        _set(simulator, GROUP, Knob.CPU_SET, format_cpus(
            sorted(core, key=lambda cpu: (core[cpu], cpu))[-count:]))
    for spec in background:
        part = spec.vcpus / vcpus
        for knob, share, capacity in (
                (Knob.CPU_CORES, allocation.cpus, machine.cpus),
                (Knob.MEMORY_BYTES, allocation.memory, machine.memory_bytes),
                (Knob.EGRESS_BYTES_PER_S, allocation.link,
                 machine.link_bytes_per_s),
                (Knob.IO_OPS_PER_S, allocation.disk, disk_ops)):
            if share is not None:
                _set(simulator, spec.id, knob,
                     max(FLOORS[knob], share * capacity * part))


def _set(simulator: Simulator, name: str, knob: Knob,
         value: float | str) -> None:
    if simulator.read(name, knob) != value:
        try:
            simulator.write(name, knob, value)
        except errors.Refused:
            pass    # it holds more already; asked again at the next turn
