# SPDX-License-Identifier: Apache-2.0

"""Direct evidence, from the plant's own truth: what held a resource while a
guest waited for it.

A CPU is held by what runs where the victim may run, in proportion to how much
of that runs; a disk by what it serves, in proportion to the time that this
takes.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

from scavenger_openstack.simulator.cpu import WAKE_IDLE_S
from scavenger_openstack.simulator.cpu import WAKE_NORMAL_S
from scavenger_openstack.simulator.guest import Guest
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.types import Ask
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource


class Window:
    """What is asked of, and what was seen of it so far.

    :param now: when it begins, in seconds
    """

    def __init__(self, asks: Collection[Ask], machine: Machine, now: float
                 ) -> None:
        self._machine = machine
        self._began_s = now
        self._waited_s: dict[Ask, float] = dict.fromkeys(asks, 0.0)
        self._held_s: dict[Ask, dict[str, float]] = {
            ask: {} for ask in asks}
        self._before_s: dict[Ask, float] = {}

    def look(self, guests: Sequence[Guest]) -> None:
        """Take one step of the plant."""
        by_name = {guest.spec.id: guest for guest in guests}
        for ask in self._waited_s:
            name, resource = ask
            victim = by_name.get(name)
            if victim is None:
                continue
            total_s = (victim.run_delay_s if resource is Resource.CPU
                       else victim.io_wait_s)
            waited_s = total_s - self._before_s.get(ask, total_s)
            self._before_s[ask] = total_s
            if waited_s <= 0:
                continue
            weights = (_running(victim, guests) if resource is Resource.CPU
                       else _served(self._machine, guests))
            whole = sum(weights.values())
            self._waited_s[ask] += waited_s
            held_s = self._held_s[ask]
            for holder, weight in weights.items():
                if weight > 0:
                    held_s[holder] = (held_s.get(holder, 0.0)
                                      + waited_s * weight / whole)

    def answers(self, now: float) -> tuple[DirectEvidence, ...]:
        """What was seen, of what can be seen here."""
        return tuple(
            DirectEvidence(*ask, now - self._began_s, waited_s,
                           self._held_s[ask])
            for ask, waited_s in self._waited_s.items()
            if ask[1] in (Resource.CPU, Resource.DISK))


def _running(victim: Guest, guests: Sequence[Guest]) -> Mapping[str, float]:
    """Cores that each runs on the CPUs of a victim.

    No thread waits for itself, and one of the idle class is in the way of the
    others for no longer than it takes to wake up.
    """
    cores: dict[str, float] = {}
    for guest in guests:
        weight = (guest.used * (guest.mask & victim.mask).bit_count()
                  / guest.mask.bit_count())
        if guest is victim:
            weight *= 1 - 1 / max(1, guest.spec.vcpus)
        elif guest.idle_class and not victim.idle_class:
            weight *= WAKE_IDLE_S / WAKE_NORMAL_S
        cores[guest.spec.id] = weight
    return cores


def _served(machine: Machine, guests: Sequence[Guest]) -> Mapping[str, float]:
    """The share of its time that the disk serves each."""
    return {guest.spec.id: guest.io_rate * (
        machine.disk_service_s
        + guest.spec.io_bytes / machine.disk_bytes_per_s)
        for guest in guests if guest.uses_disk}
