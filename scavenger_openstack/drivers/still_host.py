# SPDX-License-Identifier: Apache-2.0

"""A driver for hosts of which only the samples change."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import functools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import calls
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Floor
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey


class StillHost:
    """The part of :class:`~.base.Driver` that a simulated host and a recorded
    one have in common: no daemon, no VM, no other program."""

    def allow(self, instances: Mapping[str, Floor]) -> None:
        """Do nothing: no workload changes its priority."""

    def ask(self, asks: Collection[Ask]) -> None:
        """Do nothing: there is no more to measure than its samples."""

    def queue(self, workload: str, knob: Knob) -> str:
        return base.usual_queue(knob)

    @functools.cached_property
    def executor(self) -> calls.Executor:
        return base.new_executor()

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        return base.Changes()

    def notify(self, event: base.Event) -> bool:
        return False

    def facts(self) -> base.Facts:
        return base.Facts()

    def ended(self, workload: str) -> str:
        return ''
