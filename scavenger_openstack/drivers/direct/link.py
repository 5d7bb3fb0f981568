# SPDX-License-Identifier: Apache-2.0

"""Which workloads sent over a link while it was full.

Each tick counts the bytes of links and workloads in any case: a window keeps
the samples that it sees.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable

from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource


class LinkSamples:
    """The samples of one window, the first one that before it."""

    def __init__(self, first: HostSample | None) -> None:
        self.samples = [] if first is None else [first]

    def close(self) -> None:
        """Do nothing: nothing is open."""


class LinkEvidence(windows.Windows[LinkSamples]):
    """Direct evidence for links."""

    resource, names = Resource.NETWORK, 'links'
    purpose = 'tell which workload sends over a link'

    def _count(self, victims: Collection[str]) -> LinkSamples:
        return LinkSamples(self._sample)

    def _go_on(self, window: windows.Window[LinkSamples],
               counter: LinkSamples) -> None:
        if self._sample is not None:
            counter.samples.append(self._sample)

    def _counted(self, window: windows.Window[LinkSamples],
                 counter: LinkSamples, window_s: float
                 ) -> tuple[DirectEvidence, ...]:
        self._go_on(window, counter)
        return tuple(shares.of_links(counter.samples, window.victims)
                     if counter.samples else ())

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        return shares.of_links([first, last], asked)

    def _let_go(self, window: windows.Window[LinkSamples]) -> None:
        """Do nothing: nothing is in the kernel."""
