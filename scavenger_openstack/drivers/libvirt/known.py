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

"""What is kept of each VM that is watched, and which may be background.

Only operators make a VM background: by its flavor, or, where the flavor says
nothing, by the control plane of a host that allows that.  Source: DESIGN 6.
"""

from __future__ import annotations

from collections.abc import Collection
import dataclasses

from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import file_knobs
from scavenger_openstack.drivers.qemu import counters as domain_counters
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

TICKS_PER_S = 100       # USER_HZ, of Linux on all machines that run libvirt


class KnownDomain:
    """A domain, and the descriptors that are kept for it."""

    __slots__ = ('counters', 'files', 'snapshot', 'workload')

    def __init__(self, snapshot: Snapshot, workload: Workload,
                 counters: domain_counters.DomainCounters,
                 files: file_knobs.Files) -> None:
        self.snapshot = snapshot
        self.workload = workload
        self.counters = counters
        self.files = files


class Allowed:
    """The VMs that an operator of the control plane made background.

    One that was stays so for as long as it runs: whether it is background
    now is decided with each sample, and a limit that it has until then must
    not hang.
    """

    def __init__(self) -> None:
        self._asked: frozenset[str] = frozenset()
        self._made: set[str] = set()

    def ask(self, uuids: Collection[str]) -> frozenset[str]:
        """These are to be, and no others; returns those that are not yet."""
        self._asked = frozenset(uuids)
        return self._asked - self._made

    def forget(self, uuid: str) -> None:
        """It does not run any more."""
        self._made.discard(uuid)

    def of(self, workload: Workload) -> Workload:
        """The workload, background if that is allowed and no flavor says
        something else."""
        if workload.source != 'default' or not (
                workload.id in self._asked or workload.id in self._made):
            return workload
        self._made.add(workload.id)
        return dataclasses.replace(workload, priority=Priority.BACKGROUND,
                                   source='override')

    def workload(self, snapshot: Snapshot) -> Workload:
        """The domain in the words of the controllers."""
        return self.of(snapshot.domain.workload(
            created_s=snapshot.started / TICKS_PER_S))
