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

"""New limits of detectors that the fleet governor lets this host set.

A lease, so that no host has to ask before it sets one.  Source: DESIGN 6; the
numbers are not in a paper.
"""

from __future__ import annotations

from typing import NamedTuple

GRACE_S = 60.0
"""So long after its end the next lease is waited for, and no limit is set:
hosts with the next one may set them already.  Then the host's own number
counts, since there is no governor any more."""


class Budget(NamedTuple):
    """So many limits until then.

    ``lease`` is the same as long as it is the same lease, ``until_s`` is
    CLOCK_BOOTTIME.
    """

    limits: int
    until_s: float
    lease: float


class Allowance:
    """What is left of the budget."""

    def __init__(self) -> None:
        self._budget: Budget | None = None
        self._used = 0

    def give(self, budget: Budget | None) -> None:
        """The budget that holds now, ``None`` for none."""
        if (budget is None or self._budget is None
                or budget.lease != self._budget.lease):
            self._used = 0
        self._budget = budget

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
