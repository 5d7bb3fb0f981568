# SPDX-License-Identifier: Apache-2.0

"""The state of a knob as it is when its lease begins."""

from __future__ import annotations

from scavenger_openstack.drivers import base
from scavenger_openstack.types import Knob


def leased(driver: base.Knobs, workload: str, knob: Knob) -> base.KnobState:
    """Describe a knob as the agent does right before it makes a lease."""
    return base.KnobState(base.Setting(
        driver.read(workload, knob), driver.restore_actions(workload, knob)))
