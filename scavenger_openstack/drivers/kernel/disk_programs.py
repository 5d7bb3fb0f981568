# SPDX-License-Identifier: Apache-2.0

"""The BPF programs of :mod:`.disk_waits`, in words.

``start`` has what is in flight, by first sector and disk::

    block_bio_queue:      start[sector] = now, cgroup, process, its victim
                          newest request of the victim = now
    block_split:          start[new_sector] = start[sector], from now on
    block_bio_backmerge:  forget start[sector]; so does block_rq_merge
    block_bio_frontmerge: forget start[sector + nr_sector]
    block_rq_complete:    request = start.pop(sector)
                          disk's time = now - max(last completion, request)
                          add it to the request's process; and, as far as the
                          newest request of a victim was in flight, to what
                          the process held beside this victim; if it was, add
                          the request's cost, too, and to all that was served
                          beside this victim

What a request costs are its sectors of 512 bytes and 32 more (16 KiB), at most
4 MiB: a discard moves nothing, however large it is.

Whether a victim waits goes by its newest request alone: the kernel leaves a
program out when it interrupts another one on the same CPU, so a count of
requests would drift.

Disk and sector are of the whole disk, for partitions, too.  A completion
without its request (it began before, or is the second part of one) is
nobody's time.  A flush has sector 0, that of several processes one entry; the
request that the kernel makes of it, sector -1, is left out.  Fields and order
are the same from Linux 5.9 to 6.18.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf


class Maps(NamedTuple):
    """Descriptors.

    ``disks``: the index of a disk, by its number.
    ``victims``: the victim (from 1 on) of a process.  ``start``: requests in
    flight.  ``devices``: by index, the last completion, and for each victim
    the begin of its newest request in flight, of that before, how long it
    waited, and what was served meanwhile, in sectors (each in a place of 32
    bytes).  ``totals``: by cgroup, process and disk.  ``rest``: by cgroup and
    disk, with process 0, where there is no room in ``totals``.  ``lost``:
    requests that have no room there, either.
    """

    disks: int
    victims: int
    start: int
    devices: int
    totals: int
    rest: int
    lost: int


Program = Callable[[bpf.Event, Maps, int], bytes]

# The stack: a key of start (sector, index, zero: the key of lost, too) and
# its value; the key of totals; what was held beside victims; a new total.
_SECTOR, _INDEX, _ZERO = -16, -8, -4
_SINCE, _CGROUP, _PROCESS, _VICTIM = -40, -32, -24, -20
_SUBMITTER, _OF_PROCESS, _OF_INDEX = -56, -48, -44
_COST, _BESIDE = -64, -64

OP_SECTORS, MOST_SECTORS = 32, 8192
"""What a request costs beside its sectors, and how many of these count."""

# Places in values of devices and totals.
_NEWEST, _BEFORE, _WAITED, _COSTS = 0, 8, 16, 24
_REQUESTS, _IN_FLIGHT, _SERVED, _SHORTEST, _HELD = 0, 8, 16, 24, 32
_PLACE_BITS = 5

_Parts = tuple[bytes | tuple[bytes, str] | str, ...]
_op, _do = bpf.Op, bpf.instruction
_R0, _CONTEXT, _DISK, _STACK = 0, 6, 7, 10
_END: _Parts = ('end', _do(_op.MOVE, _R0), _do(_op.EXIT))


def queue_program(event: bpf.Event, maps: Maps, victims: int) -> bytes:
    """Return the program at ``block_bio_queue``."""
    return bpf.assembled((
        *_key(event, maps),
        _do(_op.CALL, immediate=bpf.Helper.CGROUP_ID),
        _do(_op.STORE, _STACK, _R0, _CGROUP),
        _do(_op.CALL, immediate=bpf.Helper.PROCESS_AND_THREAD),
        _do(_op.SHIFT_RIGHT, _R0, immediate=32),
        _do(_op.STORE_WORD, _STACK, _R0, _PROCESS),
        _do(_op.MOVE, 9),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.victims, _PROCESS),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'add'),
        _do(_op.LOAD, 9, _R0),
        'add',
        _do(_op.STORE_WORD, _STACK, 9, _VICTIM),
        *_add(maps, victims),
        *_END))


def split_program(event: bpf.Event, maps: Maps, victims: int) -> bytes:
    """Return the program at ``block_split``; the new sector comes cut to 32
    bits."""
    return bpf.assembled((
        *_key(event, maps),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.start, _SECTOR),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        *_copy(_R0, 8, _CGROUP),
        *_copy(_R0, 16, _PROCESS),
        _do(_op.LOAD_WORD, 9, _STACK, _VICTIM),
        _do(_op.LOAD_WORD, 1, _CONTEXT, event.offsets['new_sector']),
        _do(_op.STORE_WORD, _STACK, 1, _SECTOR),
        *_add(maps, victims),
        *_END))


def merge_program(event: bpf.Event, maps: Maps, victims: int) -> bytes:
    """Return the program at ``block_bio_backmerge`` and
    ``block_rq_merge``."""
    return bpf.assembled((*_key(event, maps), *_forget(maps, victims), *_END))


def front_merge_program(event: bpf.Event, maps: Maps, victims: int) -> bytes:
    """At ``block_bio_frontmerge``: the request begins earlier from now on,
    where what is merged into it has its own entry."""
    return bpf.assembled((
        *_key(event, maps),
        _do(_op.LOAD_WORD, 1, _CONTEXT, event.offsets['nr_sector']),
        _do(_op.LOAD, 2, _STACK, _SECTOR),
        _do(_op.ADD_REGISTER, 2, 1),
        _do(_op.STORE, _STACK, 2, _SECTOR),
        *_forget(maps, victims),
        *_END))


def complete_program(event: bpf.Event, maps: Maps, victims: int) -> bytes:
    """Return the program at ``block_rq_complete``."""
    since, now, last = 6, 8, 9
    new = _BESIDE - 8 * victims - _HELD - 16 * victims
    return bpf.assembled((
        *_key(event, maps),
        _do(_op.LOAD, 1, _STACK, _SECTOR),
        (_do(_op.JUMP_IF_EQUAL, 1, immediate=-1), 'end'),
        _do(_op.LOAD_WORD, 1, _CONTEXT, event.offsets['nr_sector']),
        _do(_op.MOVE, 2, immediate=MOST_SECTORS),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, 2, 1), 'cost'),
        _do(_op.MOVE_REGISTER, 1, 2),
        'cost',
        _do(_op.ADD, 1, immediate=OP_SECTORS),
        _do(_op.STORE, _STACK, 1, _COST),
        *_disk(maps),
        _do(_op.LOAD, last, _DISK),
        _do(_op.MOVE, since),
        _do(_op.MOVE, 1),
        *(_do(_op.STORE, _STACK, 1, _beside(victim))
          for victim in range(1, victims + 1)),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.start, _SECTOR),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'wait'),
        _do(_op.LOAD, since, _R0),
        *_copy(_R0, 8, _SUBMITTER),
        *_copy(_R0, 16, _PROCESS),
        *bpf.map_call(bpf.Helper.MAP_DELETE, maps.start, _SECTOR),
        'wait',
        *(part for victim in range(1, victims + 1)
          for part in _wait(victim, since, now, last)),
        _do(_op.STORE, _DISK, now),
        (_do(_op.JUMP_IF_EQUAL, since), 'end'),
        # No newest request of a victim any more.
        _do(_op.LOAD_WORD, 1, _STACK, _VICTIM),
        (_do(_op.JUMP_IF_EQUAL, 1), 'total'),
        (_do(_op.JUMP_IF_NOT_LESS, 1, immediate=victims + 1), 'total'),
        _do(_op.SHIFT_LEFT, 1, immediate=_PLACE_BITS),
        _do(_op.MOVE_REGISTER, 2, _DISK),
        _do(_op.ADD_REGISTER, 2, 1),
        *_close(2, since, 'total'),
        'total',
        # The disk's time into "last", the time in flight into "now".
        *_later(last, since, 'later'),
        *_later(now, last, 'after'),
        _do(_op.MOVE_REGISTER, 1, now),
        _do(_op.SUBTRACT_REGISTER, 1, last),
        _do(_op.MOVE_REGISTER, last, 1),
        _do(_op.SUBTRACT_REGISTER, now, since),
        _do(_op.LOAD_WORD, 1, _STACK, _PROCESS),
        _do(_op.STORE_WORD, _STACK, 1, _OF_PROCESS),
        _do(_op.LOAD_WORD, 1, _STACK, _INDEX),
        _do(_op.STORE_WORD, _STACK, 1, _OF_INDEX),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.totals, _SUBMITTER),
        (_do(_op.JUMP_IF_NOT_EQUAL, _R0), 'count'),
        _do(_op.MOVE, 1),
        *(_do(_op.STORE, _STACK, 1, new + place)
          for place in range(0, _HELD + 16 * victims, 8)),
        _do(_op.MOVE, 1, immediate=-1),
        _do(_op.STORE, _STACK, 1, new + _SHORTEST),
        *_enter(maps.totals, new),
        _do(_op.MOVE, 1),
        _do(_op.STORE_WORD, _STACK, 1, _OF_PROCESS),
        *_enter(maps.rest, new),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.lost, _ZERO),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.MOVE, 1, immediate=1),
        _do(_op.ATOMIC_ADD, _R0, 1),
        (_do(_op.JUMP), 'end'),
        'count',
        _do(_op.MOVE, 1, immediate=1),
        _do(_op.ATOMIC_ADD, _R0, 1, _REQUESTS),
        _do(_op.ATOMIC_ADD, _R0, now, _IN_FLIGHT),
        _do(_op.ATOMIC_ADD, _R0, last, _SERVED),
        _do(_op.LOAD, 1, _R0, _SHORTEST),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, now, 1), 'held'),
        _do(_op.STORE, _R0, now, _SHORTEST),
        'held',
        *(part for victim in range(1, victims + 1) for part in (
            _do(_op.LOAD, 1, _STACK, _beside(victim)),
            (_do(_op.JUMP_IF_EQUAL, 1), f'beside {victim}'),
            _do(_op.ATOMIC_ADD, _R0, 1, _HELD + 16 * (victim - 1)),
            _do(_op.LOAD, 1, _STACK, _COST),
            _do(_op.ATOMIC_ADD, _R0, 1, _HELD + 16 * (victim - 1) + 8),
            f'beside {victim}')),
        *_END))


_BIO = {'dev': 4, 'sector': 8}

PROGRAMS: Mapping[str, tuple[Mapping[str, int], Program]] = {
    # In this order: what is counted must be completed, split and merged.
    'block:block_rq_complete': ({**_BIO, 'nr_sector': 4}, complete_program),
    'block:block_split': ({**_BIO, 'new_sector': 8}, split_program),
    'block:block_bio_backmerge': (_BIO, merge_program),
    'block:block_rq_merge': (_BIO, merge_program),
    'block:block_bio_frontmerge': ({**_BIO, 'nr_sector': 4},
                                   front_merge_program),
    'block:block_bio_queue': (_BIO, queue_program)}
"""By tracepoint: the sizes of its fields in bytes, and the program."""


def _beside(victim: int) -> int:
    return _BESIDE - 8 * victim


def _enter(totals: int, new: int) -> _Parts:
    """To ``count`` with what the map has of the submitter, a new entry if
    there is room."""
    return (*bpf.map_call(bpf.Helper.MAP_UPDATE, totals, _SUBMITTER, new,
                          bpf.NO_EXIST),
            *bpf.map_call(bpf.Helper.MAP_LOOKUP, totals, _SUBMITTER),
            (_do(_op.JUMP_IF_NOT_EQUAL, _R0), 'count'))


def _copy(register: int, offset: int, place: int) -> _Parts:
    return (_do(_op.LOAD, 1, register, offset),
            _do(_op.STORE, _STACK, 1, place))


def _key(event: bpf.Event, maps: Maps) -> _Parts:
    """The key of the event's sector; and now, in register 8."""
    at = event.offsets
    return (
        _do(_op.MOVE_REGISTER, _CONTEXT, 1),
        _do(_op.LOAD_WORD, 1, _CONTEXT, at['dev']),
        _do(_op.STORE_WORD, _STACK, 1, _INDEX),
        *bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.disks, _INDEX),
        (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
        _do(_op.LOAD_WORD, 1, _R0),
        _do(_op.STORE_WORD, _STACK, 1, _INDEX),
        _do(_op.MOVE, 1),
        _do(_op.STORE_WORD, _STACK, 1, _ZERO),
        _do(_op.LOAD, 1, _CONTEXT, at['sector']),
        _do(_op.STORE, _STACK, 1, _SECTOR),
        _do(_op.CALL, immediate=bpf.Helper.KTIME_NS),
        _do(_op.MOVE_REGISTER, 8, _R0))


