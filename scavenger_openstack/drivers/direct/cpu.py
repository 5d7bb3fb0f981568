# SPDX-License-Identifier: Apache-2.0

"""Which workloads had the CPUs while others waited for one.

The kernel counts for each pair of a thread that waited and one that ran
meanwhile (:mod:`~scavenger_openstack.drivers.kernel.cpu_waits`), of all
threads of the host, but only while something is asked.  Whose the threads are
is looked up when the window ends.

Where the kernel lets us not, the shares of the CPU time have to do.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import heapq
import itertools
import logging
import math
from typing import Any

from scavenger_openstack.drivers.base import LOOK_TICKS
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.direct import cpu_pairs
from scavenger_openstack.drivers.direct import cpu_shares
from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import THE_HOST

LOG = logging.getLogger(__name__)

LONGEST_S = 10.0
"""A window ends after this, and an answer that nothing took is too old."""

MOST_LOOKED_UP = 1000
"""Threads of which /proc is read at the end of a window, those that ran for
longest: some 20 ms.  What others ran is nobody's."""

CLOSE_S = 2.0
"""So long the end of the agent waits until the kernel has let go of the
programs; they end with the process in any case."""

_FAILURES = (errors.DriverError, cgroup_members.TooMany, OSError, ValueError)


class _Window:
    """What is asked since ``began_s``.

    ``waits``: ``None`` where the kernel does not count for us.  ``threads``:
    those of each victim when it was first asked about.  ``first``: the sample
    before.
    """

    __slots__ = ('began_s', 'first', 'threads', 'waits')

    def __init__(self, began_s: float, first: HostSample | None,
                 waits: cpu_waits.CpuWaits | None) -> None:
        self.began_s = began_s
        self.first = first
        self.waits = waits
        self.threads: dict[str, frozenset[int]] = {}

    def close(self) -> None:
        if self.waits is not None:
            self.waits.close()


