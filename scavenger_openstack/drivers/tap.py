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


"""The egress of a VM, which *arrives* at its tap.

What arrives cannot wait there.  So it is redirected to a device of ours that
only exists for that, an intermediate functional block (IFB): it waits in a
token bucket at the root of the IFB, and the IFB hands it back to the tap as
if it had just arrived.  Bridges, Open vSwitch, iptables and captures on the
tap see what they saw before.

While the IFB is missing or down, a redirect to it loses every packet.  So
the IFB is there, up and limited before the redirect, and outlives it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from typing import NamedTuple

from scavenger_openstack.drivers.bucket import Bucket
from scavenger_openstack.drivers import ingress
from scavenger_openstack.drivers import nftables
from scavenger_openstack.drivers import rtnetlink
from scavenger_openstack import errors

HANDLE = 0x5ca00000
"""The handle ``5ca0:`` of every token bucket that is ours."""

GROUP = 0x5ca0
"""The device group (23712) of every IFB that is ours."""

PREFIX = 'scv'
"""The IFB of the tap with index 7 is ``scv7``."""

_MODULES = 'ifb sch_ingress cls_u32 act_mirred sch_tbf'
_NO_MODULE = (errno.ENOENT, errno.EOPNOTSUPP)
_SENDS = ('macvtap', 'macvlan', 'ipvtap', 'ipvlan')


class Tap(NamedTuple):
    """A device at which the egress of a workload arrives.

    It may also be the outer end of a container's veth pair.  ``device`` is
    ``DEVICE``, or ``NETNS:DEVICE`` in a named network namespace.
    """

    device: str


@dataclasses.dataclass(slots=True)
class _Meter:
    """What was sent by the last look at the counters of a tap, and them."""

    sent: int
    received: int
    ifb: int = 0
    through: int = 0


class Taps:
    """The taps of one network namespace; not for two threads at once.

    Methods raise ``OSError``: ENODEV when the tap is gone.
    """

    def __init__(self, namespace: rtnetlink.Rtnetlink) -> None:
        self._namespace = namespace
        self._talk = namespace.talk
        self._filters: nftables.Nftables | None = None
        self._meters: dict[int, _Meter] = {}

    def rate(self, device: str, link: rtnetlink.Link) -> float | None:
        """Rate of our token bucket in bytes per second.

        :raises Unsupported: see :meth:`set_rate`
        """
        ifb, target = self._look(device, link)
        if ifb is None or ifb.ifindex != target:
            return None
        found = self._namespace.root_qdisc(ifb.ifindex)
        if found is None or found.handle != HANDLE or found.rate is None:
            return None
        return float(found.rate)

    def set_rate(self, device: str, link: rtnetlink.Link, bucket: Bucket
                 ) -> None:
        """Set the rate; packets that wait stay.

        :param device: the name of the tap
        :raises Unsupported: somebody else uses the ingress of the tap, or
            this kernel cannot do it
        """
        ifb, target = self._look(device, link)
        try:
            if ifb is None or ifb.ifindex != target:
                if target is not None:      # it leads nowhere
                    ingress.delete_redirect(self._talk, link.ifindex)
                self._build(device, link, ifb, bucket)
            else:
                self._namespace.set_root_tbf(ifb.ifindex, HANDLE, bucket)
        except OSError as exc:
            if exc.errno in _NO_MODULE:
                raise errors.Unsupported(
                    f'tap {device}: {exc}; what its VM sends cannot be '
                    f'limited without: modprobe -a {_MODULES}') from exc
            if (exc.errno == errno.ENODEV
                    and self._namespace.exists(link.ifindex)):
                raise errors.DriverError(
                    f'tap {device}: {PREFIX}{link.ifindex} was deleted '
                    'meanwhile; it is made again next time') from exc
            raise

    def sent_bytes(self, link: rtnetlink.Link) -> int:
        """Bytes that the VM has sent and no limit of ours has dropped.

        It counts from where the tap's own counter stood at the first call.
        """
        received = self._namespace.rx_bytes(link.ifindex)
        meter = self._meters.get(link.ifindex)
        if meter is None:
            meter = self._meters[link.ifindex] = _Meter(received, received)
        through = None
        if meter.ifb:
            try:
                through = self._namespace.tx_bytes(meter.ifb)
            except OSError as exc:
                if exc.errno != errno.ENODEV:
                    raise
                meter.ifb = 0       # lifted: all that arrives goes on
        if through is None:
            meter.sent += max(received - meter.received, 0)
        else:
            meter.sent += max(through - meter.through, 0)
            meter.through = through
        meter.received = received
        return meter.sent

    def forget(self, ifindex: int) -> None:
        """The tap is gone."""
        self._meters.pop(ifindex, None)

    def close(self) -> None:
        if self._filters is not None:
            self._filters.close()

    def _look(self, device: str, link: rtnetlink.Link
              ) -> tuple[rtnetlink.Link | None, int | None]:
        """Our IFB of a tap, and the index that our filter redirects to.

        :raises Unsupported: somebody else is there
        :raises WorkloadGone: and came after us: our limit has to go
        """
        if link.kind in _SENDS:
            raise errors.Unsupported(
                f'{device} is a {link.kind}: what its VM sends leaves by '
                'it; have it limited as a device, not as a tap')
        target, foreign = None, self._nftables(device)
        for found in ingress.filters(self._talk, link.ifindex):
            if found.target is None:
                foreign = f'a filter ({found.kind}, pref {found.preference})'
            else:
                target = found.target
        ifb = self._ifb(device, link)
        if target is None and not foreign:
            kind = ingress.qdisc(self._talk, link.ifindex)
            if kind and (ifb is None or kind != 'ingress'):
                foreign = f'an empty qdisc {kind}'
        if foreign:
            raise (errors.Unsupported if target is None
                   else errors.WorkloadGone)(
                f'tap {device}: {foreign} of somebody else is at its ingress '
                '(Open vSwitch, a firewall, a flavor with quota:vif_outbound'
                '_average), so what its VM sends is not limited by us')
        return ifb, target

    def _nftables(self, device: str) -> str:
        """What an IFB hands back skips the hooks of nftables at ingress."""
        if self._filters is None:
            self._filters = nftables.Nftables(self._talk.netns)
        chain = self._filters.at_ingress(device)
        return f'the nftables chain "{chain}"' if chain else ''

    def _ifb(self, device: str, link: rtnetlink.Link
             ) -> rtnetlink.Link | None:
        name = f'{PREFIX}{link.ifindex}'
        try:
            found = self._namespace.link(name)
        except OSError as exc:
            if exc.errno != errno.ENODEV:
                raise
            return None
        if (found.kind, found.group) != ('ifb', GROUP):
            raise errors.Unsupported(
                f'tap {device}: a device {name} of somebody else has the '
                'name that we need, so what its VM sends is not limited; '
                'rename that one')
        return found

    def _build(self, device: str, link: rtnetlink.Link,
               ifb: rtnetlink.Link | None, bucket: Bucket
               ) -> None:
        """Put everything in place; what fails half-way is taken back.

        All packets get through after each of these calls.
        """
        namespace, added = self._namespace, False
        name = f'{PREFIX}{link.ifindex}'
        self._sweep()
        try:
            if ifb is None:
                namespace.add_link(name, 'ifb', GROUP)
                ifb = namespace.link(name)
            namespace.keep_without_ipv6(ifb.ifindex)
            namespace.describe_link(
                ifb.ifindex, f'scavenger: what {device} sends')
            namespace.set_up(ifb.ifindex)
            namespace.set_root_tbf(ifb.ifindex, HANDLE, bucket)
            if not ingress.qdisc(self._talk, link.ifindex):
                ingress.add_qdisc(self._talk, link.ifindex)
                added = True
            self.sent_bytes(link)   # by the tap's counter until this moment
            ingress.redirect(self._talk, link.ifindex, ifb.ifindex)
        except BaseException:
            with contextlib.suppress(OSError):
                if added and not ingress.filters(self._talk, link.ifindex):
                    ingress.delete_qdisc(self._talk, link.ifindex)
            with contextlib.suppress(OSError):
                if ifb is not None:
                    namespace.delete_link(ifb.ifindex)
            raise
        meter = self._meters[link.ifindex]
        meter.ifb, meter.through = ifb.ifindex, 0

    def _sweep(self) -> None:
        """Delete the IFBs of taps that are no longer here.

        The lease of a tap names its IFB; this is for a lost lease.
        """
        for name, ifb in self._namespace.links('ifb').items():
            index = name.removeprefix(PREFIX)
            if (ifb.group == GROUP and name != index and index.isdecimal()
                    and not self._namespace.exists(int(index))):
                with contextlib.suppress(OSError):
                    self._namespace.delete_link(ifb.ifindex)
