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


"""Who is left alone for a while, since a cap on him did not help."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
import math
from typing import Any

from scavenger_openstack.algorithms.attribution.disturbance import Group

Pair = tuple[Group, str, str]
"""Victims, their signal, and who is said to disturb it.  What one tenant's
VMs feign must not protect anybody from the others."""

LONGEST_S = 86400.0


def longer(before: float, *, first: float, most: float) -> float:
    """How long to wait after one more failure: twice as long each time.

    :param before: how long it was the last time, 0 if this is the first
    :param first: how long at first; same unit, as is ``most``
    """
    return min(most, max(first, 2 * before))


class BackOffs:
    """Twice as long each time; forgotten after as long again.

    :param first_s: how long at first
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._until: dict[Pair, tuple[float, float]] = {}

    def hold(self, now: float, pair: Pair) -> bool:
        """Whether he is left alone."""
        return now < self._until.get(pair, (-math.inf, 0.0))[0]

    def begin(self, now: float, pair: Pair) -> None:
        """A cap on him did not help."""
        _, before_s = self._until.get(pair, (0.0, 0.0))
        wait_s = longer(before_s, first=self._first_s, most=LONGEST_S)
        self._until[pair] = now + wait_s, wait_s

    def end(self, pair: Pair) -> None:
        """A cap on him helped after all."""
        self._until.pop(pair, None)

    def keep(self, present: Collection[str]) -> None:
        """Forget those who are gone, or made anew."""
        self._until = {pair: one for pair, one in self._until.items()
                       if pair[2] in present}

    def expire(self, now: float) -> None:
        """Forget those that are long over."""
        self._until = {pair: (until_s, wait_s)
                       for pair, (until_s, wait_s) in self._until.items()
                       if now < until_s + wait_s}

    def state(self) -> list[list[Any]]:
        """Plain JSON values."""
        return [[list(group), signal, name, *one]
                for (group, signal, name), one in self._until.items()]

    def load(self, state: Iterable[Iterable[Any]]) -> None:
        """Go on from :meth:`state`.

        :raises ValueError, TypeError: it is damaged.
        """
        self._until = {
            (tuple(map(str, group)), str(signal), str(name)):
            (float(until_s), float(wait_s))
            for group, signal, name, until_s, wait_s in state}
