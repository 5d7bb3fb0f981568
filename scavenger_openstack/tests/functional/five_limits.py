# SPDX-License-Identifier: Apache-2.0

"""scavenger-agent with one controller: five limits on each background VM.

``python -m scavenger_openstack.tests.functional.five_limits run OPTION...``
"""

from __future__ import annotations

from collections.abc import Mapping
import sys
from typing import Any

from scavenger_openstack.agent import parts
from scavenger_openstack.cmd import agent
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value

LIMITS: Mapping[Knob, Value] = {
    Knob.CPU_SET: '0', Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 64 * 2**20,
    Knob.IO_BYTES_PER_S: 5_000_000, Knob.IO_OPS_PER_S: 500}
VARIES = (Knob.CPU_CORES, Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S)
"""These go down by a little every other second: there always is something to
write, and nothing that is worth a line."""


class Five:
    """Wants them all the time."""

    name = 'five'
    kind = 'regulator'
    params_type = None
    at_start: frozenset[str] = frozenset()

    def tune(self, params: object) -> None:
        """It has none."""

    def step(self, now: float, rates: Rates) -> Decision:
        less = {knob: 0.93 if int(now) % 2 else 1 for knob in VARIES}
        return Decision(tuple(
            Cap(one.workload.id, knob, value if isinstance(value, str)
                else value * less.get(knob, 1), self.name, 'the test says so')
            for one in rates.workloads for knob, value in LIMITS.items()
            if one.workload.priority is Priority.BACKGROUND))

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: object, now: float) -> None:
        pass


if __name__ == '__main__':
    parts.load_controllers = lambda conf, params_of: [(Five(), Mode.ENFORCE)]
    sys.exit(agent.main())
