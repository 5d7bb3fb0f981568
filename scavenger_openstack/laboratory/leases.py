# SPDX-License-Identifier: Apache-2.0


"""Leases of a simulated host, which dies with the process."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib

from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value


class SimulatedLeases:
    """What :class:`~.lease.leases.Leases` is to a real host, without disk and
    clock: nothing here outlives the simulation."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._held: Mapping[KnobKey, KnobState] = {}

    def hold(self, workload: str, knob: Knob, actions: Sequence[RestoreAction],
             original: Value | None) -> None:
        if (workload, knob) not in self._held:
            self.replace(workload, knob, actions, original)

    def replace(self, workload: str, knob: Knob,
                actions: Sequence[RestoreAction],
                original: Value | None) -> None:
        state = self._held.get((workload, knob))
        self._show((workload, knob), KnobState(
            Setting(original, actions), state.ours if state else None))

    def wrote(self, workload: str, knob: Knob, ours: Setting | None) -> None:
        state = self._held.get((workload, knob))
        if state is not None:
            self._show((workload, knob), state._replace(ours=ours))

    def held(self) -> Mapping[KnobKey, KnobState]:
        return self._held

    def _show(self, key: KnobKey, state: KnobState) -> None:
        """Bring what :meth:`held` returns up to date; never change it."""
        self._held = {**self._held, key: state}

    @contextlib.contextmanager
    def writing(self, workload: str, knob: Knob) -> Iterator[None]:
        yield

    def remove(self, workload: str, knob: Knob) -> None:
        if (workload, knob) in self._held:
            self._held = {key: state for key, state in self._held.items()
                          if key != (workload, knob)}
            self._simulator.remove(workload, knob)

    def prepare(self, keys: Iterable[KnobKey]) -> None:
        pass

    def remove_all(self) -> list[str]:
        for key in list(self._held):
            self.remove(*key)
        return []

    def check(self) -> None:
        """They never run out."""

    def expired(self) -> bool:
        return False

    def watched(self) -> bool:
        return True

    def lost(self) -> set[KnobKey]:
        return set()

    def reopen(self) -> None:
        """There is nothing to open."""
