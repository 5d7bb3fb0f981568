# SPDX-License-Identifier: Apache-2.0


"""Writes to a simulated host, which no kernel can make wait."""

from __future__ import annotations

from collections.abc import Sequence

from scavenger_openstack.agent.apply.worker import Job
from scavenger_openstack.types import KnobKey


class InlineExecutor:
    """Stands where :class:`.apply.worker.Worker` does.

    That one has a thread, which lives as long as the process; here are
    thousands of hosts in one.
    """

    def __init__(self) -> None:
        self.pending: set[KnobKey] = set()

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        for job in jobs:
            job.do()
        return [True] * len(jobs)
