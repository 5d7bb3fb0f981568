# SPDX-License-Identifier: Apache-2.0

"""What the processes of one workload have waited for so far, and which
processes these are.

A workload's total is what its processes have added since the agent met them.
One that ends between two ticks takes what it added in the last one with it.
One that began since the last listing of who is there counts from zero, one
that is older and was moved in from what it has.  One that began before
accounting was on is not accounted, so nothing is known about the waits of
its workload for disks.

Operations and bytes come from the cgroup where it counts.  With version 1 it
may not (some kernels count for a device only once a limit was set on
it): what does not begin to count when processes wait or move bytes is not
used while the workload lives, except with version 2 once the controller is
enabled.  Then an operation is one wait of a process,
and the bytes are those of its threads.
"""

from __future__ import annotations

from collections.abc import Mapping
import os
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.drivers.kernel.taskstats import Waits
from scavenger_openstack import errors
from scavenger_openstack.types import WorkloadSample

NS_PER_S = 1e9

CLOCK_S = 1 / os.sysconf('SC_CLK_TCK')
"""The kernel tells the beginning of a process in steps of this, rounded
down."""

LIST_TICKS = 4
"""At most every so many ticks it is listed who is in a workload, where that
did not change the last time: half the cost of all."""

Answers = Mapping[tuple[int, int], Waits | None]
"""What was asked (:data:`taskstats.TASK` or :data:`taskstats.PROCESS`, and
its number), and what the kernel says."""


MOST_THREADS = 1000
"""A process waits for no more seconds per second than it has threads.  Linux
6.18 was seen to count all the time since boot for one wait, on a busy host."""


class _Process:
    __slots__ = ('accounted', 'last')

    def __init__(self, last: Waits, *, accounted: bool) -> None:
        self.last = last
        self.accounted = accounted


class Asked(NamedTuple):
    """What is asked about one workload in this tick.

    ``fresh``: the processes of which it is not known yet whether they are
    accounted.
    """

    totals: Totals
    sample: WorkloadSample
    processes: list[int]
    fresh: list[int]
    threads: list[int]
    listed: bool

    def questions(self) -> list[tuple[int, int]]:
        """Return what to ask the kernel."""
        return [*((taskstats.PROCESS, pid) for pid in self.processes),
                *((taskstats.TASK, pid) for pid in self.fresh),
                *((taskstats.TASK, tid) for tid in self.threads)]


