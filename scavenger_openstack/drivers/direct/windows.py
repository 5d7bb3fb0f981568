# SPDX-License-Identifier: Apache-2.0

"""Windows in which the kernel counts, and the answers at their ends.

The same for each resource: the kernel counts only while something is asked,
and whose what it counted is, is looked up when the window ends.  Where the
kernel lets us not, the shares of the resource's use have to do.
"""

from __future__ import annotations

import abc
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import itertools
import logging
import math
import time
from typing import Any
from typing import Generic
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

from scavenger_openstack.drivers.base import RESCAN_TICKS
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Resource

LOG = logging.getLogger(__name__)

TOO_OLD_S = 60.0
"""An answer that nothing took for so long is about another time."""

LONGEST_S = 10.0
"""A window ends after this."""

MOST_VICTIMS = 8
"""Of one window; others have the next."""

CLOSE_S = 2.0
"""So long the end of the agent waits until the kernel has let go of the
programs; they end with the process in any case."""

_FAILURES = (errors.DriverError, OSError, ValueError)


class Counter(Protocol):
    """A counter of the kernel in one window."""

    def close(self) -> None:
        ...


C = TypeVar('C', bound=Counter)
N = TypeVar('N')


class Noted(Generic[N]):
    """In the place of a counter, what a window itself notes."""

    def __init__(self, what: N) -> None:
        self.what = what

    def close(self) -> None:
        """Do nothing: nothing is in the kernel."""


class Window(NamedTuple, Generic[C]):
    """What is asked since ``began_s`` of CLOCK_MONOTONIC, which is ``boot_s``
    of CLOCK_BOOTTIME.

    ``first``: the sample before.  ``counter``: ``None`` where the kernel does
    not count for us.
    """

    began_s: float
    boot_s: float
    first: HostSample | None
    victims: tuple[str, ...]
    counter: C | None


