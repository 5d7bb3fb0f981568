# SPDX-License-Identifier: Apache-2.0

"""New limits of detectors that the fleet governor lets this host set.

A lease, so that no host has to ask before it sets one.  Source: DESIGN 6; the
numbers are not in a paper.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LEASE_S = 60.0
"""A lease is for a minute of the conductors' clock."""

GRACE_S = 60.0
"""So long after its end the next lease is waited for, and no limit is set:
hosts with the next one may set them already.  Then the host's own number
counts, since there is no governor any more."""


NOT_ALLOWED = 'nothing now: the fleet governor allows no new limit'
"""The action of an incident where that is why."""


class Budget(NamedTuple):
    """How many limits may be set until a time.

    ``lease`` is the same as long as it is the same lease, ``until_s`` is
    CLOCK_BOOTTIME.
    """

    limits: int
    until_s: float
    lease: float


def lease(limits: int, until_s: float, time_s: float, now: float,
          since_s: float) -> Budget:
    """Return the budget of a lease.

    :param until_s: its end, where it is ``time_s``, by the conductor's clock
    :param now: CLOCK_BOOTTIME when the conductor was asked; it answered later,
        so the lease ends here no later than there
    :param since_s: when this run of the agent began, likewise: the run before
        may have used the lease of that minute
    """
    ends_s = now + min(until_s - time_s, LEASE_S)
    return Budget(limits if ends_s - LEASE_S >= since_s else 0, ends_s,
                  until_s)


class Allowance:
    """The part of the fleet's budget that is left to this host."""

    def __init__(self) -> None:
        self._budget: Budget | None = None
        self._last = Budget(0, -math.inf, -math.inf)
        self._used = 0

    def give(self, budget: Budget | None) -> None:
        """The budget that holds now, ``None`` for none.

        A lease counts once, also where conductors whose clocks differ hand
        out two by turns: a new one ends half a lease later than the last.
        """
        if budget is not None and budget.lease != self._last.lease:
            if budget.until_s < self._last.until_s + LEASE_S / 2:
                budget = self._last
            else:
                self._last, self._used = budget, 0
        self._budget = budget

    def closed(self, now: float) -> bool:
        """Whether no limit at all may be set in this lease."""
        budget = self._budget
        return (budget is not None and budget.limits <= 0
                and now < budget.until_s + GRACE_S)

    def take(self, now: float) -> bool:
        """Whether one more limit may be set; if so it is counted.

        :param now: CLOCK_BOOTTIME in seconds
        """
        budget = self._budget
        if budget is None or now >= budget.until_s + GRACE_S:
            return True
        if now >= budget.until_s or self._used >= budget.limits:
            return False
        self._used += 1
        return True