class Totals:
    """The waits and bytes that the processes of one workload have added so
    far.

    :param mount: where its cgroup is
    :param root: where /proc is looked for
    """

    __slots__ = ('_bytes', '_counts', '_cpu_wait_ns', '_first', '_listed_s',
                 '_mount', '_nodes', '_period', '_rest', '_root', '_switched',
                 '_threads', '_wait_ns', '_waits', 'cost', 'created_s',
                 'processes', 'rank', 'turn')

    def __init__(self, created_s: float, mount: Mount, root: str) -> None:
        self.created_s = created_s
        self._mount = mount
        self._root = root
        self._nodes: list[tuple[str, int]] = []
        self.processes: dict[int, _Process] = {}
        self._threads: dict[int, int] = {}
        self._wait_ns = self._waits = self._bytes = self._cpu_wait_ns = 0
        self._counts: bool | None = None    # the cgroup itself
        self._switched = False
        self._first = True
        self._listed_s = 0.0
        self._period = 1    # ticks from one listing to the next
        self._rest = 0      # of these, how many are left
        # To choose what to look at:
        self.cost = 0       # cgroups, processes and threads, as last seen
        self.turn = -1      # the last in which it was asked about
        self.rank = (False, -1)

    # --- who

    def plan(self, sample: WorkloadSample, *, most: int, left: int
             ) -> Asked | None:
        """Return what to ask; ``None`` where that costs more than is ``left``.

        :raises TooMany: it costs more than ``most``
        :raises OSError: the cgroup is gone, or may not be read
        """
        listed = not (self._rest > 0 and self._nodes)
        if listed:
            pids, threads = self._list(sample, most)
        else:
            self._rest -= 1
            pids, threads = list(self.processes), list(self._threads)
        fresh = [pid for pid in pids if pid not in self.processes
                 or not self.processes[pid].accounted]
        self.cost = (len(self._nodes) * listed + len(pids) + len(threads)
                     + len(fresh))
        if self.cost > left:
            self._rest = 0
            if self.cost > most:
                raise cgroup_members.TooMany
            return None
        return Asked(self, sample, pids, fresh, threads, listed)

    def _list(self, sample: WorkloadSample, most: int
              ) -> tuple[list[int], list[int]]:
        """Processes of a workload, and threads if these are needed."""
        nodes, self._nodes = self._nodes, []
        if not nodes or any(os.stat(path).st_nlink != links
                            for path, links in nodes):
            nodes = cgroup_members.nodes_of(
                self._mount.path + sample[0].id, most)
        pids = cgroup_members.members(nodes, cgroup_members.PROCESSES, most)
        threads = []
        if self._trusts(sample) is not True:
            threads = cgroup_members.members(
                nodes, cgroup_members.threads_file(self._mount.version), most)
        self._nodes = nodes
        same = (not self._first and self.processes.keys() == set(pids)
                and self._threads.keys() == set(threads))
        self._period = min(LIST_TICKS, 2 * self._period) if same else 1
        self._rest = self._period - 1
        return pids, threads

    def _trusts(self, sample: WorkloadSample) -> bool | None:
        """Return whether the cgroup counts its I/O; ``None``: not known yet.

        With version 2 the controller comes and goes.
        """
        before, counts_io = self._counts, sample.io_bytes is not None
        if self._mount.version == 2 and (counts_io or before):
            self._counts = counts_io or None
        elif before is None and sample.io_bytes:
            self._counts = True
        self._switched |= before not in (None, self._counts)
        return self._counts

    # --- what

    def add(self, asked: Asked, answers: Answers, *, now: float,
            since_s: float) -> tuple[WorkloadSample, int]:
        """The sample with the totals brought up to now, and how many of the
        processes are not accounted.

        :param since_s: when accounting was seen to be on
        """
        before = self._waits, self._bytes
        born, unknown = self._add_waits(
            asked, answers, since_s,
            MOST_THREADS * max(1.0, now - self._listed_s) * NS_PER_S)
        self._add_bytes(asked, answers, born)
        self._first = False
        if asked.listed:
            self._listed_s = now
        sample = asked.sample
        counts = self._trusts(sample)
        if counts is None and (self._waits, self._bytes) != before:
            counts = self._counts = False
        if sample.run_delay_s is None:
            sample = sample._replace(
                run_delay_s=self._cpu_wait_ns / NS_PER_S)
        if not counts:
            sample = sample._replace(
                io_ops=None if unknown else self._waits,
                io_bytes=self._bytes)
        if self._switched:      # what counts now did so from another number
            self._switched = False
            sample = sample._replace(io_ops=None, io_bytes=None)
        if not unknown:
            sample = sample._replace(io_wait_s=self._wait_ns / NS_PER_S)
        return sample, unknown

    def _add_waits(self, asked: Asked, answers: Answers, since_s: float,
                   most_ns: float) -> tuple[set[int], int]:
        """Return the processes that began since the last listing, and how many
        of all are not accounted.

        :param most_ns: that a process can have waited since
        """
        before, self.processes = self.processes, {}
        born = set()
        unknown = 0
        for pid in asked.processes:
            cur = answers[taskstats.PROCESS, pid]
            if cur is None:
                self._rest = 0      # who else is gone, or new?
                continue
            process = before.get(pid)
            if process is not None and cur.runs < process.last.runs:
                process = None      # another one got its number
            if process is None:
                start_s = began_s(self._root, pid)
                process = _Process(cur, accounted=start_s > since_s)
                if start_s + CLOCK_S > self._listed_s and not self._first:
                    process.last = Waits(0, 0, 0)
                    born.add(pid)
            if not process.accounted:
                process.accounted = _is_accounted(
                    cur, answers.get((taskstats.TASK, pid)))
            last, process.last = process.last, cur
            self._waits += max(0, cur.waits - last.waits)
            if 0 < cur.wait_ns - last.wait_ns <= most_ns:
                self._wait_ns += cur.wait_ns - last.wait_ns
            self._cpu_wait_ns += max(0, cur.cpu_wait_ns - last.cpu_wait_ns)
            self.processes[pid] = process
            unknown += not process.accounted
        return born, unknown

    def _add_bytes(self, asked: Asked, answers: Answers, born: set[int]
                   ) -> None:
        before, self._threads = self._threads, {}
        for tid in asked.threads:
            cur = answers[taskstats.TASK, tid]
            if cur is not None:
                total = self._threads[tid] = cur.read_bytes + cur.write_bytes
                self._bytes += max(0, total - before.get(
                    tid, 0 if tid in born else total))


def _is_accounted(process: Waits, leader: Waits | None) -> bool:
    """Return whether a process has surely been accounted since it began.

    Its first thread shows that.  A thread that is younger than the switch
    proves nothing about the others, but where the kernel counts no copies it
    has to do.
    """
    if leader is None or leader.copies is None:
        return bool(process.waits)
    return bool(leader.waits or leader.copies)


def began_s(root: str, pid: int) -> float:
    """Return when a process began, CLOCK_BOOTTIME; 0 when it is gone."""
    try:
        return proc.started_ticks(pid, root) * CLOCK_S
    except errors.WorkloadGone:
        return 0.0
