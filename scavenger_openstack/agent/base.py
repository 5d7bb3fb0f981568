# SPDX-License-Identifier: Apache-2.0

"""The interfaces between the parts of the agent.

The agent of a real host has :class:`~.lease.leases.Leases`, on disk, and
:class:`~.isolation.blind_isolation.BlindIsolation`, a thread; the laboratory
plays thousands of hosts in one process and has its own.  The same loop and
actuator use both, by these methods only.
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
    """The only memory of each limited knob.

    The errors of each method: see :class:`~.lease.leases.Leases`.
    """

    def hold(self, workload: str, knob: Knob, actions: Sequence[RestoreAction],
             original: Value | None) -> None:
        """Make the record that each knob needs before its first write."""
        ...

    def replace(self, workload: str, knob: Knob,
                actions: Sequence[RestoreAction],
                original: Value | None) -> None:
        """Replace the original by the setting of another program."""
        ...

    def wrote(self, workload: str, knob: Knob, ours: Setting | None) -> None:
        """Remember the setting of a knob after our write."""
        ...

    def writing(self, workload: str, knob: Knob
                ) -> contextlib.AbstractContextManager[None]:
        """Return a context that is held during each write."""
        ...

    def remove(self, workload: str, knob: Knob) -> None:
        """Remove the limit on a knob: restore its original, end its lease."""
        ...

    def prepare(self, keys: Iterable[KnobKey]) -> None:
        """Begin the slow part of many removals that follow."""
        ...

    def remove_all(self) -> list[str]:
        """Remove every limit; return those not restored, and why."""
        ...

    def held(self) -> Mapping[KnobKey, KnobState]:
        """Return the state of all leases; later changes do not show in it."""
        ...

    def lost(self) -> set[KnobKey]:
        """Return the leased knobs that the watcher could not restore."""
        ...

    def check(self) -> None:
        """Check that the leases have not run out; called right before each
        write, and after it."""
        ...

    def expired(self) -> bool:
        """Return whether :meth:`check` would raise; :meth:`reopen` is due."""
        ...

    def reopen(self) -> None:
        """Remove all limits after a standstill past the leases, and go on."""
        ...

    def watched(self) -> bool:
        """Return whether a watcher would restore after a crash."""
        ...


class Leaser(Protocol):
    """The actuator, as the fast loop uses it for knobs that it will write."""

    def hold(self, workload: str, knob: Knob,
             theirs: Mapping[int, frozenset[int]] | None = None) -> None:
        """Lease a knob, and new groups below it.

        :param theirs: the CPU sets that another program has set over ours,
            by the inode of the cgroup
        """
        ...


class Isolation(Protocol):
    """The fast loop, as the slow loop uses it.

    ``mode`` is its present mode; ``exempt`` are groups that it does not limit.
    """

    mode: Mode
    exempt: frozenset[str]

    def follow(self, wishes: Sequence[Cap], rates: Rates, held_back: bool,
               leaser: Leaser) -> FastLoopState:
        """Update the fast loop; return its state from now on."""
        ...

    def owns(self, key: KnobKey) -> bool:
        """Return whether only the fast loop writes this knob."""
        ...

    def stop(self) -> FastLoopState:
        """End the fast loop; its limits are removed by the next diff.

        :return: its state from now on: empty, unless a write hangs in the
            kernel
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Return the state for the status, as plain JSON values."""
        ...
