# SPDX-License-Identifier: Apache-2.0

"""Direct evidence, from the plant's own truth: what held a resource while a
guest waited for it.

A CPU is held by what runs where the victim may run, in proportion to how much
of that runs; a disk by the victim's own operation while it is served, and
before by what else it serves, in proportion to the time that this takes; a
link by what is sent while it is full.  What the host writes for others is
theirs, by their shares of the writeback.  Of a cache the shares of the misses
tell, as on a host.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

from scavenger_openstack.algorithms.signals import LINK_FULL
from scavenger_openstack.simulator.cpu import WAKE_IDLE_S
from scavenger_openstack.simulator.cpu import WAKE_NORMAL_S
from scavenger_openstack.simulator.guest import Guest
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.types import Ask
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource


ANSWERED = (Resource.CPU, Resource.DISK, Resource.CACHE, Resource.NETWORK)


class Window:
    """What is asked of, and what was seen of it so far.

    :param now: when it begins, in seconds
    """

    def __init__(self, asks: Collection[Ask], machine: Machine, now: float
                 ) -> None:
        self._machine = machine
        self._topology = machine.topology()
        self._began_s = self._now = now
        self._waited_s: dict[Ask, float] = dict.fromkeys(asks, 0.0)
        self._held_s: dict[Ask, dict[str, float]] = {
            ask: {} for ask in asks}
        self._buffered: set[str] = set()
        self._before: dict[Ask, tuple[float, float]] = {}

    def observe(self, guests: Sequence[Guest], now: float) -> None:
        """Take one step of the plant."""
        passed_s, self._now = now - self._now, now
        by_name = {guest.spec.id: guest for guest in guests}
        self._buffered |= {guest.spec.id for guest in guests
                           if guest.spec.buffered}
        for ask in self._waited_s:
            name, resource = ask
            victim = by_name.get(name)
            if victim is None:
                continue
            held_s = self._held_s[ask]
            if resource not in ANSWERED:
                continue
            if resource is Resource.CPU:
                weights, served_s = _running(victim, guests), 0.0
                total = victim.run_delay_s, 0.0
            elif resource is Resource.CACHE:
                weights, served_s = self._missing(victim, guests), 0.0
                total = victim.cpu_s, 0.0
            elif resource is Resource.NETWORK:
                weights, served_s = _sent(victim, guests), 0.0
                full = sum(weights.values()) >= (
                    LINK_FULL * self._machine.link_bytes_per_s)
                total = (self._before.get(ask, (0.0, 0.0))[0]
                         + (passed_s if full else 0.0)), 0.0
            else:
                weights = _served(self._machine, guests)
                served_s = self._machine.service_s(victim.spec.io_bytes)
                total = victim.io_wait_s, victim.io_ops
            before = self._before.get(ask, total)
            self._before[ask] = total
            waited_s = total[0] - before[0]
            if waited_s <= 0:
                continue
            self._waited_s[ask] += waited_s
            own_s = min(waited_s, served_s * (total[1] - before[1]))
            held_s[name] = held_s.get(name, 0.0) + own_s
            waited_s -= own_s
            whole = sum(weights.values())
            for holder, weight in weights.items():
                if weight > 0:
                    held_s[holder] = (held_s.get(holder, 0.0)
                                      + waited_s * weight / whole)

    def answers(self, now: float) -> tuple[DirectEvidence, ...]:
        """Return what was seen, of what can be seen here."""
        return tuple(
            DirectEvidence(*ask, now - self._began_s, waited_s,
                           self._held_s[ask],
                           shared=ask[1] is Resource.CACHE,
                           by_share=tuple(sorted(
                               self._buffered & self._held_s[ask].keys()
                               if ask[1] is Resource.DISK else ())))
            for ask, waited_s in self._waited_s.items()
            if ask[1] in ANSWERED
            and (self._machine.pmu or ask[1] is not Resource.CACHE))

    def _missing(self, victim: Guest, guests: Sequence[Guest]
                 ) -> Mapping[str, float]:
        """Misses per second of each, of those that share a cache."""
        caches = self._caches(victim)
        return {guest.spec.id: guest.used * self._machine.hertz / guest.cpi
                * guest.spec.accesses * guest.misses
                for guest in guests if caches & self._caches(guest)}

    def _caches(self, guest: Guest) -> set[int]:
        return {place.llc for cpu, place in self._topology.items()
                if guest.mask >> cpu & 1}


def _sent(victim: Guest, guests: Sequence[Guest]) -> Mapping[str, float]:
    """Bytes per second of each; none if the victim sends nothing."""
    return {guest.spec.id: guest.tx_rate for guest in guests
            } if victim.tx_rate > 0 else {}


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
    return {guest.spec.id: guest.io_rate * machine.service_s(
        guest.spec.io_bytes) for guest in guests if guest.uses_disk}
