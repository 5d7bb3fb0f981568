# SPDX-License-Identifier: Apache-2.0

"""Token buckets at the root of devices, for what leaves by them.

A bucket is of one device: each device of a workload has its own, with the
whole rate.

Most devices have a default qdisc of the kernel at the root, which a bucket
replaces.  libvirt puts ``noqueue`` at the root of its taps, which limits
nothing: it goes, too, and is put back with the limit's end.  Any other
belongs to another program and stays, and so does the ``noqueue`` of hardware,
which the watcher would not put there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.kernel.token_bucket import TokenBucket
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors

NOQUEUE = 'noqueue'


class RootQdiscs(NamedTuple):
    """What is at the root of the devices of a workload.

    ``links`` can be limited; of each, ``qdiscs`` is what is at its root,
    ``None`` for nothing or a default of the kernel.  ``refused``: those that
    cannot, and why.
    """

    links: tap.Links
    qdiscs: Mapping[str, rtnetlink.Qdisc | None]
    refused: Mapping[str, errors.Unsupported]

    @property
    def rate(self) -> float | None:
        """Rate of our token buckets in bytes per second; ``None`` where one
        is missing or differs."""
        rate, *others = {qdisc.rate if qdisc else None
                         for qdisc in self.qdiscs.values()}
        return None if others or rate is None else float(rate)

    @property
    def noqueue(self) -> list[int]:
        """Indexes of the devices that have ``noqueue`` at the root."""
        return [link.ifindex for name, link in self.links.items()
                if (qdisc := self.qdiscs[name]) and qdisc.kind == NOQUEUE]


def read(namespace: rtnetlink.Rtnetlink, links: tap.Links, *, what: str
         ) -> RootQdiscs:
    """Read what is at the root of devices.

    :param what: what leaves by them, for messages
    :raises Unsupported: another program's qdisc is at the root of each
    :raises OSError: a device is gone
    """
    usable, qdiscs, refused = {}, {}, {}
    for name, link in links.items():
        qdisc = namespace.root_qdisc(link.ifindex)
        if qdisc is not None and not qdisc.handle:
            qdisc = None
        if qdisc is None or (qdisc.kind == NOQUEUE and link.kind) or (
                qdisc.handle == tap.HANDLE and qdisc.rate is not None):
            usable[name], qdiscs[name] = link, qdisc
        else:
            refused[name] = errors.Unsupported(
                f'network device {name}: the qdisc {qdisc.kind} '
                f'{qdisc.handle >> 16:x}: of another program is at its root, '
                f'so {what} is not limited; remove it (tc qdisc del dev '
                f'{name} root) or leave this workload out')
    if not usable:
        raise next(iter(refused.values()))
    return RootQdiscs(usable, qdiscs, refused)


def set_rate(namespace: rtnetlink.Rtnetlink, roots: RootQdiscs,
             bucket: TokenBucket) -> None:
    """Set the rate of each; packets that wait stay.

    :raises OSError: EEXIST or EINVAL: another program's qdisc came meanwhile
    """
    for name, link in roots.links.items():
        qdisc = roots.qdiscs[name]
        if qdisc is not None and qdisc.kind == NOQUEUE:
            namespace.delete_root(link.ifindex, qdisc)
        namespace.set_root_tbf(link.ifindex, tap.HANDLE, bucket)
