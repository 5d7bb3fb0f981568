# SPDX-License-Identifier: Apache-2.0

"""What it takes to attach a BPF program to the tracepoint sched_switch.

System calls and the format of the tracepoint, made by hand: a library for BPF
would be needed for nothing else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pathlib
import platform
import re
import struct
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import perf_event as perf_event_
from scavenger_openstack import errors


class Calls(NamedTuple):
    """The numbers of the system calls on one kind of machine."""

    bpf: int
    perf_event_open: int
    fsopen: int = 430
    fsconfig: int = 431
    fsmount: int = 432


_CALLS = {'x86_64': Calls(321, 298), 'aarch64': Calls(280, 241)}
MAP_CREATE, PROG_LOAD = 0, 5
MAP_TYPE_ARRAY, F_MMAPABLE = 2, 1 << 10
PROG_TYPE_TRACEPOINT = 5
_PERF_TYPE_TRACEPOINT, _FLAG_FD_CLOEXEC = 2, 8
IOC_ENABLE, IOC_SET_BPF = 0x2400, 0x40042408
_EVENT = 'events/sched/sched_switch'
_TRACEFS = ('/sys/kernel/tracing', '/sys/kernel/debug/tracing')


def instruction(code: int, dst: int = 0, src: int = 0, offset: int = 0,
                immediate: int = 0) -> bytes:
    """One BPF instruction: 8 bytes in the byte order of the machine.

    Source: the kernel's Documentation/bpf/standardization, section 3.
    """
    return struct.pack('=BBhi', code, src << 4 | dst, offset, immediate)


def parse_format(text: str) -> tuple[int, int]:
    """Id of the event and offset of its ``next_pid``, in bytes.

    :raises ValueError: the text does not describe sched_switch.
    """
    event = re.search(r'^ID: (\d+)$', text, re.MULTILINE)
    field = re.search(r'\bnext_pid;\s*offset:(\d+);\s*size:4;', text)
    if event is None or field is None:
        raise ValueError('no ID, or no next_pid of 4 bytes, in the format')
    return int(event[1]), int(field[1])


def system_calls() -> Calls:
    """The numbers on this machine.

    :raises Unsupported: they are not known.
    """
    machine = platform.machine()
    if machine not in _CALLS:
        raise errors.Unsupported(
            f'cannot tell what runs on each CPU: no system call numbers for '
            f'{machine}; set perfiso to off')
    return _CALLS[machine]


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def call(calls: Calls, command: int, what: str, attributes: bytes) -> int:
    """The descriptor that ``bpf(2)`` returns.

    :param command: BPF_*
    :param what: what it is to do, for the message
    :param attributes: ``union bpf_attr``, as far as the command needs it
    :raises Unsupported: the kernel refuses.
    """
    # The kernel takes a longer argument whose rest is zero.
    size = 128
    buffer = ctypes.create_string_buffer(attributes, size)
    fd = int(_libc().syscall(ctypes.c_long(calls.bpf), ctypes.c_int(command),
                             buffer, ctypes.c_uint(size)))
    if fd < 0:
        raise unsupported(f'{what} by bpf()', ctypes.get_errno())
    return fd


def perf_event(calls: Calls, event_id: int) -> int:
    """The descriptor of a tracepoint, which is not enabled yet.

    :raises Unsupported: the kernel refuses.
    """
    # struct perf_event_attr, first version: 64 bytes; flag 1 is "disabled".
    attributes = struct.pack('=IIQQQQQIIQ', _PERF_TYPE_TRACEPOINT, 64,
                             event_id, 0, 0, 0, 1, 0, 0, 0)
    cpu = min(os.sched_getaffinity(0))
    fd = int(_libc().syscall(
        ctypes.c_long(calls.perf_event_open), attributes, ctypes.c_int(-1),
        ctypes.c_int(cpu), ctypes.c_int(-1),
        ctypes.c_ulong(_FLAG_FD_CLOEXEC)))
    if fd < 0:
        raise unsupported('open sched:sched_switch by perf_event_open()',
                          ctypes.get_errno(), perf_event_.demands_more())
    return fd


def unsupported(what: str, number: int, more: str = ''
                ) -> errors.Unsupported:
    """The error for what the kernel refused, and what to do.

    :param number: the kernel's errno
    :param more: what to do if permission is missing; else capabilities
    """
    if number in (errno.EPERM, errno.EACCES):
        todo = more or ('give the agent CAP_BPF and CAP_PERFMON (a kernel in '
                        'lockdown refuses even then)')
    else:
        todo = 'it needs Linux 5.8 with CONFIG_BPF_SYSCALL and tracepoints'
    return errors.Unsupported(
        f'cannot tell what runs on each CPU, so no CPU buffer can be kept: '
        f'{what}: {os.strerror(number)}; {todo}')


def event() -> tuple[int, int]:
    """Id of sched_switch and the offset of its next_pid.

    :raises Unsupported: tracefs cannot be read.
    """
    try:
        text = _format()
    except OSError as exc:
        raise unsupported(f'read {_EVENT}/format of tracefs',
                          exc.errno or 0) from exc
    try:
        return parse_format(text)
    except ValueError as exc:
        raise errors.Unsupported(
            f'cannot tell what runs on each CPU: {_EVENT}/format of tracefs: '
            f'{exc}') from exc


def _format() -> str:
    for directory in _TRACEFS:
        try:
            return pathlib.Path(directory, _EVENT, 'format').read_text()
        except OSError:
            continue
    # Not mounted here.  A mount that is attached nowhere shows the same
    # files and changes no mount table.
    top = _detached_tracefs()
    try:
        fd = os.open(f'{_EVENT}/format', os.O_RDONLY | os.O_CLOEXEC,
                     dir_fd=top)
        with open(fd) as file:
            return file.read()
    finally:
        os.close(top)


def _detached_tracefs() -> int:
    """Descriptor of the top directory of tracefs, mounted nowhere.

    :raises OSError: the kernel is older than 5.2, or does not let us.
    """
    libc, calls = _libc(), system_calls()
    create, cloexec = 6, 1
    context = _checked(libc.syscall(ctypes.c_long(calls.fsopen), b'tracefs',
                                    ctypes.c_uint(cloexec)))
    try:
        _checked(libc.syscall(ctypes.c_long(calls.fsconfig),
                              ctypes.c_int(context), ctypes.c_uint(create),
                              None, None, ctypes.c_int(0)))
        return _checked(libc.syscall(ctypes.c_long(calls.fsmount),
                                     ctypes.c_int(context),
                                     ctypes.c_uint(cloexec),
                                     ctypes.c_uint(0)))
    finally:
        os.close(context)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
