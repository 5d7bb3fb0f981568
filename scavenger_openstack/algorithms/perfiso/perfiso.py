# SPDX-License-Identifier: Apache-2.0


"""PerfIso: always keep some CPUs idle for the foreground.

Iorgulescu et al.  *PerfIso: Performance Isolation for Commercial
Latency-Sensitive Services*.  USENIX ATC 2018.  Sections 3.1 and 4.1.

Letters: I is the number of idle CPUs of the host, B the buffer (idle CPUs
that the foreground shall always find), S the number of CPUs that the
background may run on.  Times in seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import math
from typing import NamedTuple

from scavenger_openstack.algorithms import floors
from scavenger_openstack.algorithms import sharing
from scavenger_openstack import types

BUFFER_SHARE = 8 / 48
"""Buffer of the paper's servers: 8 of 48 logical CPUs kept the 99th
percentile (section 6.1.3).  We take the same share of other hosts."""

MIN_CPUS = 8
"""Hosts with fewer CPUs have none to keep idle: DESIGN 7.7."""

GROW_RESTS = 20
"""Growing waits for so many times what a write costs, so that writes take no
more than a tenth of a CPU, shrinking included: not in the paper, where one
write moves everything."""

MAX_CHOSEN = 1024
"""Choices of CPUs that the controller remembers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned."""

    buffer_cores: int = dataclasses.field(default=-1, metadata={
        'help': 'CPUs kept idle for the foreground and free of background '
                'containers and VMs. More absorb bigger bursts and leave '
                'less to background work. '
                '-1 takes a sixth of the CPUs, and 0 on hosts with fewer '
                'than 8; 0 turns the fast loop off.',
        'min': -1, 'max': 4096,
        'source': 'PerfIso, sections 4.1 and 6.1.3: 8 of 48; the rule for '
                  'small hosts is not in the paper'})
    poll_interval_ms: float = dataclasses.field(default=1.0, metadata={
        'help': 'Milliseconds between two looks at which CPUs are idle. '
                'Less takes CPUs back sooner and costs more: about 13 % of '
                'one CPU at 0.1, 1 to 2 % at 1, 0.4 % at 5.',
        'min': 0.1, 'max': 10.0,
        'source': 'not in the paper, which polls in a tight loop'})
    grow_interval_ms: float = dataclasses.field(default=10.0, metadata={
        'help': 'Milliseconds after a change before background work gets '
                'one more CPU. More disturbs a bursty foreground less often '
                'and fills the host more slowly.',
        'min': 0.1, 'max': 60000.0, 'source': 'not in the paper'})


def buffer_cores(params: Params, cpus: int) -> int:
    """B on a host with ``cpus`` CPUs; 0 means that the loop is off.

    Never all of them: the background keeps one CPU.  Source: PerfIso,
    sections 4.1 and 6.1.3; DESIGN 7.7.
    """
    if params.buffer_cores >= 0:
        return min(params.buffer_cores, max(0, cpus - 1))
    return 0 if cpus < MIN_CPUS else math.ceil(cpus * BUFFER_SHARE)


class Bounds(NamedTuple):
    """The CPUs that the loop may choose and watch, and its buffer.

    :param allowed: the CPUs that it chooses from
    :param watched: those whose idleness counts
    :param buffer: how many of them are to be idle
    :param beside: CPUs that the background has in any case
    """

    allowed: frozenset[int]
    watched: frozenset[int]
    buffer: int
    beside: frozenset[int] = frozenset()


def bounds(allowed: frozenset[int], shared: frozenset[int], buffer: int,
           topology: Mapping[int, types.Cpu]) -> Bounds:
    """What to choose from and to watch, if known foreground only runs on
    the ``shared`` CPUs.

    Idle CPUs where it cannot run are no use to it.  So these are not
    counted, and what the background gets of them does not depend on it.
    Other foreground may be there (daemons, what is not configured): they
    keep their part of the buffer.  Not in the paper; DESIGN 7.7.

    :param allowed: the CPUs that the background may have; at least one
    :param buffer: B of the host
    """
    inside, outside = allowed & shared, allowed - shared
    if not inside or not outside:
        watched = shared if inside else allowed
        return Bounds(allowed, watched,
                      max(1, min(buffer, len(watched) - 1)))
    here = max(1, math.ceil(buffer * len(shared)
                            / (len(shared) + len(outside))))
    there = min(max(0, buffer - here), len(outside) - 1)
    return Bounds(inside, shared, here, choose_cpus(
        len(outside) - there, outside, topology))


def grow_or_shrink(S: int, I: int, B: int,  # noqa: E741
                   least: int = 1) -> int:
    """Return how many CPUs the background should have.

    I < B: all that is missing at once, down to ``least``.  I > B: one more.
    Source: PerfIso, section 3.1.2; the steps and the one CPU: DESIGN 7.7.
    """
    if I < B:
        return max(least, S - (B - I))
    return S + 1 if I > B else S


def choose_cpus(count: int, allowed: Collection[int],
                topology: Mapping[int, types.Cpu],
                keep: Collection[int] = ()) -> frozenset[int]:
    """Which ``count`` of the ``allowed`` CPUs the background should have.

    What it has (``keep``) stays where it may: growing adds to it, shrinking
    takes from it.  Whole cores, SMT siblings together: growing first fills
    cores that it already has a part of, then takes cores that it can have
    as a whole, from the NUMA node and the last-level cache where it has
    most, else where most is allowed; shrinking first gives up cores that it
    only has a part of, then those of the cache where it has least.  Else
    the highest numbers first, since CPU 0 serves most interrupts.

    A CPU that the topology does not know counts as a core of its own.
    Fewer than ``count`` come back only if fewer are allowed.  Not in the
    paper; DESIGN 7.7.
    """
    place = {cpu: topology.get(cpu) or types.Cpu(types.MAX_CPU + cpu, 0, 0)
             for cpu in {*allowed, *topology}}
    whole: dict[types.Cpu, int] = {}
    for where in place.values():
        whole[where] = whole.get(where, 0) + 1
    held = frozenset(allowed).intersection(keep)
    if len(held) == count:
        return held
    growing = len(held) < count
    ours = _Counts(held, place)
    free = _Counts(allowed, place)

    def order(cpu: int) -> tuple[object, ...]:
        where = place[cpu]
        core = ours.core.get(where, 0)
        if growing:
            return (core == 0, free.core[where] < whole[where],
                    -ours.numa.get(where.numa, 0),
                    -ours.llc.get(where[1:3], 0),
                    -free.numa[where.numa], -free.llc[where[1:3]],
                    -where.numa, -where.llc, -where.core, -cpu)
        return (core == whole[where], ours.numa[where.numa],
                ours.llc[where[1:3]], *where[2::-1], cpu)

    if growing:
        return held.union(sorted(
            frozenset(allowed) - held, key=order)[:count - len(held)])
    return held.difference(sorted(held, key=order)[:len(held) - count])


def quota_floors(rates: types.Rates) -> tuple[types.Cap, ...]:
    """Return what the background keeps while one CPU is still more than there
    is.

    Source: DESIGN 7.7.
    """
    _, background = sharing.sides(rates.workloads)
    return tuple(
        types.Cap(rated.workload.id, types.Knob.CPU_CORES, floor,
                  Controller.name, 'the background has one CPU left and the '
                  'foreground still lacks idle ones')
        for rated, floor in zip(background, floors.floors(
            background, types.Knob.CPU_CORES), strict=True))


class _Counts:
    """The number of some CPUs in each core, cache and NUMA node."""

    __slots__ = ('core', 'llc', 'numa')

    def __init__(self, cpus: Collection[int],
                 place: Mapping[int, types.Cpu]) -> None:
        self.core: dict[types.Cpu, int] = {}
        self.llc: dict[tuple[int, ...], int] = {}
        self.numa: dict[int, int] = {}
        for cpu in set(cpus):
            where = place[cpu]
            self.core[where] = self.core.get(where, 0) + 1
            self.llc[where[1:3]] = self.llc.get(where[1:3], 0) + 1
            self.numa[where.numa] = self.numa.get(where.numa, 0) + 1


class Shortage:
    """Whether the background belongs at its quota floor as well.

    From when most polls found too few idle CPUs with the background at its
    last one, until none does: in between it would come and go.
    """

    __slots__ = ('lasts', '_polls', '_short')

    def __init__(self) -> None:
        self.lasts = False
        self._polls = self._short = 0

    def update(self, polls: int, short: int) -> bool:
        """
        :param polls: how many there were so far
        :param short: those of them that found too few
        """
        polls_now, short_now = polls - self._polls, short - self._short
        self._polls, self._short = polls, short
        self.lasts = (short_now > 0 if self.lasts
                      else 2 * short_now > polls_now)
        return self.lasts


class Controller:
    """The CPU set of the background, from one look to the next.

    It starts with ``current`` (what is in force), else with one CPU.  The
    host has the CPUs of ``topology``.  With one CPU left the background
    also belongs at its quota floor: that is the caller's to say.
    """

    name = 'perfiso'

    def __init__(self, params: Params | None = None, *,
                 topology: Mapping[int, types.Cpu],
                 current: Collection[int] = ()) -> None:
        params = params or Params()
        self.buffer_cores = buffer_cores(params, len(topology))
        self._grow_interval_s = self._rest_s = params.grow_interval_ms / 1000
        self._topology = topology
        self._cpus = frozenset(current)
        self._allowed: Collection[int] | None = None
        self._changed_s = -math.inf
        self.short_steps = 0
        """Steps that had to leave the background one CPU although the
        foreground lacked idle ones: time for its quota floor."""
        self._chosen: dict[tuple[frozenset[int], int], frozenset[int]] = {}

    def step(self, now: float, idle: Collection[int] | int,
             allowed: Collection[int], *, buffer: int | None = None,
             least: int = 1) -> frozenset[int]:
        """The CPUs that the background should have now.

        ``idle``: the idle CPUs of the host, or how many there are (the
        loop's own CPU counts as idle).  ``allowed``: what it may have at
        most; if that is empty, the last one holds, and before the first
        nothing changes.  The same object comes back when nothing changes.
        Shrinking does not wait; one CPU more comes when
        ``grow_interval_ms`` have passed since the last change, or more where
        writes cost much.  With a
        buffer of 0 it is all of ``allowed``.

        :param buffer: B, if it is not that of the host
        :param least: 0 when the background has other CPUs besides
        """
        number = idle if isinstance(idle, int) else len(idle)
        cpus = self._cpus
        if allowed is not self._allowed:
            cpus = self._clamp(allowed, least)
            if self._allowed is None:
                return cpus
        elif len(cpus) < least:
            cpus = self._cpus = choose_cpus(least, allowed, self._topology)
        if buffer is None:
            buffer = self.buffer_cores
        if number == buffer:
            return cpus
        size = len(cpus)
        if number > buffer and (size == len(self._allowed or ())
                                or now - self._changed_s < self._rest_s):
            return cpus
        wanted = grow_or_shrink(size, number, buffer, least)
        if wanted == size:
            self.short_steps += least
            return cpus
        self._changed_s = now
        # The same few sets come again and again: choosing takes 80 us with
        # 48 CPUs, looking up 0.2.
        chosen = self._chosen.get((cpus, wanted))
        if chosen is None:
            if len(self._chosen) >= MAX_CHOSEN:
                self._chosen.clear()
            chosen = choose_cpus(wanted, self._allowed or (),
                                 self._topology, cpus)
            self._chosen[cpus, wanted] = chosen
        self._cpus = chosen
        return chosen

    def wrote(self, cost_s: float) -> None:
        """Take note of the CPU time that a write has cost.

        It has that of one set per VM, or per vCPU.
        """
        self._rest_s = max(self._grow_interval_s, GROW_RESTS * cost_s)

    def _clamp(self, allowed: Collection[int], least: int
               ) -> frozenset[int]:
        if not allowed:
            return self._cpus
        limits = frozenset(allowed)
        if self._allowed is None or limits != frozenset(self._allowed):
            self._chosen.clear()
        self._allowed = allowed
        held = self._cpus & limits
        if self.buffer_cores == 0:
            held = limits
        elif not held:
            held = choose_cpus(least, limits, self._topology)
        if held != self._cpus:
            self._cpus = held
        return self._cpus
