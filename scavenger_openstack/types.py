# SPDX-License-Identifier: Apache-2.0

"""The words of the project as values: samples, rates, caps, incidents.

Everything here is immutable, in SI units, and turns into JSON without loss
(:mod:`.wire.json_fields`).  ``None`` means *not measurable here*, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import enum
import hashlib
from typing import Any
from typing import NamedTuple
import zlib

from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import THE_HOST as THE_HOST
from scavenger_openstack.outcomes import Outcome
# Defined where limits are restored, which imports nothing else of ours.
from scavenger_openstack.restore.grammar import MAX_CPU as MAX_CPU
from scavenger_openstack.restore.grammar import parse_cpus as parse_cpus

SCHEMA = 1
"""Version of the JSON form of :class:`HostSample`."""

Value = float | str
"""What a knob can hold: a number; of ``cpu_set`` alone the text of a CPU list.
Drivers translate what the kernel calls it."""


class Priority(enum.StrEnum):
    """What the host belongs to.  Unknown work is foreground (protected)."""

    FOREGROUND = 'foreground'
    BACKGROUND = 'background'


THE_BACKGROUND = str(Priority.BACKGROUND)
"""The id that a limit has which all background workloads share."""


class Mode(enum.StrEnum):
    """How far a controller may go."""

    OFF = 'off'
    OBSERVE = 'observe'
    ENFORCE = 'enforce'


class Knob(enum.StrEnum):
    """One limit of one workload, named with its unit.

    ``cpu_set`` holds text such as ``0-1,4``; ``cpu_idle`` and ``paused``
    hold 0 or 1; the others hold a number.  ``io_bytes_per_s`` and
    ``io_ops_per_s`` are, of a container, of each direction and each device;
    of a VM, of all its disks that have no limit of their own together, reads
    and writes.  ``ingress_bytes_per_s`` is, of a VM, of each of its network
    cards.  ``llc_ways`` is of :data:`THE_BACKGROUND`.
    """

    CPU_CORES = 'cpu_cores'
    CPU_SET = 'cpu_set'
    CPU_IDLE = 'cpu_idle'
    MEMORY_BYTES = 'memory_bytes'
    IO_BYTES_PER_S = 'io_bytes_per_s'
    IO_OPS_PER_S = 'io_ops_per_s'
    EGRESS_BYTES_PER_S = 'egress_bytes_per_s'
    INGRESS_BYTES_PER_S = 'ingress_bytes_per_s'
    LLC_WAYS = 'llc_ways'
    PAUSED = 'paused'


class Resource(enum.StrEnum):
    """What background workloads take from the foreground."""

    CPU = 'cpu'
    MEMORY = 'memory'
    NETWORK = 'network'
    DISK = 'disk'
    CACHE = 'cache'


PROTECTED = (Resource.CPU, Resource.MEMORY, Resource.NETWORK, Resource.DISK)
"""Those that an operator can name: the cache is protected with the CPUs."""


class Cpu(NamedTuple):
    """Where one logical CPU sits: its physical core, LLC and NUMA node.

    ``isolated``: the scheduler puts nothing there by itself (``isolcpus``).
    """

    core: int
    llc: int
    numa: int
    isolated: bool | None = None

KnobKey = tuple[str, Knob]
"""A workload's (or group's) id and one of its knobs."""

RunKey = tuple[str, float]
"""Of a workload from its making to its end: ``Workload.run``."""

Floor = Mapping[Knob, float]
"""Values below which no limit of a workload goes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What a workload is; it changes rarely, so samples share it.

    ``group`` is the id of the highest configured cgroup that holds this
    workload and nothing but background: ``cpu_idle`` and ``cpu_set`` are set
    there.  It is the workload's own id when there is no such cgroup.

    ``memory_allotment_bytes`` is what the workload may come to use: a
    flavor's RAM, a container's own limit, ``None`` when it has none.
    ``disks`` are those of the host that the workload uses, '' for one of which
    the place is not known; none when nothing is known of them.
    ``instance`` is the UUID of the VM, which stays the same over a hard
    reboot; '' for what is another workload when it is made again.
    ``allowed_cpus`` is ``None`` when the workload may run everywhere.
    ``dedicated_cpus`` are those that it has to itself; ``None`` when
    that is not known: see :mod:`.algorithms.scavenger.pins`.
    ``protected``: a detector may limit others for its sake.
    ``memory_kept`` says why its memory does not follow a limit, so that what
    it uses counts, whatever its limit is; '' when it does.
    ``created_s`` is larger the younger a workload is, is the same after a
    restart of the agent, and need not be a time.
    """

    id: str
    priority: Priority
    source: str = 'default'
    project: str | None = None
    application: str | None = None
    vcpus: float = 1.0
    group: str = ''
    floor: Floor = dataclasses.field(default_factory=dict)
    memory_allotment_bytes: float | None = None
    allowed_cpus: frozenset[int] | None = None
    disks: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    instance: str = ''
    killable: bool = False
    protected: bool = True
    created_s: float = 0.0
    dedicated_cpus: frozenset[int] | None = None
    memory_kept: str = ''

    @property
    def run(self) -> RunKey:
        """What differs once a workload is made again under its id."""
        return self.id, self.created_s

    @property
    def limit_ids(self) -> tuple[str, ...]:
        """The ids that limits of it have: its own, that of its group, and that
        of all background work."""
        own = self.id, self.group_id
        return ((*own, THE_BACKGROUND)
                if self.priority is Priority.BACKGROUND else own)

    @property
    def group_id(self) -> str:
        """The id of what ``cpu_idle`` and ``cpu_set`` are set on."""
        return self.group or self.id


class Instance(NamedTuple):
    """A VM as its operator knows it; names may come from tenants.

    ``source`` is ``flavor`` when the flavor says the priority, and
    ``specs_known`` whether its extra specs are known here.  ``ignored`` says
    of each extra spec or image property of ours that does not count what it
    is and why.
    """

    uuid: str
    name: str
    display_name: str
    flavor: str
    priority: Priority
    source: str
    vcpus: int
    memory_allotment_bytes: int
    specs_known: bool
    ignored: tuple[str, ...] = ()


class WorkloadSample(NamedTuple):
    """What one workload has used so far, and what limits it now.

    Fields that end in ``_s``, counts and byte totals only ever grow while
    the workload lives; ``memory_bytes`` is a gauge: the working set without
    page cache that can be dropped, which is ``page_cache_bytes``;
    ``refault_bytes`` had been dropped and were read from disk again, of
    background only; ``psi_*_s`` are the times of ``some`` in the files
    ``*.pressure``, read on request only.  A named tuple, not a
    dataclass: one is made per workload and tick, and this costs a sixth.
    Drivers and :mod:`.decision.rates` go by the order of the fields, and
    ``caps_in_force`` is the last: see "Adding a signal" in the documentation.
    """

    workload: Workload
    cpu_s: float | None = None
    run_delay_s: float | None = None
    throttled_s: float | None = None
    steal_s: float | None = None
    cycles: int | None = None
    ref_cycles: int | None = None
    instructions: int | None = None
    llc_misses: int | None = None
    counter_enabled_s: float | None = None
    counter_running_s: float | None = None
    io_wait_s: float | None = None
    io_ops: int | None = None
    io_bytes: int | None = None
    net_tx_bytes: int | None = None
    net_rx_bytes: int | None = None
    psi_cpu_s: float | None = None
    psi_io_s: float | None = None
    psi_memory_s: float | None = None
    memory_bytes: int | None = None
    page_cache_bytes: int | None = None
    refault_bytes: int | None = None
    caps_in_force: Mapping[Knob, Value] = {}


Ask = tuple[str, Resource]
"""A workload that waits, and the resource that it waits for."""


class DirectEvidence(NamedTuple):
    """For how long a workload waited for a resource, and which workloads held
    the resource then.

    In seconds of its threads or requests, over a window of ``window_s``
    seconds; of a cache it is what the workload ran, of a link for how long
    that was full.  ``holders``: by workload, its own id and :data:`THE_HOST`
    among them; ``idle_s``: for which it was free, as a CPU that wakes up; what
    is left of ``waited_s`` is not known.  ``threads``: those of the host by
    name, the largest few, out of what :data:`THE_HOST` held.  ``shared``: not
    seen, but taken from the shares of the resource's use, which is weaker;
    ``by_share``: the holders of which that is so, of most of what they held.
    """

    workload: str
    resource: Resource
    window_s: float
    waited_s: float
    holders: Mapping[str, float] = {}
    threads: Mapping[str, float] = {}
    idle_s: float = 0.0
    shared: bool = False
    by_share: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class HostSample:
    """One look at a host.  ``time_s`` is CLOCK_BOOTTIME.

    ``links`` maps a network device that foreground and background share to
    its capacity in bytes per second, each way; ``link_tx_bytes`` and
    ``link_rx_bytes`` map it to what was sent and received over it so far.
    ``link_of`` maps an interface of a workload to the link that its traffic
    leaves by.  ``direct`` answers what
    :meth:`.drivers.base.Driver.ask` asked; each answer is there once.
    ``refault_bytes`` of page cache had been dropped and were read from disk
    again, whatever they are charged to; ``memory_free_bytes`` hold nothing.
    ``llc_ways``: of a last-level cache, all together, where the background
    can be limited to some.  ``memory_limit_ends``: the kernel ends a process
    of a container that grows against its memory limit, and slows none.
    """

    host: str
    boot_id: str
    time_s: float
    wall_time_s: float
    workloads: tuple[WorkloadSample, ...]
    cpu_model: str | None = None
    topology: Mapping[int, Cpu] = dataclasses.field(default_factory=dict)
    cpu_busy_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    links: Mapping[str, float] = dataclasses.field(default_factory=dict)
    link_tx_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    link_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    direct: tuple[DirectEvidence, ...] = ()
    memory_free_bytes: int | None = None
    refault_bytes: int | None = None
    llc_ways: int | None = None
    memory_limit_ends: bool = False
    link_rx_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA


class WorkloadRates(NamedTuple):
    """What one workload did per second between two samples.

    :mod:`.decision.rates` goes by the order; ``page_cache_bytes`` and
    ``memory_bytes``, which are no rates, are the last.
    """

    workload: Workload
    interval_s: float
    cpu_cores: float | None = None
    cpi: float | None = None
    run_delay: float | None = None
    throttled_share: float | None = None
    llc_misses_per_s: float | None = None
    io_wait_s_per_op: float | None = None
    io_bytes_per_s: float | None = None
    io_ops_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None
    net_rx_bytes_per_s: float | None = None
    refault_bytes_per_s: float | None = None
    page_cache_bytes: int | None = None
    memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """What a host did between two samples: the input of every controller.

    ``links``, ``link_tx_bytes_per_s`` and ``link_rx_bytes_per_s`` are keyed
    by device.  ``complete``
    is false for the first sample, which has gauges but no rates.
    ``cpu_busy_s`` is a total as in the sample: what needs it is rarely there.
    """

    time_s: float
    interval_s: float
    workloads: tuple[WorkloadRates, ...]
    topology: Mapping[int, Cpu] = dataclasses.field(default_factory=dict)
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    links: Mapping[str, float] = dataclasses.field(default_factory=dict)
    link_tx_bytes_per_s: Mapping[str, float | None] = dataclasses.field(
        default_factory=dict)
    link_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    complete: bool = True
    cpu_model: str | None = None
    cpu_busy_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
    direct: tuple[DirectEvidence, ...] = ()
    memory_free_bytes: int | None = None
    refault_bytes_per_s: float | None = None
    llc_ways: int | None = None
    memory_limit_ends: bool = False
    link_rx_bytes_per_s: Mapping[str, float | None] = dataclasses.field(
        default_factory=dict)


class Cap(NamedTuple):
    """The value that is wanted on a knob, and why.

    ``workload`` is a workload's id, or the id of its group for the knobs
    that are set on groups.  ``reason`` is a sentence with the numbers.
    """

    workload: str
    knob: Knob
    value: Value
    owner: str
    reason: str

    @property
    def key(self) -> KnobKey:
        return self.workload, self.knob


class Action(NamedTuple):
    """What cannot be undone by restoring a value."""

    workload: str
    kind: str
    owner: str
    reason: str


class Decision(NamedTuple):
    """All that a controller wants at one instant.

    ``facts`` are the numbers that it decided from, for status, recordings
    and plots: plain JSON values; nothing is decided from them.
    ``shortage_bytes`` is the memory that the background uses above what the
    foreground leaves it; 0 or less when there is no shortage, or none is
    known.  ``removal_reasons`` says of limits that are wanted no more why.
    ``asks``: of what direct evidence is to be gathered; as long as it asks.
    """

    caps: tuple[Cap, ...] = ()
    incidents: tuple[Incident, ...] = ()
    facts: Mapping[str, Any] = {}
    shortage_bytes: float = 0.0
    removal_reasons: Mapping[KnobKey, str] = {}
    asks: tuple[Ask, ...] = ()


LIMIT = 'limit '
"""How the action of an incident begins that limits its antagonists."""

WOULD = 'would '
"""Stands before that where nothing is limited, in what operators are told."""

UNPROTECTED = ('nothing: scavenger:protect of its flavor is false, so nothing '
               'is limited for it')
"""The action where the victim is not to be protected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Incident:
    """What suffered, what did it, what was done and what came of it.

    ``time_s`` is when the harm began, not when it was found.
    ``antagonists`` disturb now, ``named_earlier`` did while it lasted.
    ``grounds`` are of both, and may name the host itself, which is no
    antagonist.
    """

    id: str
    time_s: float
    host: str
    victim: str
    signal: str
    value: float | None
    threshold: float | None
    cause: str
    suspects: tuple[tuple[str, float], ...] = ()
    antagonists: tuple[str, ...] = ()
    action: str = ''
    outcome: str = Outcome.OPEN
    grounds: tuple[Ground, ...] = ()
    named_earlier: tuple[str, ...] = ()


