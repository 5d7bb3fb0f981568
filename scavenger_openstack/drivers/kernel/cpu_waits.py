# SPDX-License-Identifier: Apache-2.0

"""Which process ran while a thread was runnable and had to wait for a CPU.

BPF programs on the scheduler's tracepoints note since when a thread is
runnable, and, when it gets a CPU, add what each process ran there meanwhile to
pairs of a victim and this process.  Netflix watches noisy neighbours by the
same tracepoints.  They run at each context switch of the host: so for a few
seconds at a time, while something waits, and for the threads that are watched,
with those that they start.

No process has more than it ran.  What is not known counts as unknown: what a
thread waited on another CPU than that which it got, what ran for less than
:data:`SHORT_NS`, and what was longer ago than the last :data:`SLICES`.
"""

from __future__ import annotations

from collections.abc import Mapping
import struct
import time
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import watched_threads

PURPOSE = 'tell which thread runs while another waits for a CPU'

MOST_PAIRS = 16384
MOST_CGROUPS = 1024
"""Whose processes have no room among these."""
MOST_WATCHED = 32768
MOST_RUNNABLE = 32768
"""Threads that wait at the same time; of more the oldest are forgotten."""

SLICES = 64
"""Of each CPU, a power of two.  One more takes 0.13 ms more of a window: the
kernel checks what the program does with each."""
SLICE_BITS = 5
SHORT_NS = 20_000
"""What ran for less is not known."""
CPU_BYTES = (SLICES << SLICE_BITS) + 16

_PAIR, _RUNNABLE = struct.Struct('=QII'), struct.Struct('=QII')
_COUNT, _BEGAN = SLICES << SLICE_BITS, (SLICES << SLICE_BITS) + 8

# The stack: a pair (cgroup, process, victim), what it adds; what since has
# (when, victim, CPU); the threads that leave and get the CPU.
_CGROUP, _PROCESS, _VICTIM, _AMOUNT = -16, -8, -4, -24
_SINCE, _WAITER, _CPU = -40, -32, -28
_PREVIOUS, _NEXT, _FIRST, _LEFT = -44, -48, -52, -64

_op, _do = bpf.Op, bpf.instruction
_R0, _STACK = 0, 10


class Runner(NamedTuple):
    """``process`` is an id, 0: any of the cgroup, and ``cgroup`` the inode
    number of its cgroup of version 2.  :data:`IDLE` has neither."""

    process: int
    cgroup: int


IDLE = Runner(0, 0)
"""What runs on a CPU that is idle: to wake up took the time, no neighbour."""


class Waits(NamedTuple):
    """Seconds for which threads of victims were runnable without a CPU.

    ``behind``: by victim and what ran meanwhile on the CPU that they got.
    ``unknown``: by victim, what nothing is known of.
    ``lasting``: by the ids of threads that wait still, with their victim.
    """

    behind: Mapping[tuple[str, Runner], float]
    unknown: Mapping[str, float]
    lasting: Mapping[int, tuple[str, float]]


class Maps(NamedTuple):
    """Descriptors.  ``ended``, ``missed``: as of
    :class:`.watched_threads.Maps`.  ``rest``: as ``pairs``, by cgroup, for
    which there was no room there.  ``unknown``: by victim."""

    watched: int
    ended: int
    missed: int
    since: int
    cpus: int
    pairs: int
    rest: int
    unknown: int


def _since(event: bpf.Event, since: int) -> tuple[bytes, ...]:
    """``since[pid] = now, victim, CPU``; the victim's number is at register
    0, which comes back."""
    return (_do(_op.MOVE_REGISTER, 7, _R0),
            _do(_op.LOAD, 1, _R0),
            _do(_op.STORE_WORD, _STACK, 1, _WAITER),
            _do(_op.LOAD_WORD, 1, 6, event.offsets['target_cpu']),
            _do(_op.STORE_WORD, _STACK, 1, _CPU),
            _do(_op.CALL, immediate=bpf.Helper.KTIME_NS),
            _do(_op.STORE, _STACK, _R0, _SINCE),
            *bpf.map_call(bpf.Helper.MAP_UPDATE, since, watched_threads.PID,
                          _SINCE),
            _do(_op.MOVE_REGISTER, _R0, 7))


