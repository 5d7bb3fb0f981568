# SPDX-License-Identifier: Apache-2.0

"""What the agent asks of a host.

A driver reads and writes; it decides nothing.  Real hosts, the simulator
and recordings all stand behind :class:`Driver`, and have all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import threading
import types
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.drivers import calls
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Floor
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

LOOK_TICKS = 30
"""Ticks from one look to the next at what seldom changes on a host: mounts,
disks, links, what a resource takes."""

RestoreAction = grammar.RestoreAction
"""One action of a lease's way back, out of the closed set that
:mod:`scavenger_openstack.restore.actions` knows; plain JSON."""

RECLAIM = 'memory'
"""The queue of limits for which the kernel may have to reclaim first.  Only
taking something away can take long in it: all else is done at once."""

DRAIN = 'egress'
"""The queue of limits behind which packets wait, which go on their way before
such a limit is gone.  Only removing can take long in it, and does not use the
driver: all else is done at once."""


def new_executor(patience_s: float = calls.PATIENCE_S) -> calls.Executor:
    """Make the executor of a host: what the kernel alone may hold up has
    slots of its own there, which no VM can take."""
    return calls.Executor(patience_s=patience_s, own=(RECLAIM, DRAIN))


class Setting(NamedTuple):
    """What a knob holds at one moment.

    ``value`` is what :meth:`Knobs.read` says, ``actions`` what brings all
    of it back.
    """

    value: Value | None
    actions: Sequence[RestoreAction]


class KnobState(NamedTuple):
    """What is known of a knob with a lease: the only memory of it.

    ``original`` is what it held before us, and what is restored.  ``ours``
    is what it held right after our last write: what differs from it was
    written by another program.  It is never restored.  ``None`` is
    before the first write, after one that failed, and while the fast loop
    writes.
    """

    original: Setting
    ours: Setting | None = None


MADE_AGAIN = 'it was made again'
"""Why a limit is gone: what it was set on is, and another has its place."""


class Changes(NamedTuple):
    """What is new of the limits of a host since the last tick.

    ``changed``: workloads that became others; their knobs are read in this
    tick.  ``rewrite``: knobs with a lease that have to be written again,
    though they hold what they should.  ``unmet``: bytes that workloads have
    above memory limits which were set, and do not seem to give back.
    """

    changed: Collection[str] = ()
    rewrite: Collection[KnobKey] = ()
    unmet: Mapping[str, int] = types.MappingProxyType({})


class Removed(NamedTuple):
    """A knob holds its original again, and its lease has ended; ``state`` is
    what that was."""

    workload: str
    knob: Knob
    state: KnobState | None = None


class TimedOut(NamedTuple):
    """What is done for these knobs of one queue is late; ``done`` is set
    when it ends."""

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
    a driver keeps no memory of that but for what has to travel with the
    workload.  The first three methods may raise
    :class:`~scavenger_openstack.errors.WorkloadGone` (it, or what the lease
    is about, is no longer there),
    :class:`~scavenger_openstack.errors.Unsupported` (no such knob here) or
    :class:`~scavenger_openstack.errors.DriverError` (the message says what
    failed); the others raise nothing and never wait.
    """

    def read(self, workload: str, knob: Knob,
             state: KnobState | None = None) -> Value | None:
        """The value in force on the knob itself, ``None`` for no limit."""
        ...

    def restore_actions(self, workload: str, knob: Knob,
                        state: KnobState | None = None
                        ) -> Sequence[RestoreAction]:
        """Return what brings back the knob as it stands at this moment.

        Of CPU sets below a group: what each has on its own account, and
        where that is not known what the lease says.
        """
        ...

    def write(self, workload: str, knob: Knob, value: Value,
              state: KnobState | None = None) -> Value | None:
        """Put ``value`` in force; return what :meth:`read` then says.

        :raises Refused: the kernel does not take this value now.
        :raises Overtaken: another program has set the knob since it was
            read.
        """
        ...

    def queue(self, workload: str, knob: Knob) -> str:
        """The queue in which writes of this knob wait for one another.

        No queue waits for one that hangs, nor the tick for any of them
        beyond its deadline.  '' is for what is done at once, in the tick.
        """
        ...

    @property
    def executor(self) -> calls.Executor:
        """Return what makes the writes of these queues: all calls of a host
        that may hang share one, for its bound to hold."""
        ...

    def refresh(self, held: Mapping[KnobKey, KnobState]) -> Changes:
        """Return what changed; called once, at the beginning of each tick.

        The removal of limits that workloads came with from elsewhere begins
        here, too.

        :param held: the knobs that the agent has leases of
        """
        ...

    def notify(self, event: Event) -> bool:
        """Take note of what happened to a knob; called in any thread.

        True: the driver sees to it that the log says why.
        """
        ...


class CpuSet(Protocol):
    """The CPU set of a group behind kept descriptors, for the fast loop.

    Each method may raise
    :class:`~scavenger_openstack.errors.WorkloadGone` or
    :class:`~scavenger_openstack.errors.DriverError`.
    """

    def set(self, cpus: frozenset[int]) -> None:
        """Let the group, and all below it, run on these CPUs."""
        ...

    def foreign(self) -> frozenset[int] | None:
        """Return what another program set since the last look, ``None`` for
        nothing."""
        ...

    def refresh(self) -> None:
        """Take over groups that came or went below."""
        ...


class CpuSets(Protocol):
    """Which CPU sets the fast loop may move."""

    def slow_cpu_set(self, group: str) -> bool:
        """Return whether only the slow loop writes the CPU set of a group."""
        ...

    def fast_cpu_set(self, group: str) -> CpuSet:
        """The quick way to move the CPU set of any other group; the caller
        has its lease.

        :raises Unsupported: it cannot be limited.
        :raises DriverError: it cannot be opened.
        """
        ...


RESTART = 'then type "systemctl restart scavenger-agent"'
"""The end of a cure that is in the configuration."""
NO_CURE = 'nothing on this host cures that'
"""In a sentence of :attr:`Facts.missing` that no operator can do away with."""


class Facts(NamedTuple):
    """What a host can tell of itself, for status, journal and reports.

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
        """Look at the host once.

        :raises DriverError: nothing at all could be read.
        """
        ...

    def facts(self) -> Facts:
        """Return what is known by the last :meth:`sample`; never waits."""
        ...

    def ended(self, workload: str) -> str | None:
        """Return why the last run of a VM ended, ``None`` while that is not
        known; '' of other workloads."""
        ...

    def allow(self, instances: Mapping[str, Floor]) -> None:
        """Take these VMs, and no others that begin to run, for background
        unless their flavor says something else; before :meth:`sample`.

        :param instances: with the floor that the flavor of each sets
        """
        ...

    def ask(self, asks: Collection[Ask]) -> None:
        """Gather direct evidence of these; called once in each tick.

        What is asked from one call to the next is a window.  When nothing is
        asked any more it ends, and the next :meth:`sample` answers.  A driver
        that has nothing to say of a resource does not answer.
        """
        ...

    def kill(self, workload: str) -> int:
        """End every process of a batch container; return how many.

        :raises Unsupported: the workload did not opt in, or is a VM.
        """
        ...

    def close(self) -> None:
        """Close what is kept open."""
        ...


_USUAL = {Knob.MEMORY_BYTES: RECLAIM, Knob.EGRESS_BYTES_PER_S: DRAIN}


def usual_queue(knob: Knob) -> str:
    """The queue of a knob that no daemon stands behind."""
    return _USUAL.get(knob, '')
