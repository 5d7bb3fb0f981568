# SPDX-License-Identifier: Apache-2.0

"""Shared network links, and what background workloads send and receive.

What leaves by the device that carries the traffic of a workload and no other
is held by a token bucket (TBF) at its root, see :mod:`.roots`; what arrives
there by one behind it, see :mod:`.tap`.  A container sends by its device; a
VM sends to its tap, so the two change places.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Hashable
from collections.abc import Mapping
import errno
import logging

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.kernel import token_bucket
from scavenger_openstack.drivers.network import devices
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors
from scavenger_openstack.knobs import OF_NETWORK
from scavenger_openstack import log_once
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

BITS_PER_BYTE = 8


class Network:
    """Implements :class:`scavenger_openstack.drivers.base.Knobs`.

    Only the knobs of the network exist here.  Not for two threads at once.

    :param links: shared devices and their capacity in bytes per second,
        ``None`` for the speed that the device reports
    :param interfaces: workload id -> the device that carries its traffic
    """

    def __init__(self, links: Mapping[str, float | None],
                 interfaces: Mapping[str, devices.Interface],
                 root_dir: str = '/') -> None:
        self._links = dict(links)
        self._interfaces = dict(interfaces)
        self._sys = f'{root_dir.rstrip("/")}/sys/class/net'
        self._devices = devices.Devices()
        self._limited: dict[KnobKey, Collection[str]] = {}
        self._logged = log_once.LogOnce()
        self._withheld: dict[str, int] = {}
        self._speeds: dict[str, float] = {}
        self._ticks = 0
        self.executor = base.new_executor()

    def attach(self, workload: str, interface: devices.Interface) -> None:
        """Take ``interface`` as the one that carries the traffic of
        ``workload`` from now on.

        A limit of other devices has to be removed first; see :meth:`read`.
        """
        before = self._interfaces.get(workload)
        self._interfaces[workload] = interface
        if before is not None:
            self._forget(workload, set(devices.names(before)).difference(
                devices.names(interface)))

    def detach(self, workload: str) -> None:
        """Forget a workload that has ended, or was unplugged.

        Its limit is removed by the restore actions of its lease, not by this.
        """
        for knob in OF_NETWORK:
            self._limited.pop((workload, knob), None)
        interface = self._interfaces.pop(workload, None)
        if interface is not None:
            self._forget(workload, devices.names(interface))

    def _forget(self, workload: str, names: Collection[str]) -> None:
        """Forget devices that do not carry the traffic of a workload now."""
        for device in names:
            self._devices.forget(device)
            self._logged.forget(device)
            for knob in OF_NETWORK:
                self._logged.forget((workload, knob, device))

    def ended(self, workload: str) -> None:
        """Forget what the limit of a run that is over has withheld."""
        self._withheld.pop(workload, None)

    def follow_links(self, links: Mapping[str, float | None]) -> None:
        """Take these devices as the shared links from now on."""
        self._links = dict(links)
        self._speeds = {name: speed for name, speed in self._speeds.items()
                        if name in links}

    def capacities(self) -> dict[str, float]:
        """Capacity in bytes per second of each link, where it is known.

        Called once per tick: a speed that a device reports is looked at again
        now and then, since a bond gains and loses devices.
        """
        again = not self._ticks % base.RESCAN_TICKS
        self._ticks += 1
        capacities = {}
        for name, capacity in self._links.items():
            if capacity is None and (again or name not in self._speeds):
                speed = self._speed(name, had_speed=name in self._speeds)
                if speed is not None:
                    self._speeds[name] = speed
                    self._logged.over(f'speed of {name}')
            if capacity := capacity or self._speeds.get(name):
                capacities[name] = capacity
        return capacities

    def received_sent(self, device: str) -> tuple[int, int] | None:
        """Bytes that a device has received and sent so far.

        ``None`` while there is no such device; that is logged once.
        """
        try:
            namespace, links = self._devices.find(device)
            both = namespace.received_sent(_only(links).ifindex)
        except (OSError, errors.DriverError) as exc:
            self._warn(device, self._devices.failure(device, exc))
            return None
        self._logged.over(device)
        return both

    def link_bytes(self) -> rtnetlink.LinkBytes:
        """Return what each device of this process's namespace has counted.

        One question to the kernel; empty when it does not answer, which is
        logged once.
        """
        try:
            by_index = self._devices.namespace('').link_bytes()
        except OSError as exc:
            self._warn('', errors.DriverError(
                f'what network devices have carried is unknown: {exc}'))
            return {}
        self._logged.over('')
        return by_index

    def withheld(self, link_bytes: rtnetlink.LinkBytes
                 ) -> dict[str, int | None]:
        """Bytes that arrived at the taps of each VM that was ever limited,
        and that its limit has not let through.

        ``None`` where that cannot be told, which is logged once.

        :param link_bytes: by all devices of the namespace of the taps
        """
        by_workload: dict[str, int | None] = {}
        for workload in self._withheld:
            by_workload[workload] = self._withheld[workload]
            interface = self._interfaces.get(workload)
            if interface is None:
                continue        # limited no more: what was withheld stays so
            device = devices.first(interface)
            names = self._limited.get((workload, Knob.EGRESS_BYTES_PER_S), ())
            try:
                links = {name: link for name, link in self._devices.find(
                    interface)[1].items() if name in names}
                if not links:
                    continue    # its taps were replaced by others
                self._withheld[workload] += self._devices.taps(
                    device).withheld(links, link_bytes)
            except (OSError, errors.DriverError) as exc:
                self._warn(device, self._devices.failure(interface, exc))
                by_workload[workload] = None
                continue
            self._logged.over(device)
            by_workload[workload] = self._withheld[workload]
        return by_workload

    def without_withheld(self, samples: tuple[WorkloadSample, ...],
                         link_bytes: rtnetlink.LinkBytes
                         ) -> tuple[WorkloadSample, ...]:
        """Return samples of VMs, without the bytes that limits withheld from
        what they sent."""
        withheld = self.withheld(link_bytes)
        if not withheld:
            return samples
        passed = []
        for sample in samples:
            sent, uuid = sample.net_tx_bytes, sample.workload.id
            if sent is not None and uuid in withheld:
                less = withheld[uuid]
                sample = sample._replace(
                    net_tx_bytes=None if less is None else sent - less)
            passed.append(sample)
        return tuple(passed)

    def link_totals(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes received, and bytes sent, over each shared link that is up.

        That nothing leaves by a link that is down does not mean that the
        foreground wants to send nothing.
        """
        received, sent = {}, {}
        for name in self._links:
            both = self.received_sent(name)
            if both is not None and self._is_up(name):
                received[name], sent[name] = both
        return received, sent

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> float | None:
        """Rate of our token buckets in bytes per second, ``None`` for none.

        :raises WorkloadGone: other devices than those of the lease carry the
            traffic of the workload
        """
        return self._read(workload, knob, state).rate

    def restore_actions(self, workload: str, knob: Knob,
                        state: base.KnobState | None = None
                        ) -> list[base.RestoreAction]:
        """Return the action that removes our token buckets."""
        limited = self._read(workload, knob, state)
        names = self._limited_names(workload, knob)
        netns, name = devices.split(names[0])
        first, *also = self._devices.indexes(names)
        # Ours stands in its place meanwhile.
        leased = state.original.actions[0] if state else {}
        noqueue = sorted({*limited.noqueue, *leased.get('noqueue', ())})
        return [{'do': 'tap' if self._arrives(workload, knob) else 'tc',
                 'netns': netns, 'dev': name, 'ifindex': first,
                 **({'also': also} if also else {}),
                 **({'noqueue': noqueue} if noqueue else {})}]

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> float | None:
        """Set the rate in bytes per second; packets that wait stay.

        :raises WorkloadGone: as :meth:`read`; or the lease does not have all
            that a bucket would replace
        """
        interface = self._interface(workload, knob)
        rate = _rate(devices.first(interface), value)
        limited = self._read(workload, knob, state)
        if state is not None and not set(limited.noqueue).issubset(
                state.original.actions[0].get('noqueue', ())):
            raise errors.WorkloadGone(
                f'network device {" and ".join(devices.names(interface))}: '
                'another program has put noqueue at its root since the lease '
                'was made; it is leased again next time')
        try:
            limited.set_rate(token_bucket.bucket(
                rate, max(link.mtu for link in limited.links.values())))
        except OSError as exc:
            if exc.errno in (errno.EEXIST, errno.EINVAL):
                self._read(workload, knob, state)    # says whose it is
            raise self._devices.failure(interface, exc) from exc
        if knob is Knob.EGRESS_BYTES_PER_S and isinstance(interface, tap.Tap):
            self._withheld.setdefault(workload, 0)
        return self._read(workload, knob, state).rate

    def queue(self, workload: str, knob: Knob) -> str:
        return base.usual_queue(knob)

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        return base.Changes()

    def notify(self, event: base.Event) -> bool:
        return False

    def close(self) -> None:
        self._devices.close()

    def _is_up(self, device: str) -> bool:
        try:
            namespace, links = self._devices.find(device)
            return namespace.is_running(_only(links).ifindex)
        except (OSError, errors.DriverError) as exc:
            self._warn(device, self._devices.failure(device, exc))
            return False

    def _interface(self, workload: str, knob: Knob) -> devices.Interface:
        if knob not in OF_NETWORK:
            raise errors.Unsupported(f'{workload}: {knob} is not a limit of '
                                     'a network device')
        if workload not in self._interfaces:
            raise errors.Unsupported(
                f'{workload}: no device is known that carries its traffic '
                f'alone; add {workload}=DEVICE to [network] interfaces')
        return self._interfaces[workload]

    def _arrives(self, workload: str, knob: Knob) -> bool:
        """Whether what the knob limits arrives at the device."""
        return (isinstance(self._interfaces[workload], tap.Tap)
                == (knob is Knob.EGRESS_BYTES_PER_S))

    def _read(self, workload: str, knob: Knob, state: base.KnobState | None
             ) -> devices.LimitedDevices:
        """Return which devices can be limited, and what is there.

        :raises WorkloadGone: they are not the devices of the lease, or are
            gone
        :raises Unsupported: none can be limited
        """
        interface = self._interface(workload, knob)
        act = 'sends' if knob is Knob.EGRESS_BYTES_PER_S else 'receives'
        try:
            limited = self._devices.read(
                interface, arrives=self._arrives(workload, knob),
                what=f'what {workload} {act} by it')
        except OSError as exc:
            raise self._devices.failure(interface, exc) from exc
        key = workload, knob
        self._limited[key] = limited.links.keys()
        left_out = self._name_refused(key, interface, limited.refused)
        indexes = self._devices.indexes(self._limited_names(*key))
        leased = state.original.actions[0] if state else None
        if leased and indexes != [leased['ifindex'], *leased.get('also', ())]:
            raise errors.WorkloadGone(
                f'network device {" and ".join(devices.names(interface))}: '
                'made again, added or removed (ifindex '
                f'{", ".join(map(str, indexes))}); the '
                f'limit from before is removed, or ended with it{left_out}')
        return limited

    def _limited_names(self, workload: str, knob: Knob) -> list[str]:
        """The devices of a workload that can be limited."""
        return [device for device in devices.names(self._interfaces[workload])
                if devices.split(device)[1] in self._limited[workload, knob]]

    def _name_refused(self, key: KnobKey, interface: devices.Interface,
                      refused: Mapping[str, errors.Unsupported]) -> str:
        """Log once which devices are left out of a limit; return all of
        them, for a message."""
        workload, knob = key
        refusals = ''
        for device in devices.names(interface):
            about = workload, knob, device
            name = devices.split(device)[1]
            if name in self._limited[key]:
                self._logged.over(about)
                continue
            why = (f'{refused[name]}' if name in refused else
                   f'network device {device}: there is no {name} here')
            refusals += f'; {why}'
            self._warn(about, errors.DriverError(
                f'{workload}: {device} is not limited, its other interfaces '
                f'are: {why}'))
        return refusals

    def _speed(self, name: str, *, had_speed: bool) -> float | None:
        """Speed that a device of our own namespace reports, bytes/s.

        :param had_speed: it reported a speed before: it is down for a while
        """
        netns, device = devices.split(name)
        text = '' if netns else proc.read_text(f'{self._sys}/{device}/speed')
        megabits = int(text) if text.isdecimal() else 0
        if megabits <= 0 and had_speed:
            return None
        if megabits <= 0:
            self._warn(f'speed of {name}', errors.DriverError(
                f'network link {name}: its speed is not known here; write '
                f'{name}=BYTES_PER_S in [network] links, until then what '
                'background workloads send and receive over it is not '
                'limited'))
            return None
        return megabits * 1e6 / BITS_PER_BYTE

    def _warn(self, about: Hashable, exc: errors.DriverError) -> None:
        """Log a problem when it is new."""
        if self._logged.due(about, str(exc), exc.cause):
            LOG.warning('%s', exc)


def _only(links: tap.Links) -> rtnetlink.Link:
    link, = links.values()
    return link


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
