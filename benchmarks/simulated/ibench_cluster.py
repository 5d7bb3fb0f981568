# SPDX-License-Identifier: Apache-2.0

"""A cluster for the scheduling of iBench, section V-A: its machines, the
applications, and how these slow each other down.

What slows down comes out of the simulator's cache, bus, disk and link, at
the equilibrium of all that runs on a machine; beyond that only the units of
a core are ours.  Nothing here uses a profile: these are measured on one
machine of this model, by injecting SoIs, with noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math
import random
from typing import NamedTuple

from scavenger_openstack.algorithms.profiles import Estimate
from scavenger_openstack.algorithms.profiles import Profile
from scavenger_openstack.simulator import cache
from scavenger_openstack.simulator import cpu
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator import queues

MIB, GIB = 2.0 ** 20, 2.0 ** 30
INSTRUCTIONS = 1e9
"""A unit of work of one thread."""
HIT_S = 4e-9
"""What an access to the last-level cache costs that hits, not hidden."""
UNITS = ('integer', 'floating_point', 'l2_capacity')
"""What the two threads of a core share."""
SATURATION = 2.0
QOS = 0.05
"""An application that loses more is below its QoS (as the profiles of
scavenger-ibench have it without another)."""
NOISE = 0.01
"""Standard deviation of a measured rate, as a share of it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class App:
    """An application: what each of its threads does per unit of work.

    Of the last-level cache as :class:`Tenant` has it.  ``uses`` and
    ``hurts`` are by unit of :data:`UNITS`: how busy it keeps them, and by
    what share its time grows at most beside a thread that does.  Of
    ``file_ops`` those go to the disk that the page cache does not hold.
    ``most`` is the highest rate of all threads, in units per second.
    """

    name: str = ''
    kind: str = ''
    vcpus: float = 1.0
    memory_bytes: float = GIB
    alone_s: float = 300.0
    cpi: float = 0.8
    accesses: float = 0.0
    miss_least: float = 0.0
    miss_most: float = 0.0
    footprint_bytes: float = MIB
    curve: float = 1.5
    overlap: float = 0.0
    uses: tuple[float, ...] = (0.0, 0.0, 0.0)
    hurts: tuple[float, ...] = (0.0, 0.0, 0.0)
    io_ops: float = 0.0
    file_ops: float = 0.0
    file_bytes: float = 0.0
    tx_bytes: float = 0.0
    messages: float = 0.0
    most: float = math.inf
    load: float = 0.0
    """Of a service: the share of its CPUs in use when alone; 0 of a batch,
    whose threads always want to run."""


def rates(machine: Machine, apps: Sequence[App]) -> list[float]:
    """Return the units of work per second of each, all running there.

    :param machine: ``disk_service_s`` is that of one operation of it all
    """
    siblings = cpu.sibling_busy(sum(app.vcpus for app in apps), machine.cpus)
    core = [_core(app, apps, siblings) if siblings else 1.0 for app in apps]
    ops = _disk_ops(machine, apps)
    devices = any(ops) or any(app.tx_bytes for app in apps)
    each = [_fixed_s(machine, app, factor) for app, factor
            in zip(apps, core, strict=True)]
    misses = [app.miss_least for app in apps]
    latency = 1.0
    speed = [min(app.most, app.vcpus / time_s)
             for app, time_s in zip(apps, each, strict=True)]
    for _ in range(40):
        before = speed
        held = cache.occupancy(
            [rate * INSTRUCTIONS * app.accesses * max(miss, 1e-3)
             for rate, app, miss in zip(speed, apps, misses, strict=True)],
            [app.footprint_bytes for app in apps], machine.llc_bytes)
        misses = [0.5 * miss + 0.5 * cache.miss_ratio(
            app.miss_least, app.miss_most, app.footprint_bytes, bytes_,
            app.curve) for app, bytes_, miss
            in zip(apps, held, misses, strict=True)]
        latency = math.sqrt(latency * cache.latency(sum(
            rate * INSTRUCTIONS * app.accesses * miss
            for rate, app, miss in zip(speed, apps, misses, strict=True))
            * cache.LINE_BYTES * cache.WRITE_BACK
            / machine.memory_bytes_per_s))
        cpu_s = [time_s + INSTRUCTIONS * app.accesses * miss
                 * (1 - app.overlap) * machine.miss_s * latency * factor
                 for time_s, app, miss, factor
                 in zip(each, apps, misses, core, strict=True)]
        speed = _devices(machine, apps, cpu_s, ops, speed) if devices else [
            math.sqrt(old * min(app.most, app.vcpus / time_s))
            for app, time_s, old in zip(apps, cpu_s, speed, strict=True)]
        if all(abs(new - old) <= 2e-3 * old
               for new, old in zip(speed, before, strict=True)):
            break
    return speed


