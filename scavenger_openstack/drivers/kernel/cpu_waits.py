# SPDX-License-Identifier: Apache-2.0

"""Which thread ran while another was runnable and had to wait for a CPU.

BPF programs on the scheduler's tracepoints note since when a thread is
runnable, and, when it gets a CPU, add the time to pairs of this thread and of
those that had the CPU.  Netflix watches noisy neighbours by the same
tracepoints.  They run at each context switch of the host: so for a few
seconds at a time, while something waits, and for the threads that are watched,
with those that they start.

Another thread may get the id of one that ends meanwhile: threads that end are
noted, too.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import struct
import time
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack import errors

PURPOSE = 'tell which thread runs while another waits for a CPU'

MOST_PAIRS = 16384
MOST_WATCHED = 32768
MOST_RUNNABLE = 32768
"""Threads that wait at the same time; of more the oldest are forgotten."""
MOST_ENDED = 16384

_PAIR, _RUNNABLE = struct.Struct('=II'), struct.Struct('=I')
_NS = struct.Struct('=Q')
_PID, _VALUE = -4, -16
"""Where on the stack of a program they are."""

_CPU_BYTES = 24
_LONG_SHIFT = 40
"""Nothing runs for so long at a time: 2 ** 40 ns, some 18 minutes."""


class Waits(NamedTuple):
    """Seconds for which threads were runnable without a CPU.

    ``behind``: by the ids of the thread that waited and of one that ran
    meanwhile on the CPU that it got (0: none, it was idle and had to wake up).
    ``lasting``: by the ids of those that wait still.  ``lost``: what the table
    of pairs had no room for.
    """

    behind: Mapping[tuple[int, int], float]
    lasting: Mapping[int, float]
    lost_s: float


def exit_program(event: bpf.Event, ended: int) -> bytes:
    """``ended[pid]`` is the cgroup, at ``sched_process_exit``."""
    return _program(event, *_note(bpf.Helper.CGROUP_ID, ended))


def wakeup_program(event: bpf.Event, watched: int, since: int) -> bytes:
    """``since[pid] = now`` if it is watched, at ``sched_wakeup``."""
    op, instruction = bpf.Op, bpf.instruction
    return _program(
        event, *bpf.map_call(bpf.Helper.MAP_LOOKUP, watched, _PID),
        (instruction(op.JUMP_IF_EQUAL, 0), 'end'),
        *_note(bpf.Helper.KTIME_NS, since))


def new_program(event: bpf.Event, watched: int, since: int) -> bytes:
    """The same at ``sched_wakeup_new``, and it is watched if the thread is
    that started it."""
    op, instruction, parent = bpf.Op, bpf.instruction, -8
    return _program(
        event, instruction(op.CALL, immediate=bpf.Helper.PROCESS_AND_THREAD),
        instruction(op.STORE_WORD, 10, 0, parent),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, watched, parent),
        (instruction(op.JUMP_IF_EQUAL, 0), 'end'),
        *_note(bpf.Helper.KTIME_NS, since),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, watched, _PID, _VALUE))


def switch_program(event: bpf.Event, watched: int, since: int, cpus: int,
                   pairs: int, lost: int) -> bytes:
    """At ``sched_switch``, in words::

        ran, cpu.start = now - cpu.start, now
        if prev is still runnable and in watched: since[prev] = now
        if next in since:
            waited = now - since.pop(next)
            if ran < waited and prev is not idle \\
                    and cpu.longest not in (idle, next):
                pairs[next, cpu.longest] += waited - ran
                waited = ran
            pairs[next, prev] += waited
        if ran >= cpu.ran / 4: cpu.longest, cpu.ran = prev, ran
        else: cpu.ran /= 2

    So what ran for a moment before ``next`` got the CPU has that moment, and
    what ran for long before that the rest.  What has no room in ``pairs`` goes
    to ``lost[0]``.
    """
    op, instruction, at = bpf.Op, bpf.instruction, event.offsets
    lookup, update = bpf.Helper.MAP_LOOKUP, bpf.Helper.MAP_UPDATE
    pair, now, prev, key, r0 = -24, -16, -40, -36, 0
    start, longest_ran, longest = 0, 8, 16      # of cpu
    cpu, next_, wait, ran = 6, 7, 8, 9
    return bpf.assembled((
        # Who leaves the CPU, beside it who gets it.
        instruction(op.LOAD_WORD, next_, 1, at['next_pid']),
        instruction(op.STORE_WORD, 10, next_, pair),
        instruction(op.LOAD_WORD, 8, 1, at['prev_pid']),
        instruction(op.STORE_WORD, 10, 8, pair + 4),
        instruction(op.STORE_WORD, 10, 8, prev),
        instruction(op.LOAD, 9, 1, at['prev_state']),
        instruction(op.MOVE, 1),
        instruction(op.STORE_WORD, 10, 1, key),
        *bpf.map_call(lookup, cpus, key),
        (instruction(op.JUMP_IF_EQUAL, r0), 'end'),
        instruction(op.MOVE_REGISTER, cpu, r0),
        instruction(op.CALL, immediate=bpf.Helper.KTIME_NS),
        instruction(op.STORE, 10, r0, now),
        (instruction(op.JUMP_IF_EQUAL, 8), 'next'),
        instruction(op.AND, 9, immediate=0xff),
        (instruction(op.JUMP_IF_NOT_EQUAL, 9), 'next'),
        *bpf.map_call(lookup, watched, pair + 4),
        (instruction(op.JUMP_IF_EQUAL, r0), 'next'),
        *bpf.map_call(update, since, pair + 4, now),
        'next',
        instruction(op.LOAD, ran, 10, now),
        instruction(op.MOVE_REGISTER, 2, ran),
        instruction(op.LOAD, 1, cpu, start),
        instruction(op.SUBTRACT_REGISTER, ran, 1),
        instruction(op.STORE, cpu, 2, start),
        (instruction(op.JUMP_IF_EQUAL, next_), 'remember'),
        *bpf.map_call(lookup, since, pair),
        (instruction(op.JUMP_IF_EQUAL, r0), 'remember'),
        instruction(op.LOAD, 1, r0),
        instruction(op.LOAD, wait, 10, now),
        instruction(op.SUBTRACT_REGISTER, wait, 1),
        *bpf.map_call(bpf.Helper.MAP_DELETE, since, pair),
        instruction(op.LOAD_WORD, 1, 10, prev),
        (instruction(op.JUMP_IF_EQUAL, 1), 'all'),
        (instruction(op.JUMP_IF_REGISTER_NOT_LESS, ran, wait), 'all'),
        instruction(op.LOAD_WORD, 1, cpu, longest),
        (instruction(op.JUMP_IF_EQUAL, 1), 'all'),
        (instruction(op.JUMP_IF_REGISTERS_EQUAL, 1, next_), 'all'),
        instruction(op.STORE_WORD, 10, 1, pair + 4),
        instruction(op.SUBTRACT_REGISTER, wait, ran),
        *_add(pairs, lost, pair, 'part'),
        instruction(op.LOAD_WORD, 1, 10, prev),
        instruction(op.STORE_WORD, 10, 1, pair + 4),
        instruction(op.MOVE_REGISTER, wait, ran),
        'all',
        *_add(pairs, lost, pair, 'whole'),
        'remember',
        # Since when what ran first is there is not known.
        instruction(op.MOVE_REGISTER, 1, ran),
        instruction(op.SHIFT_RIGHT, 1, immediate=_LONG_SHIFT),
        (instruction(op.JUMP_IF_NOT_EQUAL, 1), 'end'),
        instruction(op.MOVE_REGISTER, 1, ran),
        instruction(op.SHIFT_LEFT, 1, immediate=2),
        instruction(op.LOAD, 2, cpu, longest_ran),
        (instruction(op.JUMP_IF_REGISTER_NOT_LESS, 1, 2), 'longest'),
        instruction(op.SHIFT_RIGHT, 2, immediate=1),
        instruction(op.STORE, cpu, 2, longest_ran),
        (instruction(op.JUMP), 'end'),
        'longest',
        instruction(op.STORE, cpu, ran, longest_ran),
        instruction(op.LOAD_WORD, 1, 10, prev),
        instruction(op.STORE_WORD, cpu, 1, longest),
        'end',
        instruction(op.MOVE, r0),
        instruction(op.EXIT)))


def _add(pairs: int, lost: int, pair: int, name: str
         ) -> Iterator[bytes | tuple[bytes, str] | str]:
    """``pairs[pair] += wait``, which is in register 8; else ``lost[0]``."""
    op, instruction, wait, waited, first, r0 = (bpf.Op, bpf.instruction, 8,
                                                -32, -44, 0)
    lookup = bpf.Helper.MAP_LOOKUP
    yield from bpf.map_call(lookup, pairs, pair)
    yield instruction(op.JUMP_IF_NOT_EQUAL, r0), f'add {name}'
    yield instruction(op.STORE, 10, wait, waited)
    yield from bpf.map_call(bpf.Helper.MAP_UPDATE, pairs, pair, waited)
    yield instruction(op.JUMP_IF_EQUAL, r0), f'added {name}'
    yield instruction(op.MOVE, 1)
    yield instruction(op.STORE_WORD, 10, 1, first)
    yield from bpf.map_call(lookup, lost, first)
    yield instruction(op.JUMP_IF_EQUAL, r0), f'added {name}'
    yield f'add {name}'
    yield instruction(op.ATOMIC_ADD, r0, wait)
    yield f'added {name}'


def _program(event: bpf.Event, *parts: bytes | tuple[bytes, str]) -> bytes:
    """What an event of one thread runs; its id is on the stack."""
    op, instruction = bpf.Op, bpf.instruction
    return bpf.assembled((
        instruction(op.LOAD_WORD, 1, 1, event.offsets['pid']),
        instruction(op.STORE_WORD, 10, 1, _PID),
        *parts,
        'end',
        instruction(op.MOVE, 0),
        instruction(op.EXIT)))


def _note(what: bpf.Helper, notes: int) -> tuple[bytes, ...]:
    """``notes[pid] = what()``."""
    return (bpf.instruction(bpf.Op.CALL, immediate=what),
            bpf.instruction(bpf.Op.STORE, 10, 0, _VALUE),
            *bpf.map_call(bpf.Helper.MAP_UPDATE, notes, _PID, _VALUE))


class CpuWaits:
    """Counts until it is closed, what is watched.

    :raises Unsupported: this kernel does not let us, or cannot, or this
        process would take the thread ids for others.
    """

    def __init__(self) -> None:
        self._fault: errors.DriverError | None = None
        self._programs = bpf.Programs(PURPOSE, initial_pids=True)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def watch(self, threads: Collection[int]) -> None:
        """Count from now on what these wait, and those that they start.

        Where they are too many :meth:`waits` says so.
        """
        try:
            self._programs.put(
                self._watched, b''.join(map(_RUNNABLE.pack, threads)),
                bytes(_NS.size * len(threads)), len(threads))
        except errors.DriverError as exc:
            self._fault = exc

    def waits(self) -> Waits:
        """What was counted so far.

        :raises DriverError: it cannot be read, or was closed, or not all
            are watched that should be.
        """
        if self._fault:
            raise self._fault
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        read = self._programs.entries
        behind = {pair: ns / 1e9 for pair, (ns,) in read(
            self._pairs, _PAIR, _NS, MOST_PAIRS)}
        lasting = {pid: max(0, now_ns - ns) / 1e9 for (pid,), (ns,) in read(
            self._since, _RUNNABLE, _NS, MOST_RUNNABLE)}
        (_, (lost_ns,)), = read(self._lost, _RUNNABLE, _NS, 1)
        return Waits(behind, lasting, lost_ns / 1e9)

    def ended(self) -> dict[int, int]:
        """The threads that ended so far, with the inode of the cgroup of
        version 2 that each was in; others may have their ids now.

        :raises DriverError: there were too many, or they cannot be read.
        """
        ended = {pid: inode for (pid,), (inode,) in self._programs.entries(
            self._ended, _RUNNABLE, _NS, MOST_ENDED)}
        if len(ended) == MOST_ENDED:
            raise errors.DriverError(
                f'cannot {PURPOSE}: {MOST_ENDED} threads or more ended '
                'meanwhile')
        return ended

    def close(self) -> None:
        """Take the programs out of the kernel; twice does no harm.

        The kernel takes its time: some 0.3 s in all, in which nothing runs.
        """
        self._programs.close()

    def _open(self) -> None:
        programs = self._programs
        self._watched = programs.map(bpf.Map.HASH, entries=MOST_WATCHED)
        self._since = programs.map(bpf.Map.LRU_HASH, entries=MOST_RUNNABLE)
        self._cpus = programs.map(bpf.Map.PER_CPU_ARRAY,
                                  value_bytes=_CPU_BYTES)
        self._pairs = programs.map(bpf.Map.HASH, key_bytes=_PAIR.size,
                                   entries=MOST_PAIRS)
        self._lost = programs.map(bpf.Map.ARRAY)
        self._ended = programs.map(bpf.Map.HASH, entries=MOST_ENDED)
        for name, program, maps in (
                ('process_exit', exit_program, (self._ended,)),
                ('wakeup', wakeup_program, (self._watched, self._since)),
                ('wakeup_new', new_program, (self._watched, self._since))):
            name = f'sched:sched_{name}'
            event = programs.event(name, {'pid': 4})
            programs.attach(name, event, program(event, *maps))
        # The last, and the first that goes: it costs most.
        name = 'sched:sched_switch'
        event = programs.event(name, {
            'prev_pid': 4, 'prev_state': 8, 'next_pid': 4})
        programs.attach(name, event, switch_program(
            event, self._watched, self._since, self._cpus, self._pairs,
            self._lost))
