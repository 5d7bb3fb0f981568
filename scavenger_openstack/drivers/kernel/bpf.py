# SPDX-License-Identifier: Apache-2.0

"""BPF programs on the kernel's tracepoints: assembled, loaded, attached.

System calls, instructions and the formats of tracepoints, made by hand: a
library for BPF would be needed for nothing else, and a compiler is not there.

Nothing outlives the process: programs, maps and events hang on descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import ctypes
import enum
import errno
import fcntl
import os
import pathlib
import platform
import re
import struct
from typing import Any
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack import errors


class Calls(NamedTuple):
    """The numbers of the system calls on one kind of machine."""

    bpf: int
    fsopen: int = 430
    fsconfig: int = 431
    fsmount: int = 432


class Map(enum.IntEnum):
    """BPF_MAP_TYPE_*."""

    HASH = 1
    ARRAY = 2
    PER_CPU_ARRAY = 6
    LRU_HASH = 9


class Op(enum.IntEnum):
    """The first byte of an instruction.

    Source: the kernel's Documentation/bpf/standardization, section 4 and 5.
    """

    JUMP = 0x05
    ADD = 0x07
    ADD_REGISTER = 0x0f
    JUMP_IF_EQUAL = 0x15
    LOAD_64_BITS = 0x18
    JUMP_IF_REGISTERS_EQUAL = 0x1d
    SUBTRACT_REGISTER = 0x1f
    JUMP_IF_NOT_LESS = 0x35
    JUMP_IF_REGISTER_NOT_LESS = 0x3d
    JUMP_IF_NOT_EQUAL = 0x55
    AND = 0x57
    JUMP_IF_REGISTERS_DIFFER = 0x5d
    LOAD_WORD = 0x61
    STORE_WORD = 0x63
    SHIFT_LEFT = 0x67
    SHIFT_RIGHT = 0x77
    LOAD = 0x79
    STORE = 0x7b
    CALL = 0x85
    EXIT = 0x95
    MOVE = 0xb7
    MOVE_REGISTER = 0xbf
    ATOMIC_ADD = 0xdb


class Helper(enum.IntEnum):
    """Functions of the kernel that a program may call."""

    MAP_LOOKUP = 1
    MAP_UPDATE = 2
    MAP_DELETE = 3
    KTIME_NS = 5
    CPU = 8
    PROCESS_AND_THREAD = 14
    CGROUP_ID = 80
    """Of version 2: the inode number of its directory."""


_CALLS = {'x86_64': Calls(321), 'aarch64': Calls(280)}
_MAP_CREATE, _PROG_LOAD, _MAP_LOOKUP_BATCH, _MAP_UPDATE_BATCH = 0, 5, 24, 26
F_MMAPABLE = 1 << 10
ANY, NO_EXIST = 0, 1
"""What :attr:`Helper.MAP_UPDATE` does with a key: sets or only adds it."""
MAP_FD, MAP_VALUE = 1, 2
"""What :attr:`Op.LOAD_64_BITS` loads: a map, or the address of its value."""

_TRIES = 5
"""A signal ends the check of a program, with EAGAIN."""

_PROG_TYPE_TRACEPOINT = 5
_IOC_SET_BPF = 0x40042408
_TRACEFS = ('/sys/kernel/tracing', '/sys/kernel/debug/tracing')
_LICENCE = b'Apache-2.0'

WORD, NUMBER = struct.Struct('=I'), struct.Struct('=Q')
"""Keys and values of most maps."""

INITIAL_PID_NAMESPACE = 0xeffffffc
"""Inode; what programs are told are ids in it (include/linux/proc_ns.h)."""


def system_calls() -> Calls | None:
    """The numbers on this machine, ``None`` where they are not known."""
    return _CALLS.get(platform.machine())


def instruction(code: int, dst: int = 0, src: int = 0, offset: int = 0,
                immediate: int = 0) -> bytes:
    """One BPF instruction: 8 bytes in the byte order of the machine.

    Source: the kernel's Documentation/bpf/standardization, section 3.
    """
    return struct.pack('=BBhi', code, src << 4 | dst, offset, immediate)


def load_map(register: int, fd: int, kind: int = MAP_FD) -> bytes:
    """Two instructions: a map, or the address of its value, in a register."""
    return instruction(Op.LOAD_64_BITS, register, kind,
                       immediate=fd) + instruction(0)


def map_call(helper: Helper, map_fd: int, key: int, value: int | None = None,
             flag: int = ANY) -> tuple[bytes, ...]:
    """Call one of the functions of maps, with what is on the stack.

    :param key: place of the key on the stack; so is ``value``
    """
    arguments = [load_map(1, map_fd),
                 instruction(Op.MOVE_REGISTER, 2, 10),
                 instruction(Op.ADD, 2, immediate=key)]
    if value is not None:
        arguments += [instruction(Op.MOVE_REGISTER, 3, 10),
                      instruction(Op.ADD, 3, immediate=value),
                      instruction(Op.MOVE, 4, immediate=flag)]
    return (*arguments, instruction(Op.CALL, immediate=helper))


def assembled(parts: Iterable[bytes | tuple[bytes, str] | str]) -> bytes:
    """A program of instructions, of jumps with the label that they go to,
    and of labels.

    :raises KeyError: a label is missing.
    """
    code, labels, jumps = bytearray(), {}, []
    for part in parts:
        if isinstance(part, str):
            labels[part] = len(code) // 8
        elif isinstance(part, tuple):
            jumps.append((len(code) // 8, part[1]))
            code += part[0]
        else:
            code += part
    for at, label in jumps:
        struct.pack_into('=h', code, at * 8 + 2, labels[label] - at - 1)
    return bytes(code)


class Event(NamedTuple):
    """A tracepoint: its id, and the offset of each field in bytes."""

    id: int
    offsets: Mapping[str, int]


def parse_format(text: str, fields: Mapping[str, int]) -> Event:
    """The event that a file ``format`` of tracefs describes.

    :param fields: the size in bytes that each is to have
    :raises ValueError: it describes none with such fields.
    """
    number = re.search(r'^ID: (\d+)$', text, re.MULTILINE)
    offsets = {field: int(offset) for field, offset, size in re.findall(
        r'\b(\w+);\s*offset:(\d+);\s*size:(\d+);', text)
        if fields.get(field) == int(size)}
    missing = ', '.join(fields.keys() - offsets.keys())
    if number is None or missing:
        raise ValueError(f'no ID, or no {missing} of the right size, in the '
                         'format')
    return Event(int(number[1]), offsets)


class Programs:
    """The programs of one reader, with the maps that they share.

    :param purpose: what cannot be done without, for messages
    :param initial_pids: they note ids of threads or processes, which this
        process would take for others in a PID namespace of its own
    :raises Unsupported: the system calls of this machine are not known, or
        this is such a namespace; the methods: the kernel refuses.
    """

    def __init__(self, purpose: str, *, initial_pids: bool = False) -> None:
        self._purpose = purpose
        self._fds: list[int] = []
        calls = system_calls()
        if calls is None:
            raise errors.Unsupported(
                f'cannot {purpose}: no system call numbers for '
                f'{platform.machine()}')
        if initial_pids and (os.stat('/proc/self/ns/pid').st_ino
                             != INITIAL_PID_NAMESPACE):
            raise errors.Unsupported(
                f'cannot {purpose}: the agent runs in a PID namespace of its '
                'own; start its container with the PID namespace of the host')
        self._calls = calls

    def map(self, kind: Map, *, key_bytes: int = 4, value_bytes: int = 8,
            entries: int = 1, flags: int = 0) -> int:
        """The descriptor of a new map."""
        return self._keep(self._bpf(
            _MAP_CREATE, 'make a map', struct.pack(
                '=IIIII', kind, key_bytes, value_bytes, entries, flags)))

    def attach(self, name: str, event: Event, code: bytes) -> None:
        """Run a program at each occurrence of a tracepoint, on all CPUs.

        :param name: of the tracepoint, such as ``sched:sched_switch``
        """
        text = ctypes.create_string_buffer(code, len(code))
        licence = ctypes.create_string_buffer(_LICENCE)
        program = self._keep(self._bpf(
            _PROG_LOAD, 'load a program', struct.pack(
                '=IIQQIIQII', _PROG_TYPE_TRACEPOINT, len(code) // 8,
                ctypes.addressof(text), ctypes.addressof(licence),
                0, 0, 0, 0, 0)))
        # One event on any CPU is enough: the program hangs on the
        # tracepoint, which all CPUs share.
        source = self._keep(self._perf_event(name, event.id))
        try:
            fcntl.ioctl(source, _IOC_SET_BPF, program)
            fcntl.ioctl(source, perf_event.IOC_ENABLE, 0)
        except OSError as exc:
            raise self.unsupported(
                f'attach a BPF program to {name.partition(":")[2]}',
                exc.errno or 0) from exc

    def event(self, name: str, fields: Mapping[str, int]) -> Event:
        """A tracepoint, as of :func:`parse_format`.

        :param name: such as ``sched:sched_switch``
        """
        path = f'events/{name.replace(":", "/")}/format'
        try:
            text = self._format(path)
        except OSError as exc:
            raise self.unsupported(f'read {path} of tracefs',
                                   exc.errno or 0) from exc
        try:
            return parse_format(text, fields)
        except ValueError as exc:
            raise errors.Unsupported(
                f'cannot {self._purpose}: {path} of tracefs: {exc}') from exc

    def entries(self, fd: int, key: struct.Struct, value: struct.Struct,
                most: int) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return all keys and values of a hash, by one system call.

        :param most: entries that the map takes
        :raises DriverError: it cannot be read.
        """
        keys = ctypes.create_string_buffer(key.size * most)
        values = ctypes.create_string_buffer(value.size * most)
        count = self._batch(_MAP_LOOKUP_BATCH, 'read', fd, keys, values, most)
        return list(zip(key.iter_unpack(keys.raw[:key.size * count]),
                        value.iter_unpack(values.raw[:value.size * count]),
                        strict=True))

    def put(self, fd: int, keys: bytes, values: bytes, count: int) -> None:
        """Put so many entries into a map, by one system call.

        :raises DriverError: they cannot be put there, or not all.
        """
        if not count:
            return
        self._batch(_MAP_UPDATE_BATCH, 'fill', fd,
                    ctypes.create_string_buffer(keys, len(keys)),
                    ctypes.create_string_buffer(values, len(values)), count)

    def close(self) -> None:
        """Take all out of the kernel; twice does no harm."""
        while self._fds:
            os.close(self._fds.pop())

    def unsupported(self, what: str, number: int, more: str = ''
                    ) -> errors.Unsupported:
        """The error for what the kernel refused, and what to do.

        :param number: the kernel's errno
        :param more: what to do if permission is missing; else capabilities
        """
        if number in (errno.EPERM, errno.EACCES):
            todo = more or ('give the agent CAP_BPF and CAP_PERFMON, which '
                            'its systemd unit has: type "systemctl restart '
                            'scavenger-agent" (a kernel in lockdown refuses '
                            'even then)')
        else:
            todo = ('it needs Linux 5.8 with CONFIG_BPF_SYSCALL and '
                    'tracepoints')
        return errors.Unsupported(f'cannot {self._purpose}: {what}: '
                                  f'{os.strerror(number)}; {todo}')

    def _batch(self, command: int, what: str, fd: int,
               keys: ctypes.Array[ctypes.c_char],
               values: ctypes.Array[ctypes.c_char], count: int) -> int:
        """Do something for many entries; for how many it was done.

        :raises DriverError: the kernel refuses.
        """
        position = ctypes.create_string_buffer(8)
        attributes = ctypes.create_string_buffer(struct.pack(
            '=QQQQIIQQ', 0, ctypes.addressof(position),
            ctypes.addressof(keys), ctypes.addressof(values), count, fd, 0,
            0), 128)
        result = _libc().syscall(
            ctypes.c_long(self._calls.bpf), ctypes.c_int(command),
            attributes, ctypes.c_uint(128))
        number = ctypes.get_errno()
        if result < 0 and number != errno.ENOENT:   # that is the end
            raise errors.DriverError(
                f'cannot {self._purpose}: {what} a map by bpf(): '
                f'{os.strerror(number)}')
        done: int = struct.unpack_from('=I', attributes, 32)[0]
        return done

    def _keep(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _bpf(self, command: int, what: str, attributes: bytes) -> int:
        """The descriptor that ``bpf(2)`` returns.

        :param attributes: ``union bpf_attr``, as far as it is needed
        """
        # The kernel takes a longer argument whose rest is zero.
        size = 128
        buffer = ctypes.create_string_buffer(attributes, size)
        for _ in range(_TRIES):
            fd = int(_libc().syscall(
                ctypes.c_long(self._calls.bpf), ctypes.c_int(command), buffer,
                ctypes.c_uint(size)))
            if fd >= 0 or ctypes.get_errno() != errno.EAGAIN:
                break
        if fd < 0:
            raise self.unsupported(f'{what} by bpf()', ctypes.get_errno())
        return fd

    def _perf_event(self, name: str, event_id: int) -> int:
        """The descriptor of a tracepoint, which is not enabled yet."""
        try:
            return perf_event.open_event(
                perf_event.Event('', perf_event.TRACEPOINT, event_id),
                cpu=min(os.sched_getaffinity(0)))
        except OSError as exc:
            raise self.unsupported(f'open {name} by perf_event_open()',
                                   exc.errno or 0,
                                   perf_event.demands_more()) from exc

    def _format(self, path: str) -> str:
        for directory in _TRACEFS:
            try:
                return pathlib.Path(directory, path).read_text()
            except OSError:
                continue
        # Not mounted here.  A mount that is attached nowhere shows the same
        # files and changes no mount table.
        top = self._detached_tracefs()
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=top)
            with open(fd) as file:
                return file.read()
        finally:
            os.close(top)

    def _detached_tracefs(self) -> int:
        """Descriptor of the top directory of tracefs, mounted nowhere.

        :raises OSError: the kernel is older than 5.2, or does not let us.
        """
        libc, calls = _libc(), self._calls
        create, cloexec = 6, 1
        context = _checked(libc.syscall(
            ctypes.c_long(calls.fsopen), b'tracefs', ctypes.c_uint(cloexec)))
        try:
            _checked(libc.syscall(
                ctypes.c_long(calls.fsconfig), ctypes.c_int(context),
                ctypes.c_uint(create), None, None, ctypes.c_int(0)))
            return _checked(libc.syscall(
                ctypes.c_long(calls.fsmount), ctypes.c_int(context),
                ctypes.c_uint(cloexec), ctypes.c_uint(0)))
        finally:
            os.close(context)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