def _disk(maps: Maps) -> _Parts:
    """Register 7 points to what ``devices`` has of this disk."""
    return (*bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.devices, _INDEX),
            (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
            _do(_op.MOVE_REGISTER, _DISK, _R0))


def _victim(maps: Maps, victims: int) -> _Parts:
    """Register 7 points to what ``devices`` has of the victim of number
    register 9; to the end if there is none."""
    return ((_do(_op.JUMP_IF_EQUAL, 9), 'end'),
            (_do(_op.JUMP_IF_NOT_LESS, 9, immediate=victims + 1), 'end'),
            *_disk(maps),
            _do(_op.SHIFT_LEFT, 9, immediate=_PLACE_BITS),
            _do(_op.ADD_REGISTER, _DISK, 9))


def _add(maps: Maps, victims: int) -> _Parts:
    """A request that begins now; one that is there already stays."""
    return (_do(_op.STORE, _STACK, 8, _SINCE),
            *bpf.map_call(bpf.Helper.MAP_UPDATE, maps.start, _SECTOR, _SINCE,
                          bpf.NO_EXIST),
            (_do(_op.JUMP_IF_NOT_EQUAL, _R0), 'end'),
            *_victim(maps, victims),
            _do(_op.LOAD, 1, _DISK, _NEWEST),
            _do(_op.STORE, _DISK, 1, _BEFORE),
            _do(_op.STORE, _DISK, 8, _NEWEST))


