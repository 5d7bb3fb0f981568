# SPDX-License-Identifier: Apache-2.0


"""What every background workload keeps, and when that is too much.

Source: DESIGN 7.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping

from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Knob
from scavenger_openstack.types import WorkloadRates

DEFAULT_FLOORS: Mapping[Knob, float] = {
    Knob.CPU_CORES: 0.1,
    Knob.MEMORY_BYTES: 64.0 * 2 ** 20,
    Knob.EGRESS_BYTES_PER_S: 125_000.0,
    Knob.IO_BYTES_PER_S: 1_000_000.0,
    Knob.IO_OPS_PER_S: 10.0,
}
"""Floors of a batch container that has none of its own: DESIGN 7.6.  A
VM's memory floor is the RAM of its flavor."""


def floors(background: Iterable[WorkloadRates], knob: Knob) -> list[float]:
    """The floor of each on one knob, in its unit."""
    default = DEFAULT_FLOORS[knob]
    return [one[0].floor.get(knob, default) for one in background]


class Overcommitted:
    """Incidents of budgets that are less than the floors alone."""

    def __init__(self, host: str, boot_id: str) -> None:
        self._host = host
        self._boot_id = boot_id
        self._since: dict[str, float] = {}

    def incidents(self, now: float,
                  found: Mapping[str, tuple[float, float]],
                  ) -> tuple[Incident, ...]:
        """The same incident for as long as it lasts.

        ``found`` maps what is short to the sum of the floors and the
        budget.  ``now`` in seconds.
        """
        self._since = {signal: self._since.get(signal, now)
                       for signal in found}
        return tuple(
            Incident(
                id=incident_id(self._host, self._boot_id, 'foreground',
                               signal, self._since[signal]),
                time_s=self._since[signal], host=self._host,
                victim='foreground', signal=signal, value=least,
                threshold=budget, cause='overcommitted',
                action='background stays at its floors: move some of it '
                       'away or lower its floors')
            for signal, (least, budget) in found.items())