def _core(app: App, apps: Sequence[App], siblings: float) -> float:
    """By what factor its time grows for the other thread of its cores."""
    others = [other for other in apps if other is not app]
    threads = sum(other.vcpus for other in others)
    if not threads:
        return 1.0
    factor = 1.0
    for unit, hurt in enumerate(app.hurts):
        if hurt:
            use = sum(other.vcpus * other.uses[unit]
                      for other in others) / threads
            factor += siblings * hurt * (1 - math.exp(-SATURATION * use)) / (
                1 - math.exp(-SATURATION))
    return factor


def _fixed_s(machine: Machine, app: App, core: float) -> float:
    """The part of a unit of work that no other memory access changes."""
    return INSTRUCTIONS * core * (
        app.cpi / machine.hertz + app.accesses * HIT_S * (1 - app.overlap))


def _disk_ops(machine: Machine, apps: Sequence[App]) -> list[float]:
    files = sum(app.file_bytes for app in apps)
    free = max(0.0, machine.memory_bytes
               - sum(app.memory_bytes for app in apps))
    missed = 1 - min(1.0, free / files) if files else 0.0
    return [app.io_ops + app.file_ops * missed for app in apps]


def _devices(machine: Machine, apps: Sequence[App], cpu_s: Sequence[float],
             ops: Sequence[float], speed: Sequence[float]) -> list[float]:
    """The rates with the waits for disk and link, half way from before."""
    response_s = queues.disk_response(machine.disk_service_s, 0.0, [
        (app.vcpus, min(app.vcpus / time_s, app.most) * count)
        for app, time_s, count in zip(apps, cpu_s, ops, strict=True)
        if count])
    demands = [app.tx_bytes * rate
               for app, rate in zip(apps, speed, strict=True)]
    wait_s = queues.link_wait(
        sum(demands) / machine.link_bytes_per_s, machine.link_bytes_per_s,
        machine.link_buffer_bytes) if any(demands) else 0.0
    wanted = [app.tx_bytes * min(app.most, app.vcpus / (
        time_s + count * response_s + app.messages * wait_s))
        for app, time_s, count in zip(apps, cpu_s, ops, strict=True)]
    shares = queues.fair(wanted, machine.link_bytes_per_s)
    new = []
    for app, time_s, count, share, old in zip(apps, cpu_s, ops, shares,
                                              speed, strict=True):
        rate = min(app.most, app.vcpus / (
            time_s + count * response_s + app.messages * wait_s))
        if app.tx_bytes:
            rate = min(rate, share / app.tx_bytes)
        new.append(math.sqrt(rate * old))
    return new


def performance(app: App, machine: Machine, rate: float, alone: float
                ) -> float:
    """Return how well it does beside others, 1 being alone: of a batch its
    rate, of a service its latency, with the wait in its own queue."""
    share = min(1.0, rate / alone)
    if not app.load:
        return share
    times = [(1 / part) * (1 + cpu.queueing(
        app.load / part * app.vcpus, app.vcpus, 1.0)) for part in (1.0, share)]
    return times[0] / times[1]


def machines(drawn: random.Random, count: int, factor: int
             ) -> list[Machine]:
    """Dual socket, 4 to 12 cores, 16 to 48 GB (section V-A); two threads per
    core, and caches, buses, disks and links, are ours.

    :param factor: 2 if those are the cores of a socket, 1 if of both
    """
    return [machine(factor * cores, gib) for cores, gib in (
        drawn.choice(((4, 16), (6, 24), (8, 32), (10, 32), (12, 48)))
        for _ in range(count))]


def machine(cores: int, gib: int) -> Machine:
    return Machine(cpus=2 * cores, threads_per_core=2,
                   llc_bytes=1.5 * cores * MIB,
                   memory_bytes_per_s=2.5e9 * cores, memory_bytes=gib * GIB,
                   disk_service_s=0.001, link_bytes_per_s=125e6)


REFERENCE = machine(8, 32)
"""What applications are profiled on; they run on all kinds."""


