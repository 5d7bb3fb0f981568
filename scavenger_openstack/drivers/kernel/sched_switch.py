# SPDX-License-Identifier: Apache-2.0

"""What runs on each CPU, told by the kernel at every context switch.

A program of a dozen BPF instructions, assembled here, sits on the tracepoint
``sched:sched_switch`` and notes what comes next in an array that this process
has mapped: reading it is no system call.  ``/proc/stat`` counts in steps of
10 ms, too coarse for a loop of a millisecond (PerfIso, section 3.1.1, asks
for a low-latency, low-overhead way to count idle CPUs).
"""

from __future__ import annotations

from collections.abc import Iterable
import mmap
import os
import struct
import threading
import time

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack import errors

IDLE = 1
"""What the array holds for an idle CPU: pid 0, plus one."""

STRIDE = 64
"""Bytes per CPU in the array: a cache line each, so that the switches of one
CPU do not slow down those of its neighbours."""

VISIT_S = 1.0
"""So long the start waits for the thread that visits each CPU: on one that a
real-time guest keeps for itself no other thread may ever run."""


def program(next_pid_offset: int, map_fd: int, cpus: int) -> bytes:
    """The BPF program: ``array[this CPU] = next_pid + 1``.

    It leaves the CPU's entry alone when the thread that comes next is the
    one that the word before the first entry names (by its pid, plus one):
    the observer.  So the array shows what the observer found, not itself.

    :param next_pid_offset: bytes from the start of the event's record.
    :param map_fd: descriptor of the map, one value of ``cpus`` + 1 entries.
    """
    r0, r1, r6, r7 = 0, 1, 6, 7
    op, instruction = bpf.Op, bpf.instruction
    return bpf.assembled((
        instruction(op.LOAD_WORD, r6, r1, next_pid_offset),
        instruction(op.ADD, r6, immediate=1),
        bpf.load_map(r7, map_fd, bpf.MAP_VALUE),
        instruction(op.LOAD, r1, r7),
        (instruction(op.JUMP_IF_REGISTERS_EQUAL, r6, r1), 'end'),
        instruction(op.CALL, immediate=bpf.Helper.CPU),
        (instruction(op.JUMP_IF_NOT_LESS, r0, immediate=cpus), 'end'),
        instruction(op.SHIFT_LEFT, r0, immediate=STRIDE.bit_length() - 1),
        instruction(op.ADD_REGISTER, r7, r0),
        instruction(op.STORE, r7, r6, STRIDE),
        'end',
        instruction(op.MOVE, r0),
        instruction(op.EXIT),
    ))


def layout(cpus: Iterable[int]) -> struct.Struct:
    """Picks the entries of ``cpus`` out of the array, in order.

    In native mode, so that each word is read at once.
    """
    text, end = '', 0
    for cpu in sorted(cpus):
        start = (cpu + 1) * STRIDE
        text += f'{start - end}xQ'
        end = start + 8
    return struct.Struct(text)


class SchedSwitch:
    """The thread that runs on each CPU of this machine, now.

    At the start a short-lived thread visits each CPU that is not isolated, so
    that each has switched once.  A CPU that it may not enter (this process
    has a cpuset), or where it gets no turn, stays unknown until its next
    switch, and unknown is not idle.

    A CPU that is taken offline goes idle first and stays so: those that were
    offline at the last :meth:`refresh` do not count.

    :raises Unsupported: this kernel does not let us, or cannot.
    :raises DriverError: no thread can be started.
    """

    def __init__(self) -> None:
        self._programs = bpf.Programs(
            'tell what runs on each CPU, so no CPU buffer can be kept')
        self._memory: mmap.mmap | None = None
        self._words: memoryview | None = None
        self._observer: memoryview | None = None
        self._counted: frozenset[int] | None = None
        self._online = online_cpus.OnlineCpus()
        self._layout = layout(())
        self.refresh()
        try:
            self._open()
            visitor = threading.Thread(target=self._visit, daemon=True,
                                       name='visit-cpus')
            calls.start(visitor)
            visitor.join(VISIT_S)
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int | None]:
        """Thread id (0 is idle, ``None`` not known yet) for each CPU.

        Ids are those of the first pid namespace.
        """
        return [word - 1 if word else None
                for word in self._array().tolist()]

    def idle(self, cpus: Iterable[int]) -> frozenset[int]:
        """Return which of ``cpus`` are idle."""
        words = self._array()
        return frozenset([cpu for cpu in cpus if words[cpu] == IDLE])

    def idle_count(self, cpus: frozenset[int]) -> int:
        """Return how many of ``cpus`` are idle: 1.3 us for 64 CPUs.

        Quick while the same object comes again.
        """
        if cpus is not self._counted:
            self._layout = layout(cpus & self._online.now)
            self._counted = cpus
        memory = self._memory
        if memory is None:
            raise _closed()
        return self._layout.unpack_from(memory).count(IDLE)

    def refresh(self) -> None:
        """Find out which CPUs are online."""
        if self._online.refresh():
            self._counted = None

    def observe(self) -> None:
        """Make the calling thread the observer, in place of an earlier one.

        From now on it does not see itself: a CPU that was idle until this
        thread woke up still counts as idle, and one that this thread took
        from another counts as busy.  Without this a loop on a full machine
        would take the CPU that it runs on for an idle one.
        """
        words = self._array()
        assert self._observer is not None
        self._observer[0] = 0
        allowed = os.sched_getaffinity(0)
        cpu = min(allowed)
        try:
            os.sched_setaffinity(0, {cpu})
            time.sleep(0.0001)
            self._observer[0] = words[cpu]
        finally:
            os.sched_setaffinity(0, allowed)

    def close(self) -> None:
        """Take the program out of the kernel; twice does no harm."""
        for view in (self._words, self._observer):
            if view is not None:
                view.release()
        self._words = self._observer = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self._online.close()
        self._programs.close()

    def _array(self) -> memoryview:
        if self._words is None:
            raise _closed()
        return self._words

    def _open(self) -> None:
        name = 'sched:sched_switch'
        event = self._programs.event(name, {'next_pid': 4})
        cpus = max(online_cpus.possible()) + 1
        size = (cpus + 1) * STRIDE
        array = self._programs.map(bpf.Map.ARRAY, value_bytes=size,
                                   flags=bpf.F_MMAPABLE)
        self._programs.attach(name, event, program(
            event.offsets['next_pid'], array, cpus))
        try:
            self._memory = mmap.mmap(array, size)
        except OSError as exc:
            raise self._programs.unsupported(
                'attach a BPF program to sched_switch',
                exc.errno or 0) from exc
        with memoryview(self._memory) as raw, raw.cast('Q') as flat:
            self._observer = flat[:1]
            self._words = flat[STRIDE // 8::STRIDE // 8]

    def _visit(self) -> None:
        every = range(len(self._array()))
        for cpu in sorted(frozenset(every) - online_cpus.isolated()):
            try:
                os.sched_setaffinity(0, {cpu})
            except OSError:
                continue
            time.sleep(0.0001)


def _closed() -> errors.DriverError:
    return errors.DriverError('what runs on each CPU is not watched any more: '
                              'the reader is closed')
