# SPDX-License-Identifier: Apache-2.0


"""Blind isolation on a simulated host: the fast loop without a thread."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.agent.base import Leaser
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision import settle
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.types import Cap
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Rates


class SimulatedIsolation:
    """Stands where :class:`.isolation.blind_isolation.BlindIsolation` does;
    :meth:`poll` is called after each step of the plant.

    The same controller moves the set; nothing else writes here, so there
    are no threads, originals or drift to look after.
    """

    def __init__(self, simulator: Simulator,
                 params: perfiso.Params | None = None) -> None:
        self.mode = Mode.ENFORCE
        self.exempt: frozenset[str] = frozenset()
        self._simulator = simulator
        topology = simulator.sample().topology
        self._allowed = frozenset(topology)
        self._controller = perfiso.Controller(
            params, topology=topology, current=self._allowed)
        self._cpus: frozenset[int] | None = None
        self._polls = 0
        self._shortage = perfiso.Shortage()

    @property
    def active(self) -> bool:
        return self._controller.buffer_cores > 0

    def poll(self, now: float) -> None:
        """One look at the idle CPUs, and a new set when they ask for it."""
        self._polls += 1
        cpus = self._controller.step(
            now, self._simulator.plant.idle_cpus(), self._allowed)
        if cpus is not self._cpus:
            self._cpus = cpus
            self._simulator.write(GROUP, Knob.CPU_SET, format_cpus(cpus))

    def each(self) -> Callable[[float], None] | None:
        return self.poll if self.active else None

    def owns(self, key: KnobKey) -> bool:
        return self.active and key == (GROUP, Knob.CPU_SET)

    def follow(self, wishes: Sequence[Cap], rates: Rates, held_back: bool,
               leaser: Leaser) -> settle.FastLoopState:
        """What the fast loop does, and its floors when short."""
        if not self.active:
            return settle.NO_FAST_LOOP
        self._allowed = frozenset(rates.topology)
        for cap in wishes:
            if self.owns((cap.workload, cap.knob)):
                self._allowed &= parse_cpus(str(cap.value))
        return settle.FastLoopState((GROUP,), self._floors(rates))

    def _floors(self, rates: Rates) -> tuple[Cap, ...]:
        return (perfiso.quota_floors(rates) if self._shortage.look(
            self._polls, self._controller.short_steps) else ())

    def stop(self) -> settle.FastLoopState:
        """No thread runs here."""
        return settle.NO_FAST_LOOP

    def facts(self) -> dict[str, Any]:
        return {}
