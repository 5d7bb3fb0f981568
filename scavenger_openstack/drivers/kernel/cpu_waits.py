# SPDX-License-Identifier: Apache-2.0

"""Which thread ran while another was runnable and had to wait for a CPU.

BPF programs on the scheduler's tracepoints note since when a thread is
runnable, and, when it gets a CPU, add the time to the pair of this thread and
of the one that leaves the CPU to it.  Netflix watches noisy neighbours by the
same tracepoints.  At each context switch of the host that takes some 0.4 us:
so for a few seconds at a time, while something waits.
"""

from __future__ import annotations

from collections.abc import Mapping
import struct
import time
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf

PURPOSE = 'tell which thread runs while another waits for a CPU'

MOST_PAIRS = 16384
MOST_RUNNABLE = 32768
"""Threads that wait at the same time; of more the oldest are forgotten."""

_PAIR, _RUNNABLE = struct.Struct('=II'), struct.Struct('=I')
_NS = struct.Struct('=Q')


class Waits(NamedTuple):
    """Seconds for which threads were runnable without a CPU.

    ``behind``: by thread id of who waited, and who ran then on the CPU that it
    got (0: none, it was idle and had to wake up).  ``lasting``: by who waits
    still.  ``lost``: what the table of pairs had no room for.
    """

    behind: Mapping[tuple[int, int], float]
    lasting: Mapping[int, float]
    lost_s: float


def wakeup_program(event: bpf.Event, since: int) -> bytes:
    """``since[pid] = now``, at ``sched_wakeup`` and ``sched_wakeup_new``."""
    op, instruction = bpf.Op, bpf.instruction
    return bpf.assembled((
        instruction(op.LOAD_WORD, 1, 1, event.offsets['pid']),
        instruction(op.STORE_WORD, 10, 1, -4),
        instruction(op.CALL, immediate=bpf.Helper.KTIME_NS),
        instruction(op.STORE, 10, 0, -16),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, since, -4, -16),
        instruction(op.MOVE, 0),
        instruction(op.EXIT)))


def switch_program(event: bpf.Event, since: int, pairs: int, lost: int
                   ) -> bytes:
    """At ``sched_switch``, in words::

        if prev is still runnable and not idle: since[prev] = now
        if next is not idle and next in since:
            pairs[next, prev] += now - since.pop(next)

    What has no room in ``pairs`` goes to ``lost[0]``.
    """
    op, instruction, at = bpf.Op, bpf.instruction, event.offsets
    pair, now, waited, first, r0, context = -24, -16, -32, 0, 0, 6
    return bpf.assembled((
        instruction(op.MOVE_REGISTER, context, 1),
        instruction(op.CALL, immediate=bpf.Helper.KTIME_NS),
        instruction(op.STORE, 10, r0, now),
        # Who leaves the CPU, beside it who gets it.
        instruction(op.LOAD_WORD, 7, context, at['next_pid']),
        instruction(op.STORE_WORD, 10, 7, pair),
        instruction(op.LOAD_WORD, 8, context, at['prev_pid']),
        instruction(op.STORE_WORD, 10, 8, pair + 4),
        (instruction(op.JUMP_IF_EQUAL, 8), 'next'),
        instruction(op.LOAD, 1, context, at['prev_state']),
        instruction(op.AND, 1, immediate=0xff),
        (instruction(op.JUMP_IF_NOT_EQUAL, 1), 'next'),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, since, pair + 4, now),
        'next',
        (instruction(op.JUMP_IF_EQUAL, 7), 'end'),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, since, pair),
        (instruction(op.JUMP_IF_EQUAL, r0), 'end'),
        instruction(op.LOAD, 1, r0),
        instruction(op.LOAD, 8, 10, now),
        instruction(op.SUBTRACT_REGISTER, 8, 1),
        *bpf.map_call(bpf.Helper.MAP_DELETE, since, pair),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, pairs, pair),
        (instruction(op.JUMP_IF_NOT_EQUAL, r0), 'add'),
        instruction(op.STORE, 10, 8, waited),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, pairs, pair, waited),
        (instruction(op.JUMP_IF_EQUAL, r0), 'end'),
        instruction(op.STORE_WORD, 10, r0, pair),
        instruction(op.MOVE, 1),
        instruction(op.STORE_WORD, 10, 1, pair),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, lost, pair),
        (instruction(op.JUMP_IF_EQUAL, r0), 'end'),
        'add',
        instruction(op.ATOMIC_ADD, r0, 8, first),
        'end',
        instruction(op.MOVE, r0),
        instruction(op.EXIT)))


class CpuWaits:
    """Counts from now on until it is closed.

    :raises Unsupported: this kernel does not let us, or cannot, or this
        process would take the thread ids for others.
    """

    def __init__(self) -> None:
        self._programs = bpf.Programs(PURPOSE, initial_pids=True)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def waits(self) -> Waits:
        """What was counted so far.

        :raises DriverError: it cannot be read, or was closed.
        """
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        read = self._programs.entries
        behind = {pair: ns / 1e9 for pair, (ns,) in read(
            self._pairs, _PAIR, _NS, MOST_PAIRS)}
        lasting = {pid: max(0, now_ns - ns) / 1e9 for (pid,), (ns,) in read(
            self._since, _RUNNABLE, _NS, MOST_RUNNABLE)}
        (_, (lost_ns,)), = read(self._lost, _RUNNABLE, _NS, 1)
        return Waits(behind, lasting, lost_ns / 1e9)

    def close(self) -> None:
        """Take the programs out of the kernel; twice does no harm."""
        self._programs.close()

    def _open(self) -> None:
        programs = self._programs
        self._since = programs.map(bpf.Map.LRU_HASH, entries=MOST_RUNNABLE)
        self._pairs = programs.map(bpf.Map.HASH, key_bytes=_PAIR.size,
                                   entries=MOST_PAIRS)
        self._lost = programs.map(bpf.Map.ARRAY)
        name = 'sched:sched_switch'
        event = programs.event(name, {
            'prev_pid': 4, 'prev_state': 8, 'next_pid': 4})
        programs.attach(name, event, switch_program(
            event, self._since, self._pairs, self._lost))
        for name in 'sched:sched_wakeup', 'sched:sched_wakeup_new':
            event = programs.event(name, {'pid': 4})
            programs.attach(name, event, wakeup_program(event, self._since))
