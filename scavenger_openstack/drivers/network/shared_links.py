# SPDX-License-Identifier: Apache-2.0

"""The links that foreground and background share, and which of them the
devices of workloads lead to."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import logging

from scavenger_openstack.drivers.network import uplinks

LOG = logging.getLogger(__name__)


class SharedLinks:
    """The links that are configured, or else the one uplink of the host.

    :param configured: capacity in bytes per second of each device, ``None``
        for the speed that it reports
    :param interfaces: device and link ('' for the only one) by workload
    :param finds: whether to look for the uplink
    :param root_dir: where /sys is looked for
    :ivar now: the links, as ``configured``
    :ivar link_of: the link of each device that has one
    """

    def __init__(self, configured: Mapping[str, float | None],
                 interfaces: Mapping[str, tuple[str, str]], *, finds: bool,
                 root_dir: str = '/') -> None:
        self._interfaces = interfaces
        self._finds = finds
        self._root_dir = root_dir
        self._taps: Sequence[tuple[str, ...]] = []
        self.now = dict(configured)
        if finds:
            self.now = self._uplink()
        self.link_of = self._links_of()

    def refresh(self) -> bool:
        """Look for the uplink again; whether it changed."""
        links = self._uplink() if self._finds else self.now
        if links == self.now:
            return False
        LOG.info('shared network link is now: %s',
                 ', '.join(links) or 'none: no single uplink is up')
        self.now = links
        self.link_of = self._links_of()
        return True

    def follow(self, taps: Sequence[tuple[str, ...]]) -> None:
        """Take over the network devices that VMs have now."""
        if taps != self._taps:
            self._taps = taps
            self.link_of = self._links_of()

    def _uplink(self) -> dict[str, float | None]:
        """The one device by which all leaves; while none is up, it is that of
        before."""
        names = uplinks.find(self._root_dir)
        return (dict.fromkeys(names) if len(names) == 1 else
                {} if names else self.now)

    def _links_of(self) -> dict[str, str]:
        """The link of each device, where it is known.

        All taps of VMs, the foreground's too, lead to the only link.
        """
        only = next(iter(self.now)) if len(self.now) == 1 else ''
        links = {**dict.fromkeys(itertools.chain.from_iterable(self._taps),
                                 only),
                 **{device: link or only
                    for device, link in self._interfaces.values()}}
        return {device: link for device, link in links.items()
                if link in self.now}
