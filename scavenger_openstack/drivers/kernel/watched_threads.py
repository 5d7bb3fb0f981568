# SPDX-License-Identifier: Apache-2.0

"""BPF programs that follow the threads of victims while they begin and end.

``watched`` has the number of a victim by the id of a thread or process, as it
was listed.  What a watched one starts is watched, too, and what ends is not
any more, so that another one that gets its id is none of the victim's; but for
what ends in the moment between the listing and the map.

``ended`` has the processes of the host whose first thread ended, at which
another process may get the id.  What has no room there is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf

MOST_ENDED = 16384
MOST_VICTIMS = 8

PID, VALUE = -4, -16
"""Where on the stack of these programs they are."""

_op, _do = bpf.Op, bpf.instruction
_R0, _CONTEXT, _STACK = 0, 6, 10
_ZERO = -20


class Ended(NamedTuple):
    """Processes whose first thread ended; ``all``: of the host."""

    processes: frozenset[int]
    all: bool


class Maps(NamedTuple):
    """Descriptors.  ``missed``: how many had no room in ``ended``."""

    watched: int
    ended: int
    missed: int


def maps(programs: bpf.Programs, most: int) -> Maps:
    """New maps.

    :param most: threads or processes that are watched
    """
    return Maps(programs.map(bpf.Map.HASH, entries=most),
                programs.map(bpf.Map.HASH, entries=MOST_ENDED),
                programs.map(bpf.Map.ARRAY))


def attach(programs: bpf.Programs, to: Maps) -> None:
    """Follow what ends and what starts another program.

    :raises Unsupported: the kernel refuses.
    """
    for name, fields, made in (
            ('exit', {'pid': 4}, exit_program),
            ('exec', {'pid': 4, 'old_pid': 4}, exec_program)):
        name = f'sched:sched_process_{name}'
        event = programs.event(name, fields)
        programs.attach(name, event, made(event, to))


def exit_program(event: bpf.Event, to: Maps) -> bytes:
    """Return the program at ``sched_process_exit``."""
    return program(
        event, *bpf.map_call(bpf.Helper.MAP_DELETE, to.watched, PID),
        _do(_op.CALL, immediate=bpf.Helper.PROCESS_AND_THREAD),
        _do(_op.SHIFT_RIGHT, _R0, immediate=32),
        _do(_op.LOAD_WORD, 1, _STACK, PID),
        (_do(_op.JUMP_IF_REGISTERS_DIFFER, _R0, 1), 'end'),
        _do(_op.STORE, _STACK, _R0, VALUE),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, to.ended, PID, VALUE),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.MOVE, 1),
        _do(_op.STORE_WORD, _STACK, 1, _ZERO),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, to.missed, _ZERO),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.MOVE, 1, immediate=1),
        _do(_op.ATOMIC_ADD, _R0, 1))


def exec_program(event: bpf.Event, to: Maps) -> bytes:
    """At ``sched_process_exec``: a thread that starts another program has the
    id of the first one from then on, which ended for that."""
    old = -24
    return program(
        event, _do(_op.LOAD_WORD, 2, _CONTEXT, event.offsets['old_pid']),
        (_do(_op.JUMP_IF_REGISTERS_EQUAL, 1, 2), 'end'),
        _do(_op.STORE_WORD, _STACK, 2, old),
        *bpf.map_call(bpf.Helper.MAP_DELETE, to.ended, PID),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, to.watched, old),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.LOAD, 1, _R0),
        _do(_op.STORE, _STACK, 1, VALUE),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, to.watched, PID, VALUE),
        *bpf.map_call(bpf.Helper.MAP_DELETE, to.watched, old))


def new_program(event: bpf.Event, to: Maps, *more: bytes, by_thread: bool
                ) -> bytes:
    """Return the program at ``sched_wakeup_new``.

    :param more: what runs then for one that is watched, with the value at
        register 0 and the event in register 6
    :param by_thread: what is watched are threads, not processes
    """
    parent = -24
    return program(
        event, _do(_op.CALL, immediate=bpf.Helper.PROCESS_AND_THREAD),
        *(() if by_thread else (_do(_op.SHIFT_RIGHT, _R0, immediate=32),)),
        _do(_op.STORE_WORD, _STACK, _R0, parent),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, to.watched, parent),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        *more,
        _do(_op.LOAD, 1, _R0),
        _do(_op.STORE, _STACK, 1, VALUE),
        *bpf.map_call(bpf.Helper.MAP_UPDATE, to.watched, PID, VALUE))


def ended(programs: bpf.Programs, of: Maps) -> Ended:
    """Return what ended so far.

    :raises DriverError: it cannot be read.
    """
    (_, (missed,)), = programs.entries(of.missed, bpf.WORD, bpf.NUMBER, 1)
    return Ended(frozenset(process for (process,), _ in programs.entries(
        of.ended, bpf.WORD, bpf.NUMBER, MOST_ENDED)), not missed)


def program(event: bpf.Event, *parts: bytes | tuple[bytes, str]) -> bytes:
    """Return what an event of one thread runs, which is in register 6; the id
    is on the stack."""
    return bpf.assembled((
        _do(_op.MOVE_REGISTER, _CONTEXT, 1),
        _do(_op.LOAD_WORD, 1, _CONTEXT, event.offsets['pid']),
        _do(_op.STORE_WORD, _STACK, 1, PID),
        *parts,
        'end',
        _do(_op.MOVE, _R0),
        _do(_op.EXIT)))


class Counter:
    """Programs that count what victims wait for until they are closed.

    A subclass has the ``purpose`` and loads the programs in :meth:`_open`.

    :param victims: the workloads that wait, with the ids of their threads or
        processes
    :raises Unsupported: this kernel does not let us, or cannot, or this
        process would take the ids for others.
    """

    purpose = ''
    first_number = 0
    """Of the victims."""

    def __init__(self, victims: Mapping[str, Iterable[int]]) -> None:
        if len(victims) > MOST_VICTIMS:
            raise ValueError(f'more than {MOST_VICTIMS} victims')
        self._victims = tuple(victims)
        self._programs = bpf.Programs(self.purpose, initial_pids=True)
        try:
            self._followed = self._open()
            self.watch(victims)
        except BaseException:
            self.close()
            raise

    def _open(self) -> Maps:
        """Load the programs; return the maps of what is watched."""
        raise NotImplementedError

    def watch(self, victims: Mapping[str, Iterable[int]]) -> None:
        """Count from now on what these wait, too, and those that they start.

        :raises DriverError: there is no room for all.
        """
        watched = {number: victim for victim, workload
                   in enumerate(self._victims, self.first_number)
                   for number in victims.get(workload, ())}
        self._programs.put(
            self._followed.watched, b''.join(map(bpf.WORD.pack, watched)),
            b''.join(map(bpf.NUMBER.pack, watched.values())), len(watched))

    def ended(self) -> Ended:
        """Return what ended so far; others may have their ids now.

        :raises DriverError: it cannot be read.
        """
        return ended(self._programs, self._followed)

    def close(self) -> None:
        """Take the programs out of the kernel; twice does no harm.

        The kernel takes its time: some 0.3 s in all, in which nothing runs.
        """
        self._programs.close()
