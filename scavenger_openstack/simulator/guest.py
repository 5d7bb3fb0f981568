# SPDX-License-Identifier: Apache-2.0


"""One tenant while it runs: what it wants, has, and has counted."""

from __future__ import annotations

import math
import random

from scavenger_openstack.simulator.cache import miss_ratio
from scavenger_openstack.simulator.load import CONSTANT
from scavenger_openstack.simulator.load import Load
from scavenger_openstack.simulator.load import Noise
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.requests import Fluid
from scavenger_openstack.simulator.requests import Followed
from scavenger_openstack.simulator.truth import Truth

CPI_MEMORY_S = 2.0
"""How long the noise of a tenant's CPI stays what it is."""

QUOTA_PERIOD_S = 0.1
"""How often the kernel renews a quota; only short steps can tell."""

UNEVEN = 0.3
UNEVEN_MEMORY_S = 10.0
"""A disk's queue is not equally long for all: spread and memory of the
logarithm of what one tenant waits over what they wait on average.  A choice
of ours; without it the deviation between alike VMs would not grow."""


class Guest:
    """State of one tenant; :class:`~.plant.Plant` moves it on.

    Fields in seconds, cores and bytes; those that end in ``_rate`` are per
    second over the last step.
    """

    __slots__ = (
        'spec', 'load', 'memory_load', 'level', 'queue', 'followed', 'noise',
        'uneven', 'cpus', 'cpi_alone', 'cpi', 'cpi_load', 'speed', 'held',
        'misses', 'truth', 'arrived', 'wanted', 'demand', 'share', 'used',
        'waits', 'mask', 'idle_class', 'paused', 'limit_cores',
        'limit_memory', 'limit_egress', 'limit_ops', 'weight', 'tx_left',
        'cpu_s', 'run_delay_s', 'throttled_s', 'cycles', 'instructions',
        'llc_misses', 'io_wait_s', 'io_ops', 'io_bytes', 'tx_bytes',
        'memory_bytes', 'file_bytes', 'read_bytes', 'refault_bytes',
        'disk_ops', 'uses_disk', 'io_rate',
        'io_response_s', 'tx_rate', 'tx_room', 'requests_rate', 'cores',
        '_came', '_cpu_before_s', '_period', '_quota_from_s')

    def __init__(self, spec: Tenant, machine: Machine, *, seed: int,
                 followed: bool, keep: bool) -> None:
        self.spec = spec
        # Its own numbers, so that taking one tenant away leaves the others
        # just as they were.
        random_ = random.Random(f'{seed}:{spec.id}')
        self.load = Load(spec.phases, noise=spec.load_noise,
                         repeat=spec.repeat, random_=random_)
        self.memory_load = Load(spec.memory_phases, noise=spec.memory_noise,
                                repeat=spec.repeat, random_=random_)
        self.cpi_load = (None if spec.cpi_phases is CONSTANT else
                         Load(spec.cpi_phases, noise=0.0,
                              repeat=spec.repeat, random_=random_))
        self.noise = (Noise(spec.cpi_noise, CPI_MEMORY_S, random_)
                      if spec.cpi_noise else None)
        self.uses_disk = bool(spec.io_ops or spec.file_ops
                              or spec.queue_depth)
        self.uneven = (Noise(UNEVEN, UNEVEN_MEMORY_S, random_)
                       if self.uses_disk else None)
        self.level = 0.0
        self.followed = followed
        self.queue: Fluid | Followed = (Followed if followed else Fluid)(
            spec.arrivals, random_)
        self.cpus = sum(1 << cpu for cpu in (
            spec.pinned or range(machine.cpus)))
        self.cpi_alone = spec.cpi + spec.accesses * machine.hertz * (
            machine.miss_s * (1 - spec.overlap) * miss_ratio(
                spec.miss_least, spec.miss_most, spec.footprint_bytes,
                machine.llc_bytes, spec.miss_curve))
        self.cpi = self.cpi_alone
        self.speed = 1.0
        self.held = [0.0] * machine.llcs
        self.misses = spec.miss_least
        self.truth = Truth(keep)
        self.arrived = self.wanted = self.demand = self.share = 0.0
        self.used = self.waits = 0.0
        self.mask = self.cpus
        self.idle_class = self.paused = False
        self.limit_cores = spec.quota_cores or math.inf
        self.limit_memory = self.limit_egress = self.limit_ops = math.inf
        self.weight = spec.weight or float(spec.vcpus)
        self.tx_left = 0.0
        self.cpu_s = self.run_delay_s = self.throttled_s = 0.0
        self.cycles = self.instructions = self.llc_misses = 0.0
        self.io_wait_s = self.io_ops = self.io_bytes = self.tx_bytes = 0.0
        self.memory_bytes = (0.0 if spec.memory_growth_bytes_per_s
                             else spec.memory_bytes)
        # What serves files has read them before we look.
        self.file_bytes = spec.file_bytes if spec.requests_per_s else 0.0
        self.read_bytes = self.file_bytes
        self.refault_bytes = 0.0
        self.disk_ops = spec.io_ops
        self.io_rate = self.io_response_s = 0.0
        self.tx_rate = 0.0
        self.tx_room = math.inf
        self.requests_rate = self.cores = 0.0
        self._came = self._cpu_before_s = 0.0
        self._period, self._quota_from_s = -1, 0.0

    def ask(self, now: float, dt_s: float) -> None:
        """Find out what it wants in the coming step."""
        spec = self.spec
        level = self.level = self.load.at(now, dt_s)
        if spec.requests_per_s:
            self.arrived = self.queue.arrive(
                now, spec.requests_per_s * level * dt_s, spec.cpu_s)
            self._came += self.arrived
            wanted = self.queue.wanted(dt_s, self.speed)
        else:
            wanted = spec.threads * level
        if self.paused:
            wanted = 0.0
        self.wanted = min(wanted, float(spec.vcpus))
        self.demand = min(self.wanted, self.limit_cores)
        if self.followed and self.limit_cores < math.inf:
            self.demand = min(self.wanted, self._budget(now, dt_s))

    def _budget(self, now: float, dt_s: float) -> float:
        """Cores that its quota still allows in this step.

        In each period it runs as wide as it likes until the quota is used
        up, and then not at all.
        """
        period = int(now / QUOTA_PERIOD_S + 1e-6)
        if period != self._period:
            self._period = period
            self._quota_from_s = self.cpu_s
        left_s = (self.limit_cores * QUOTA_PERIOD_S
                  - (self.cpu_s - self._quota_from_s))
        return max(0.0, left_s) / dt_s

    def look_back(self, passed_s: float) -> None:
        """Requests and cores per second over the last ``passed_s``.

        Steps of a millisecond say too little each.
        """
        self.requests_rate = self._came / passed_s
        self._came = 0.0
        if self.followed:
            self.cores = (self.cpu_s - self._cpu_before_s) / passed_s
            self._cpu_before_s = self.cpu_s
        else:
            self.cores = self.share

    def wander(self, now: float, dt_s: float) -> float:
        """Return by how much its CPI differs now by its own doing."""
        factor = 1.0 if self.noise is None else self.noise.at(dt_s)
        if self.cpi_load is not None:
            factor *= self.cpi_load.at(now, dt_s)
        return factor

    def run(self, now: float, dt_s: float, hertz: float) -> float:
        """Use the CPU time; seconds that its requests wait for the rest."""
        spec, share, speed = self.spec, self.share, self.speed
        self.used, backlog_s = share, 0.0
        if spec.requests_per_s:
            self.used, backlog_s = self.queue.serve(
                now, share, spec.vcpus, dt_s, speed)
        cpu_s = self.used * dt_s
        throttled_s = (self.wanted - self.demand) * dt_s
        self.cpu_s += cpu_s
        self.throttled_s += throttled_s
        # The kernel counts the time under an own quota as waiting, too.
        self.run_delay_s += (
            max(0.0, self.wanted - max(share, self.used)) * dt_s
            + cpu_s * self.waits)
        instructions = cpu_s * hertz / self.cpi
        self.cycles += cpu_s * hertz
        self.instructions += instructions
        self.llc_misses += instructions * spec.accesses * self.misses
        self.truth.cpu_work_s += cpu_s * speed
        return backlog_s

    def grow(self, now: float, dt_s: float) -> None:
        """Take or give back memory."""
        spec = self.spec
        goal = spec.memory_bytes * self.memory_load.at(now, dt_s)
        if spec.memory_growth_bytes_per_s:
            room = (0.0 if self.paused else
                    spec.memory_growth_bytes_per_s * dt_s)
            goal = min(goal, self.memory_bytes + room)
        # A limit takes nothing back; it only keeps from growing.
        goal = min(goal, max(self.limit_memory, self.memory_bytes))
        self.memory_bytes = goal
        self.truth.memory_byte_s += goal * dt_s

    def cache_files(self, room_bytes: float, dt_s: float) -> float:
        """Keep in the page cache what was read, and what has room; return how
        much of it had been there before."""
        spec = self.spec
        read = self.io_rate * spec.io_bytes * dt_s
        held = self.file_bytes + read
        if spec.file_ops:
            read *= 1 - spec.io_ops / (self.disk_ops or 1.0)
        # What was never in the page cache cannot come back to it.
        again = max(0.0, read - max(0.0, spec.file_bytes - self.read_bytes))
        self.refault_bytes += again
        self.read_bytes += read
        held = self.file_bytes = max(
            0.0, min(held, room_bytes, spec.file_bytes))
        self.disk_ops = spec.io_ops + spec.file_ops * (
            1 - held / spec.file_bytes)
        return again
