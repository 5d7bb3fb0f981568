# SPDX-License-Identifier: Apache-2.0

"""Controllers whose wishes are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.decision.controller import REGULATOR
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Rates


class Fixed:
    """A controller that wants the same at every step."""

    kind = REGULATOR
    params_type = None
    at_start: frozenset[str] = frozenset()

    def __init__(self, name: str, *caps: Cap,
                 shortage_bytes: float = 0.0) -> None:
        self.name = name
        self.decision = Decision(caps, shortage_bytes=shortage_bytes)
        self.loaded: Any = None

    def tune(self, params: object) -> None:
        """It has none."""

    def step(self, now: float, rates: Rates) -> Decision:
        return self.decision

    def state(self) -> dict[str, Any]:
        return {'of': self.name}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        self.loaded = state['of'], now