def pool(drawn: random.Random) -> list[App]:
    """The pool of section V-A by its counts; what each application does is
    drawn, since the paper does not tell."""
    spec = [_spec(drawn, f'spec-{number}') for number in range(29)]
    parallel = [dataclasses.replace(
        _spec(drawn, f'parallel-{number}'), kind='parallel',
        vcpus=float(drawn.choice((4, 6, 8))),
        memory_bytes=drawn.uniform(1, 4) * GIB) for number in range(22)]
    mixes = [_mix(f'mix-{number}', drawn.sample(spec, 4))
             for number in range(140)]
    mining = [dataclasses.replace(
        _spec(drawn, f'mining-{number}'), kind='mining',
        vcpus=float(drawn.choice((2, 4))),
        memory_bytes=drawn.uniform(1, 3) * GIB,
        io_ops=drawn.uniform(20, 120), file_ops=drawn.uniform(50, 300),
        file_bytes=drawn.uniform(2, 16) * GIB,
        tx_bytes=drawn.choice((0.0, 5e6, 20e6))) for number in range(10)]
    return spec + parallel + mixes + mining


def _spec(drawn: random.Random, name: str) -> App:
    kind = drawn.choices(('compute', 'cache', 'stream'), (4, 3, 3))[0]
    floating = drawn.random() < 0.5
    busy, idle = drawn.uniform(0.4, 1.0), drawn.uniform(0.0, 0.2)
    hurt = drawn.uniform(0.1, 0.6) if kind == 'compute' else (
        drawn.uniform(0.0, 0.2))
    values = {
        'compute': {'accesses': drawn.uniform(0.0003, 0.003),
                    'footprint_bytes': drawn.uniform(0.3, 3) * MIB,
                    'miss_least': 0.02, 'miss_most': 0.5},
        'cache': {'accesses': drawn.uniform(0.005, 0.025),
                  'footprint_bytes': drawn.uniform(2, 10) * MIB,
                  'miss_least': drawn.uniform(0.01, 0.08),
                  'miss_most': drawn.uniform(0.5, 0.9)},
        'stream': {'accesses': drawn.uniform(0.01, 0.03),
                   'footprint_bytes': drawn.uniform(50, 400) * MIB,
                   'miss_least': 0.7, 'miss_most': 0.9,
                   'overlap': drawn.uniform(0.4, 0.8)}}[kind]
    return App(name=name, kind='spec',
               memory_bytes=drawn.uniform(0.2, 1.5) * GIB,
               alone_s=drawn.uniform(120, 480), cpi=drawn.uniform(0.5, 1.1),
               curve=drawn.uniform(1.0, 2.5),
               uses=(idle if floating else busy, busy if floating else idle,
                     drawn.uniform(0.1, 0.9)),
               hurts=(0.0 if floating else hurt, hurt if floating else 0.0,
                      drawn.uniform(0.0, 0.3)), **values)


def _mix(name: str, parts: Sequence[App]) -> App:
    """Four programs as one: the mean of what each does, the sum of what
    they hold."""
    def mean(field: str) -> float:
        return sum(getattr(part, field) for part in parts) / len(parts)

    accesses = mean('accesses')
    shares = [part.accesses / accesses / len(parts) for part in parts]
    weighted = {field: sum(share * getattr(part, field) for share, part
                           in zip(shares, parts, strict=True))
                for field in ('miss_least', 'miss_most', 'curve', 'overlap')}
    return App(
        name=name, kind='mix', vcpus=float(len(parts)),
        memory_bytes=sum(part.memory_bytes for part in parts),
        alone_s=mean('alone_s'), cpi=mean('cpi'), accesses=accesses,
        footprint_bytes=sum(part.footprint_bytes for part in parts),
        uses=tuple(sum(part.uses[unit] for part in parts) / len(parts)
                   for unit in range(len(UNITS))),
        hurts=tuple(sum(part.hurts[unit] for part in parts) / len(parts)
                    for unit in range(len(UNITS))), **weighted)


def primary(name: str, machine: Machine) -> App:
    """The primary workload of a node in the paper's second and third
    scenario: half of its CPUs, and what is known of such workloads."""
    half = machine.cpus / 2
    if name == 'hadoop':
        return App(name=name, kind='primary', vcpus=half,
                   memory_bytes=0.3 * machine.memory_bytes, cpi=0.9,
                   accesses=0.008, miss_least=0.3, miss_most=0.7,
                   footprint_bytes=24 * MIB, overlap=0.3,
                   uses=(0.5, 0.1, 0.5), hurts=(0.15, 0.05, 0.15),
                   io_ops=20.0, file_ops=60.0, file_bytes=4 * GIB,
                   tx_bytes=4e6)
    return App(name=name, kind='primary', vcpus=half,
               memory_bytes=0.4 * machine.memory_bytes, cpi=1.0,
               accesses=0.006, miss_least=0.05, miss_most=0.8,
               footprint_bytes=6 * MIB, uses=(0.4, 0.0, 0.4),
               hurts=(0.3, 0.0, 0.3), tx_bytes=8e6, messages=60.0, load=0.6)


