# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A kept rtnetlink socket inside one network namespace, parsed by hand.

It asks for what a tick needs (bytes sent, the root qdisc) and sets a token
bucket.  pyroute2 was tried first: it forks this process, threads and all, to
open a socket in another namespace, makes a namespace that does not exist,
cannot express rates above 4.29 GB/s and adds 21 MiB.

Sources: linux/rtnetlink.h, linux/pkt_sched.h, linux/if_link.h, and
net/sched/sch_api.c for what the flags of RTM_NEWQDISC mean.
"""

from __future__ import annotations

from collections.abc import Iterator
import ctypes
import errno
import os
import socket
import struct
import sys
import threading
from typing import NamedTuple

NETNS_DIR = '/run/netns'
"""Where ``ip netns`` keeps the namespaces by name."""

TIMEOUT_S = 2
"""How long to wait for the kernel's answer."""

_CLONE_NEWNET = 0x40000000
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_REQUEST, _ACK, _ECHO, _CREATE, _ACK_TLVS = 0x1, 0x4, 0x8, 0x400, 0x200
_ERROR = 2
_GETLINK, _NEWQDISC, _GETQDISC, _GETSTATS = 18, 36, 38, 94
_IFLA_IFNAME, _IFLA_MTU, _IFLA_EXT_MASK, _IFLA_STATS_LINK_64 = 3, 4, 29, 1
_SKIP_STATS = 8
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_ROOT = 0xffffffff
_NESTED = 0x8000
_LINKLAYER_ETHERNET = 1
_TICK_NS = 64

_HEADER = struct.Struct('=IHHII')
_LINK = struct.Struct('=BxHiII')
_STATS = struct.Struct('=BxxxII')
_TC = struct.Struct('=BxxxiIII')
_RATESPEC = '=BBHhHI'
_ATTRIBUTE = struct.Struct('=HH')
_TX_BYTES = struct.Struct('=24xQ')


class Link(NamedTuple):
    """A network device; ``mtu`` in bytes without the Ethernet header."""

    ifindex: int
    mtu: int


class Qdisc(NamedTuple):
    """A root qdisc.  ``handle`` is 0 for the kernel's default ones.

    ``rate`` in bytes per second, ``None`` when the kind is not ``tbf``.
    """

    kind: str
    handle: int
    rate: int | None = None


def attribute(kind: int, payload: bytes) -> bytes:
    """One netlink attribute, padded to four bytes."""
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


def tbf_options(rate: int, burst: int, limit: int) -> bytes:
    """What TCA_OPTIONS of a token bucket holds.

    :param rate: bytes per second
    :param burst: bytes that may go at once, and the longest packet
    :param limit: bytes that may wait
    """
    spec = struct.pack(_RATESPEC, 0, _LINKLAYER_ETHERNET, 0, 0, 0,
                       min(rate, 0xffffffff))
    ticks = min(burst * 10**9 // rate // _TICK_NS, 0xffffffff)
    parms = spec + bytes(12) + struct.pack('=III', min(limit, 0xffffffff),
                                           ticks, 0)
    options = attribute(_TBF_PARMS, parms)
    if rate > 0xffffffff:
        options += attribute(_TBF_RATE64, struct.pack('=Q', rate))
    return options + attribute(_TBF_BURST, struct.pack('=I', burst))


class Rtnetlink:
    """One conversation with the kernel; not for two threads at once.

    Every method raises ``OSError``: ENODEV when the device is gone, and the
    kernel's own words in ``strerror`` where it gives any.

    :param netns: name of a namespace, '' for that of this process
    :raises OSError: no such namespace, or no right to enter it
    """

    def __init__(self, netns: str = '') -> None:
        self._sequence = 0
        self._buffer = bytearray(1 << 16)
        self.inode = 0
        if netns:
            self._socket = self._open_in(f'{NETNS_DIR}/{netns}')
        else:
            self._socket = _socket()

    def link(self, name: str) -> Link:
        """Look a device up by its name."""
        answer = self._ask(
            _GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0)
            + attribute(_IFLA_EXT_MASK, struct.pack('=I', _SKIP_STATS))
            + attribute(_IFLA_IFNAME, name.encode() + b'\0'))
        assert answer is not None
        _, _, ifindex, _, _ = _LINK.unpack_from(answer)
        mtu = dict(attributes(answer[_LINK.size:]))[_IFLA_MTU]
        return Link(ifindex, int.from_bytes(mtu, sys.byteorder))

    def tx_bytes(self, ifindex: int) -> int:
        """Bytes that a device has sent so far."""
        answer = self._ask(_GETSTATS, 0, _STATS.pack(0, ifindex, 1))
        assert answer is not None
        stats = dict(attributes(answer[_STATS.size:]))[_IFLA_STATS_LINK_64]
        return int(_TX_BYTES.unpack_from(stats)[0])

    def root_qdisc(self, ifindex: int) -> Qdisc | None:
        """The root qdisc, ``None`` while the device has none (is down).

        NLM_F_ECHO: without it the kernel tells everybody but us.
        """
        answer = self._ask(_GETQDISC, _ACK | _ECHO,
                           _TC.pack(0, ifindex, 0, _ROOT, 0))
        if answer is None:
            return None
        handle = _TC.unpack_from(answer)[2]
        found = dict(attributes(answer[_TC.size:]))
        kind = found[_TCA_KIND].rstrip(b'\0').decode()
        if kind != 'tbf':
            return Qdisc(kind, handle)
        options = dict(attributes(found[_TCA_OPTIONS]))
        rate = struct.unpack_from(_RATESPEC, options[_TBF_PARMS])[5]
        if _TBF_RATE64 in options:
            rate = int.from_bytes(options[_TBF_RATE64], sys.byteorder)
        return Qdisc(kind, handle, rate)

    def set_root_tbf(self, ifindex: int, handle: int, rate: int, burst: int,
                     limit: int) -> None:
        """Put a token bucket at the root, or change the one with ``handle``.

        Without NLM_F_REPLACE the kernel takes it in place of a default
        qdisc or as a change of the same one, and answers EEXIST for anybody
        else's: nothing can come in between a look and a write.
        """
        self._ask(_NEWQDISC, _ACK | _CREATE,
                  _TC.pack(0, ifindex, handle, _ROOT, 0)
                  + attribute(_TCA_KIND, b'tbf\0')
                  + attribute(_TCA_OPTIONS | _NESTED,
                              tbf_options(rate, burst, limit)))

    def close(self) -> None:
        self._socket.close()

    def _ask(self, kind: int, flags: int, body: bytes) -> bytes | None:
        """Send one request; the answer's body, ``None`` for a bare yes."""
        self._sequence += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind,
                                       _REQUEST | flags, self._sequence, 0)
                          + body)
        answer = None
        while True:
            size = self._socket.recv_into(self._buffer)
            length, got, got_flags, sequence, _ = _HEADER.unpack_from(
                self._buffer)
            if sequence != self._sequence:
                continue
            if got == _ERROR:
                _raise_error(bytes(self._buffer[16:size]), got_flags)
                return answer
            answer = bytes(self._buffer[16:length])
            if not flags & _ACK:
                return answer

    def _open_in(self, path: str) -> socket.socket:
        """A socket made inside a namespace, by a thread that goes there."""
        made: list[socket.socket | OSError] = []

        def make() -> None:
            try:
                self.inode = _enter(path)
                made.append(_socket())
            except OSError as exc:
                made.append(exc)

        thread = threading.Thread(target=make)
        thread.start()
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


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
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
