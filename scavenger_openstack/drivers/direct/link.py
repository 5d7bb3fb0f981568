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


Samples = windows.Noted[list[HostSample]]
"""Those of a window, the first one that before it."""


class LinkEvidence(windows.Windows[Samples]):
    """Direct evidence for links."""

    resource, names = Resource.NETWORK, 'links'
    purpose = 'tell which workload sends over a link'

    def _count(self, victims: Collection[str]) -> Samples:
        return Samples([] if self._sample is None else [self._sample])

    def _go_on(self, window: windows.Window[Samples], counter: Samples
               ) -> None:
        if self._sample is not None:
            counter.what.append(self._sample)

    def _counted(self, window: windows.Window[Samples], counter: Samples,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        self._go_on(window, counter)
        return tuple(shares.of_links(counter.what, window.victims)
                     if counter.what else ())

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        return shares.of_links([first, last], asked)