def more_done(before: str, now: str) -> str:
    """Of two actions of one incident the one that limited; else the one that
    would have; else the later, as of two that are alike."""
    return max(now, before, key=lambda action: (
        action.startswith(LIMIT), action.startswith(WOULD + LIMIT)))


def incident_id(host: str, boot_id: str, victim: str, signal: str,
                start_s: float) -> str:
    """The same for as long as an incident lasts, on whatever restart.

    Names of cgroups need not be UTF-8.  Source: DESIGN 5.
    """
    told = '\0'.join((host, boot_id, victim, signal, repr(start_s)))
    return hashlib.sha256(
        told.encode('utf-8', 'surrogatepass')).hexdigest()[:32]


def phase(name: str) -> float:
    """Where in an interval a name begins, from 0 to 1: in each process the
    same, and not all names at once.  Names of cgroups need not be UTF-8."""
    return zlib.crc32(name.encode('utf-8', 'surrogatepass')) / 2 ** 32


def format_cpus(cpus: Iterable[int]) -> str:
    """Write CPUs the way the kernel does: ``{0, 1, 4}`` is ``0-1,4``."""
    parts: list[str] = []
    run: list[int] = []
    for cpu in [*sorted(set(cpus)), None]:
        if run and cpu != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1
                         else f'{run[0]}-{run[-1]}')
            run = []
        if cpu is not None:
            run.append(cpu)
    return ','.join(parts)


def printable(text: str) -> str:
    """The text in one line, with an escape for each character that is not
    printable: tenants choose names, terminals obey."""
    return ''.join(c if c.isprintable() else
                   c.encode('unicode_escape').decode() for c in text)