class Windows(abc.ABC, Generic[C]):
    """Direct evidence for one resource.

    :param mounts: where cgroup controllers are mounted; may change
    :param domains: the cgroups of VMs
    :param root_dir: where /proc is looked for
    :param logged: what was logged of this host
    :ivar why: why the kernel does not count for us; '' while it does, and
        before anything was asked
    """

    resource: Resource
    purpose: str
    """What an operator is told cannot be done."""
    names: str
    """Of the resource, in the plural."""

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        self._mounts = mounts
        self._domains = domains
        self._owners = thread_owners.ThreadOwners(mounts, root_dir)
        self._logged = logged or log_once.LogOnce()
        # Each window is closed, however long those before it take.
        self._closer = calls.Executor('close', math.inf)
        self._closing: calls.Call | None = None
        self._window: Window[C] | None = None
        self._done: set[str] = set()
        self._answers: tuple[DirectEvidence, ...] = ()
        self._answered_s = -math.inf
        self._sample: HostSample | None = None
        self._ticks = 0
        self._retry_tick = 0
        self._counts: bool | None = None
        self.why = ''

    @abc.abstractmethod
    def _count(self, victims: Collection[str]) -> C:
        """Let the kernel count for these.

        :raises Unsupported: it does not let us.
        """

    def _go_on(self, window: Window[C], counter: C) -> None:
        """Called in each further tick of a window."""

    @abc.abstractmethod
    def _counted(self, window: Window[C], counter: C, window_s: float
                 ) -> tuple[DirectEvidence, ...]:
        """Return what the kernel counted, by workload."""

    @abc.abstractmethod
    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        """Return what the shares of the use tell in its place."""

    def facts(self) -> dict[str, Any]:
        """Return whether the kernel counts for us, and why not, for the
        status; ``None`` before anything was asked."""
        return {'on': self._counts, 'why': self.why}

    def answers(self, now: float) -> tuple[DirectEvidence, ...]:
        """Return what the last window has shown; each answer is taken once.

        :param now: CLOCK_MONOTONIC
        """
        answers, self._answers = self._answers, ()
        return answers if now - self._answered_s <= TOO_OLD_S else ()

    def follow(self, sample: HostSample) -> None:
        """Take note of the last sample."""
        self._sample = sample

    def ask(self, victims: Collection[str], now: float) -> None:
        """Go on for these workloads, or end the window; raises nothing.

        One that was answered after :data:`LONGEST_S` is to be let go first.

        :param now: CLOCK_MONOTONIC
        """
        self._ticks += 1
        self._done &= set(victims)
        window = self._window
        if window is not None:
            asked = set(window.victims) & set(victims)
            if asked and now - window.began_s < LONGEST_S:
                if window.counter is not None:
                    with contextlib.suppress(*_FAILURES):
                        self._go_on(window, window.counter)
                return
            self._end(window, now)
            self._done |= asked
        # In the order in which they are asked.
        if wanted := [victim for victim in dict.fromkeys(victims)
                      if victim not in self._done][:MOST_VICTIMS]:
            self._window = self._open(wanted, now)

    def close(self) -> None:
        """Take everything out of the kernel; nothing is answered."""
        window, self._window = self._window, None
        if window is not None:
            self._let_go(window)
        if self._closing is not None:
            self._closing.done.wait(CLOSE_S)

    def threads(self, workload: str, most: int) -> frozenset[int]:
        """Return the threads of a workload, so many at most.

        :raises OSError: they may not be read.
        """
        path = self._path(workload)
        listed = itertools.chain.from_iterable(
            self._owners.listed(path) if path else ())
        return frozenset(itertools.islice(listed, most))

    def _open(self, victims: Collection[str], now: float) -> Window[C]:
        counter, boot_s = None, time.clock_gettime(time.CLOCK_BOOTTIME)
        if not self.why or self._ticks >= self._retry_tick:
            try:
                counter = self._count(victims)
                self.why = ''
            except _FAILURES as exc:
                self.why = str(exc)
                self._retry_tick = self._ticks + RESCAN_TICKS
        self._counts = counter is not None
        key = 'direct evidence', self.resource
        if not self.why:
            self._logged.over(key)
        elif self._logged.due(key, self.why):
            LOG.warning('no direct evidence for %s, shares of their use are '
                        'taken instead, which tell less: %s', self.names,
                        self.why)
        return Window(now, boot_s, self._sample, tuple(victims), counter)

    def _path(self, workload: str) -> str | None:
        """The directory of a workload; ``None`` when it has none."""
        controller = self._owners.controller()
        return None if controller is None else self._domains.directory(
            workload, controller)

    def _workloads(self) -> dict[str, str]:
        """Return all workloads, by the paths of their cgroups."""
        samples = self._sample.workloads if self._sample else ()
        return {sample[0].id: sample[0].id for sample in samples
                } | self._domains.own

    def _end(self, window: Window[C], now: float) -> None:
        """Answer from a window, and close it."""
        self._window = None
        self._answered_s = now
        key = 'direct evidence', self.resource, 'window'
        try:
            if window.counter is not None:
                self._answers = self._counted(window, window.counter,
                                              now - window.began_s)
            elif window.first is not None and self._sample is not None:
                self._answers = tuple(self._shares(
                    window.first, self._sample, window.victims))
        except _FAILURES as exc:
            self._answers = ()
            if self._logged.due(key):
                LOG.warning('a window of direct evidence for %s is lost: %s',
                            self.names, exc)
        else:
            self._logged.over(key)
        finally:
            self._let_go(window)

    def _let_go(self, window: Window[C]) -> None:
        """Close a window, in a thread: the tick does not wait for the
        kernel."""
        if window.counter is None or isinstance(window.counter, Noted):
            return
        self._closing = self._closer.submit(self.names, window.counter.close)
        if isinstance(self._closing.error, calls.NoThread):
            window.counter.close()