class _Soi(NamedTuple):
    name: str
    level: float
    """Intensity of the probe whose loss is what an application causes."""


SOIS = (_Soi('memory_bandwidth', 1.0), _Soi('llc_capacity', 0.5),
        _Soi('storage_bandwidth', 1.0), _Soi('network_bandwidth', 1.0),
        *(_Soi(unit, 1.0) for unit in UNITS))
"""The others do not cross from one instance to another in this model, but
memory capacity, which takes page cache."""


PROBE_THREADS = 2.0


def injected(name: str, intensity: float, host: Machine, beside: App,
             probe: bool = False) -> App:
    """Return a kernel of that SoI at an intensity from 0 to 1.

    :param probe: with few threads, but where it needs a place on each core
    """
    threads = max(1.0, host.cpus - beside.vcpus)
    if probe and name not in UNITS:
        threads = min(threads, PROBE_THREADS)
    plain = App(name=name, vcpus=threads, memory_bytes=0.0, cpi=0.5)
    if name in UNITS:
        place = UNITS.index(name)
        marks = tuple(float(unit == place) for unit in range(len(UNITS)))
        return dataclasses.replace(
            plain, uses=tuple(intensity * mark for mark in marks),
            hurts=marks)
    if name == 'memory_bandwidth':
        line = cache.LINE_BYTES * cache.WRITE_BACK
        return dataclasses.replace(
            plain, accesses=0.05, miss_least=1.0, miss_most=1.0,
            footprint_bytes=0.1 * host.llc_bytes, overlap=0.9,
            most=intensity * host.memory_bytes_per_s / (
                line * INSTRUCTIONS * 0.05))
    if name == 'llc_capacity':
        return dataclasses.replace(
            plain, vcpus=min(4.0, threads), accesses=0.05, miss_most=1.0,
            footprint_bytes=intensity * host.llc_bytes, curve=1.0)
    if name == 'storage_bandwidth':
        return dataclasses.replace(
            plain, vcpus=8.0, cpi=0.01, io_ops=100.0,
            most=intensity / host.disk_service_s / 100.0)
    if name == 'network_bandwidth':
        return dataclasses.replace(
            plain, cpi=0.01, tx_bytes=1e6,
            most=intensity * host.link_bytes_per_s / 1e6)
    return dataclasses.replace(plain, vcpus=0.01, memory_bytes=intensity * (
        host.memory_bytes - beside.memory_bytes))


def measure(app: App, drawn: random.Random) -> Profile:
    """Return the profile of an application, measured by injection."""
    (alone,) = rates(REFERENCE, [app])

    def noisy(value: float) -> float:
        return value * drawn.gauss(1.0, NOISE)

    def breaks(name: str, intensity: float) -> bool:
        rate, _ = rates(REFERENCE, [app, injected(name, intensity, REFERENCE,
                                                  app)])
        return noisy(performance(app, REFERENCE, rate, alone)) < 1 - QOS

    tolerated, caused = {}, {}
    for name in ('memory_capacity', *(soi.name for soi in SOIS)):
        low, high = 0.0, 1.0
        if breaks(name, 1.0):
            for _ in range(5):
                middle = (low + high) / 2
                low, high = ((low, middle) if breaks(name, middle)
                             else (middle, high))
        else:
            low = 1.0
        tolerated[name] = Estimate(low, low, high)
    held = app.memory_bytes + app.file_bytes
    caused['memory_capacity'] = _exact(noisy(held / REFERENCE.memory_bytes))
    for soi in SOIS:
        probe = injected(soi.name, soi.level, REFERENCE, app, probe=True)
        (best,) = rates(REFERENCE, [probe])
        _, beside = rates(REFERENCE, [app, probe])
        caused[soi.name] = _exact(1 - noisy(beside / best))
    return Profile(tolerated, caused)


def _exact(value: float) -> Estimate:
    value = min(1.0, max(0.0, value))
    return Estimate(value, value, value)


def measured(apps: Iterable[App], seed: int) -> dict[str, Profile]:
    """Return the profile of each by its name."""
    drawn = random.Random(f'profiles {seed}')
    return {app.name: measure(app, drawn) for app in apps}
