# SPDX-License-Identifier: Apache-2.0


"""A kept taskstats socket: how long processes waited for disks.

The kernel's delay accounting, asked over generic netlink for many processes
at once.  It takes CAP_NET_ADMIN and the initial network namespace; unlike
/proc/PID/io it does not take CAP_SYS_PTRACE.  What it says about one task
has the bytes, too; what it says about a process has not, but counts threads
that have ended.

Sources: linux/taskstats.h, linux/genetlink.h, kernel/taskstats.c and
kernel/delayacct.c.
"""

from __future__ import annotations

from collections.abc import Sequence
import errno
import os
import struct
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import netlink

BATCH = 32
"""Questions in one message: their answers, 2 KiB each as the kernel counts
them, fit into the default receive buffer of a socket."""

TASK, PROCESS = 1, 2
"""What to ask about: one thread, or all of a process together.  The numbers
are those of TASKSTATS_CMD_ATTR_PID and _TGID."""

MIXED_UP_VERSION = 15
"""This one moved the fields, without saying which kernels did; 16 put them
back where all earlier ones had them."""

_CONTROL, _GETFAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_GET = 1
_STATS = 3
_GENERIC = struct.Struct('=BBxx')
_ATTRIBUTE = struct.Struct('=HH')
_QUESTION = struct.Struct('=BBxxHHI')
_WAITS = struct.Struct('=H14xQQQQ')
_BYTES = struct.Struct('=248xQQQ')
_COPIES, _COPIES_SINCE = struct.Struct('=400xQ'), 13


class Waits(NamedTuple):
    """The waits and bytes of a task or process so far.

    ``runs``: how often it got a CPU, accounted or not.  ``waits`` and
    ``wait_ns``: how often and how long it was blocked until a disk answered.
    The bytes that it made disks read, and those of pages that it made dirty
    or wrote past the cache, are 0 for a process; ``cancelled_bytes`` are of
    dirty pages that were dropped before they were written.  ``copies``: how
    often it waited for a page to be copied on write, which every program does
    when it starts; ``None`` in kernels before 6.0, which do not tell.
    ``cpu_wait_ns``: how long it was ready to run and had no CPU.

    The kernel accounts only tasks that began while accounting was on, and
    does not say so: of another one ``waits`` and ``copies`` are 0 for ever.
    """

    runs: int
    waits: int
    wait_ns: int
    read_bytes: int = 0
    write_bytes: int = 0
    copies: int | None = None
    cpu_wait_ns: int = 0
    cancelled_bytes: int = 0


class Taskstats:
    """One conversation with the kernel; not for two threads at once.

    :raises OSError: EPERM without CAP_NET_ADMIN, ENOENT when this kernel
        (or network namespace) has no taskstats
    :raises ValueError: the kernel's answer is not what is understood here
    """

    def __init__(self) -> None:
        self._talk = netlink.Netlink(protocol=netlink.GENERIC)
        try:
            self._family = self._find_family()
            self.ask(((PROCESS, os.getpid()),))
        except BaseException:
            self.close()
            raise

    def ask(self, about: Sequence[tuple[int, int]]) -> list[Waits | None]:
        """Return what tasks and processes have gone through, in the order
        given.

        ``None``: there is no such task (any more), or nothing is said of it.

        :param about: :data:`TASK` or :data:`PROCESS`, and its number
        :raises OSError: the kernel does not answer
        :raises ValueError: no answer is what is understood here
        """
        pack = _QUESTION.pack
        waits: list[Waits | None] = []
        odd = None
        for start in range(0, len(about), BATCH):
            for answer in self._talk.ask_all(self._family, [
                    pack(_GET, 1, 8, what, number)
                    for what, number in about[start:start + BATCH]]):
                try:
                    waits.append(parse(*answer))
                except ValueError as exc:
                    odd = exc
                    waits.append(None)
        if odd is not None and not any(waits):
            raise odd
        return waits

    def close(self) -> None:
        self._talk.close()

    def _find_family(self) -> int:
        answer = self._talk.ask(
            _CONTROL, 0, _GENERIC.pack(_GETFAMILY, 1)
            + netlink.attribute(_FAMILY_NAME, b'TASKSTATS\0')) or b''
        fields = dict(netlink.attributes(answer[_GENERIC.size:]))
        if len(fields.get(_FAMILY_ID, b'')) != 2:
            raise ValueError('a family without a number')
        return int(struct.unpack('=H', fields[_FAMILY_ID])[0])


def parse(kind: int, buffer: bytes | bytearray, size: int) -> Waits | None:
    """Return what one answer says; ``None``: there is no such task.

    :param kind: the type in its netlink header
    :param size: bytes of ``buffer`` that are the answer
    :raises OSError: the kernel refuses
    :raises ValueError: it is too short, or of a version not understood
    """
    if kind == netlink.ERROR:
        _raise_error(buffer, size)
        return None
    # One attribute holds two: which task it is about, and what it did; some
    # machines need another in between, to align the second.
    at = netlink.BODY + _GENERIC.size + _ATTRIBUTE.size
    while at + _ATTRIBUTE.size <= size:
        length, what = _ATTRIBUTE.unpack_from(buffer, at)
        if length < _ATTRIBUTE.size:
            break
        if what == _STATS:
            at += _ATTRIBUTE.size
            if at + length - _ATTRIBUTE.size > size or length < (
                    _ATTRIBUTE.size + _BYTES.size):
                break
            version, runs, cpu_wait_ns, waits, wait_ns = _WAITS.unpack_from(
                buffer, at)
            if not version or version == MIXED_UP_VERSION:
                raise ValueError(f'version {version} of its form')
            read, written, cancelled = _BYTES.unpack_from(buffer, at)
            copies = (_COPIES.unpack_from(buffer, at)[0]
                      if version >= _COPIES_SINCE and length >= (
                          _ATTRIBUTE.size + _COPIES.size) else None)
            return Waits(runs, waits, wait_ns, read, written, copies,
                         cpu_wait_ns, cancelled)
        at += length + 3 & ~3
    raise ValueError(f'an answer of {size} bytes without numbers')


def _raise_error(buffer: bytes | bytearray, size: int) -> None:
    """Raise an error, unless it is only that the task is gone."""
    if size < netlink.BODY + 4:
        raise ValueError(f'an answer of {size} bytes')
    number = -struct.unpack_from('=i', buffer, netlink.BODY)[0]
    if number != errno.ESRCH:
        raise OSError(number, os.strerror(number))
