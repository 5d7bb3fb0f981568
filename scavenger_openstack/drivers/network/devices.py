# SPDX-License-Identifier: Apache-2.0

"""Network devices by name, and the sockets that ask the kernel about them.

A device is written ``DEVICE``, or ``NETNS:DEVICE`` in a named network
namespace.  What was found is kept until the kernel no longer knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import errno
import functools
import os
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.kernel.token_bucket import TokenBucket
from scavenger_openstack.drivers.network import roots
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors

Interface = str | tap.Tap
"""What carries the traffic of one workload and no other: a device by
which it leaves, or taps at which it arrives."""


class LimitedDevices(NamedTuple):
    """The devices of a workload that can be limited, and their limit now.

    ``rate`` in bytes per second.  ``refused``: those that cannot be limited,
    and why.  ``noqueue``: see :attr:`.roots.RootQdiscs.noqueue`.
    """

    links: tap.Links
    refused: Mapping[str, errors.Unsupported]
    rate: float | None
    set_rate: Callable[[TokenBucket], None]
    noqueue: Sequence[int] = ()


class Devices:
    """The devices that were looked for; not for two threads at once."""

    def __init__(self) -> None:
        self._sockets: dict[str, rtnetlink.Rtnetlink] = {}
        self._taps: dict[str, tap.Taps] = {}
        self._found: dict[str, rtnetlink.Link] = {}

    def find(self, interface: Interface
             ) -> tuple[rtnetlink.Rtnetlink, tap.Links]:
        """Return where to ask for the devices, and which ones they are.

        :raises OSError: there is no such namespace, or none of the devices
        """
        every = names(interface)
        namespace = self.namespace(split(every[0])[0])
        links, missing = {}, None
        for device in every:
            name = split(device)[1]
            try:
                if device not in self._found:
                    self._found[device] = namespace.link(name)
            except OSError as exc:
                if exc.errno != errno.ENODEV:
                    raise
                missing = exc
            else:
                links[name] = self._found[device]
        if missing is not None and not links:
            raise missing
        return namespace, links

    def indexes(self, devices: Iterable[str]) -> list[int]:
        """The indexes of devices that :meth:`find` has found."""
        return [self._found[device].ifindex for device in devices]

    def namespace(self, netns: str) -> rtnetlink.Rtnetlink:
        """Return where to ask about a network namespace, '' for our own.

        :raises OSError: there is none of this name, or it cannot be entered
        """
        kept = self._sockets.get(netns)
        if kept is not None and netns:
            # Our socket would keep a deleted namespace alive, unseen.
            try:
                inode = os.stat(f'{rtnetlink.NETNS_DIR}/{netns}').st_ino
            except OSError:
                self._leave(netns)
                raise
            if inode != kept.inode:
                self._leave(netns)
                kept = None
        if kept is None:
            kept = self._sockets[netns] = rtnetlink.Rtnetlink(netns)
        return kept

    def taps(self, device: str) -> tap.Taps:
        """Return the taps in the namespace of a device that was found."""
        netns = split(device)[0]
        if netns not in self._taps:
            self._taps[netns] = tap.Taps(self._sockets[netns])
        return self._taps[netns]

    def read(self, interface: Interface, *, arrives: bool, what: str
             ) -> LimitedDevices:
        """Return which devices can be limited, and what is there.

        :param arrives: limit what arrives at them, and not what leaves
        :param what: what that is, for messages
        :raises Unsupported: none can be limited
        :raises WorkloadGone: another program came after us
        :raises OSError: there is no such namespace, or none of the devices
        """
        namespace, links = self.find(interface)
        refused: Mapping[str, errors.Unsupported] = {}
        if isinstance(interface, tap.Tap):
            links, refused = tap.without_senders(links)
            if not links:
                raise next(iter(refused.values()))
        if arrives:
            taps = self.taps(first(interface))
            at_taps = taps.read(links, what=what)
            return LimitedDevices(
                at_taps.links, {**refused, **at_taps.refused},
                taps.rate(at_taps),
                functools.partial(taps.set_rate, at_taps))
        at_roots = roots.read(namespace, links, what=what)
        return LimitedDevices(
            at_roots.links, {**refused, **at_roots.refused}, at_roots.rate,
            functools.partial(roots.set_rate, namespace, at_roots),
            at_roots.noqueue)

    def _leave(self, netns: str) -> None:
        if netns in self._taps:
            self._taps.pop(netns).close()
        self._sockets.pop(netns).close()
        for device in list(self._found):
            if split(device)[0] == netns:
                self.forget(device)

    def forget(self, device: str) -> None:
        """Forget a device: it is searched again when it is needed next."""
        link = self._found.pop(device, None)
        taps = self._taps.get(split(device)[0])
        if link and taps:
            taps.forget(link.ifindex)

    def failure(self, interface: Interface, exc: Exception
                 ) -> errors.DriverError:
        """Return what to tell of a call that the kernel did not like."""
        if isinstance(exc, errors.DriverError):
            return exc
        number = exc.errno if isinstance(exc, OSError) else None
        every = names(interface)
        device = ' and '.join(every)
        netns = split(every[0])[0]
        if number == errno.ENODEV:
            for name in every:
                self.forget(name)
            missing = ' or no '.join(split(name)[1] for name in every)
            return errors.WorkloadGone(
                f'network device {device}: there is no {missing} '
                + (f'in namespace {netns}' if netns else 'here')
                + '; it is looked for again next time')
        if number == errno.ENOENT and netns not in self._sockets:
            return errors.WorkloadGone(
                f'network device {device}: there is no namespace {netns} in '
                f'{rtnetlink.NETNS_DIR}; it is looked for again next time')
        if number in (errno.EPERM, errno.EACCES):
            return errors.DriverError(
                f'network device {device}: {exc}; give the agent '
                'CAP_NET_ADMIN (and CAP_SYS_ADMIN to enter a namespace)',
                cause=f'CAP_NET_ADMIN or CAP_SYS_ADMIN: {exc}')
        if number == errno.ENOENT:
            return errors.Unsupported(
                f'network device {device}: {exc}; the kernel needs the token '
                'bucket: modprobe sch_tbf', cause='modprobe sch_tbf')
        return errors.DriverError(f'network device {device}: {exc}')

    def close(self) -> None:
        for netns in list(self._sockets):
            self._leave(netns)


def first(interface: Interface) -> str:
    """The name of its first device, which messages are about."""
    return interface.device if isinstance(interface, tap.Tap) else interface


def names(interface: Interface) -> tuple[str, ...]:
    """The names of all of its devices."""
    return ((interface.device, *interface.also)
            if isinstance(interface, tap.Tap) else (interface,))


def split(device: str) -> tuple[str, str]:
    """The network namespace of a device ('' for our own), and its name."""
    netns, _, name = device.rpartition(':')
    return netns, name
