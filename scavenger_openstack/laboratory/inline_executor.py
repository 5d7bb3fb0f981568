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