def _forget(maps: Maps, victims: int) -> _Parts:
    """A request that became part of another one."""
    return (*bpf.map_call(bpf.Helper.MAP_LOOKUP, maps.start, _SECTOR),
            (_do(_op.JUMP_IF_EQUAL, _R0), 'end'),
            _do(_op.LOAD, 8, _R0),
            _do(_op.LOAD_WORD, 9, _R0, _VICTIM - _SINCE),
            *bpf.map_call(bpf.Helper.MAP_DELETE, maps.start, _SECTOR),
            *_victim(maps, victims),
            *_close(_DISK, 8, 'end', merged=True))


def _close(victim: int, since: int, end: str, merged: bool = False
           ) -> _Parts:
    """The request is not the victim's newest any more, nor that before.

    One that was merged has just been queued, so the one before is it again.
    """
    return (
        _do(_op.LOAD, 1, victim, _BEFORE),
        _do(_op.MOVE, 3),
        _do(_op.LOAD, 4, victim, _NEWEST),
        (_do(_op.JUMP_IF_REGISTERS_DIFFER, 4, since), 'before'),
        _do(_op.STORE, victim, 1 if merged else 3, _NEWEST),
        _do(_op.MOVE_REGISTER, 1, since),
        'before',
        (_do(_op.JUMP_IF_REGISTERS_DIFFER, 1, since), end),
        _do(_op.STORE, victim, 3, _BEFORE))


