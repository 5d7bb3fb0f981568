# SPDX-License-Identifier: Apache-2.0


"""One simulated host under one policy: set up, run, judge.

A policy is what looks after the background: nothing, a fixed split, or the
agent's own loop with the controllers of a configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any
from typing import NamedTuple

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision import rates as decision_rates
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.laboratory.agent_parts import InlineExecutor
from scavenger_openstack.laboratory.agent_parts import SimulatedIsolation
from scavenger_openstack.laboratory.agent_parts import SimulatedLeases
from scavenger_openstack.laboratory import presets
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

    :param preset: the configuration of the agent, see :mod:`.presets`;
        ``None`` without one
    :param only: the parts of it that run, by name; empty for all
    :param params: of controllers, by name, in place of the preset's
    :param allocation: constant limits that are set at the start
    :param background: without it the foreground is alone
    :param paper: the detector of a paper that sets limits, by its name in
        :data:`.papers.PAPERS`; its limits keep no floors, of which the
        papers have none
    """

    preset: str | None = None
    only: tuple[str, ...] = ()
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    allocation: Allocation | None = None
    background: bool = True
    paper: str = ''

    def parts(self) -> presets.Preset:
        """Return the controllers that run, and the fast loop."""
        if self.preset is None:
            return presets.Preset({}, None)
        controllers, fast_loop = presets.read(self.preset)
        return presets.Preset(
            {name: self.params.get(name, params)
             for name, params in controllers.items()
             if not self.only or name in self.only},
            fast_loop if not self.only or perfiso.Controller.name in self.only
            else None)


def _single(name: str) -> Policy:
    """Return one controller of the default configuration, by itself."""
    return Policy(preset=presets.DEFAULTS, only=(name,))


POLICIES: Mapping[str, Policy] = {
    'alone': Policy(background=False),
    'none': Policy(),
    'static': Policy(allocation=Allocation(0.5, 0.5, 0.5, 0.5)),
    'scavenger_strict': Policy(preset='scavenger_strict'),
    'perfiso': Policy(preset='perfiso'),
    'cpi2': Policy(preset='cpi2', paper='cpi2'),
    'perfcloud': Policy(preset='perfcloud', paper='perfcloud'),
    **{name: _single(name) for name in conf_agent.CONTROLLERS},
    'ours': Policy(preset=presets.DEFAULTS),
}
"""By name.  ``static`` gives the background half of everything; then the
papers, each controller of ours, and ``ours``, a fresh install."""


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

    :param detector: in place of the controller of its name, with what a
        paper's would know
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
    loop, each = agent(simulator, policy, drawn.interval_s, detector)
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


def agent(simulator: Simulator, policy: Policy, interval_s: float,
          detector: Controller | None = None
          ) -> tuple[Loop | None, Callable[[float], None] | None]:
    """Return the loop of an agent that enforces on a simulated host, and
    what is to be called after each step; ``None`` without them.

    :param detector: in place of the controller of its name
    """
    controllers, fast_loop = policy.parts()
    isolation = None
    if fast_loop is not None:
        isolation = SimulatedIsolation(simulator, fast_loop)
    if not controllers and isolation is None:
        return None, None
    leases = SimulatedLeases(simulator)
    return Loop(
        simulator, [
            (detector if detector is not None and detector.name == name
             else presets.controller_type(name)(
                 params, interval_s=interval_s, host='simulated',
                 boot_id='simulation'), Mode.ENFORCE)
            for name, params in controllers.items()],
        leases, Actuator(simulator, leases, 0.0, InlineExecutor()),
        pathlib.Path('/nonexistent/stop'), require_watcher=False,
        isolation=isolation), isolation.each() if isolation else None


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
