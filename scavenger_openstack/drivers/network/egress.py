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

"""Shared network links and the egress of background workloads.

A workload's egress is held by a token bucket (TBF) at the root of the
device that carries its traffic and no other.  A device is written
``DEVICE``, or ``NETNS:DEVICE`` in a named network namespace.  The egress of
a VM does not leave by a device of the host, it arrives at its tap; see
:mod:`.tap`.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import errno
import logging
import os
import pathlib
from typing import NamedTuple

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.kernel import token_bucket
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

LOG = logging.getLogger(__name__)

HANDLE = tap.HANDLE
"""The handle ``5ca0:`` of every qdisc that is ours."""

BITS_PER_BYTE = 8


Interface = str | tap.Tap
"""What carries the traffic of one workload and no other: a device by
which it leaves, or taps at which it arrives."""


class _Device(NamedTuple):
    """A device that was found: the identity that a lease names."""

    namespace_inode: int
    link: rtnetlink.Link


class Network:
    """Implements :class:`scavenger_openstack.drivers.base.Knobs`.

    Only ``egress_bytes_per_s`` exists here.  Not for two threads at once.

    :param links: shared devices and their capacity in bytes per second,
        ``None`` for the speed that the device reports
    :param interfaces: workload id -> the device that carries its traffic
    """

    def __init__(self, links: Mapping[str, float | None],
                 interfaces: Mapping[str, Interface],
                 root_dir: str = '/') -> None:
        self._links = dict(links)
        self._interfaces = dict(interfaces)
        self._sys = pathlib.Path(root_dir, 'sys/class/net')
        self._sockets: dict[str, rtnetlink.Rtnetlink] = {}
        self._taps: dict[str, tap.Taps] = {}
        self._devices: dict[str, _Device] = {}
        self._promised: dict[str, tuple[_Device, ...]] = {}
        self._complained: dict[str, str] = {}
        self._withheld: dict[str, int] = {}

    def attach(self, workload: str, interface: Interface) -> None:
        """From now on ``interface`` carries the traffic of ``workload``.

        A limit of other devices has to be removed first; see :meth:`read`.
        """
        self._interfaces[workload] = interface

    def detach(self, workload: str) -> None:
        """The workload has ended, or its interface was unplugged.

        Its limit is removed by the restore actions of its lease, not by this.
        """
        self._promised.pop(workload, None)
        interface = self._interfaces.pop(workload, None)
        for device in _names(interface) if interface is not None else ():
            self._forget(device)
            self._complained.pop(device, None)

    def ended(self, workload: str) -> None:
        """That run of the workload is over: what its limit withheld, too."""
        self._withheld.pop(workload, None)

    def capacities(self) -> dict[str, float]:
        """Capacity in bytes per second of each link, where it is known."""
        for name, capacity in self._links.items():
            if capacity is None:
                self._links[name] = self._speed(name)
        return {name: capacity for name, capacity in self._links.items()
                if capacity is not None}

    def tx_bytes(self, device: str) -> int | None:
        """Bytes that a device has sent so far.

        ``None`` while there is no such device; that is logged once.
        """
        try:
            namespace, links = self._find(device)
            sent = namespace.tx_bytes(_only(links).ifindex)
        except (OSError, errors.DriverError) as exc:
            self._complain(device, str(self._failure(device, exc)))
            return None
        self._complained.pop(device, None)
        return sent

    def link_bytes(self) -> rtnetlink.LinkBytes:
        """What each device of this process's namespace has counted.

        One question to the kernel; empty when it does not answer, which is
        logged once.
        """
        try:
            found = self._namespace('').link_bytes()
        except OSError as exc:
            self._complain('', 'what network devices have sent is unknown: '
                           f'{exc}')
            return {}
        self._complained.pop('', None)
        return found

    def withheld(self, link_bytes: rtnetlink.LinkBytes
                 ) -> dict[str, int | None]:
        """Bytes that arrived at the taps of each VM that was ever limited,
        and that its limit has not let through.

        ``None`` where that cannot be told, which is logged once.

        :param link_bytes: by all devices of the namespace of the taps
        """
        found: dict[str, int | None] = {}
        for workload in self._withheld:
            found[workload] = self._withheld[workload]
            interface = self._interfaces.get(workload)
            if interface is None:
                continue        # limited no more: what was withheld stays so
            device = _device(interface)
            try:
                links = self._find(interface)[1]
                self._withheld[workload] += self._taps_of(device).withheld(
                    links, link_bytes)
            except (OSError, errors.DriverError) as exc:
                self._complain(device, str(self._failure(interface, exc)))
                found[workload] = None
                continue
            self._complained.pop(device, None)
            found[workload] = self._withheld[workload]
        return found

    def link_tx(self) -> dict[str, int]:
        """Bytes sent so far over each shared link that is there."""
        found = {}
        for name in self._links:
            sent = self.tx_bytes(name)
            if sent is not None:
                found[name] = sent
        return found

    def read(self, workload: str, knob: Knob) -> float | None:
        """Rate of our token bucket in bytes per second.

        :raises WorkloadGone: once, when other devices than those of the
            restore actions carry the traffic of the workload
        """
        return self._read(workload, self._interface(workload, knob))

    def restore_actions(self, workload: str, knob: Knob
                        ) -> list[base.RestoreAction]:
        """Take our token bucket away again."""
        interface = self._interface(workload, knob)
        self._promised.pop(workload, None)
        self._read(workload, interface)
        found = tuple(self._devices[device] for device in _names(interface))
        self._promised[workload] = found
        netns, name = _split(_device(interface))
        first, *also = (one.link.ifindex for one in found)
        return [{'do': 'tap' if isinstance(interface, tap.Tap) else 'tc',
                 'netns': netns, 'dev': name, 'ifindex': first,
                 **({'also': also} if also else {})}]

    def write(self, workload: str, knob: Knob, value: Value,
              original: Sequence[base.RestoreAction] = ()) -> float | None:
        """Set the rate in bytes per second; packets that wait stay."""
        interface = self._interface(workload, knob)
        device = _device(interface)
        rate = _rate(device, value)
        try:
            namespace, links = self._find(interface, workload)
            wanted = token_bucket.bucket(rate, max(link.mtu for link
                                                   in links.values()))
            if isinstance(interface, tap.Tap):
                self._taps_of(device).set_rate(links, wanted)
                self._withheld.setdefault(workload, 0)
            else:
                namespace.set_root_tbf(_only(links).ifindex, HANDLE, wanted)
        except OSError as exc:
            if exc.errno in (errno.EEXIST, errno.EINVAL):
                self._read(workload, interface)  # says whose it is
            raise self._failure(interface, exc) from exc
        return self._read(workload, interface)

    def queue(self, workload: str, knob: Knob) -> str:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.queue`."""
        return base.usual_queue(knob)

    def refresh(self, held: Collection[KnobKey]) -> base.Changes:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.refresh`."""
        return base.Changes()

    def notify(self, event: base.Event) -> bool:
        """See :meth:`scavenger_openstack.drivers.base.Knobs.notify`."""
        return False

    def close(self) -> None:
        for netns in list(self._sockets):
            self._leave(netns)

    def _interface(self, workload: str, knob: Knob) -> Interface:
        if knob is not Knob.EGRESS_BYTES_PER_S:
            raise errors.Unsupported(f'{workload}: {knob} is not a limit of '
                                     'a network device')
        if workload not in self._interfaces:
            raise errors.Unsupported(
                f'{workload}: no device is known that carries its traffic '
                f'alone; add {workload}=DEVICE to [network] interfaces')
        return self._interfaces[workload]

    def _read(self, workload: str, interface: Interface) -> float | None:
        device = _device(interface)
        try:
            namespace, links = self._find(interface, workload)
            if isinstance(interface, tap.Tap):
                return self._taps_of(device).rate(links)
            found = namespace.root_qdisc(_only(links).ifindex)
        except OSError as exc:
            raise self._failure(interface, exc) from exc
        if found is None or not found.handle:
            return None
        if found.handle != HANDLE or found.rate is None:
            raise _foreign(device, f'the qdisc {found.kind} '
                                   f'{found.handle >> 16:x}:')
        return float(found.rate)

    def _find(self, interface: Interface, workload: str = ''
              ) -> tuple[rtnetlink.Rtnetlink, tap.Links]:
        """Where to ask for the devices, and which ones they are.

        :raises WorkloadGone: they are not the devices whose restore actions
            ``workload`` was given; the next call takes the new ones
        :raises OSError: there is no such namespace or device
        """
        names = _names(interface)
        namespace = self._namespace(_split(names[0])[0])
        for device in names:
            if device not in self._devices:
                self._devices[device] = _Device(
                    namespace.inode, namespace.link(_split(device)[1]))
        found = tuple(self._devices[device] for device in names)
        if self._promised.get(workload, found) != found:
            del self._promised[workload]
            raise errors.WorkloadGone(
                f'network device {" and ".join(names)}: made again, added or '
                'removed (ifindex '
                f'{", ".join(str(one.link.ifindex) for one in found)}); the '
                'limit from before is removed, or ended with it')
        return namespace, {_split(device)[1]: one.link
                           for device, one in zip(names, found, strict=True)}

    def _namespace(self, netns: str) -> rtnetlink.Rtnetlink:
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

    def _taps_of(self, device: str) -> tap.Taps:
        """Those of the namespace of a device that was found."""
        netns = _split(device)[0]
        if netns not in self._taps:
            self._taps[netns] = tap.Taps(self._sockets[netns])
        return self._taps[netns]

    def _leave(self, netns: str) -> None:
        if netns in self._taps:
            self._taps.pop(netns).close()
        self._sockets.pop(netns).close()
        for device in list(self._devices):
            if _split(device)[0] == netns:
                self._forget(device)

    def _forget(self, device: str) -> None:
        """Look for it again when it is needed next."""
        found = self._devices.pop(device, None)
        taps = self._taps.get(_split(device)[0])
        if found and taps:
            taps.forget(found.link.ifindex)

    def _failure(self, interface: Interface, exc: Exception
                 ) -> errors.DriverError:
        """What to tell of a call that the kernel did not like."""
        if isinstance(exc, errors.DriverError):
            return exc
        number = exc.errno if isinstance(exc, OSError) else None
        names = _names(interface)
        device = ' and '.join(names)
        netns = _split(names[0])[0]
        if number == errno.ENODEV:
            for one in names:
                self._forget(one)
            missing = ' or no '.join(_split(one)[1] for one in names)
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
                'CAP_NET_ADMIN (and CAP_SYS_ADMIN to enter a namespace)')
        if number == errno.ENOENT:
            return errors.Unsupported(
                f'network device {device}: {exc}; the kernel needs the token '
                'bucket: modprobe sch_tbf')
        return errors.DriverError(f'network device {device}: {exc}')

    def _speed(self, name: str) -> float | None:
        """Speed that a device of our own namespace reports, bytes/s."""
        netns, device = _split(name)
        megabits = 0
        if not netns:
            try:
                megabits = int((self._sys / device / 'speed').read_text())
            except (OSError, ValueError):
                megabits = 0
        if megabits <= 0:
            self._complain(f'speed of {name}', (
                f'network link {name}: its speed is not known here; write '
                f'{name}=BYTES_PER_S in [network] links, until then egress '
                'over it is not regulated'))
            return None
        return megabits * 1e6 / BITS_PER_BYTE

    def _complain(self, about: str, message: str) -> None:
        """Log a problem when it is new."""
        if self._complained.get(about) != message:
            self._complained[about] = message
            LOG.warning('%s', message)


def _device(interface: Interface) -> str:
    return interface.device if isinstance(interface, tap.Tap) else interface


def _names(interface: Interface) -> tuple[str, ...]:
    return ((interface.device, *interface.also)
            if isinstance(interface, tap.Tap) else (interface,))


def _only(links: tap.Links) -> rtnetlink.Link:
    link, = links.values()
    return link


def _split(device: str) -> tuple[str, str]:
    netns, _, name = device.rpartition(':')
    return netns, name


def _rate(device: str, value: Value) -> int:
    try:
        rate = int(float(value))
    except (OverflowError, ValueError):
        rate = 0
    if not 1 <= rate < 1 << 63:
        raise errors.DriverError(
            f'network device {device}: {value!r} is not a rate in bytes per '
            'second')
    return rate


def _foreign(device: str, what: str) -> errors.Unsupported:
    return errors.Unsupported(
        f'network device {device}: {what} of another program is at its '
        'root, so its egress is not limited; remove it (tc qdisc del dev '
        f'{_split(device)[1]} root) or leave this workload out of [network] '
        'interfaces')
