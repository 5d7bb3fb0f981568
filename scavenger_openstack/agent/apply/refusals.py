# SPDX-License-Identifier: Apache-2.0

"""Limits that the host refuses: each is tried ever later, not in each tick."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from scavenger_openstack.algorithms import back_off
from scavenger_openstack import errors
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

LONGEST_TICKS = 30
"""From one try to the next, at most; the first is in the next tick."""

LASTING = (errors.Denied, errors.Unsupported)
"""What would hardly be over a moment later."""


def when(exc: Exception) -> str:
    """When a limit is tried again that failed by this, for people."""
    if isinstance(exc, LASTING):
        return f'tried again within {LONGEST_TICKS} ticks'
    return 'the next tick tries again'


class _Refused(NamedTuple):
    again: int
    wait: int
    value: Value
    why: str


class Refusals:
    """Which knobs wait to be tried again.  Times are numbers of ticks."""

    def __init__(self) -> None:
        self._refused: dict[KnobKey, _Refused] = {}

    def keep(self, tick: int, changed: Collection[str]) -> None:
        """Forget what is long over, and workloads that became others."""
        for key, refusal in list(self._refused.items()):
            if tick > refusal.again + LONGEST_TICKS or key[0] in changed:
                del self._refused[key]

    def begin(self, tick: int, key: KnobKey, value: Value, why: str) -> None:
        """Record that a value was refused, or that the knob could not be
        read."""
        before = self._refused.get(key)
        wait = int(back_off.longer(before.wait if before else 0, first=1,
                                   most=LONGEST_TICKS))
        self._refused[key] = _Refused(tick + wait, wait, value, why)

    def end(self, key: KnobKey) -> None:
        """Forget a refusal: the limit was set, or is not wanted any more."""
        self._refused.pop(key, None)

    def why_not(self, tick: int, key: KnobKey, value: Value) -> str:
        """Return why a limit is not tried now; '' if it is.

        Another CPU set is another question; another number is not.
        """
        refusal = self._refused.get(key)
        if refusal is None or tick >= refusal.again or (
                isinstance(value, str) and value != refusal.value):
            return ''
        return refusal.why