def wakeup_program(event: bpf.Event, maps: Maps) -> bytes:
    """``since[pid] = now, victim, CPU`` if it is watched, at
    ``sched_wakeup``."""
    return watched_threads.program(
        event, *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.watched,
                             watched_threads.PID),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        *_since(event, maps.since))


def new_program(event: bpf.Event, maps: Maps) -> bytes:
    """The same at ``sched_wakeup_new`` if what started it is watched, and it
    is watched then."""
    return watched_threads.new_program(
        event, watched_threads.Maps(*maps[:3]),
        *_since(event, maps.since), by_thread=True)


def switch_program(event: bpf.Event, maps: Maps) -> bytes:
    """At ``sched_switch``, in words::

        if prev is still runnable and in watched:
            since[prev] = now, victim, this CPU
        if now - cpu.began >= SHORT_NS:
            cpu.slices.append((cpu.began, process, cgroup, now))    # of prev
        cpu.began = now
        if next in since:
            since, victim, CPU = since.pop(next)
            left = now - since
            if CPU is this one:
                for began, process, cgroup, ended in the last slices:
                    if ended <= since: break
                    pairs[cgroup, process, victim] += (
                        ended - max(began, since))
                    left -= ended - max(began, since)
            unknown[victim] += left

    What has no room in ``pairs`` goes to ``rest[cgroup, 0, victim]``, and what
    has none there to ``unknown``.
    """
    at = event.offsets
    lookup, update = bpf.Helper.MAP_LOOKUP, bpf.Helper.MAP_UPDATE
    cpu, now, since, number = 6, 7, 8, 9
    return bpf.assembled((
        _do(_op.LOAD_WORD, 2, 1, at['next_pid']),
        _do(_op.STORE_WORD, _STACK, 2, _NEXT),
        _do(_op.LOAD_WORD, 8, 1, at['prev_pid']),
        _do(_op.STORE_WORD, _STACK, 8, _PREVIOUS),
        _do(_op.LOAD, 9, 1, at['prev_state']),
        _do(_op.MOVE, 1),
        _do(_op.STORE_WORD, _STACK, 1, _FIRST),
        *bpf.map_call(lookup, maps.cpus, _FIRST),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.MOVE_REGISTER, cpu, _R0),
        _do(_op.CALL, immediate=bpf.Helper.KTIME_NS),
        _do(_op.MOVE_REGISTER, now, _R0),
        (_do(_op.JUMP_IF_EQUAL, 8), 'idle'),
        _do(_op.AND, 9, immediate=0xff),
        (_do(_op.JUMP_IF_NOT_EQUAL, 9), 'process'),
        *bpf.map_call(lookup, maps.watched, _PREVIOUS),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'process'),
        _do(_op.LOAD, 1, _R0),
        _do(_op.STORE_WORD, _STACK, 1, _WAITER),
        _do(_op.CALL, immediate=bpf.Helper.CPU),
        _do(_op.STORE_WORD, _STACK, _R0, _CPU),
        _do(_op.STORE, _STACK, now, _SINCE),
        *bpf.map_call(update, maps.since, _PREVIOUS, _SINCE),
        'process',
        _do(_op.CALL, immediate=bpf.Helper.PROCESS_AND_THREAD),
        _do(_op.MOVE_REGISTER, 8, _R0),
        _do(_op.SHIFT_RIGHT, 8, immediate=32),
        _do(_op.CALL, immediate=bpf.Helper.CGROUP_ID),
        _do(_op.MOVE_REGISTER, 9, _R0),
        (_do(_op.JUMP), 'slice'),
        'idle',
        _do(_op.MOVE, 9),
        'slice',
        _do(_op.LOAD, 3, cpu, _BEGAN),
        _do(_op.STORE, cpu, now, _BEGAN),
        _do(_op.MOVE_REGISTER, 1, now),
        _do(_op.SUBTRACT_REGISTER, 1, 3),
        (_do(_op.JUMP_IF_NOT_LESS, 1, immediate=SHORT_NS), 'append'),
        (_do(_op.JUMP), 'next'),
        'append',
        _do(_op.LOAD, 1, cpu, _COUNT),
        *_slice(cpu),
        _do(_op.STORE, 2, 3),
        _do(_op.STORE, 2, 8, 8),
        _do(_op.STORE, 2, 9, 16),
        _do(_op.STORE, 2, now, 24),
        _do(_op.LOAD, 1, cpu, _COUNT),
        _do(_op.ADD, 1, immediate=1),
        _do(_op.STORE, cpu, 1, _COUNT),
        'next',
        _do(_op.LOAD_WORD, 1, _STACK, _NEXT),
        (_do(_op.JUMP_IF_EQUAL, 1), 'end'),
        *bpf.map_call(lookup, maps.since, _NEXT),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.LOAD, since, _R0),
        _do(_op.LOAD_WORD, 1, _R0, _WAITER - _SINCE),
        _do(_op.STORE_WORD, _STACK, 1, _VICTIM),
        _do(_op.LOAD_WORD, number, _R0, _CPU - _SINCE),
        *bpf.map_call(bpf.Helper.MAP_DELETE, maps.since, _NEXT),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, since, now), 'end'),
        _do(_op.SUBTRACT_REGISTER, now, since),
        _do(_op.STORE, _STACK, now, _LEFT),
        _do(_op.CALL, immediate=bpf.Helper.CPU),
        (_do(_op.JUMP_IF_REGISTERS_DIFFER, _R0, number), 'unknown'),
        _do(_op.MOVE, number),
        'slices',
        _do(_op.ADD, number, immediate=1),
        (_do(_op.JUMP_IF_NOT_LESS, number, immediate=SLICES + 1), 'unknown'),
        _do(_op.LOAD, 1, cpu, _COUNT),
        _do(_op.SUBTRACT_REGISTER, 1, number),
        *_slice(cpu),
        _do(_op.LOAD, 3, 2, 24),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, since, 3), 'unknown'),
        _do(_op.LOAD, 1, 2, 8),
        _do(_op.STORE_WORD, _STACK, 1, _PROCESS),
        _do(_op.LOAD, 1, 2, 16),
        _do(_op.STORE, _STACK, 1, _CGROUP),
        _do(_op.LOAD, 1, 2),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, 1, since), 'amount'),
        _do(_op.MOVE_REGISTER, 1, since),
        'amount',
        _do(_op.SUBTRACT_REGISTER, 3, 1),
        _do(_op.STORE, _STACK, 3, _AMOUNT),
        _do(_op.LOAD, 1, _STACK, _LEFT),
        _do(_op.SUBTRACT_REGISTER, 1, 3),
        _do(_op.STORE, _STACK, 1, _LEFT),
        *_find(maps.pairs),
        _do(_op.MOVE, 1),
        _do(_op.STORE_WORD, _STACK, 1, _PROCESS),
        *_find(maps.rest),
        _do(_op.LOAD, 1, _STACK, _AMOUNT),
        _do(_op.LOAD, 2, _STACK, _LEFT),
        _do(_op.ADD_REGISTER, 2, 1),
        _do(_op.STORE, _STACK, 2, _LEFT),
        (_do(_op.JUMP), 'slices'),
        'add',
        _do(_op.LOAD, 1, _STACK, _AMOUNT),
        _do(_op.ATOMIC_ADD, _R0, 1),
        (_do(_op.JUMP), 'slices'),
        'unknown',
        _do(_op.LOAD, 1, _STACK, _LEFT),
        (_do(_op.JUMP_IF_EQUAL, 1), 'end'),
        *bpf.map_call(lookup, maps.unknown, _VICTIM),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.LOAD, 1, _STACK, _LEFT),
        _do(_op.ATOMIC_ADD, _R0, 1),
        'end',
        _do(_op.MOVE, _R0),
        _do(_op.EXIT)))


