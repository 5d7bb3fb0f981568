# SPDX-License-Identifier: Apache-2.0

"""The driver contract: how the agent reads a host and limits its workloads.

A driver reads and writes; it decides nothing.  Real hosts, the simulator
and recordings implement all of :class:`Driver`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import threading
from types import MappingProxyType
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.drivers import calls
from scavenger_openstack.knobs import OF_NETWORK
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Floor
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

RESCAN_TICKS = 30
"""Ticks from one scan to the next of the parts of a host that seldom change:
mounts, disks, links, what protecting a resource takes."""

RestoreAction = grammar.RestoreAction
"""One action that restores a knob, of the closed set of
:mod:`scavenger_openstack.restore.actions`; plain JSON."""

RECLAIM = 'memory'
"""The queue of limits for which the kernel may have to reclaim memory first.
Only tightening can take long in it: all else is done at once."""

DRAIN = 'network'
"""The queue of limits behind which packets wait; these are sent before such a
limit is removed.  Only removing can take long in it, and does not use the
driver: all else is done at once."""


def new_executor(patience_s: float = calls.PATIENCE_S) -> calls.Executor:
    """Make the executor of a host; calls that wait for the kernel alone have
    slots of their own there, which no VM can occupy."""
    return calls.Executor(patience_s=patience_s, own=(RECLAIM, DRAIN))


class Setting(NamedTuple):
    """The state of a knob at one moment.

    ``value`` is that of :meth:`Knobs.read`; ``actions`` restore all of the
    knob.
    """

    value: Value | None
    actions: Sequence[RestoreAction]


class KnobState(NamedTuple):
    """The only memory of a knob with a lease.

    ``original`` is its setting before us, which will be restored.  ``ours``
    is its setting right after our last write: a difference from it was
    written by another program.  It is never restored.  ``None`` is
    before the first write, after one that failed, and while the fast loop
    writes.
    """

    original: Setting
    ours: Setting | None = None


MADE_AGAIN = 'it was made again'
"""The reason of a limit that is gone: another object has its place."""


class Changes(NamedTuple):
    """The changes of the limits of a host since the last tick.

    ``changed``: workloads that became others; their knobs are read in this
    tick.  ``rewrite``: knobs with a lease that have to be written again,
    though they have the right value.  ``unmet``: bytes that workloads use
    above memory limits which were set, and that do not shrink.
    """

    changed: Collection[str] = ()
    rewrite: Collection[KnobKey] = ()
    unmet: Mapping[str, int] = MappingProxyType({})


class Removed(NamedTuple):
    """A limit was removed and its lease has ended; ``state`` is the last state
    of that."""

    workload: str
    knob: Knob
    state: KnobState | None = None


class TimedOut(NamedTuple):
    """The writes of these knobs of one queue are late; ``done`` is set when
    they end."""

    keys: Sequence[KnobKey]
    done: threading.Event


class Failed(NamedTuple):
    """A knob could not be read, set or removed.

    A driver that logs why, by the ``message`` or by a cause that many
    failures have in common, calls ``reset`` in the latter case, now or later
    and in any thread: if the knob fails again, the driver is to be notified
    again, since the cause may be over.
    """

    workload: str
    knob: Knob
    message: str
    reset: Callable[[], object]


Event = Removed | TimedOut | Failed


class Knobs(Protocol):
    """The limits of the workloads of one part of a host.

    ``workload`` is the id of a workload, or of a group for ``cpu_set`` and
    ``cpu_idle``; ``state`` is that of the knob's lease, ``None`` without one:
    a driver remembers of that only what has to travel with the workload.  The
    first three methods may raise
    :class:`~scavenger_openstack.errors.WorkloadGone` (the workload, or the
    object of the lease, is gone),
    :class:`~scavenger_openstack.errors.Unsupported` (no such knob here) or
    :class:`~scavenger_openstack.errors.DriverError` (the message says what
    failed); the others raise nothing and never wait.
    """

    def read(self, workload: str, knob: Knob,
             state: KnobState | None = None) -> Value | None:
        """Return the value in force on the knob itself, ``None`` for no
        limit."""
        ...

    def restore_actions(self, workload: str, knob: Knob,
                        state: KnobState | None = None
                        ) -> Sequence[RestoreAction]:
        """Return the actions that restore the knob as it is at this moment.

        Of CPU sets below a group: the set that each has on its own account,
        and where that is not known the set in the lease.
        """
        ...

    def write(self, workload: str, knob: Knob, value: Value,
              state: KnobState | None = None) -> Value | None:
        """Put ``value`` in force; return what :meth:`read` returns then.

        :raises Refused: the kernel does not accept this value now.
        :raises Overtaken: another program has set the knob since it was
            read.
        """
        ...

    def queue(self, workload: str, knob: Knob) -> str:
        """Return the queue in which writes of this knob wait for one another.

        No queue waits for one that hangs, nor the tick for any of them
        beyond its deadline.  '' is for writes at once, in the tick.
        """
        ...

    @property
    def executor(self) -> calls.Executor:
        """Return the executor of these queues: all calls of a host that may
        hang share one, for its bound to hold."""
        ...

    def refresh(self, held: Mapping[KnobKey, KnobState]) -> Changes:
        """Return the changes; called once, at the beginning of each tick.

        The removal of limits that workloads brought from other hosts begins
        here, too.

        :param held: the knobs that the agent has leases of
        """
        ...

    def notify(self, event: Event) -> bool:
        """Take note of an event of a knob; return whether the driver logs why.

        Called in any thread.
        """
        ...


class CpuSet(Protocol):
    """The CPU set of a group, over kept descriptors, for the fast loop.

    :meth:`has` and :meth:`set` are called by the thread of the fast loop, the
    others by that of the tick.  Each may raise
    :class:`~scavenger_openstack.errors.WorkloadGone` or
    :class:`~scavenger_openstack.errors.DriverError`.
    """

    def has(self, cpus: frozenset[int]) -> bool:
        """Return whether :meth:`set` set these CPUs last, and nothing else was
        read since: there is nothing to write."""
        ...

    def set(self, cpus: frozenset[int]) -> None:
        """Let the group, and all below it, run on these CPUs; not where
        another program has written since, and no lease has that yet."""
        ...

    def unleased(self) -> Mapping[int, frozenset[int]] | None:
        """Return the sets that other programs have written over ours since the
        last call, by the inode of the cgroup; ``None`` if the lease does not
        lack any set, of a group below either, as far as that is read in this
        tick."""
        ...

    def refresh(self, leased: Sequence[RestoreAction]) -> bool:
        """Take over groups that came or went below, and a lease.

        :param leased: its actions, with what :meth:`unleased` returned
        :return: whether there is something to set, though the CPUs stay
        """
        ...


class CpuSets(Protocol):
    """The CPU sets that the fast loop may move."""

    def fast_cpu_set(self, group: str) -> CpuSet:
        """Return the CPU set of a group, to be moved quickly by the caller,
        which has its lease.

        :raises Unsupported: it cannot be limited.
        :raises DriverError: it cannot be opened.
        """
        ...


RESTART = 'then type "systemctl restart scavenger-agent"'
"""The end of a cure that is in the configuration."""
NO_CURE = 'nothing on this host cures that'
"""In a sentence of :attr:`Facts.missing` that no operator can do away with."""


class Facts(NamedTuple):
    """The facts of a host for status, history and reports.

    ``missing``: what is not measured or limited on this host, what that
    turns off, and the cure or :data:`NO_CURE`, in sentences.  ``grade``: what
    can be measured here, and what not and why; ``None`` where no hardware is
    looked at.  ``libvirt``: whether it
    answers, and which VM does not; ``None`` without VMs.  ``instances``: the
    VMs; the same object while nothing of them changes.
    """

    missing: tuple[str, ...] = ()
    grade: Mapping[str, object] | None = None
    libvirt: Mapping[str, object] | None = None
    instances: Sequence[Instance] = ()


class Driver(Knobs, CpuSets, Protocol):
    """A host."""

    def sample(self) -> HostSample:
        """Read the host once.

        :raises DriverError: nothing at all could be read.
        """
        ...

    def facts(self) -> Facts:
        """Return the facts as of the last :meth:`sample`; never waits."""
        ...

    def ended(self, workload: str) -> str | None:
        """Return why the last run of a VM ended, ``None`` while that is not
        known; '' of other workloads."""
        ...

    def allow(self, instances: Mapping[str, Floor]) -> None:
        """Treat these VMs, and no others that begin to run, as background
        unless the flavor of one says something else; before :meth:`sample`.

        :param instances: with the floor that the flavor of each sets
        """
        ...

    def ask(self, asks: Collection[Ask]) -> None:
        """Gather direct evidence of these; called once in each tick.

        A window begins with the first call that asks for a resource, and ends
        when nothing is asked any more; the next :meth:`sample` has its
        evidence.  A driver that cannot measure a resource returns none.
        """
        ...

    def kill(self, workload: str) -> int:
        """End every process of a batch container; return how many.

        :raises Unsupported: the workload did not opt in, or is a VM.
        """
        ...

    def close(self) -> None:
        """Close all descriptors and connections."""
        ...


def usual_queue(knob: Knob) -> str:
    """Return the queue of a knob that is written without a daemon."""
    return (RECLAIM if knob is Knob.MEMORY_BYTES
            else DRAIN if knob in OF_NETWORK else '')
