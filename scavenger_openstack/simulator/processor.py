# SPDX-License-Identifier: Apache-2.0


"""What an instruction costs, by what the processors' users share."""

from __future__ import annotations

from collections.abc import Sequence

from scavenger_openstack.simulator import cache
from scavenger_openstack.simulator import cpu
from scavenger_openstack.simulator.guest import Guest
from scavenger_openstack.simulator.machine import Machine


class Processor:
    """Cores, last-level caches and memory buses of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        topology = machine.topology()
        self._llc = [sum(1 << n for n, place in topology.items()
                         if place.llc == llc)
                     for llc in range(machine.llcs)]
        self._numa = [next(place.numa for place in topology.values()
                           if place.llc == llc)
                      for llc in range(machine.llcs)]
        self._bus = [1.0] * machine.numa_nodes
        """Latency of each bus over the unloaded one."""

    def share(self, guests: Sequence[Guest], now: float,
              dt_s: float) -> None:
        """CPI of each guest, from what each holds of each cache."""
        slow = [own * shared for own, shared in zip(
            [guest.wander(now, dt_s) for guest in guests],
            self._share_cores(guests), strict=True)]
        misses = self._share_caches(guests)
        miss_cycles = self._machine.miss_s * self._machine.hertz
        stall = [guest.spec.accesses * (1 - guest.spec.overlap) * miss_cycles
                 for guest in guests]
        self._share_buses(guests, slow, stall, misses)
        for i, guest in enumerate(guests):
            reach = sum([wait * missed[i] for wait, missed
                         in zip(self._bus, misses, strict=True)])
            guest.cpi = slow[i] * (guest.spec.cpi + stall[i] * reach)

    def _share_cores(self, guests: Sequence[Guest]) -> list[float]:
        """Return by which factor busy siblings slow down each tenant."""
        machine = self._machine
        if machine.threads_per_core == 1:
            return [1.0] * len(guests)
        by_mask: dict[int, float] = {}
        slow = []
        for guest in guests:
            # A sibling slows down from outside of the CPU set, too.
            mask = cpu.whole_cores(guest.mask, machine.cpus // 2)
            if mask not in by_mask:
                crowd = sum([g.cores * (g.mask & mask).bit_count()
                             / g.mask.bit_count() for g in guests])
                busy = cpu.sibling_busy(crowd, mask.bit_count())
                by_mask[mask] = 1 / (1 - (1 - machine.smt_yield) * busy)
            slow.append(by_mask[mask])
        return slow

    def _share_caches(self, guests: Sequence[Guest]) -> list[list[float]]:
        """Misses per access of each tenant, by memory node.

        Twice: what misses changes what is held, and the other way round.
        """
        hertz = self._machine.hertz
        parts = [[(guest.mask & llc).bit_count() / guest.mask.bit_count()
                  for guest in guests] for llc in self._llc]
        footprints = [guest.spec.footprint_bytes for guest in guests]
        for _ in range(2):
            rates = [guest.cores * hertz / guest.cpi * guest.spec.accesses
                     for guest in guests]
            by_node = [[0.0] * len(guests) for _ in self._bus]
            for llc, part in enumerate(parts):
                put = [rate * share * (
                    cache.REFRESH + (1 - cache.REFRESH) * guest.misses)
                    for rate, share, guest
                    in zip(rates, part, guests, strict=True)]
                held = cache.occupancy(put, footprints,
                                       self._machine.llc_bytes)
                misses = by_node[self._numa[llc]]
                for i, guest in enumerate(guests):
                    if part[i]:
                        spec = guest.spec
                        guest.held[llc] = held[i]
                        misses[i] += part[i] * cache.miss_ratio(
                            spec.miss_least, spec.miss_most,
                            spec.footprint_bytes, held[i], spec.miss_curve)
            for i, guest in enumerate(guests):
                # Half way, or it would swing.  What does not run holds
                # nothing when it comes back.
                guest.misses = (
                    (guest.misses + sum([node[i] for node in by_node])) / 2
                    if guest.cores else guest.spec.miss_most)
        return by_node

    def _share_buses(self, guests: Sequence[Guest], slow: Sequence[float],
                     stall: Sequence[float],
                     misses: Sequence[Sequence[float]]) -> None:
        """Set the latency of each bus, as its users make it."""
        machine, bus = self._machine, self._bus
        # Share of the bandwidth that one miss per cycle takes.
        per_miss = (machine.hertz * cache.LINE_BYTES * cache.WRITE_BACK
                    / machine.memory_bytes_per_s)
        for numa, here in enumerate(misses):
            rest = [0.0] * len(guests)
            for other, theirs in enumerate(misses):
                if other != numa:
                    rest = [wait + bus[other] * missed for wait, missed
                            in zip(rest, theirs, strict=True)]
            bus[numa] = cache.bus_latency(
                [(per_miss * guest.cores * guest.spec.accesses * missed,
                  slow[i] * (guest.spec.cpi + stall[i] * rest[i]),
                  slow[i] * stall[i] * missed)
                 for i, (guest, missed) in enumerate(
                     zip(guests, here, strict=True))
                 if guest.cores], bus[numa])
