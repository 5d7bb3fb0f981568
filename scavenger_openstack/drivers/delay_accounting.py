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


"""How long cgroups wait, for disks and for CPUs: ``io_wait``, ``run_delay``.

From the kernel's delay accounting, process by process, while the operator
has it on (``kernel.task_delayacct``); no cgroup counts it.  Off, nothing is
read and the signal is unknown.

A workload's total is what its processes have added since the agent met them.
One that ends between two ticks takes what it added in the last one with it.
One that began since the last listing of who is there counts from zero, one
that is older and was moved in from what it has.  One that began before
accounting was on is not accounted, so nothing is known about its workload.

Operations and bytes come from the cgroup where it counts.  With version 1 it
may not (some kernels count for a device only once somebody set a limit on
it): what does not begin to count when processes wait or move bytes is not
used while the workload lives.  Then an operation is one wait of a process,
and the bytes are those of its threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import errno
import logging
import os
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.drivers.cgroup_files import GONE
from scavenger_openstack.drivers.cgroup_files import Mount
from scavenger_openstack.drivers import cgroup_tasks
from scavenger_openstack.drivers.cgroup_tasks import CLOCK_S
from scavenger_openstack.drivers import taskstats
from scavenger_openstack.drivers.taskstats import Waits
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

NS_PER_S = 1e9

TURN_TICKS = 60
"""When not all can be read, some are for so many ticks and then others are:
a rate takes two ticks in a row, a detector some tens."""

LIST_TICKS = 4
"""At most every so many ticks it is listed who is in a workload, where that
did not change the last time: half the cost of all."""

SWITCH = '/proc/sys/kernel/task_delayacct'


class Settings(NamedTuple):
    """See the options ``io_wait_*`` of the section ``[cgroups]``."""

    tasks: int = 500
    cpu_s: float = 0.005


class _Process:
    __slots__ = ('accounted', 'last')

    def __init__(self, last: Waits, *, accounted: bool) -> None:
        self.last = last
        self.accounted = accounted


class _Workload:
    """What the processes of one workload have added so far."""

    __slots__ = ('bytes', 'counts', 'created_s', 'first', 'listed_s',
                 'nodes', 'period', 'processes', 'rest', 'threads',
                 'cpu_wait_ns', 'wait_ns', 'waits')

    def __init__(self, created_s: float) -> None:
        self.created_s = created_s
        self.nodes: list[tuple[str, int]] = []
        self.processes: dict[int, _Process] = {}
        self.threads: dict[int, int] = {}
        self.wait_ns = self.waits = self.bytes = self.cpu_wait_ns = 0
        self.counts: bool | None = None     # the cgroup itself
        self.first = True
        self.listed_s = 0.0
        self.period = 1     # ticks from one listing to the next
        self.rest = 0       # of these, how many are left


class _Asked(NamedTuple):
    """What is asked about one workload in this tick."""

    one: _Workload
    sample: WorkloadSample
    processes: list[int]
    fresh: list[int]
    threads: list[int]
    listed: bool


class DelayAccounting:
    """Adds waits, and operations and bytes of I/O, to samples of workloads.

    :param mounts: where cgroup controllers are mounted
    :param root_dir: where /proc is looked for
    """

    def __init__(self, settings: Settings, mounts: Mapping[str, Mount],
                 root_dir: str = '/') -> None:
        self._settings = settings
        self._root = root_dir.rstrip('/')
        self._mount = next((mounts[name] for name in
                            ('blkio', 'cpuacct', 'memory', 'cpu', 'unified')
                            if name in mounts), None)
        self._kernel: taskstats.Taskstats | None = None
        self._switch: int | None = None
        self._known: dict[str, _Workload] = {}
        self._why = 'nothing was looked at so far'
        self._refused = ''
        self._said: set[str] = set()
        self._first = ''
        self._turn = 0
        self._since_s = 0.0
        self._measured = 0

    def facts(self) -> dict[str, Any]:
        """Whether the signal is there, and why not, for the status."""
        return {'on': not self._why, 'why': self._why,
                'measured_workloads': self._measured}

    def add(self, samples: tuple[WorkloadSample, ...], now: float
            ) -> tuple[WorkloadSample, ...]:
        """The samples with what their processes waited for, where known.

        :param now: the time of these samples, CLOCK_BOOTTIME
        """
        self._measured = 0
        why = self._why_not()
        if why != self._why:
            self._say_state(why)
            self._since_s = now
        self._why = why
        if why:
            self._known.clear()
            return samples
        self._follow(samples)
        asked, unread = self._collect(samples)
        try:
            answers = self._ask(asked)
        except (OSError, ValueError) as exc:
            self._say('answer', 'io_wait: the kernel does not answer as '
                      'expected: %s; unknown in ticks when that happens', exc)
            self._hang_up()
            return samples
        found = {one.sample[0].id: self._account(one, answers, now)
                 for one in asked}
        self._measured = sum(sample.io_wait_s is not None
                             for sample in found.values())
        self._take_turns(samples, unread)
        return tuple(found.get(sample[0].id, sample) for sample in samples)

    def close(self) -> None:
        """Give back what is kept open."""
        self._hang_up()
        if self._switch is not None:
            os.close(self._switch)
            self._switch = None
        self._known.clear()

    # --- whether

    def _why_not(self) -> str:
        """Empty when the signal can be had."""
        if not self._settings.tasks:
            return '[cgroups] delay_tasks is 0'
        if self._refused:
            return self._refused
        if self._mount is None:
            return 'no cgroup controller is mounted'
        try:
            if self._switch is None:
                self._switch = os.open(self._root + SWITCH,
                                       os.O_RDONLY | os.O_CLOEXEC)
            on = os.pread(self._switch, 8, 0).strip() == b'1'
        except OSError as exc:
            return (f'{self._root}{SWITCH}: {exc.strerror}; delay accounting '
                    'takes a kernel of 5.14 or later that was built with it')
        if not on:
            return ('delay accounting is off: sysctl kernel.task_delayacct=1 '
                    'switches it on for processes that begin from then on')
        if self._kernel is None:
            try:
                self._kernel = taskstats.Taskstats()
            except (OSError, ValueError) as exc:
                self._refused = _advice(exc)
        return self._refused

    def _say_state(self, why: str) -> None:
        if not why:
            LOG.info('delays are measured, by delay accounting')
        elif self._refused or not self._why:
            LOG.warning('delays are not measured: %s', why)
        else:
            LOG.info('delays are not measured: %s', why)

    def _say(self, key: str, text: str, *args: object) -> None:
        """Warn about one thing once."""
        if key not in self._said:
            LOG.warning(text, *args)
        self._said.add(key)

    def _hang_up(self) -> None:
        """The next tick opens a new conversation."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    # --- who

    def _follow(self, samples: Sequence[WorkloadSample]) -> None:
        known = self._known
        for name in known.keys() - {s[0].id for s in samples}:
            del known[name]
        for sample in samples:
            who = sample[0]
            one = known.get(who.id)
            if one is None or one.created_s != who.created_s:
                known[who.id] = _Workload(who.created_s)

    def _collect(self, samples: Sequence[WorkloadSample]
                 ) -> tuple[list[_Asked], list[WorkloadSample]]:
        """What to ask, and the workloads that must wait for their turn."""
        start = next((at for at, sample in enumerate(samples)
                      if sample[0].id == self._first), 0)
        order = [*samples[start:], *samples[:start]]
        until = time.thread_time() + self._settings.cpu_s
        left = self._settings.tasks
        asked: list[_Asked] = []
        for at, sample in enumerate(order):
            if time.thread_time() > until:
                return asked, order[at:]
            try:
                one, cost = self._look(sample, left)
            except cgroup_tasks.TooMany:
                if left < self._settings.tasks:
                    return asked, order[at:]
                self._say(sample[0].id, '%s: io_wait is unknown: it has more '
                          'than [cgroups] delay_tasks = %s processes or '
                          'threads', sample[0].id, left)
                continue
            except OSError as exc:
                self._known[sample[0].id].nodes = []
                if exc.errno not in GONE:
                    self._say('read', '%s: io_wait is unknown: its processes '
                              'cannot be listed: %s', sample[0].id,
                              exc.strerror)
                continue
            asked.append(one)
            left -= cost
        return asked, []

    def _look(self, sample: WorkloadSample, left: int) -> tuple[_Asked, int]:
        """What to ask about a workload, and what that costs.

        :raises cgroup_tasks.TooMany: more than ``left``
        :raises OSError: it is gone, or may not be read
        """
        one = self._known[sample[0].id]
        if one.rest > 0 and one.nodes:
            one.rest -= 1
            pids, threads = list(one.processes), list(one.threads)
            cost, listed = len(pids) + len(threads), False
        else:
            pids, threads = self._list(one, sample, left)
            cost = len(one.nodes) + len(pids) + len(threads)
            listed = True
        fresh = [pid for pid in pids if pid not in one.processes
                 or not one.processes[pid].accounted]
        cost += len(fresh)
        if cost > left:
            one.rest = 0
            raise cgroup_tasks.TooMany
        return _Asked(one, sample, pids, fresh, threads, listed), cost

    def _list(self, one: _Workload, sample: WorkloadSample, left: int
              ) -> tuple[list[int], list[int]]:
        """Processes of a workload, and threads if these are needed."""
        assert self._mount is not None
        nodes, one.nodes = one.nodes, []
        if not nodes or any(os.stat(path).st_nlink != links
                            for path, links in nodes):
            nodes = cgroup_tasks.nodes(self._mount.path + sample[0].id, left)
        pids = cgroup_tasks.members(nodes, 'cgroup.procs', left)
        threads = []
        if self._trusts(one, sample) is not True:
            threads = cgroup_tasks.members(
                nodes, 'tasks' if self._mount.version == 1
                else 'cgroup.threads', left)
        one.nodes = nodes
        same = (not one.first and one.processes.keys() == set(pids)
                and one.threads.keys() == set(threads))
        one.period = min(LIST_TICKS, 2 * one.period) if same else 1
        one.rest = one.period - 1
        return pids, threads

    def _trusts(self, one: _Workload, sample: WorkloadSample) -> bool | None:
        """Whether the cgroup counts its I/O; ``None``: nobody knows yet."""
        if one.counts is None:
            assert self._mount is not None
            if sample.io_bytes or (sample.io_bytes is not None
                                   and self._mount.version == 2):
                one.counts = True
        return one.counts

    def _take_turns(self, samples: Sequence[WorkloadSample],
                    unread: Sequence[WorkloadSample]) -> None:
        if not unread:
            return
        self._say('turns', 'io_wait of only %s of %s workloads is known at a '
                  'time, in turns of %s ticks: raise [cgroups] delay_tasks '
                  'or delay_cpu_s, at the cost of CPU',
                  len(samples) - len(unread), len(samples), TURN_TICKS)
        self._turn += 1
        if self._turn >= TURN_TICKS:
            self._turn = 0
            self._first = unread[0][0].id

    # --- what

    def _ask(self, asked: Sequence[_Asked]
             ) -> dict[tuple[int, int], Waits | None]:
        about = list(dict.fromkeys(
            question for one in asked for question in (
                *((taskstats.PROCESS, pid) for pid in one.processes),
                *((taskstats.TASK, pid) for pid in one.fresh),
                *((taskstats.TASK, tid) for tid in one.threads))))
        assert self._kernel is not None
        return dict(zip(about, self._kernel.ask(about), strict=True))

    def _account(self, asked: _Asked,
                 answers: Mapping[tuple[int, int], Waits | None], now: float
                 ) -> WorkloadSample:
        """The sample of one workload, its totals brought up to now."""
        one, sample = asked.one, asked.sample
        known, one.processes = one.processes, {}
        born = set()
        unknown = 0
        before = one.waits, one.bytes
        for pid in asked.processes:
            cur = answers[taskstats.PROCESS, pid]
            if cur is None:
                one.rest = 0    # who else is gone, or new?
                continue
            process = known.get(pid)
            if process is not None and cur.runs < process.last.runs:
                process = None      # another one got its number
            if process is None:
                began_s = cgroup_tasks.began_s(self._root, pid)
                process = _Process(cur, accounted=began_s > self._since_s)
                if began_s + CLOCK_S > one.listed_s and not one.first:
                    process.last = Waits(0, 0, 0)
                    born.add(pid)
            if not process.accounted:
                process.accounted = _is_accounted(
                    cur, answers.get((taskstats.TASK, pid)))
            one.waits += max(0, cur.waits - process.last.waits)
            one.wait_ns += max(0, cur.wait_ns - process.last.wait_ns)
            one.cpu_wait_ns += max(
                0, cur.cpu_wait_ns - process.last.cpu_wait_ns)
            process.last = cur
            one.processes[pid] = process
            unknown += not process.accounted
        self._add_bytes(asked, answers, born)
        one.first = False
        if asked.listed:
            one.listed_s = now
        counts = self._trusts(one, sample)
        if counts is None and (one.waits, one.bytes) != before:
            counts = one.counts = False
        if sample.run_delay_s is None:
            sample = sample._replace(run_delay_s=one.cpu_wait_ns / NS_PER_S)
        if counts:
            sample = sample._replace(io_wait_s=one.wait_ns / NS_PER_S)
        else:
            sample = sample._replace(
                io_wait_s=one.wait_ns / NS_PER_S, io_ops=one.waits,
                io_bytes=one.bytes)
        if unknown:
            self._say(f'old {sample[0].id}', '%s: io_wait is unknown: %s of '
                      'its processes began before delay accounting was on; '
                      'restart it', sample[0].id, unknown)
            return sample._replace(
                io_wait_s=None, io_ops=asked.sample.io_ops if counts
                else None)
        return sample

    def _add_bytes(self, asked: _Asked,
                   answers: Mapping[tuple[int, int], Waits | None],
                   born: set[int]) -> None:
        one = asked.one
        known, one.threads = one.threads, {}
        for tid in asked.threads:
            cur = answers[taskstats.TASK, tid]
            if cur is not None:
                total = one.threads[tid] = cur.read_bytes + cur.write_bytes
                one.bytes += max(0, total - known.get(
                    tid, 0 if tid in born else total))


def _is_accounted(process: Waits, leader: Waits | None) -> bool:
    """Whether a process has surely been accounted since it began.

    Its first thread shows that.  A thread that is younger than the switch
    proves nothing about the others, but where the kernel counts no copies it
    has to do.
    """
    if leader is None or leader.copies is None:
        return bool(process.waits)
    return bool(leader.waits or leader.copies)


def _advice(exc: OSError | ValueError) -> str:
    if isinstance(exc, ValueError):
        return f'taskstats of this kernel is not understood here: {exc}'
    if exc.errno in (errno.EPERM, errno.EACCES):
        return 'taskstats is not permitted: give the agent CAP_NET_ADMIN, ' \
               'which its systemd unit has'
    if exc.errno == errno.ENOENT:
        return 'this kernel has no taskstats, or the agent runs in a ' \
               'network namespace of its own'
    return f'taskstats: {exc.strerror}'