def _later(register: int, other: int, label: str) -> _Parts:
    """``register = max(register, other)``."""
    return ((_do(_op.JUMP_IF_REGISTER_NOT_LESS, register, other), label),
            _do(_op.MOVE_REGISTER, register, other),
            label)


def _wait(victim: int, since: int, now: int, last: int) -> _Parts:
    """Return what passed on this disk while the victim's newest request
    waited; and of that, while the completed request was in flight."""
    place, end = victim << _PLACE_BITS, f'after {victim}'
    return (
        _do(_op.LOAD, 1, _DISK, place + _NEWEST),
        (_do(_op.JUMP_IF_EQUAL, 1), end),
        *_later(1, last, f'newest {victim}'),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, 1, now), end),
        _do(_op.MOVE_REGISTER, 2, now),
        _do(_op.SUBTRACT_REGISTER, 2, 1),
        _do(_op.ATOMIC_ADD, _DISK, 2, place + _WAITED),
        _do(_op.LOAD, 2, _STACK, _COST),
        _do(_op.ATOMIC_ADD, _DISK, 2, place + _COSTS),
        (_do(_op.JUMP_IF_EQUAL, since), end),
        *_later(1, since, f'since {victim}'),
        (_do(_op.JUMP_IF_REGISTER_NOT_LESS, 1, now), end),
        _do(_op.MOVE_REGISTER, 2, now),
        _do(_op.SUBTRACT_REGISTER, 2, 1),
        _do(_op.STORE, _STACK, 2, _beside(victim)),
        end)
