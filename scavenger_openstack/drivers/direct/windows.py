# SPDX-License-Identifier: Apache-2.0

"""Windows in which the kernel counts, and the answers at their ends.

The same for each resource: the kernel counts only while something is asked,
and whose what it counted is, is looked up when the window ends.  Where the
kernel lets us not, the shares of the resource's use have to do.
"""

from __future__ import annotations

import abc
import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import heapq
import logging
import math
import time
from typing import Any
from typing import Generic
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

from scavenger_openstack.drivers.base import LOOK_TICKS
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel.watched_threads import Ended
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

MOST_LOOKED_UP = 1000
"""Processes of which /proc is read at the end of a window, those that held the
resource for longest: some 30 ms.  Others are known by their cgroups alone, if
these are of version 2."""

MOST_LISTED, CGROUP_COST = 6000, 20
"""Threads or processes of all victims that are listed in a tick, where a
cgroup costs as much as 20 threads: some 10 ms.  The next tick goes on."""

LEAST_EXPLAINED = 0.5
"""Of what a victim waited: where less is known, shares of use tell more."""

CLOSE_S = 2.0
"""So long the end of the agent waits until the kernel has let go of the
programs; they end with the process in any case."""

_FAILURES = (errors.DriverError, OSError, ValueError)


class Counter(Protocol):
    """What the kernel counts in one window."""

    def watch(self, victims: Mapping[str, Collection[int]]) -> None:
        ...

    def ended(self) -> Ended:
        ...

    def close(self) -> None:
        ...


C = TypeVar('C', bound=Counter)


class Window(NamedTuple, Generic[C]):
    """What is asked since ``began_s`` of CLOCK_MONOTONIC, which is ``boot_s``
    of CLOCK_BOOTTIME.

    ``first``: the sample before.  ``listings``: of the threads or processes of
    each victim, what is still to be listed.  ``listed``: the victims that have
    any.  ``complete``: those of which all were listed.  ``counter``: ``None``
    where the kernel does not count for us.
    """

    began_s: float
    boot_s: float
    first: HostSample | None
    listings: dict[str, Iterator[list[int]] | None]
    listed: set[str]
    complete: set[str]
    counter: C | None


