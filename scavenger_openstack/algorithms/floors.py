# SPDX-License-Identifier: Apache-2.0


"""What every background workload keeps, and when that is too much.

Source: DESIGN 7.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Knob
from scavenger_openstack.types import LIMIT
from scavenger_openstack.types import WorkloadRates


def floors(background: Iterable[WorkloadRates], knob: Knob) -> list[float]:
    """The floor of each on one knob, in its unit."""
    default = DEFAULT_FLOORS[knob]
    return [rated[0].floor.get(knob, default) for rated in background]


QUIET_S = 300.0
"""An incident ends when the floors have fitted for so long: DESIGN 7.13."""


class Shortage(NamedTuple):
    """The sum of the floors and the budget, since when it is less, and when
    it was last."""

    least: float
    budget: float
    since_s: float
    last_s: float


class Overcommitted:
    """Incidents of budgets that are less than the floors alone."""

    def __init__(self, host: str, boot_id: str) -> None:
        self._host = host
        self._boot_id = boot_id
        self._short: dict[str, Shortage] = {}

    def incidents(self, now: float,
                  short: Mapping[str, tuple[float, float]],
                  ) -> tuple[Incident, ...]:
        """Return the same incident for as long as it lasts.

        ``short`` maps what is short to the sum of the floors and the
        budget.  ``now`` in seconds.
        """
        before = self._short
        self._short = {
            **{signal: shortage for signal, shortage in before.items()
               if now - shortage.last_s < QUIET_S},
            **{signal: Shortage(least, budget, before[signal].since_s
                                if signal in before else now, now)
               for signal, (least, budget) in short.items()}}
        return tuple(
            Incident(
                id=incident_id(self._host, self._boot_id, 'foreground',
                               signal, shortage.since_s),
                time_s=shortage.since_s, host=self._host,
                victim='foreground', signal=signal, value=shortage.least,
                threshold=shortage.budget, cause='overcommitted',
                action=LIMIT + 'all background to its floors: move some of '
                       'it away, or lower its floors')
            for signal, shortage in self._short.items())
