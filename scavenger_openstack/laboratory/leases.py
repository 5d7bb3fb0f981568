# SPDX-License-Identifier: Apache-2.0


"""Leases of a simulated host, which dies with the process."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib

from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.restore.records import Lease
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value


class SimulatedLeases:
    """What :class:`~.lease.leases.Leases` is to a real host, without disk and
    clock: nothing here outlives the simulation."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._held: dict[KnobKey, Lease] = {}

    def hold(self, workload: str, knob: Knob, actions: Sequence[RestoreAction],
             original: Value | None) -> None:
        if (workload, knob) not in self._held:
            self.replace(workload, knob, actions, original)

    def replace(self, workload: str, knob: Knob,
                actions: Sequence[RestoreAction],
                original: Value | None) -> None:
        self._held[workload, knob] = Lease(workload, knob, '', actions,
                                           original)

    def original(self, workload: str, knob: Knob) -> Value | None:
        lease = self._held.get((workload, knob))
        found: Value | None = lease.original if lease else None
        return found

    def held(self) -> Mapping[KnobKey, Lease]:
        return self._held

    @contextlib.contextmanager
    def writing(self, workload: str, knob: Knob) -> Iterator[None]:
        yield

    def remove(self, workload: str, knob: Knob) -> None:
        if self._held.pop((workload, knob), None) is not None:
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
