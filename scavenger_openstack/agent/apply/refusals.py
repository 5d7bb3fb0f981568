# SPDX-License-Identifier: Apache-2.0

"""Limits that the host refuses: each is tried ever later, not in each tick."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from scavenger_openstack.algorithms import back_off
from scavenger_openstack import errors
from scavenger_openstack.types import Cap
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

LONGEST_TICKS = 30
"""From one try to the next, at most; the first is in the next tick."""

LASTING = (errors.Denied, errors.Unsupported)
"""Errors that hardly end within a moment."""


def when(exc: Exception) -> str:
    """Return when a limit that failed by this is tried again, for people."""
    if isinstance(exc, LASTING):
        return f'tried again within {LONGEST_TICKS} ticks'
    return 'the next tick tries again'


class _Refusal(NamedTuple):
    """One refused value; it is not tried before the tick ``retry_tick``."""

    retry_tick: int
    wait_ticks: int
    value: Value
    why: str


class Refusals:
    """The knobs that wait until they are tried again."""

    def __init__(self) -> None:
        self._refusals: dict[KnobKey, _Refusal] = {}

    def expire(self, tick: int, changed: Collection[str]) -> None:
        """Forget old refusals, and those of workloads that became others."""
        for key, refusal in list(self._refusals.items()):
            if (tick > refusal.retry_tick + LONGEST_TICKS
                    or key[0] in changed):
                self.end(key)       # unless another thread has

    def begin(self, tick: int, cap: Cap, why: str) -> None:
        """Record that a limit was refused, or that its knob could not be
        read."""
        before = self._refusals.get(cap.key)
        wait = int(back_off.longer(before.wait_ticks if before else 0,
                                   first=1, most=LONGEST_TICKS))
        self._refusals[cap.key] = _Refusal(tick + wait, wait, cap.value, why)

    def end(self, key: KnobKey) -> None:
        """Forget a refusal: the limit was set, or is not wanted any more."""
        self._refusals.pop(key, None)

    def why_not(self, tick: int, cap: Cap) -> str:
        """Return why a limit is not tried now; '' if it is.

        Another CPU set is tried at once; another number is not.
        """
        refusal = self._refusals.get(cap.key)
        if refusal is None or tick >= refusal.retry_tick or (
                isinstance(cap.value, str) and cap.value != refusal.value):
            return ''
        return refusal.why
