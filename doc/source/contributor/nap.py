# SPDX-License-Identifier: Apache-2.0

"""A controller of another package, for the page that explains it."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """What can be tuned: bool, int, float or str, with a help text."""

    min_free_bytes: int = dataclasses.field(default=2**30, metadata={
        'help': 'Free memory in bytes below which background naps.',
        'min': 0})


class Controller:
    name = 'nap'
    kind = 'regulator'
    params_type = Params
    at_start: frozenset[str] = frozenset()

    def __init__(self, params: Params, *, interval_s: float, host: str,
                 boot_id: str) -> None:
        self._params = params
        self._naps = 0

    def tune(self, params: Params) -> None:
        """Continue with these, but for those that ``at_start`` names."""
        self._params = params

    def step(self, now: float, rates: Rates) -> Decision:
        """All caps that are wanted now; ``now`` in CLOCK_BOOTTIME."""
        free = rates.memory_available_bytes
        facts = {'free_bytes': free, 'naps': self._naps}
        if free is None or free >= self._params.min_free_bytes:
            return Decision(facts=facts)
        self._naps += 1
        return Decision(caps=tuple(
            Cap(rated.workload.id, Knob.PAUSED, 1, self.name,
                f'{free / 2**20:,.0f} MiB of memory are free')
            for rated in rates.workloads
            if rated.workload.priority is Priority.BACKGROUND), facts=facts)

    def state(self) -> dict[str, Any]:
        """What has to outlive the process, as JSON."""
        return {'naps': self._naps}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Take up what ``state`` said, as far as it is still true."""
        self._naps = int(state.get('naps', 0))