class CpuEvidence:
    """Direct evidence for CPUs.

    :param mounts: where cgroup controllers are mounted; may change
    :param domains: the cgroups of VMs
    :param root_dir: where /proc is looked for
    :param logged: what was logged of this host
    """

    def __init__(self, mounts: Mapping[str, Mount], domains: DomainCgroups,
                 root_dir: str = '/',
                 logged: log_once.LogOnce | None = None) -> None:
        self._mounts = mounts
        self._domains = domains
        self._owners = thread_owners.ThreadOwners(mounts, root_dir)
        self._logged = logged or log_once.LogOnce()
        self._closer = calls.Executor('direct evidence', CLOSE_S)
        self._closing: calls.Call | None = None
        self._window: _Window | None = None
        self._done: set[str] = set()
        self._answers: tuple[DirectEvidence, ...] = ()
        self._answered_s = -math.inf
        self._sample: HostSample | None = None
        self._ticks = 0
        self._retry_tick = 0
        self._counts: bool | None = None
        self.why = ''
        """Why the kernel does not count for us; '' while it does, and before
        anything was asked."""

    def facts(self) -> dict[str, Any]:
        """Whether the kernel counts for us, and why not, for the status;
        ``None`` before anything was asked."""
        return {'on': self._counts, 'why': self.why}

    def answers(self, now: float) -> tuple[DirectEvidence, ...]:
        """What the last window has shown; each answer is taken once.

        :param now: CLOCK_MONOTONIC
        """
        answers, self._answers = self._answers, ()
        return answers if now - self._answered_s <= LONGEST_S else ()

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
        wanted = set(victims) - self._done
        window = self._window
        if window is None and wanted:
            window = self._window = self._open(now)
        if window is None:
            return
        if wanted and now - window.began_s < LONGEST_S:
            for victim in wanted - window.threads.keys():
                threads = window.threads[victim] = self._threads(victim)
                if window.waits is not None:
                    window.waits.watch(threads)
        else:
            self._end(window, now)
            self._done |= wanted & window.threads.keys()

    def close(self) -> None:
        """Take everything out of the kernel; nothing is answered."""
        window, self._window = self._window, None
        if window is not None:
            self._let_go(window)
        if self._closing is not None:
            self._closing.done.wait(CLOSE_S)

    def _open(self, now: float) -> _Window:
        waits = None
        if not self.why or self._ticks >= self._retry_tick:
            try:
                if self._owners.controller() is None:
                    raise errors.Unsupported(
                        f'cannot {cpu_waits.PURPOSE}: no cgroup controller '
                        'for CPUs is mounted')
                waits = cpu_waits.CpuWaits()
                self.why = ''
            except _FAILURES as exc:
                self.why = str(exc)
                self._retry_tick = self._ticks + LOOK_TICKS
        self._counts = waits is not None
        if not self.why:
            self._logged.over('direct evidence')
        elif self._logged.due('direct evidence', self.why):
            LOG.warning('no direct evidence for CPUs, shares of the CPU time '
                        'are used instead, which tell less: %s', self.why)
        return _Window(now, self._sample, waits)

    def _threads(self, victim: str) -> frozenset[int]:
        """All that a workload has now."""
        try:
            path = self._path(victim)
            return self._owners.listed(path) if path else frozenset()
        except (cgroup_members.TooMany, OSError, ValueError) as exc:
            if self._logged.due(('direct evidence', victim)):
                LOG.warning('%s: its threads cannot be listed, so there is '
                            'no direct evidence for it: %s', victim,
                            'more than '
                            f'{thread_owners.MOST} threads or cgroups'
                            if isinstance(exc, cgroup_members.TooMany)
                            else exc)
            return frozenset()

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

    def _end(self, window: _Window, now: float) -> None:
        """Answer from a window, and close it."""
        self._window = None
        self._answered_s = now
        try:
            if window.waits is not None:
                self._answers = self._counted(window, window.waits,
                                              now - window.began_s)
            elif window.first is not None and self._sample is not None:
                self._answers = tuple(cpu_shares.evidence(
                    window.first, self._sample, window.threads))
        except _FAILURES as exc:
            self._answers = ()
            if self._logged.due(('direct evidence', 'window')):
                LOG.warning('a window of direct evidence for CPUs is lost: '
                            '%s', exc)
        else:
            self._logged.over(('direct evidence', 'window'))
        finally:
            self._let_go(window)

    def _let_go(self, window: _Window) -> None:
        """Close a window, in a thread: the tick does not wait for the
        kernel."""
        self._closing = self._closer.submit('cpu', window.close)
        if isinstance(self._closing.error, calls.NoThread):
            window.close()

    def _counted(self, window: _Window, kernel: cpu_waits.CpuWaits,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        """Whose the threads are that waited and ran.

        Others may have the ids of threads that ended.  So what ended is read
        last; of that the kernel tells the cgroup, if it is of version 2.
        """
        waits, owners = kernel.waits(), self._owners
        threads = {victim: self._threads(victim) for victim in window.threads}
        there = frozenset[int]().union(*threads.values())
        mine = there.union(*window.threads.values())
        workloads = self._workloads()
        runners = _largest({
            tid: seconds for tid, seconds in cpu_pairs.runners(
                waits, mine).items() if tid not in there})
        ran = {tid: owner for tid in runners
               if (owner := owners.owner(tid, workloads)) is not None}
        names = {tid: owners.name(tid) for tid, owner in ran.items()
                 if owner == THE_HOST}
        lasting = {tid: waits.lasting[tid] for tid in _largest(
            {tid: seconds for tid, seconds in waits.lasting.items()
             if tid in mine}) if owners.runnable(tid)}
        ended = kernel.ended()
        victims = {tid: victim for victim, now in threads.items()
                   for tid in now - ended.keys()}
        counted = {tid for pair in waits.behind for tid in pair}
        gone = {tid: victim for victim, before in window.threads.items()
                for tid in before & ended.keys() & counted}
        victims |= {tid: gone[tid] for tid in itertools.islice(
            gone, MOST_LOOKED_UP) if not owners.lives(tid)}
        inodes = owners.inodes(workloads) if ended.keys() & runners else {}
        ran = {tid: owner for tid, owner in ran.items() if tid not in ended
               } | {tid: inodes[ended[tid]] for tid in runners
                    if ended.get(tid) in inodes and not owners.lives(tid)}
        return cpu_pairs.evidence(
            [victim for victim, before in window.threads.items()
             if before or threads[victim]],
            waits._replace(lasting=lasting), window_s, victims=victims,
            owners=ran | victims, names=names)

    def _workloads(self) -> dict[str, str]:
        """All workloads, by the paths of their cgroups."""
        samples = self._sample.workloads if self._sample else ()
        return {sample[0].id: sample[0].id for sample in samples
                } | self._domains.own


def _largest(seconds: Mapping[int, float]) -> list[int]:
    """The threads with the most, as many as are looked up."""
    return heapq.nlargest(MOST_LOOKED_UP, seconds, key=seconds.__getitem__)