def _slice(cpu: int) -> tuple[bytes, ...]:
    """Register 2 points to the slice of number register 1."""
    return (_do(_op.AND, 1, immediate=SLICES - 1),
            _do(_op.SHIFT_LEFT, 1, immediate=SLICE_BITS),
            _do(_op.MOVE_REGISTER, 2, cpu),
            _do(_op.ADD_REGISTER, 2, 1))


def _find(pairs: int) -> tuple[bytes | tuple[bytes, str], ...]:
    """To ``add`` with the pair at register 0, to ``slices`` if it is new.

    Where another CPU is first with a new one it has no room.
    """
    return (*bpf.map_call(bpf.Helper.MAP_LOOKUP, pairs, _CGROUP),
            (_do(_op.JUMP_IF_NOT_EQUAL, _R0), 'add'),
            *bpf.map_call(bpf.Helper.MAP_UPDATE, pairs, _CGROUP, _AMOUNT,
                          bpf.NO_EXIST),
            (_do(_op.JUMP_IF_EQUAL, _R0), 'slices'))


class CpuWaits(watched_threads.Counter):
    """Which process ran while threads of victims waited for a CPU."""

    purpose = PURPOSE

    def waits(self) -> Waits:
        """Return what was counted so far.

        :raises DriverError: it cannot be read, or was closed.
        """
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        read, maps, victims = (self._programs.entries, self._maps,
                               self._victims)
        behind = {
            (victims[victim], Runner(process, cgroup)): ns / 1e9
            for pairs, most in ((maps.pairs, MOST_PAIRS),
                                (maps.rest, MOST_CGROUPS))
            for (cgroup, process, victim), (ns,) in read(
                pairs, _PAIR, bpf.NUMBER, most)}
        unknown = {victims[victim]: ns / 1e9 for (victim,), (ns,) in read(
            maps.unknown, bpf.WORD, bpf.NUMBER, max(1, len(victims)))
            if victim < len(victims)}
        lasting = {
            thread: (victims[victim], max(0, now_ns - ns) / 1e9)
            for (thread,), (ns, victim, _) in read(
                maps.since, bpf.WORD, _RUNNABLE, MOST_RUNNABLE)}
        return Waits(behind, unknown, lasting)

    def _open(self) -> watched_threads.Maps:
        programs = self._programs
        followed = watched_threads.maps(programs, MOST_WATCHED)
        self._maps = maps = Maps(
            *followed,
            since=programs.map(bpf.Map.LRU_HASH, value_bytes=_RUNNABLE.size,
                               entries=MOST_RUNNABLE),
            cpus=programs.map(bpf.Map.PER_CPU_ARRAY, value_bytes=CPU_BYTES),
            pairs=programs.map(bpf.Map.HASH, key_bytes=_PAIR.size,
                               entries=MOST_PAIRS),
            rest=programs.map(bpf.Map.HASH, key_bytes=_PAIR.size,
                              entries=MOST_CGROUPS),
            unknown=programs.map(bpf.Map.ARRAY,
                                 entries=max(1, len(self._victims))))
        woken = {'pid': 4, 'target_cpu': 4}
        watched_threads.attach(programs, followed)
        # What waits comes after what runs, so that it is known from the
        # beginning what ran meanwhile: that since when is 0, too.
        for name, fields, program in (
                ('switch', {'prev_pid': 4, 'prev_state': 8, 'next_pid': 4},
                 switch_program),
                ('wakeup', woken, wakeup_program),
                ('wakeup_new', woken, new_program)):
            name = f'sched:sched_{name}'
            event = programs.event(name, fields)
            programs.attach(name, event, program(event, maps))
        return followed
