# SPDX-License-Identifier: Apache-2.0


"""Packet filters that hang at the ingress of a device itself.

Sources: linux/netfilter/nf_tables.h and net/netfilter/nf_tables_api.c.
"""

from __future__ import annotations

from collections.abc import Iterator
import errno
import struct

from scavenger_openstack.drivers.kernel import netlink
from scavenger_openstack.drivers.kernel.netlink import attributes

_GETCHAIN = 10 << 8 | 4
_INGRESS_OF = ((5, 0), (1, 5))
"""Families that have such a hook (netdev, inet), and its number there."""
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK = 1, 3, 4
_HOOK_NUMBER, _HOOK_DEVICE, _HOOK_DEVICES = 1, 3, 4
_DEVICE_NAME, _DEVICE_PREFIX = 1, 2
_NO_NFTABLES = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT)

_FAMILY = struct.Struct('=BBH')


class Nftables:
    """A conversation with nf_tables in one network namespace.

    :raises OSError: no such namespace, or no right to enter it
    """

    def __init__(self, netns: str = '') -> None:
        self._talk: netlink.Netlink | None = None
        try:
            self._talk = netlink.Netlink(netns, netlink.NETFILTER)
        except OSError as exc:
            if exc.errno != errno.EPROTONOSUPPORT:
                raise

    def at_ingress(self, device: str) -> str:
        """The chain hooked to the ingress of a device, '' for none.

        :raises OSError: the kernel does not say
        """
        for family, number in _INGRESS_OF if self._talk else ():
            for chain in self._chains(family):
                hook = dict(attributes(chain.get(_CHAIN_HOOK, b'')))
                if (int.from_bytes(hook.get(_HOOK_NUMBER, b'\xff')) == number
                        and any(_matches(device, *entry)
                                for entry in _devices(hook))):
                    return ' '.join(_text(chain.get(part, b''))
                                    for part in (_CHAIN_TABLE, _CHAIN_NAME))
        return ''

    def close(self) -> None:
        if self._talk:
            self._talk.close()

    def _chains(self, family: int) -> list[dict[int, bytes]]:
        assert self._talk
        try:
            answers = self._talk.dump(_GETCHAIN, _FAMILY.pack(family, 0, 0))
        except OSError as exc:
            if exc.errno not in _NO_NFTABLES:
                raise
            return []
        return [dict(attributes(answer[_FAMILY.size:]))
                for answer in answers]


def _devices(hook: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
    if _HOOK_DEVICE in hook:
        yield _DEVICE_NAME, hook[_HOOK_DEVICE]
    yield from attributes(hook.get(_HOOK_DEVICES, b''))


def _matches(device: str, kind: int, name: bytes) -> bool:
    """A name without its final zero byte stands for all that begin so."""
    if kind == _DEVICE_PREFIX or not name.endswith(b'\0'):
        return device.startswith(_text(name))
    return device == _text(name)


def _text(data: bytes) -> str:
    return data.rstrip(b'\0').decode(errors='replace')
