# SPDX-License-Identifier: Apache-2.0


"""A kept netlink socket inside one network namespace.

Sources: linux/netlink.h, net/netlink/af_netlink.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import ctypes
import errno
import os
import socket
import struct
import threading

from scavenger_openstack.drivers import calls

NETNS_DIR = '/run/netns'
"""Where ``ip netns`` keeps the namespaces by name."""

TIMEOUT_S = 2
"""How long to wait for the kernel's answer."""

ROUTE, NETFILTER, GENERIC = 0, 12, 16
"""Who answers: links, addresses and qdiscs; packet filters; families that
have a name instead of a number."""

ACK, ECHO, EXCLUSIVE, CREATE = 0x4, 0x8, 0x200, 0x400
"""Flags of a request: say whether it worked; tell us, too, what changed;
fail when it is there already; make it when it is not there."""

BODY = 16
"""Bytes of the header before the body of an answer."""

NESTED = 0x8000
"""Goes with the kind of an attribute that holds attributes."""

_CLONE_NEWNET = 0x40000000
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_REQUEST, _DUMP, _ACK_TLVS = 0x1, 0x300, 0x200
ERROR, _DONE = 2, 3
_LAST_SEQUENCE = 0xffffffff
_HEADER = struct.Struct('=IHHII')
_ATTRIBUTE = struct.Struct('=HH')


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return (_ATTRIBUTE.pack(4 + len(payload), kind) + payload
            + bytes(-len(payload) % 4))


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and payload of each attribute in ``data``."""
    at = 0
    while at + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < 4:
            return
        yield kind & 0x3fff, data[at + 4:at + length]
        at += length + 3 & ~3


class Netlink:
    """One conversation with the kernel; not for two threads at once.

    Every method raises ``OSError``, with the kernel's own words in
    ``strerror`` where it gives any.

    :param netns: name of a namespace, '' for that of this process
    :param protocol: :data:`ROUTE`, :data:`NETFILTER` or :data:`GENERIC`
    :raises OSError: no such namespace, or no right to enter it
    """

    def __init__(self, netns: str = '', protocol: int = ROUTE) -> None:
        self._sequence = 0
        self._buffer = bytearray(1 << 16)
        self.netns = netns
        self.inode = 0
        if netns:
            self._socket = self._open_in(f'{NETNS_DIR}/{netns}', protocol)
        else:
            self._socket = _socket(protocol)

    def ask(self, kind: int, flags: int, body: bytes) -> bytes | None:
        """Send one request; the answer's body, ``None`` for a bare yes."""
        self._send(kind, flags, body)
        answer = None
        while True:
            size = self._socket.recv_into(self._buffer)
            length, got, got_flags, sequence, _ = _HEADER.unpack_from(
                self._buffer)
            if sequence != self._sequence:
                continue
            if got == ERROR:
                _raise_error(bytes(self._buffer[16:size]), got_flags)
                return answer
            answer = bytes(self._buffer[16:length])
            if not flags & ACK:
                return answer

    def ask_all(self, kind: int, bodies: Sequence[bytes]
                ) -> Iterator[tuple[int, bytes | bytearray, int]]:
        """Send some requests at once; the answer to each, in their order.

        Its type (:data:`ERROR`: a refusal), a buffer with it from
        :data:`BODY` on, which the next one overwrites, and where it ends.
        """
        first = self._next(len(bodies))
        self._socket.send(b''.join([
            _HEADER.pack(16 + len(body), kind, _REQUEST, number, 0) + body
            for number, body in enumerate(bodies, first)]))
        buffer, unpack = self._buffer, _HEADER.unpack_from
        for number in range(first, first + len(bodies)):
            while True:
                size = self._socket.recv_into(buffer)
                length, got, _, sequence, _ = unpack(buffer)
                if sequence == number:
                    break
            yield got, buffer, min(size, length)

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Ask for all there is of a kind; the body of each answer."""
        self._send(kind, _DUMP, body)
        answers: list[bytes] = []
        while True:
            size, at = self._socket.recv_into(self._buffer), 0
            while at + _HEADER.size <= size:
                length, got, got_flags, sequence, _ = _HEADER.unpack_from(
                    self._buffer, at)
                body = bytes(self._buffer[at + 16:at + length])
                at += max(length + 3 & ~3, _HEADER.size)
                if sequence != self._sequence:
                    continue
                if got in (ERROR, _DONE):
                    _raise_error(body.ljust(4, b'\0'), got_flags)
                    return answers
                answers.append(body)

    def close(self) -> None:
        self._socket.close()

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind,
                                       _REQUEST | flags, self._next(1), 0)
                          + body)

    def _next(self, count: int) -> int:
        """The first of so many numbers of requests that are not in use."""
        first = self._sequence + 1
        if first + count > _LAST_SEQUENCE:
            first = 1
        self._sequence = first + count - 1
        return first

    def _open_in(self, path: str, protocol: int) -> socket.socket:
        """Make a socket inside a namespace, in a thread that goes there and
        ends: the namespace of a thread is its own."""
        made: list[socket.socket | OSError] = []

        def make() -> None:
            try:
                self.inode = _enter(path)
                made.append(_socket(protocol))
            except OSError as exc:
                made.append(exc)

        thread = threading.Thread(target=make, name='namespace')
        try:
            calls.start(thread)
        except calls.NoThread as exc:
            raise OSError(errno.EAGAIN, str(exc), path) from None
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]


def _enter(path: str) -> int:
    """Move the calling thread into a namespace; return its inode."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


def _socket(protocol: int) -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    try:
        made.bind((0, 0))
        made.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        made.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        # Not settimeout(): that polls before each recv, twice the calls.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO,
                        struct.pack('ll', TIMEOUT_S, 0))
    except BaseException:
        made.close()
        raise
    return made


def _raise_error(data: bytes, flags: int) -> None:
    number = -struct.unpack_from('=i', data)[0]
    if not number:
        return
    text = os.strerror(number)
    if flags & _ACK_TLVS:
        words = dict(attributes(data[20:])).get(1, b'')
        text += ': ' + words.rstrip(b'\0').decode(errors='replace')
    raise OSError(errno.ENODEV if number == errno.ENXIO else number, text)
