# SPDX-License-Identifier: Apache-2.0


"""What stands at the ingress of a device, and a redirect of all of it.

Each function may raise ``OSError``, ENODEV when the device is gone.

Sources: linux/pkt_cls.h, linux/tc_act/tc_mirred.h, and for what is done
with the messages net/sched/cls_api.c, cls_u32.c and act_mirred.c.
"""

from __future__ import annotations

from collections.abc import Iterator
import errno
import socket
import struct
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import netlink
from scavenger_openstack.drivers.kernel.netlink import attribute
from scavenger_openstack.drivers.kernel.netlink import attributes
from scavenger_openstack.restore import grammar

PREFERENCE = grammar.MARK
"""The place of our filter among others (``pref 23712``): it is ours."""

_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_NEWFILTER, _DELFILTER, _GETFILTER = 44, 45, 46
_INGRESS, _HANDLE, _FILTERS = 0xfffffff1, 0xffff0000, 0xfffffff2
_EVERY_PROTOCOL = socket.htons(3)
_TCA_KIND, _TCA_OPTIONS = 1, 2
_U32_SELECTOR, _U32_ACTIONS = 5, 7
_ACTION_KIND, _ACTION_OPTIONS, _MIRRED_PARMS = 1, 2, 2
_TERMINAL, _STOLEN, _REDIRECT = 1, 4, 1

_TC = struct.Struct('=BxxxiIII')
_SELECTOR = struct.Struct('=BBBxHHhhI')
_MIRRED = struct.Struct('=IIiiiiI')


class Filter(NamedTuple):
    """One filter.  ``target``: index of the device to which a filter of
    ours redirects, 0 when that is gone, ``None`` for what is not ours."""

    kind: str
    preference: int
    target: int | None = None


def qdisc(talk: netlink.Netlink, ifindex: int) -> str:
    """Kind of the qdisc at the ingress (ingress, clsact), '' for none."""
    try:
        answer = talk.ask(_GETQDISC, netlink.ACK | netlink.ECHO,
                          _TC.pack(0, ifindex, 0, _INGRESS, 0))
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        return ''
    return _kind(answer) if answer else ''


def add_qdisc(talk: netlink.Netlink, ifindex: int) -> None:
    """Make one.

    :raises FileExistsError: there is one
    """
    talk.ask(_NEWQDISC, netlink.ACK | netlink.CREATE | netlink.EXCLUSIVE,
             _TC.pack(0, ifindex, _HANDLE, _INGRESS, 0)
             + attribute(_TCA_KIND, b'ingress\0'))


def delete_qdisc(talk: netlink.Netlink, ifindex: int) -> None:
    """Delete the ingress qdisc, with all that hangs on it."""
    talk.ask(_DELQDISC, netlink.ACK,
             _TC.pack(0, ifindex, _HANDLE, _INGRESS, 0))


def filters(talk: netlink.Netlink, ifindex: int) -> list[Filter]:
    """The filters; none as well when there is no qdisc, or no device."""
    return list(_parse(talk.dump(
        _GETFILTER, _TC.pack(0, ifindex, 0, _FILTERS, 0))))


def redirect(talk: netlink.Netlink, ifindex: int, target: int) -> None:
    """Send all that arrives at ``ifindex`` out by the device ``target``.

    A filter without keys: one that reads the packet, were it four bytes of
    anything, would let shorter ones pass.

    :raises FileExistsError: there is such a filter
    """
    parms = _MIRRED.pack(0, 0, _STOLEN, 0, 0, _REDIRECT, target)
    action = (attribute(_ACTION_KIND, b'mirred\0')
              + _nest(_ACTION_OPTIONS, attribute(_MIRRED_PARMS, parms)))
    selector = _SELECTOR.pack(_TERMINAL, 0, 0, 0, 0, 0, 0, 0)
    talk.ask(_NEWFILTER, netlink.ACK | netlink.CREATE | netlink.EXCLUSIVE,
             _TC.pack(0, ifindex, 0, _FILTERS, _which())
             + attribute(_TCA_KIND, b'u32\0')
             + _nest(_TCA_OPTIONS, attribute(_U32_SELECTOR, selector)
                     + _nest(_U32_ACTIONS, _nest(1, action))))


def delete_redirect(talk: netlink.Netlink, ifindex: int) -> None:
    """Delete our filter; fine when there is none."""
    try:
        talk.ask(_DELFILTER, netlink.ACK,
                 _TC.pack(0, ifindex, 0, _FILTERS, _which())
                 + attribute(_TCA_KIND, b'u32\0'))
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.EINVAL):
            raise


def _which() -> int:
    return PREFERENCE << 16 | _EVERY_PROTOCOL


def _nest(kind: int, payload: bytes) -> bytes:
    return attribute(kind | netlink.NESTED, payload)


def _kind(answer: bytes) -> str:
    fields = dict(attributes(answer[_TC.size:]))
    return fields.get(_TCA_KIND, b'').rstrip(b'\0').decode(errors='replace')


def _parse(answers: list[bytes]) -> Iterator[Filter]:
    """A filter without options is but the head of a list of them."""
    for answer in answers:
        if len(answer) < _TC.size:
            continue
        preference = _TC.unpack_from(answer)[4] >> 16
        kind = _kind(answer)
        fields = dict(attributes(answer[_TC.size:]))
        if kind != 'u32' or preference != PREFERENCE:
            yield Filter(kind, preference)
            continue
        options = dict(attributes(fields.get(_TCA_OPTIONS, b'')))
        if _U32_ACTIONS in options:
            yield Filter(kind, preference, _target(options[_U32_ACTIONS]))


def _target(actions: bytes) -> int:
    """Return where the first action redirects to, 0 for nowhere."""
    first = dict(attributes(dict(attributes(actions)).get(1, b'')))
    options = dict(attributes(first.get(_ACTION_OPTIONS, b'')))
    parms = options.get(_MIRRED_PARMS, b'')
    if (first.get(_ACTION_KIND) != b'mirred\0' or len(parms) < _MIRRED.size):
        return 0
    _, _, action, _, _, way, target = _MIRRED.unpack_from(parms)
    return int(target) if (action, way) == (_STOLEN, _REDIRECT) else 0
