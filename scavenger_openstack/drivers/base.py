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

"""What the agent asks of a host.

A driver reads and writes; it decides nothing.  Real hosts, the simulator
and recordings all stand behind :class:`Driver`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import threading
from typing import Any
from typing import Protocol

from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

Step = Mapping[str, Any]
"""One restore step of a lease, out of the closed set that
:mod:`scavenger_openstack.agent.restore` knows; plain JSON."""

Unsaid = Callable[[], object]
"""What a driver calls, see :meth:`Lanes.failed`."""


class Knobs(Protocol):
    """The limits of the workloads that one part of a host looks after.

    ``workload`` is the id of a workload, or of a group for ``cpu_set`` and
    ``cpu_idle``.  Every method may raise
    :class:`~scavenger_openstack.errors.WorkloadGone` (it is no longer
    there), :class:`~scavenger_openstack.errors.Unsupported` (no such knob
    here) or :class:`~scavenger_openstack.errors.DriverError` (the message
    says what failed).
    """

    def read(self, workload: str, knob: Knob) -> Value | None:
        """The value in force on the knob itself, ``None`` for no limit."""
        ...

    def restore_steps(self, workload: str, knob: Knob) -> Sequence[Step]:
        """What brings back the knob as it stands at this moment."""
        ...

    def write(self, workload: str, knob: Knob, value: Value) -> Value | None:
        """Put ``value`` in force; return what :meth:`read` then says.

        :raises Refused: the kernel does not take this value now.
        """
        ...


class Lanes(Protocol):
    """What :class:`Knobs` also have when some of their writes may hang."""

    def lane(self, workload: str, knob: Knob) -> str:
        """In which lane this knob is written and lifted.

        No lane waits for one that hangs, nor the tick for any of them
        beyond its deadline.  '' is for what is done at once, in the tick.
        """
        ...

    def changed(self) -> Collection[str]:
        """Workloads that became others since the last call: their knobs
        are read in this tick."""
        ...

    def lifted(self, workload: str, knob: Knob) -> None:
        """The knob holds its original again, and its lease has ended."""
        ...

    def tidy(self, held: Collection[tuple[str, Knob]]
             ) -> Collection[tuple[str, Knob]]:
        """Begin to lift limits that workloads came with from elsewhere.

        ``held`` are the knobs that the agent has leases of; those of them
        that have to be written again, though they hold what they should, are
        returned.  Called in each tick by who owns the leases, and nobody
        else; never waits.
        """
        ...

    def late(self, keys: Sequence[tuple[str, Knob]],
             done: threading.Event) -> bool:
        """What is done for these knobs of one lane is late; ``done`` is set
        when it ends.  Whether the driver sees to it that the log says why;
        never waits."""
        ...

    def failed(self, workload: str, knob: Knob, message: str,
               unsaid: Unsaid) -> bool:
        """A knob could not be read, set or lifted.  Whether the driver sees
        to it that the log says why: by the ``message``, or by a cause that
        many have in common.  For the latter it calls ``unsaid``, now or
        later, in any thread: should the knob fail again, the driver is to be
        told, since the cause may be over.  Never waits."""
        ...

    def unmet(self) -> Mapping[str, int]:
        """Bytes that workloads have above memory limits which were set, and
        do not seem to give back.  Called once per tick; never waits."""
        ...


RECLAIM = 'memory'
"""The lane of limits for which the kernel may have to reclaim first.  Only
taking something away can take long in it: all else is done at once."""


DRAIN = 'egress'
"""The lane of limits behind which packets wait, which go on their way before
such a limit is gone.  Only lifting can take long in it, and does not use the
driver: all else is done at once."""


def usual_lane(workload: str, knob: Knob) -> str:
    """Where there is no :class:`Lanes`."""
    return {Knob.MEMORY_BYTES: RECLAIM,
            Knob.EGRESS_BYTES_PER_S: DRAIN}.get(knob, '')


class Driver(Knobs, Protocol):
    """A host."""

    def sample(self) -> HostSample:
        """Look at the host once.

        :raises DriverError: nothing at all could be read.
        """
        ...

    def kill(self, workload: str) -> int:
        """End every process of a batch container; return how many.

        :raises Unsupported: the workload did not opt in, or is a VM.
        """
        ...

    def close(self) -> None:
        """Give back what is kept open."""
        ...
