# SPDX-License-Identifier: Apache-2.0


"""The machine and its tenants, moved on step by step.

A plant, not a puppet: everything a controller may see comes out of queues,
caches and clocks here, and nothing here knows of controllers.  Only limits
come in, through :class:`~.driver.Simulator`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import math

from scavenger_openstack.simulator import cpu
from scavenger_openstack.simulator.guest import Guest
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.processor import Processor
from scavenger_openstack.simulator import queues
from scavenger_openstack.simulator.requests import Followed
from scavenger_openstack.simulator.requests import PATIENCE_S

FINE_S = 0.05
"""Steps below this follow each request; the rest of the machine is then
moved on every :data:`COARSE_STEPS` of them."""

COARSE_STEPS = 20

DISK_ROUNDS = 5
"""Rounds in which it is found out whose operations are in line; the rates
are right to 1 % then."""

THRASH = 100.0
SLOWEST = 0.1
"""While more memory is wanted than there is, the kernel reclaims what it
needs next: the speed of each is 1 / (1 + THRASH x the share that is
missing), at least SLOWEST.  Not measured; real hosts do far worse."""


def _nothing(guest: Guest) -> None:
    """Do nothing: nothing waits for the new tenant."""


def _no_set() -> None:
    """Do nothing: no CPU set moves within a step."""


class Plant:
    """One host.  Times in seconds since the start.

    :param step_s: 1 for the slow loop alone, 0.001 with the fast one
    :param keep: keep each tenant's performance of each step
    """

    def __init__(self, machine: Machine, tenants: Iterable[Tenant], *,
                 seed: int, step_s: float = 1.0, keep: bool = False) -> None:
        self.machine = machine
        self.step_s = step_s
        self.now = 0.0
        self.fine = step_s < FINE_S
        self.welcome: Callable[[Guest], None] = _nothing
        """Called with each tenant that arrives, before it runs."""
        self.before_cpus: Callable[[], None] = _no_set
        """Called in each step when it is known what CPU time all want."""
        self.waiting = sorted(
            (Guest(tenant, machine, seed=seed, followed=self.fine, keep=keep)
             for tenant in tenants),
            key=lambda guest: guest.spec.arrives_s, reverse=True)
        self.guests: list[Guest] = []
        self.gone: list[Guest] = []
        self.violation_s = 0.0
        self.violations = 0
        self.cpu_busy_s = 0.0
        self.link_tx_bytes = 0.0
        self.refault_bytes = 0.0
        self._short = False
        self._began_s = 0.0
        self._steps = 0
        self._thrash = 1.0
        self._link_wait_s = 0.0
        self._processor = Processor(machine)
        self._come_and_go()

    def step(self) -> None:
        """Move everything on by ``step_s``."""
        self._come_and_go()
        guests, now, dt_s = self.guests, self.now, self.step_s
        coarse = not self.fine or self._steps % COARSE_STEPS == 0
        coarse_s = dt_s * COARSE_STEPS if self.fine else dt_s
        if coarse:
            # First, by what ran before: what asks for CPU time has to know
            # how fast it is, or it asks for too little.
            self._processor.share(guests, now, coarse_s)
            for guest in guests:
                guest.speed = guest.cpi_alone / guest.cpi * self._thrash
        for guest in guests:
            guest.ask(now, dt_s)
        self.before_cpus()
        self._share_cpus()
        if coarse:
            for guest in guests:
                guest.look_back(coarse_s)
            self._share_disk(coarse_s)
            self._share_link(coarse_s)
            self._share_memory(coarse_s)
        hertz = self.machine.hertz
        for guest in guests:
            backlog_s = guest.run(now, dt_s, hertz)
            self.cpu_busy_s += guest.used * dt_s
            self._io_and_net(guest, dt_s)
            self._judge(guest, backlog_s, dt_s)
        self._steps += 1
        self.now = self._began_s + self._steps * dt_s

    def change_step(self, step_s: float) -> None:
        """Go on in steps of ``step_s``, as fine as before or as coarse."""
        if step_s != self.step_s:
            self.step_s, self._began_s, self._steps = step_s, self.now, 0

    def idle_cpus(self) -> int:
        """CPUs on which no thread runs at this moment."""
        threads = 0.0
        for guest in self.guests:
            threads += min(guest.wanted, math.ceil(guest.share - 1e-9))
        return max(0, self.machine.cpus - math.ceil(threads - 1e-9))

    def end(self, name: str) -> None:
        """Kill a tenant."""
        for guest in self.guests:
            if guest.spec.id == name:
                self.guests.remove(guest)
                self.gone.append(guest)
                return

    def reset_truth(self) -> None:
        """Forget what was measured so far: it was warm-up."""
        for guest in [*self.guests, *self.waiting, *self.gone]:
            guest.truth.reset()
        self.violation_s, self.violations = 0.0, 0

    def _come_and_go(self) -> None:
        now = self.now
        while self.waiting and self.waiting[-1].spec.arrives_s <= now:
            self.guests.append(self.waiting.pop())
            self.welcome(self.guests[-1])
        if any(guest.spec.leaves_s <= now for guest in self.guests):
            self.gone += [g for g in self.guests if g.spec.leaves_s <= now]
            self.guests = [g for g in self.guests if g.spec.leaves_s > now]

    def _share_cpus(self) -> None:
        normal = [g for g in self.guests if not g.idle_class]
        idle = [g for g in self.guests if g.idle_class]
        shares = cpu.fill([g.demand for g in normal],
                          [g.weight for g in normal],
                          [g.mask for g in normal])
        for guest, share in zip(normal, shares, strict=True):
            guest.share = share
        if idle:
            shares = cpu.fill(
                [g.demand for g in idle], [g.weight for g in idle],
                [g.mask for g in idle],
                [(g.mask, g.share) for g in normal])
            for guest, share in zip(idle, shares, strict=True):
                guest.share = share
        if self.fine:
            self._wait_to_wake(normal)
        else:
            self._wait_in_queues(normal)

    def _crowd(self, mask: int, guests: Iterable[Guest]) -> float:
        """Cores that some guests run on the CPUs of ``mask``."""
        return sum([g.share * (g.mask & mask).bit_count()
                    / g.mask.bit_count() for g in guests])

    def _wait_to_wake(self, normal: list[Guest]) -> None:
        hogs = [g for g in normal if not g.spec.requests_per_s]
        services = [g for g in normal if g.spec.requests_per_s]
        low = [g for g in self.guests if g.idle_class]
        by_mask: dict[int, float] = {}
        for guest in services:
            mask = guest.mask
            if mask not in by_mask:
                by_mask[mask] = self._wake_s(guest, hogs, services, low)
            guest.waits = by_mask[mask] * guest.speed / guest.spec.cpu_s

    def _wake_s(self, guest: Guest, hogs: list[Guest],
                services: list[Guest], low: list[Guest]) -> float:
        mask = guest.mask
        return cpu.wake_wait(
            self._crowd(mask, hogs), self._crowd(mask, services),
            self._crowd(mask, low), mask.bit_count())

    def _wait_in_queues(self, normal: list[Guest]) -> None:
        """Set how long guests wait inside of a step.

        Those that come and go queue for what those that always run leave
        them: at least their weight's part.
        """
        hogs = [g for g in normal if not g.spec.requests_per_s]
        services = [g for g in normal if g.spec.requests_per_s]
        low = [g for g in self.guests if g.idle_class]
        by_mask: dict[int, float] = {}
        woken: dict[int, float] = {}
        for guest in services:
            mask = guest.mask
            waits = by_mask.get(mask)
            if waits is None:
                size = mask.bit_count()
                theirs = self._crowd(mask, hogs)
                heavy = sum([g.weight for g in hogs if g.mask & mask])
                light = sum([g.weight for g in services if g.mask & mask])
                room = size - min(theirs, size * heavy / (heavy + light))
                variation = (sum([g.spec.arrivals * g.share
                                  for g in services])
                             / (sum([g.share for g in services]) or 1.0)
                             + 0.1) / 2
                waits = by_mask[mask] = cpu.queueing(
                    self._crowd(mask, services), room, variation)
                woken[mask] = self._wake_s(guest, hogs, services, low)
            guest.waits = waits + (woken[mask] * guest.speed
                                   / guest.spec.cpu_s)

    def _share_disk(self, dt_s: float) -> None:
        machine = self.machine
        users = [g for g in self.guests if g.uses_disk]
        if not users:
            return
        each_s = [machine.service_s(guest.spec.io_bytes)
                  for guest in users]
        rates = []
        closed = {}
        open_rate = 0.0
        for i, guest in enumerate(users):
            spec = guest.spec
            if spec.queue_depth:
                depth = 0.0 if guest.paused else (spec.queue_depth
                                                  * guest.level)
                closed[i] = depth, guest.limit_ops
                rates.append(guest.io_rate)
            else:
                rates.append(min(guest.requests_rate * guest.disk_ops,
                                 guest.limit_ops))
                open_rate += rates[-1]
        # How long an operation takes depends on whose it is, and so does
        # how many of them are done on how long they take: half way each
        # time, or it would swing.
        mean_s = 0.0
        for _ in range(DISK_ROUNDS):
            total = sum(rates)
            found_s = (sum([rate * service_s for rate, service_s
                            in zip(rates, each_s, strict=True)]) / total
                       if total else max(each_s))
            if abs(found_s - mean_s) < 0.001 * found_s:
                break
            mean_s = found_s
            response = queues.disk_response(mean_s, open_rate,
                                            list(closed.values()))
            done = {i: queues.closed_rate(mean_s, response, *flow)
                    for i, flow in closed.items()}
            for i, rate in done.items():
                rates[i] = (rates[i] + rate) / 2
        wait_s = response - mean_s
        # More than a disk can do is not done, however long it stands in
        # line.
        most = min(1.0, queues.BUSIEST / (open_rate * mean_s or 1.0))
        for i, guest in enumerate(users):
            guest.io_response_s = each_s[i] + wait_s * guest.uneven.at(dt_s)  # type: ignore[union-attr]
            if i in closed:
                guest.io_rate = done[i]
                if guest.io_rate:
                    guest.io_response_s = closed[i][0] / guest.io_rate
            else:
                guest.io_rate = rates[i] * most

    def _share_link(self, dt_s: float) -> None:
        users = [g for g in self.guests
                 if g.spec.tx_bytes or g.spec.tx_bytes_per_s]
        if not users:
            return
        capacity = self.machine.link_bytes_per_s
        wishes = []
        for guest in users:
            spec = guest.spec
            if spec.tx_bytes:
                wish = (guest.requests_rate * spec.tx_bytes
                        + guest.tx_left / dt_s)
            else:
                wish = 0.0 if guest.paused else (spec.tx_bytes_per_s
                                                 * guest.level)
            wishes.append(wish)
        demands = [min(wish, guest.limit_egress)
                   for wish, guest in zip(wishes, users, strict=True)]
        shares = queues.fair(demands, capacity)
        total = sum(shares)
        self._link_wait_s = queues.link_wait(
            sum(demands) / capacity, capacity,
            self.machine.link_buffer_bytes)
        for guest, wish, share in zip(users, wishes, shares, strict=True):
            guest.tx_rate = share
            # One more transfer would get the rest, or its fair part.
            guest.tx_room = min(guest.limit_egress, max(
                capacity - total + share, capacity / (len(users) + 1)))
            if guest.spec.tx_bytes:
                guest.tx_left = min((wish - share) * dt_s,
                                    PATIENCE_S * guest.tx_room)

    def _share_memory(self, dt_s: float) -> None:
        used = 0.0
        for guest in self.guests:
            guest.grow(self.now, dt_s)
            used += guest.memory_bytes
        free = self.machine.memory_bytes - used
        readers = [g for g in self.guests if g.spec.file_bytes]
        if readers:
            # A limit holds for both, and the page cache goes first.
            rooms = queues.fair(
                [min(g.spec.file_bytes,
                     max(0.0, g.limit_memory - g.memory_bytes))
                 for g in readers], max(0.0, free))
            for guest, room in zip(readers, rooms, strict=True):
                self.refault_bytes += guest.cache_files(room, dt_s)
        short = free < 0
        if short:
            self.violation_s += dt_s
            self.violations += not self._short
        self._short = short
        self._thrash = max(SLOWEST, 1 / (
            1 + THRASH * max(0.0, -free) / self.machine.memory_bytes))

    def _io_and_net(self, guest: Guest, dt_s: float) -> None:
        if guest.io_rate:
            ops = guest.io_rate * dt_s
            guest.io_ops += ops
            guest.io_bytes += ops * guest.spec.io_bytes
            guest.io_wait_s += ops * guest.io_response_s
            guest.truth.io_ops += ops
        if guest.tx_rate:
            sent = guest.tx_rate * dt_s
            guest.tx_bytes += sent
            guest.truth.tx_bytes += sent
            self.link_tx_bytes += sent

    def _judge(self, guest: Guest, backlog_s: float, dt_s: float) -> None:
        """Note what this step was like for the tenant's own users."""
        truth, spec = guest.truth, guest.spec
        truth.seconds += dt_s
        if not spec.requests_per_s:
            if truth.keep:
                truth.series.append((self.now, guest.used * guest.speed
                                     + guest.io_rate + guest.tx_rate))
            return
        fixed_s = extra_s = 0.0
        if guest.uses_disk:
            extra_s = guest.disk_ops * guest.io_response_s
        if spec.tx_bytes:
            fixed_s = self._link_wait_s + min(
                PATIENCE_S, (spec.tx_bytes + guest.tx_left) / guest.tx_room)
        service_s = spec.cpu_s / guest.speed
        extra_s += guest.waits * service_s
        if isinstance(guest.queue, Followed):
            for latency_s in guest.queue.done:
                truth.add(1.0, latency_s + extra_s + fixed_s)
            guest.queue.done.clear()
            return
        fixed_s += backlog_s + 1e-6
        mean_s = 0.0
        for share, latency_s in queues.quantiles(service_s, extra_s,
                                                 fixed_s):
            mean_s += share * latency_s
            if guest.arrived:
                truth.add(guest.arrived * share, latency_s)
        if truth.keep:
            truth.series.append((self.now, mean_s))