class Holders(NamedTuple):
    """Whose those are that held a resource, by process and cgroup, and the
    names of processes of the host."""

    owners: Mapping[tuple[int, int], str]
    names: Mapping[int, str]


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
    file: str | None = None
    """That lists what waits in a cgroup; ``None``: threads."""

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        self._mounts = mounts
        self._domains = domains
        self._owners = thread_owners.ThreadOwners(mounts, root_dir)
        self._logged = logged or log_once.LogOnce()
        self._closer = calls.Executor('direct evidence', CLOSE_S)
        self._closing: calls.Call | None = None
        self._window: Window[C] | None = None
        self._done: set[str] = set()
        self._answers: tuple[DirectEvidence, ...] = ()
        self._answered_s = -math.inf
        self._sample: HostSample | None = None
        self._ticks = 0
        self._retry_tick = 0
        self._counts: bool | None = None
        self._incomplete: set[str] = set()
        self.why = ''

    @abc.abstractmethod
    def _count(self, tasks: Mapping[str, Collection[int]]) -> C:
        """Let the kernel count for these, by victim.

        :raises Unsupported: it does not let us.
        """

    @abc.abstractmethod
    def _counted(self, window: Window[C], counter: C, window_s: float
                 ) -> tuple[DirectEvidence, ...]:
        """What the kernel counted, by workload."""

    @abc.abstractmethod
    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        """What the shares of the use tell in its place."""

    def facts(self) -> dict[str, Any]:
        """Whether the kernel counts for us, and why not, for the status;
        ``None`` before anything was asked.  ``incomplete``: the victims of
        this window, or of the last, that have more than was listed so far;
        not there if there are none."""
        return {'on': self._counts, 'why': self.why} | (
            {'incomplete': sorted(self._incomplete)}
            if self._incomplete else {})

    def answers(self, now: float) -> tuple[DirectEvidence, ...]:
        """What the last window has shown; each answer is taken once.

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
            asked = window.listings.keys() & victims
            if asked and now - window.began_s < LONGEST_S:
                if window.counter is not None:
                    # Others may have begun since.
                    with contextlib.suppress(*_FAILURES):
                        window.counter.watch(self._tasks(window))
                return
            self._end(window, now)
            self._done |= asked
        # In the order in which they are asked.
        if wanted := [one for one in dict.fromkeys(victims)
                      if one not in self._done][:MOST_VICTIMS]:
            self._window = self._open(wanted, now)

    def close(self) -> None:
        """Take everything out of the kernel; nothing is answered."""
        window, self._window = self._window, None
        if window is not None:
            self._let_go(window)
        if self._closing is not None:
            self._closing.done.wait(CLOSE_S)

    def _open(self, victims: Collection[str], now: float) -> Window[C]:
        counter = None
        window: Window[C] = Window(
            now, time.clock_gettime(time.CLOCK_BOOTTIME), self._sample,
            dict.fromkeys(victims), set(), set(), None)
        if not self.why or self._ticks >= self._retry_tick:
            try:
                if self._owners.controller() is None:
                    raise errors.Unsupported(
                        f'cannot {self.purpose}: no cgroup controller for '
                        'CPUs is mounted')
                counter = self._count(self._tasks(window))
                self.why = ''
            except _FAILURES as exc:
                self.why = str(exc)
                self._retry_tick = self._ticks + LOOK_TICKS
        self._counts = counter is not None
        key = 'direct evidence', self.resource
        if not self.why:
            self._logged.over(key)
        elif self._logged.due(key, self.why):
            LOG.warning('no direct evidence for %s, shares of their use are '
                        'taken instead, which tell less: %s', self.names,
                        self.why)
        return window._replace(counter=counter)

    def _tasks(self, window: Window[C]) -> dict[str, list[int]]:
        """Some of what each victim has now, as much as one tick may list."""
        tasks: dict[str, list[int]] = {}
        for victim, listing in window.listings.items():
            tasks[victim], left = [], MOST_LISTED // len(window.listings)
            try:
                path = self._path(victim)
                listing = listing or (self._owners.listed(path, self.file)
                                      if path else iter(()))
                for in_cgroup in listing:
                    tasks[victim] += in_cgroup
                    left -= CGROUP_COST + len(in_cgroup)
                    if left <= 0:
                        break
                else:
                    listing = None
                    window.complete.add(victim)
            except (OSError, ValueError) as exc:
                listing = None
                if self._logged.due(('direct evidence', victim)):
                    LOG.warning('%s: its threads cannot be listed, so there '
                                'is no direct evidence for it: %s', victim,
                                exc)
            window.listings[victim] = listing
            if tasks[victim]:
                window.listed.add(victim)
        self._incomplete = window.listings.keys() - window.complete
        return tasks

    def _path(self, workload: str) -> str | None:
        """The directory of a workload; ``None`` when it has none."""
        controller = self._owners.controller()
        machine = self._domains.machines.get(workload)
        if controller is None:
            return None
        if machine is not None:
            return machine.path(controller)
        return (self._mounts[controller].path + workload
                if workload.startswith('/') else None)

    def _workloads(self) -> dict[str, str]:
        """All workloads, by the paths of their cgroups."""
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
                self._answers = self._or_shares(window, self._counted(
                    window, window.counter, now - window.began_s))
            elif window.first is not None and self._sample is not None:
                self._answers = tuple(self._shares(
                    window.first, self._sample, window.listings))
        except _FAILURES as exc:
            self._answers = ()
            if self._logged.due(key):
                LOG.warning('a window of direct evidence for %s is lost: %s',
                            self.names, exc)
        else:
            self._logged.over(key)
        finally:
            self._let_go(window)

    def _or_shares(self, window: Window[C],
                   answers: tuple[DirectEvidence, ...]
                   ) -> tuple[DirectEvidence, ...]:
        """Shares of use instead of answers that tell less: what is divided
        among many processes that soon end is in the use of their cgroup."""
        unexplained = [
            answer.workload for answer in answers
            if sum(answer.holders.values(), answer.idle_s)
            < LEAST_EXPLAINED * answer.waited_s]
        if not unexplained or window.first is None or self._sample is None:
            return answers
        shares = {share.workload: share for share in self._shares(
            window.first, self._sample, unexplained) if share.waited_s > 0}
        return tuple(shares.get(answer.workload, answer)
                     for answer in answers)

    def _holders(self, window: Window[C], counter: C,
                 seconds: Mapping[tuple[int, int], float]) -> Holders:
        """Whose those are that held the resource, by process and cgroup.

        A process that is there is known if it was before the window, or if
        none of its id has ended since.  Another is known by its cgroup, as
        the kernel noted it, if that is of version 2.
        """
        workloads = self._workloads()
        by_process: dict[int, float] = collections.defaultdict(float)
        for (pid, _), held_s in seconds.items():
            by_process[pid] += held_s
        by_process.pop(0, None)
        there = {
            pid: process for pid in heapq.nlargest(
                MOST_LOOKED_UP, by_process, key=by_process.__getitem__)
            if (process := self._owners.process(pid, workloads)) is not None}
        # Read last: so it was this process that had the id before, too.
        ended = counter.ended()
        processes = {
            pid: process for pid, process in there.items()
            if process.began_s <= window.boot_s - thread_owners.TICK_S
            or (ended.all and pid not in ended.processes)}
        inodes = self._owners.inodes(workloads, {
            cgroup for pid, cgroup in seconds
            if pid not in processes and cgroup})
        owners = {(pid, cgroup): processes[pid].owner if pid in processes
                  else inodes[cgroup] for pid, cgroup in seconds
                  if pid in processes or cgroup in inodes}
        return Holders(owners, {pid: process.name for pid, process
                                in processes.items() if process.name})

    def _let_go(self, window: Window[C]) -> None:
        """Close a window, in a thread: the tick does not wait for the
        kernel."""
        if window.counter is None:
            return
        self._closing = self._closer.submit(self.names, window.counter.close)
        if isinstance(self._closing.error, calls.NoThread):
            window.counter.close()
