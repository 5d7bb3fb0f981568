# SPDX-License-Identifier: Apache-2.0


"""Limits of what *arrives* at a device: what a VM sends arrives at its tap.

What arrives cannot wait there.  So it is redirected to a device of ours that
only exists for that, an intermediate functional block (IFB): it waits in a
token bucket at the root of the IFB, and the IFB hands it back to the tap as
if it had just arrived.  Bridges, Open vSwitch, iptables and captures on the
tap see what they saw before.

All taps of a VM are redirected to one IFB, so that one limit holds for what
they send together: it knows of each packet at which tap that arrived.  What a
container receives arrives at its device, which is treated in the same way.

While the IFB is missing or down, a redirect to it loses every packet.  So
the IFB is there, up and limited before the first redirect, and outlives the
last.

A tap that cannot be limited is left out: the limit is that of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import errno
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import ingress
from scavenger_openstack.drivers.kernel import nftables
from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.kernel.token_bucket import TokenBucket
from scavenger_openstack import errors
from scavenger_openstack.restore import grammar

HANDLE = grammar.MARK << 16
"""The handle ``5ca0:`` of every token bucket that is ours."""

GROUP = grammar.MARK
"""The device group (23712) of every IFB that is ours."""

Links = Mapping[str, rtnetlink.Link]
"""The taps of one VM by name, the first first."""

_MODULES = 'ifb sch_ingress cls_u32 act_mirred sch_tbf'
_ALIAS, _NOTHING = 255, -1
_NO_MODULE = (errno.ENOENT, errno.EOPNOTSUPP)
_SENDS = ('macvtap', 'macvlan', 'ipvtap', 'ipvlan')


class Tap(NamedTuple):
    """A device at which what a workload sends arrives, and by which what it
    receives leaves.

    It may also be the outer end of a container's veth pair.  ``device`` is
    ``DEVICE``, or ``NETNS:DEVICE`` in a named network namespace.  ``also``
    are the other such devices of the workload, in the same namespace.
    """

    device: str
    also: tuple[str, ...] = ()


class SeenTaps(NamedTuple):
    """The limit and counters at the taps of one VM.

    ``links`` can be limited; for each ``targets`` says where our filter
    redirects to.  ``ifb`` is ours, if it is there.  ``refused``: taps that
    cannot be limited, and why.
    """

    links: Links
    ifb: rtnetlink.Link | None
    targets: Sequence[int | None]
    refused: Mapping[str, errors.Unsupported]


@dataclasses.dataclass(slots=True)
class _Meter:
    """What the IFB of a VM has let through by the last look, and what each
    of its taps, by index, has received."""

    ifb: int
    through: int
    received: dict[int, int]


class Taps:
    """The taps of one network namespace; not for two threads at once.

    Methods raise ``OSError``: ENODEV when the tap is gone.
    """

    def __init__(self, namespace: rtnetlink.Rtnetlink) -> None:
        self._namespace = namespace
        self._talk = namespace.talk
        self._filters: nftables.Nftables | None = None
        self._meters: dict[int, _Meter] = {}

    def read(self, links: Links, *, what: str) -> SeenTaps:
        """See which taps of a VM can be limited, and whether they are.

        :param what: what arrives, for messages
        :raises Unsupported: none can: another program uses the ingress of
            each of them
        :raises WorkloadGone: another program came after us: our limit has
            to go
        """
        ifbs: dict[str, rtnetlink.Link | errors.Unsupported] = {}
        for device, link in links.items():
            try:
                if (ifb := self._ifb(device, link, what)) is not None:
                    ifbs[device] = ifb
            except errors.Unsupported as exc:
                ifbs[device] = exc
        ours = any(isinstance(ifb, rtnetlink.Link) for ifb in ifbs.values())
        usable: dict[str, rtnetlink.Link] = {}
        targets: list[int | None] = []
        refused: dict[str, errors.Unsupported] = {}
        for device, link in links.items():
            try:
                target = self._target(device, link, what, ours=ours)
                # The first one's names what all are redirected to.
                if not usable and isinstance(
                        taken := ifbs.get(device), errors.Unsupported):
                    raise taken
            except errors.Unsupported as exc:
                refused[device] = exc
            else:
                usable[device] = link
                targets.append(target)
        if not usable:
            raise next(iter(refused.values()))
        first = ifbs.get(next(iter(usable)))
        assert not isinstance(first, errors.Unsupported)
        return SeenTaps(usable, first, targets, refused)

    def rate(self, taps: SeenTaps) -> float | None:
        """Rate of our token bucket in bytes per second."""
        _, ifb, targets, _ = taps
        if ifb is None or set(targets) != {ifb.ifindex}:
            return None
        qdisc = self._namespace.root_qdisc(ifb.ifindex)
        if qdisc is None or qdisc.handle != HANDLE or qdisc.rate is None:
            return None
        return float(qdisc.rate)

    def set_rate(self, taps: SeenTaps, bucket: TokenBucket) -> None:
        """Set the rate; packets that wait stay.

        :raises Unsupported: this kernel cannot do it
        """
        links, ifb, targets, _ = taps
        try:
            if ifb is None or set(targets) != {ifb.ifindex}:
                self._build(links, ifb, targets, bucket)
            else:
                self._namespace.set_root_tbf(ifb.ifindex, HANDLE, bucket)
        except OSError as exc:
            if exc.errno in _NO_MODULE:
                raise errors.Unsupported(
                    f'tap {", ".join(links)}: {exc}; what arrives at it '
                    f'cannot be limited without: modprobe -a {_MODULES}',
                    cause=f'modprobe -a {_MODULES}') from exc
            if exc.errno == errno.ENODEV and all(
                    self._namespace.exists(link.ifindex)
                    for link in links.values()):
                raise errors.DriverError(
                    f'tap {", ".join(links)}: {_ifb_name(links)} was deleted '
                    'meanwhile; it is made again next time') from exc
            raise

    def withheld(self, links: Links, link_bytes: rtnetlink.LinkBytes) -> int:
        """Bytes that arrived since the last call and that a limit of ours
        has not let through; negative when more went on than came.

        :param link_bytes: by all devices of the namespace
        """
        first = next(iter(links.values())).ifindex
        meter = self._meters.get(first)
        if meter is None:
            return 0
        through = link_bytes.get(meter.ifb)
        if through is None:
            if not self._namespace.exists(meter.ifb):
                del self._meters[first]     # removed: all that arrives goes on
            return 0
        now = {link.ifindex: link_bytes[link.ifindex][0]
               for link in links.values() if link.ifindex in link_bytes}
        withheld = meter.through - through[1] + sum(
            received - meter.received.get(ifindex, received)
            for ifindex, received in now.items())
        meter.through = through[1]
        meter.received.update(now)
        return withheld

    def forget(self, ifindex: int) -> None:
        """Forget a tap that is gone."""
        self._meters.pop(ifindex, None)

    def close(self) -> None:
        if self._filters is not None:
            self._filters.close()

    def _target(self, device: str, link: rtnetlink.Link, what: str, *,
                ours: bool) -> int | None:
        """Return where our filter at a tap redirects to.

        :param ours: whether the VM has an IFB of ours
        :raises Unsupported: another program's is there
        :raises WorkloadGone: the same, beside ours
        """
        target, foreign = None, self._nftables(device)
        for filter_ in ingress.filters(self._talk, link.ifindex):
            if filter_.target is None:
                foreign = (f'a filter ({filter_.kind}, '
                           f'pref {filter_.preference})')
            else:
                target = filter_.target
        if target is None and not foreign:
            kind = ingress.qdisc(self._talk, link.ifindex)
            if kind and (not ours or kind != 'ingress'):
                foreign = f'an empty qdisc {kind}'
        if foreign:
            raise (errors.Unsupported if target is None
                   else errors.WorkloadGone)(
                f'tap {device}: {foreign} of another program is at its '
                'ingress (Open vSwitch, a firewall, a flavor with '
                f'quota:vif_outbound_average), so {what} is not limited')
        return target

    def _nftables(self, device: str) -> str:
        """What an IFB hands back skips the hooks of nftables at ingress."""
        if self._filters is None:
            self._filters = nftables.Nftables(self._talk.netns)
        chain = self._filters.at_ingress(device)
        return f'the nftables chain "{chain}"' if chain else ''

    def _ifb(self, device: str, link: rtnetlink.Link, what: str
             ) -> rtnetlink.Link | None:
        name = f'{grammar.IFB}{link.ifindex}'
        try:
            ifb = self._namespace.link(name)
        except OSError as exc:
            if exc.errno != errno.ENODEV:
                raise
            return None
        if (ifb.kind, ifb.group) != ('ifb', GROUP):
            raise errors.Unsupported(
                f'tap {device}: a device {name} of another program has the '
                f'name that the agent needs, so {what} is not limited; '
                'rename that device')
        return ifb

    def _build(self, links: Links, ifb: rtnetlink.Link | None,
               targets: Sequence[int | None], bucket: TokenBucket) -> None:
        """Put everything in place; what fails half-way is undone.

        All packets get through after each of these calls.
        """
        namespace = self._namespace
        index = ifb.ifindex if ifb is not None else _NOTHING
        ours, todo = [], []
        for link, target in zip(links.values(), targets, strict=True):
            if target not in (None, index):     # it leads nowhere
                ingress.delete_redirect(self._talk, link.ifindex)
            if target is not None:
                ours.append(link.ifindex)
            if target != index:
                todo.append(link.ifindex)
        self._sweep()
        try:
            if ifb is None:
                namespace.add_link(_ifb_name(links), 'ifb', GROUP)
                index = namespace.link(_ifb_name(links)).ifindex
            namespace.keep_without_ipv6(index)
            namespace.describe_link(
                index,
                f'scavenger: what arrives at {", ".join(links)}'[:_ALIAS])
            namespace.set_up(index)
            namespace.set_root_tbf(index, HANDLE, bucket)
            _, through = namespace.received_sent(index)
            received = {link.ifindex: namespace.received_sent(link.ifindex)[0]
                        for link in links.values()}
            for ifindex in todo:
                if not ingress.qdisc(self._talk, ifindex):
                    ingress.add_qdisc(self._talk, ifindex)
                    ours.append(ifindex)
                ingress.redirect(self._talk, ifindex, index)
        except BaseException:
            self._take_back(ours, index)
            raise
        self._meters[next(iter(links.values())).ifindex] = _Meter(
            index, through, received)

    def _take_back(self, taps: Sequence[int], ifb: int) -> None:
        """Delete the redirects of ``taps``, and then the IFB."""
        for ifindex in taps:
            with contextlib.suppress(OSError):
                ingress.delete_redirect(self._talk, ifindex)
                if not ingress.filters(self._talk, ifindex):
                    ingress.delete_qdisc(self._talk, ifindex)
        with contextlib.suppress(OSError):
            if ifb != _NOTHING and not self._serves(ifb):
                self._namespace.delete_link(ifb)

    def _sweep(self) -> None:
        """Delete the IFBs of taps that are no longer here.

        The lease of a tap names its IFB; this is for a lost lease.  One that
        still serves another tap of its VM stays.
        """
        for name, ifb in self._namespace.links('ifb').items():
            index = name.removeprefix(grammar.IFB)
            if (ifb.group == GROUP and name != index and index.isdecimal()
                    and not self._namespace.exists(int(index))):
                with contextlib.suppress(OSError):
                    if not self._serves(ifb.ifindex):
                        self._namespace.delete_link(ifb.ifindex)

    def _serves(self, ifb: int) -> bool:
        """Return whether a redirect leads to an IFB."""
        return any(filter_.target == ifb
                   for link in self._namespace.links().values()
                   for filter_ in ingress.filters(self._talk, link.ifindex))


def without_senders(links: Links
                    ) -> tuple[Links, dict[str, errors.Unsupported]]:
    """Return the devices at which what a VM sends arrives, and why each of
    the others cannot be limited as a tap."""
    refused = {device: errors.Unsupported(
        f'{device} is a {link.kind}: what its VM sends leaves by it; have it '
        'limited as a device, not as a tap')
        for device, link in links.items() if link.kind in _SENDS}
    return {device: link for device, link in links.items()
            if device not in refused}, refused


def _ifb_name(links: Links) -> str:
    return f'{grammar.IFB}{next(iter(links.values())).ifindex}'
