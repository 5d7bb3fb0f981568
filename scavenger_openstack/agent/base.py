# SPDX-License-Identifier: Apache-2.0

"""What the parts of the agent ask of one another.

The agent of a real host has :class:`~.lease.leases.Leases`, on disk, and
:class:`~.isolation.blind_isolation.BlindIsolation`, a thread; the laboratory
plays thousands of hosts in one process and has its own.  Both are used by the
same loop and actuator, which ask for no more than this.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from typing import Any
from typing import Protocol

from scavenger_openstack.decision.settle import FastLoopState
from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value


class Leases(Protocol):
    """The one memory of each limited knob.

    What each method raises: see :class:`~.lease.leases.Leases`.
    """

    def hold(self, workload: str, knob: Knob, actions: Sequence[RestoreAction],
             original: Value | None) -> None:
        """Make the record that must be there before a first write."""
        ...

    def replace(self, workload: str, knob: Knob,
                actions: Sequence[RestoreAction],
                original: Value | None) -> None:
        """Another program wrote the knob: that is what it goes back to."""
        ...

    def wrote(self, workload: str, knob: Knob, ours: Setting | None) -> None:
        """Remember what a knob holds after our write."""
        ...

    def writing(self, workload: str, knob: Knob
                ) -> contextlib.AbstractContextManager[None]:
        """Around each write."""
        ...

    def remove(self, workload: str, knob: Knob) -> None:
        """Remove the limit on a knob: restore its original, end its lease."""
        ...

    def prepare(self, keys: Iterable[KnobKey]) -> None:
        """Many limits are about to be removed: begin what takes a while."""
        ...

    def remove_all(self) -> list[str]:
        """Remove every limit; return what did not come back, and why."""
        ...

    def held(self) -> Mapping[KnobKey, KnobState]:
        """All that is held now; later changes do not show in it."""
        ...

    def lost(self) -> set[KnobKey]:
        """What is held, and the watcher could no longer restore."""
        ...

    def check(self) -> None:
        """To be called right before each write, and after it."""
        ...

    def expired(self) -> bool:
        """Whether :meth:`check` would raise: time for :meth:`reopen`."""
        ...

    def reopen(self) -> None:
        """After standing still past the leases: all back, then go on."""
        ...

    def watched(self) -> bool:
        """Whether a watcher would restore after us."""
        ...


class Leaser(Protocol):
    """Leases knobs that another thread will write: the actuator."""

    def hold(self, workload: str, knob: Knob,
             theirs: frozenset[int] | None = None) -> None:
        """Lease a knob, and what was born below it since.

        :param theirs: the CPU set that another program has set, over ours
        """
        ...


class Isolation(Protocol):
    """The fast loop, as the slow one sees it.

    ``mode`` is how far it may go now; ``exempt`` are groups that it leaves
    alone.
    """

    mode: Mode
    exempt: frozenset[str]

    def follow(self, wishes: Sequence[Cap], rates: Rates, held_back: bool,
               leaser: Leaser) -> FastLoopState:
        """Bring the fast loop up to date; what it does from now on."""
        ...

    def owns(self, key: KnobKey) -> bool:
        """Whether the fast loop is the one writer of this knob."""
        ...

    def stop(self) -> FastLoopState:
        """End the fast loop; its limits are removed by the next diff.

        :return: what it does from now on: nothing, unless a write of its
            hangs in the kernel
        """
        ...

    def facts(self) -> dict[str, Any]:
        """For the status: plain JSON values."""
        ...
