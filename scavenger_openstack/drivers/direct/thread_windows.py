# SPDX-License-Identifier: Apache-2.0

"""Windows in which the kernel counts by thread or process.

Those of the victims are listed some at a time, in each tick; whose those are
that held the resource is looked up at the end.
"""

from __future__ import annotations

import abc
import collections
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import heapq
import logging
from typing import Any
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar

from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel.watched_threads import Ended
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import DirectEvidence

LOG = logging.getLogger(__name__)

MOST_LOOKED_UP = 1000
"""Processes of which /proc is read at the end of a window, those that held the
resource for longest: some 30 ms.  Others are known by their cgroups alone, if
these are of version 2."""

MOST_LISTED, CGROUP_COST = 6000, 20
"""Threads or processes of all victims that are listed in a tick, where a
cgroup costs as much as 20 threads: some 10 ms.  The next tick goes on."""

LEAST_EXPLAINED = 0.5
"""Of what a victim waited: where less is known, shares of use tell more."""


class Counter(windows.Counter, Protocol):
    """A counter of the kernel in one window."""

    def watch(self, victims: Mapping[str, Collection[int]]) -> None:
        ...

    def ended(self) -> Ended:
        ...


C = TypeVar('C', bound=Counter)


class Holders(NamedTuple):
    """Whose those are that held a resource, by process and cgroup, and the
    names of processes of the host."""

    owners: Mapping[tuple[int, int], str]
    names: Mapping[int, str]


class ThreadWindows(windows.Windows[C]):
    """Direct evidence for one resource, by threads or processes."""

    file: str | None = None
    """That lists what waits in a cgroup; ``None``: threads."""

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        super().__init__(mounts, domains, root_dir, logged)
        # Of the threads of each victim of this window, what is still to be
        # listed; the victims that have any; those of which all were.
        self._listings: dict[str, Iterator[list[int]] | None] = {}
        self._listed: set[str] = set()
        self._complete: set[str] = set()

    @abc.abstractmethod
    def _watch(self, tasks: Mapping[str, Collection[int]]) -> C:
        """Let the kernel count for these, by victim.

        :raises Unsupported: it does not let us.
        """

    def facts(self) -> dict[str, Any]:
        """As the base; ``incomplete``: the victims of this window, or of the
        last, that have more than was listed so far; not there if there are
        none."""
        incomplete = self._listings.keys() - self._complete
        return super().facts() | ({'incomplete': sorted(incomplete)}
                                  if incomplete else {})

    def _count(self, victims: Collection[str]) -> C:
        if self._owners.controller() is None:
            raise errors.Unsupported(
                f'cannot {self.purpose}: no cgroup controller for CPUs is '
                'mounted')
        self._listings = dict.fromkeys(victims)
        self._listed, self._complete = set(), set()
        return self._watch(self._tasks())

    def _go_on(self, window: windows.Window[C], counter: C) -> None:
        """Watch threads that may have begun since."""
        counter.watch(self._tasks())

    def _tasks(self) -> dict[str, list[int]]:
        """Some of what each victim has now, as much as one tick may list."""
        tasks: dict[str, list[int]] = {}
        for victim, listing in self._listings.items():
            tasks[victim], left = [], MOST_LISTED // len(self._listings)
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
                    self._complete.add(victim)
            except (OSError, ValueError) as exc:
                listing = None
                if self._logged.due(('direct evidence', victim)):
                    LOG.warning('%s: its threads cannot be listed, so there '
                                'is no direct evidence for it: %s', victim,
                                exc)
            self._listings[victim] = listing
            if tasks[victim]:
                self._listed.add(victim)
        return tasks

    def or_shares(self, window: windows.Window[C],
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

    def _holders(self, window: windows.Window[C], counter: C,
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
