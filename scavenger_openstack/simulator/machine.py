# SPDX-License-Identifier: Apache-2.0


"""What is simulated: one machine and the tenants on it, as plain values."""

from __future__ import annotations

import dataclasses
import math

from scavenger_openstack.simulator.load import CONSTANT
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Priority


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A hypervisor.

    ``threads_per_core`` 2 means SMT; a core whose two threads are busy does
    ``smt_yield`` of the work of one per thread.  The CPUs are spread evenly
    over ``llcs`` last-level caches, these over ``numa_nodes``.
    ``miss_s`` is the unloaded latency of memory, as far as it is not hidden.
    ``link_buffer_bytes`` wait at most before the link: 1000 packets.
    """

    cpus: int = 8
    threads_per_core: int = 1
    smt_yield: float = 0.62
    llcs: int = 1
    numa_nodes: int = 1
    hertz: float = 2.5e9
    llc_bytes: float = 32.0 * 2 ** 20
    memory_bytes_per_s: float = 20e9
    miss_s: float = 40e-9
    memory_bytes: float = 64.0 * 2 ** 30
    disk_service_s: float = 0.0002
    disk_bytes_per_s: float = 500e6
    link_bytes_per_s: float = 125e6
    link_buffer_bytes: float = 1.5e6
    pmu: bool = True
    cpu_model: str = 'Simulated CPU'

    def service_s(self, io_bytes: float) -> float:
        """Return how long an operation of so many bytes takes the disk."""
        return self.disk_service_s + io_bytes / self.disk_bytes_per_s

    def topology(self) -> dict[int, Cpu]:
        cores = self.cpus // self.threads_per_core
        return {cpu: Cpu(core, core * self.llcs // cores,
                         core * self.numa_nodes // cores)
                for cpu in range(self.cpus)
                for core in [cpu % cores]}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A VM or container: what it asks of each part of the machine.

    A *service* answers ``requests_per_s`` (its load being 1) whatever
    happens, so its work piles up when it is slowed down.  With
    ``requests_per_s`` 0 it is a *batch*: ``threads`` always want to run,
    ``queue_depth`` operations are always in flight, ``tx_bytes_per_s`` is
    always there to send; a load below 1 takes that share of it.

    Per request of a service: ``cpu_s`` (alone on the machine), ``io_ops``
    of ``io_bytes`` each, and ``tx_bytes``.  ``file_ops`` more go to the disk
    only for what the page cache does not hold of ``file_bytes``.
    ``arrivals`` is the variance of the number of requests over its mean: 1
    is Poisson, more is bursty.

    What is ``buffered`` leaves its operations to the host, as writes to the
    page cache do: they count as the host's, and no limit on a disk holds them
    back.

    Per instruction: ``accesses`` to the last-level cache, of which a share
    between ``miss_least`` and ``miss_most`` misses, as ``footprint_bytes``
    and ``miss_curve`` say; ``overlap`` of a miss's time is hidden behind
    others, as prefetching does for what streams.  ``cpi`` is without any
    miss.  The whole of CPI follows ``cpi_phases`` and wanders; ``cpi_noise``
    is the standard deviation of its logarithm.

    ``memory_bytes`` follows ``memory_phases`` and cannot be reclaimed; the
    page cache beside it can.  A batch with ``memory_growth_bytes_per_s``
    takes memory at that rate as long as it may, up to ``memory_bytes``.
    A batch fills the page cache with up to ``file_bytes``.

    Phases begin with the simulation, whenever the tenant arrives.

    ``role`` is for scoring alone: ``antagonist`` or ``victim``; neither the
    plant nor a controller looks at it.
    """

    id: str
    priority: Priority = Priority.FOREGROUND
    application: str | None = None
    project: str | None = None
    role: str = ''
    vcpus: int = 2
    weight: float = 0.0
    pinned: frozenset[int] | None = None
    quota_cores: float | None = None
    arrives_s: float = 0.0
    leaves_s: float = math.inf
    requests_per_s: float = 0.0
    arrivals: float = 1.0
    cpu_s: float = 0.0
    threads: float = 0.0
    cpi: float = 0.8
    cpi_noise: float = 0.02
    accesses: float = 0.005
    miss_least: float = 0.02
    miss_most: float = 0.6
    footprint_bytes: float = 2.0 * 2 ** 20
    miss_curve: float = 1.5
    overlap: float = 0.0
    io_ops: float = 0.0
    io_bytes: float = 4096.0
    file_ops: float = 0.0
    file_bytes: float = 0.0
    queue_depth: float = 0.0
    buffered: bool = False
    tx_bytes: float = 0.0
    tx_bytes_per_s: float = 0.0
    memory_bytes: float = 1.0 * 2 ** 30
    memory_noise: float = 0.0
    memory_growth_bytes_per_s: float = 0.0
    load_noise: float = 0.1
    phases: tuple[Phase, ...] = CONSTANT
    cpi_phases: tuple[Phase, ...] = CONSTANT
    memory_phases: tuple[Phase, ...] = CONSTANT
    repeat: bool = True

    @property
    def is_service(self) -> bool:
        return self.requests_per_s > 0
