# SPDX-License-Identifier: Apache-2.0


"""Links, counters and token buckets of one network namespace.

Parsed by hand: it asks for what a tick needs (bytes sent, the root qdisc)
and sets a token bucket.  pyroute2 was tried first: it forks this process,
threads and all, to open a socket in another namespace, makes a namespace
that does not exist, cannot express rates above 4.29 GB/s and adds 21 MiB.

Sources: linux/rtnetlink.h, linux/pkt_sched.h, linux/if_link.h, and
net/sched/sch_api.c for what the flags of RTM_NEWQDISC mean.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import errno
import os
import socket
import struct
import sys
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import netlink
from scavenger_openstack.drivers.kernel.token_bucket import TokenBucket

NETNS_DIR = netlink.NETNS_DIR

attribute = netlink.attribute
attributes = netlink.attributes

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_NEWQDISC, _DELQDISC, _GETQDISC, _GETSTATS = 36, 37, 38, 94
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_IFALIAS = 3, 4, 18, 20
_IFLA_AF_SPEC, _IFLA_GROUP, _IFLA_EXT_MASK = 26, 27, 29
_IFLA_INFO_KIND, _IFLA_INET6_ADDR_GEN_MODE, _IFLA_STATS_LINK_64 = 1, 8, 1
_SKIP_STATS, _ADDR_GEN_MODE_NONE, _IFF_UP, _IFF_RUNNING = 8, 1, 1, 0x40
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TBF_PARMS, _TBF_RATE64, _TBF_PRATE64 = 1, 4, 5
_TBF_BURST, _TBF_PBURST = 6, 7
_PEAK_RATES = 1000
_ROOT = 0xffffffff
_LINKLAYER_ETHERNET = 1
_TICK_NS = 64

_LINK = struct.Struct('=BxHiII')
_STATS = struct.Struct('=BxxxII')
_TC = struct.Struct('=BxxxiIII')
_RATESPEC = '=BBHhHI'
_BYTES = struct.Struct('=16xQQ')
_STATS_BYTES = struct.Struct('=4xI4x2xH16xQQ')


LinkBytes = Mapping[int, tuple[int, int]]
"""Bytes that each device has received and sent so far, by its index."""


class Link(NamedTuple):
    """A network device; ``mtu`` in bytes without the Ethernet header.

    ``kind`` is what the kernel calls its type, '' for hardware.
    """

    ifindex: int
    mtu: int
    kind: str = ''
    group: int = 0


class Qdisc(NamedTuple):
    """A root qdisc.  ``handle`` is 0 for the kernel's default ones.

    ``rate`` in bytes per second, ``None`` when the kind is not ``tbf``.
    """

    kind: str
    handle: int
    rate: int | None = None


def tbf_options(bucket: TokenBucket) -> bytes:
    """Return what TCA_OPTIONS of a token bucket holds.

    The burst of a peak rate says what is admitted; that rate itself is out
    of reach.
    """
    rate, burst, limit, longest = bucket
    peak = min(rate * _PEAK_RATES, 0xffffffffffffffff)
    parms = (_ratespec(rate) + _ratespec(peak)
             + struct.pack('=III', min(limit, 0xffffffff),
                           _ticks(burst, rate), _ticks(longest, peak)))
    options = attribute(_TBF_PARMS, parms)
    for kind, value in ((_TBF_RATE64, rate), (_TBF_PRATE64, peak)):
        if value > 0xffffffff:
            options += attribute(kind, struct.pack('=Q', value))
    return (options + attribute(_TBF_BURST, struct.pack('=I', burst))
            + attribute(_TBF_PBURST, struct.pack('=I', longest)))


def _ratespec(rate: int) -> bytes:
    return struct.pack(_RATESPEC, 0, _LINKLAYER_ETHERNET, 0, 0, 0,
                       min(rate, 0xffffffff))


def _ticks(size: int, rate: int) -> int:
    return min(size * 10**9 // rate // _TICK_NS, 0xffffffff)


class Rtnetlink:
    """Questions about devices and their root qdiscs, and changes to them.

    Every method raises ``OSError``: ENODEV when the device is gone, and the
    kernel's own words in ``strerror`` where it gives any.

    :param netns: name of a namespace, '' for that of this process
    :raises OSError: no such namespace, or no right to enter it
    """

    def __init__(self, netns: str = '') -> None:
        self.talk = netlink.Netlink(netns)
        self.inode = self.talk.inode

    def link(self, name: str) -> Link:
        """Look a device up by its name."""
        answer = self.talk.ask(
            _GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _WITHOUT_STATS
            + attribute(_IFLA_IFNAME, name.encode() + b'\0'))
        assert answer is not None
        return _link(answer)[1]

    def links(self, kind: str = '') -> dict[str, Link]:
        """Return all devices, or all of a kind, by name."""
        answers = self.talk.dump(
            _GETLINK, _LINK.pack(0, 0, 0, 0, 0) + _WITHOUT_STATS
            + (_kind(kind) if kind else b''))
        # A kernel that does not know the kind answers with all devices.
        return {name: link for name, link in map(_link, answers)
                if name and kind in ('', link.kind)}

    def exists(self, ifindex: int) -> bool:
        """Return whether there is a device with this index."""
        try:
            self.talk.ask(_GETLINK, 0, _LINK.pack(0, 0, ifindex, 0, 0)
                          + _WITHOUT_STATS)
        except OSError as exc:
            if exc.errno != errno.ENODEV:
                raise
            return False
        return True

    def is_running(self, ifindex: int) -> bool:
        """Return whether a device is up and, where it has such, has carrier.
        """
        answer = self.talk.ask(_GETLINK, 0, _LINK.pack(0, 0, ifindex, 0, 0)
                               + _WITHOUT_STATS)
        assert answer is not None
        return bool(_LINK.unpack_from(answer)[3] & _IFF_RUNNING)

    def add_link(self, name: str, kind: str, group: int) -> None:
        """Make a device, down.

        :raises FileExistsError: there is a device of this name
        """
        self.talk.ask(
            _NEWLINK, netlink.ACK | netlink.CREATE | netlink.EXCLUSIVE,
            _LINK.pack(0, 0, 0, 0, 0)
            + attribute(_IFLA_IFNAME, name.encode() + b'\0')
            + attribute(_IFLA_GROUP, struct.pack('=I', group)) + _kind(kind))

    def describe_link(self, ifindex: int, text: str) -> None:
        """Give a device a line that ``ip link`` shows."""
        self.talk.ask(
            _SETLINK, netlink.ACK, _LINK.pack(0, 0, ifindex, 0, 0)
            + attribute(_IFLA_IFALIAS, text.encode()))

    def keep_without_ipv6(self, ifindex: int) -> None:
        """Keep the kernel from giving a device an IPv6 address."""
        mode = attribute(_IFLA_INET6_ADDR_GEN_MODE,
                         bytes([_ADDR_GEN_MODE_NONE]))
        # Without IPv6 in the kernel there is nothing to switch off.
        with contextlib.suppress(OSError):
            self.talk.ask(
                _SETLINK, netlink.ACK, _LINK.pack(0, 0, ifindex, 0, 0)
                + attribute(_IFLA_AF_SPEC | netlink.NESTED, attribute(
                    socket.AF_INET6 | netlink.NESTED, mode)))

    def set_up(self, ifindex: int) -> None:
        self.talk.ask(_SETLINK, netlink.ACK,
                      _LINK.pack(0, 0, ifindex, _IFF_UP, _IFF_UP))

    def delete_link(self, ifindex: int) -> None:
        self.talk.ask(_DELLINK, netlink.ACK, _LINK.pack(0, 0, ifindex, 0, 0))

    def received_sent(self, ifindex: int) -> tuple[int, int]:
        """Bytes that a device has received and sent so far."""
        answer = self.talk.ask(_GETSTATS, 0, _STATS.pack(0, ifindex, 1))
        both = _received_sent(answer or b'')
        if both is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return both

    def link_bytes(self) -> LinkBytes:
        """Return what all devices have received and sent, in one request."""
        by_index = {}
        for answer in self.talk.dump(_GETSTATS, _STATS.pack(0, 0, 1)):
            size = len(answer)
            ifindex, kind, received, sent = (
                _STATS_BYTES.unpack_from(answer)
                if size >= _STATS_BYTES.size else (0, 0, 0, 0))
            if kind == _IFLA_STATS_LINK_64:
                by_index[ifindex] = received, sent
            elif size >= _STATS.size and (both := _received_sent(answer)):
                by_index[_STATS.unpack_from(answer)[1]] = both     # padded
        return by_index

    def root_qdisc(self, ifindex: int) -> Qdisc | None:
        """The root qdisc, ``None`` while the device has none (is down).

        NLM_F_ECHO: without it the kernel tells all but us.
        """
        answer = self.talk.ask(_GETQDISC, netlink.ACK | netlink.ECHO,
                               _TC.pack(0, ifindex, 0, _ROOT, 0))
        if answer is None:
            return None
        handle = _TC.unpack_from(answer)[2]
        fields = dict(attributes(answer[_TC.size:]))
        kind = _text(fields.get(_TCA_KIND, b''))
        options = dict(attributes(fields.get(_TCA_OPTIONS, b'')))
        parms = options.get(_TBF_PARMS, b'')
        if kind != 'tbf' or len(parms) < struct.calcsize(_RATESPEC):
            return Qdisc(kind, handle)
        rate = struct.unpack_from(_RATESPEC, parms)[5]
        if _TBF_RATE64 in options:
            rate = int.from_bytes(options[_TBF_RATE64], sys.byteorder)
        return Qdisc(kind, handle, rate)

    def set_root_tbf(self, ifindex: int, handle: int, bucket: TokenBucket
                     ) -> None:
        """Put a token bucket at the root, or change the one with ``handle``.

        Without NLM_F_REPLACE the kernel takes it in place of a default
        qdisc or as a change of the same one, and answers EEXIST for any
        else's: nothing can come in between a look and a write.
        """
        self.talk.ask(_NEWQDISC, netlink.ACK | netlink.CREATE,
                      _TC.pack(0, ifindex, handle, _ROOT, 0)
                      + attribute(_TCA_KIND, b'tbf\0')
                      + attribute(_TCA_OPTIONS | netlink.NESTED,
                                  tbf_options(bucket)))

    def delete_root(self, ifindex: int, qdisc: Qdisc) -> None:
        """Delete this root qdisc; the kernel puts its default there.

        :raises OSError: EINVAL: another is there
        """
        self.talk.ask(_DELQDISC, netlink.ACK,
                      _TC.pack(0, ifindex, qdisc.handle, _ROOT, 0)
                      + attribute(_TCA_KIND, qdisc.kind.encode() + b'\0'))

    def close(self) -> None:
        self.talk.close()


_WITHOUT_STATS = attribute(_IFLA_EXT_MASK, struct.pack('=I', _SKIP_STATS))


def _received_sent(answer: bytes) -> tuple[int, int] | None:
    stats = dict(attributes(answer[_STATS.size:])).get(_IFLA_STATS_LINK_64,
                                                       b'')
    if len(stats) < _BYTES.size:
        return None
    received, sent = _BYTES.unpack_from(stats)
    return received, sent


def _kind(kind: str) -> bytes:
    return attribute(_IFLA_LINKINFO | netlink.NESTED,
                     attribute(_IFLA_INFO_KIND, kind.encode() + b'\0'))


def _link(answer: bytes) -> tuple[str, Link]:
    """Name, '' where the kernel gives none, and device."""
    fields = dict(attributes(answer[_LINK.size:]))
    info = dict(attributes(fields.get(_IFLA_LINKINFO, b'')))
    return _text(fields.get(_IFLA_IFNAME, b'')), Link(
        _LINK.unpack_from(answer.ljust(_LINK.size, b'\0'))[2],
        _number(fields.get(_IFLA_MTU, b'')),
        _text(info.get(_IFLA_INFO_KIND, b'')),
        _number(fields.get(_IFLA_GROUP, b'')))


def _number(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


def _text(data: bytes) -> str:
    return data.rstrip(b'\0').decode(errors='surrogateescape')
