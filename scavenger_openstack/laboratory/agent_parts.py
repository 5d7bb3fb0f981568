# SPDX-License-Identifier: Apache-2.0

"""The agent's leases, fast loop and writes on a simulated host, without disk,
clock and threads: there are thousands of hosts in one process."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from typing import Any

from scavenger_openstack.agent.apply.worker import Job
from scavenger_openstack.agent.base import Leaser
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision import settle
from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack import errors
from scavenger_openstack.laboratory import settled_set
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack import types


class SimulatedLeases:
    """What :class:`~.lease.leases.Leases` is to a real host, without disk and
    clock: nothing here outlives the simulation."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._held: Mapping[types.KnobKey, KnobState] = {}

    def hold(self, workload: str, knob: types.Knob,
             actions: Sequence[RestoreAction],
             original: types.Value | None) -> None:
        if (workload, knob) not in self._held:
            self.replace(workload, knob, actions, original)

    def replace(self, workload: str, knob: types.Knob,
                actions: Sequence[RestoreAction],
                original: types.Value | None) -> None:
        state = self._held.get((workload, knob))
        self._show((workload, knob), KnobState(
            Setting(original, actions), state.ours if state else None))

    def wrote(self, workload: str, knob: types.Knob, ours: Setting | None
              ) -> None:
        state = self._held.get((workload, knob))
        if state is not None:
            self._show((workload, knob), state._replace(ours=ours))

    def held(self) -> Mapping[types.KnobKey, KnobState]:
        return self._held

    def _show(self, key: types.KnobKey, state: KnobState) -> None:
        """Bring what :meth:`held` returns up to date; never change it."""
        self._held = {**self._held, key: state}

    @contextlib.contextmanager
    def writing(self, workload: str, knob: types.Knob) -> Iterator[None]:
        yield

    def remove(self, workload: str, knob: types.Knob) -> None:
        if (workload, knob) in self._held:
            self._held = {key: state for key, state in self._held.items()
                          if key != (workload, knob)}
            self._simulator.remove(workload, knob)

    def prepare(self, keys: Iterable[types.KnobKey]) -> None:
        pass

    def remove_all(self) -> list[str]:
        for key in list(self._held):
            self.remove(*key)
        return []

    def check(self) -> None:
        """Do nothing: these leases never run out."""

    def expired(self) -> bool:
        return False

    def watched(self) -> bool:
        return True

    def lost(self) -> set[types.KnobKey]:
        return set()

    def reopen(self) -> None:
        """Do nothing: there is nothing to open."""


class SimulatedIsolation:
    """Stands where :class:`.isolation.blind_isolation.BlindIsolation` does.

    In steps of milliseconds :meth:`poll` is called after each, and the same
    controller moves the set.  In longer ones the set is that at which it
    settles within the step, see :mod:`.settled_set`.  Nothing else writes
    here, so there are no threads, originals or drift to look after.
    """

    def __init__(self, simulator: Simulator,
                 params: perfiso.Params | None = None) -> None:
        self.mode = types.Mode.ENFORCE
        self.exempt: frozenset[str] = frozenset()
        self._simulator = simulator
        topology = simulator.sample().topology
        self._allowed = frozenset(topology)
        self._controller = perfiso.Controller(
            params, topology=topology, current=self._allowed)
        self._settled = settled_set.SettledSet(
            params or perfiso.Params(), topology)
        self._cpus: frozenset[int] | None = None
        self._polls = self._short = 0
        self._shortage = perfiso.Shortage()
        if self.active and not simulator.plant.fine:
            simulator.plant.before_cpus = self._settle

    @property
    def active(self) -> bool:
        return self._controller.buffer_cores > 0

    def poll(self, now: float) -> None:
        """Read the idle CPUs once, and write a new set when they need it."""
        self._polls += 1
        self._write(self._controller.step(
            now, self._simulator.plant.idle_cpus(), self._allowed))
        self._short = self._controller.short_steps

    def _settle(self) -> None:
        """Write the set at which the loop settles in the coming step."""
        plant = self._simulator.plant
        settled = self._settled.step(
            plant.guests, plant.step_s, plant.machine.cpus, self._allowed)
        self._polls += settled.moments
        self._short += settled.short
        self._write(settled.cpus)

    def _write(self, cpus: frozenset[int]) -> None:
        if cpus is not self._cpus:
            self._cpus = cpus
            try:
                self._simulator.write(GROUP, types.Knob.CPU_SET,
                                      types.format_cpus(cpus))
            except errors.WorkloadGone:
                self._cpus = None       # no background is there

    def each(self) -> Callable[[float], None] | None:
        return (self.poll if self.active and self._simulator.plant.fine
                else None)

    def owns(self, key: types.KnobKey) -> bool:
        return self.active and key == (GROUP, types.Knob.CPU_SET)

    def follow(self, wishes: Sequence[types.Cap], rates: types.Rates,
               held_back: bool, leaser: Leaser) -> settle.FastLoopState:
        """Return what the fast loop does, and its floors when short."""
        if not self.active:
            return settle.NO_FAST_LOOP
        self._allowed = frozenset(rates.topology)
        for cap in wishes:
            if self.owns((cap.workload, cap.knob)):
                self._allowed &= types.parse_cpus(str(cap.value))
        return settle.FastLoopState((GROUP,), self._floors(rates))

    def _floors(self, rates: types.Rates) -> tuple[types.Cap, ...]:
        return (perfiso.quota_floors(rates) if self._shortage.update(
            self._polls, self._short) else ())

    def stop(self) -> settle.FastLoopState:
        """Do nothing: no thread runs here."""
        return settle.NO_FAST_LOOP

    def facts(self) -> dict[str, Any]:
        return {}


class InlineExecutor:
    """Writes at once, where :class:`.apply.worker.Worker` has a thread."""

    def __init__(self) -> None:
        self.pending: set[types.KnobKey] = set()

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        for job in jobs:
            job.do()
        return [True] * len(jobs)
