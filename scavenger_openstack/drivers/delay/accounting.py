# SPDX-License-Identifier: Apache-2.0


"""How long cgroups wait, for disks and for CPUs: ``io_wait``, ``run_delay``.

From the kernel's delay accounting, process by process, while the operator
has it on (``kernel.task_delayacct``); no cgroup counts it.  Off, nothing is
read and the signals are unknown.  What becomes of the processes' numbers is
in :mod:`~scavenger_openstack.drivers.delay.totals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import errno
import logging
import math
import os
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.drivers.delay import totals
from scavenger_openstack.drivers.delay.totals import Asked
from scavenger_openstack.drivers.delay.totals import Totals
from scavenger_openstack.drivers.kernel.cgroup_files import ABSENT
from scavenger_openstack.drivers.kernel.cgroup_files import OUT_OF_FILES
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import netlink
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack import log_once
from scavenger_openstack.types import Priority
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

TURN_TICKS = 60
"""When not all can be read, some are for so many ticks and then others are:
a rate takes two ticks in a row, a detector some tens."""

SWITCH = '/proc/sys/kernel/task_delayacct'

RETRY_S = 30.0
"""After this the kernel is asked again that could not be, for a reason that
may pass."""

_LISTED = ('blkio', 'cpuacct', 'memory', 'cpu', 'unified')

LASTING = (errno.EPERM, errno.EACCES, errno.ENOENT)
"""Refusals that stay as long as the agent lives."""


class Settings(NamedTuple):
    """See the options ``delay_*`` of the section ``[cgroups]``."""

    tasks: int = 500
    cpu_s: float = 0.005


class DelayAccounting:
    """Adds waits, and operations and bytes of I/O, to samples of workloads.

    :param mounts: where cgroup controllers are mounted
    :param root_dir: where /proc is looked for
    """

    def __init__(self, settings: Settings, mounts: Mapping[str, Mount],
                 root_dir: str = '/') -> None:
        self._settings = settings
        self._root = root_dir.rstrip('/')
        self._mounts = mounts
        self._kernel: taskstats.Taskstats | None = None
        self._switch: int | None = None
        self._totals: dict[str, Totals] = {}
        self._why = 'nothing was looked at so far'
        self._refused = ''
        self._retry_s = self._failed_s = -math.inf
        self._logged = log_once.LogOnce()
        self._turn = 0
        self._ticks = 0     # of this turn
        self._on = False
        self._since_s = 0.0
        self._measured = {'run_delay': 0, 'io_wait': 0}

    def facts(self) -> dict[str, Any]:
        """Return whether the signals are there, and why not, for the
        status."""
        return {'on': not self._why, 'why': self._why,
                'measured_workloads': self._measured['run_delay'],
                'measured_io_wait': self._measured['io_wait']}

    def add(self, samples: tuple[WorkloadSample, ...], now: float
            ) -> tuple[WorkloadSample, ...]:
        """The samples with what their processes waited for, where known.

        :param now: the time of these samples, CLOCK_BOOTTIME
        """
        self._measured = {'run_delay': 0, 'io_wait': 0}
        self._log_state(self._why_not(now))
        if self._why:
            self._totals.clear()
            return samples
        self._follow(samples)
        asked, waiting = self._choose(samples)
        try:
            answers = self._ask(asked)
        except (OSError, ValueError) as exc:
            self._hang_up()
            # What happens once costs one tick; what goes on costs the
            # others, which wait for the kernel with us.
            if now < self._failed_s + RETRY_S:
                self._refuse(exc, now)
            self._failed_s = now
            self._log_state(_advice(exc))
            return samples
        measured = {request.sample[0].id: self._add(request, answers, now)
                    for request in asked}
        self._take_turns(samples, waiting)
        return tuple(measured.get(sample[0].id, sample) for sample in samples)

    def _add(self, asked: Asked, answers: totals.Answers, now: float
             ) -> WorkloadSample:
        sample, unknown = asked.totals.add(asked, answers, now=now,
                                           since_s=self._since_s)
        if unknown and self._logged.due(('old', sample[0].id), cause=SWITCH):
            LOG.warning('%s: io_wait is unknown: %s of its processes began '
                        'before delay accounting was on; restart it, and '
                        'others that are as old, or boot with delayacct',
                        sample[0].id, unknown)
        self._measured['run_delay'] += sample.run_delay_s is not None
        self._measured['io_wait'] += sample.io_wait_s is not None
        return sample

    def close(self) -> None:
        """Close what is kept open."""
        self._hang_up()
        if self._switch is not None:
            os.close(self._switch)
            self._switch = None
        self._totals.clear()

    # --- whether

    def _why_not(self, now: float) -> str:
        """Empty when the signal can be had."""
        if not self._settings.tasks:
            return '[cgroups] delay_tasks is 0'
        if not self._hierarchies():
            return 'no cgroup controller is mounted'
        try:
            if self._switch is None:
                self._switch = os.open(self._root + SWITCH,
                                       os.O_RDONLY | os.O_CLOEXEC)
            on = os.pread(self._switch, 8, 0).strip() == b'1'
        except OSError as exc:
            self._on = False
            return f'{self._root}{SWITCH}: {exc.strerror}' + (
                '; delay accounting takes a kernel of 5.14 or later that '
                'was built with it' if exc.errno == errno.ENOENT else '')
        if on and not self._on:
            self._since_s = now
            self._logged = log_once.LogOnce()
        self._on = on
        if not on:
            return ('delay accounting is off: type "sysctl -w '
                    'kernel.task_delayacct=1", then restart the foreground '
                    'workloads, since only processes that begin later are '
                    'measured')
        if self._kernel is None and now >= self._retry_s:
            self._refused = ''
            try:
                self._kernel = taskstats.Taskstats()
            except (OSError, ValueError) as exc:
                self._refuse(exc, now)
        return self._refused

    def _refuse(self, exc: OSError | ValueError, now: float) -> None:
        """Ask no more: for a while, or for good if it will not pass."""
        self._refused = _advice(exc)
        lasting = isinstance(exc, ValueError) or exc.errno in LASTING
        self._retry_s = math.inf if lasting else now + RETRY_S

    def _log_state(self, why: str) -> None:
        """Take down why the signals are not there, and log a change."""
        if why == self._why:
            return
        if not why:
            LOG.info('delays are measured, by delay accounting')
        elif self._on or not self._why:
            LOG.warning('delays are not measured: %s', why)
        else:
            LOG.info('delays are not measured: %s', why)
        self._why = why

    def _warn(self, what: str, workload: str, text: str, *args: object
              ) -> None:
        """Warn about one thing once."""
        if self._logged.due((what, workload)):
            LOG.warning(text, *args)

    def _hang_up(self) -> None:
        """Close the socket: the next tick opens another."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    # --- who

    def _follow(self, samples: Sequence[WorkloadSample]) -> None:
        """Forget what is gone or was made again, take down what is new."""
        by_name = self._totals
        made = {sample[0].id: sample[0].created_s for sample in samples}
        gone = {name for name, total in by_name.items()
                if made.get(name) != total.created_s}
        for name in gone:
            del by_name[name]
            for what in ('old', 'many'):
                self._logged.forget((what, name))
        for name in made.keys() - by_name.keys():
            by_name[name] = Totals(made[name], self._hierarchy(name),
                                   self._root)

    def _hierarchies(self) -> list[Mount]:
        """Return where processes may be listed."""
        return [self._mounts[name] for name in _LISTED
                if name in self._mounts]

    def _hierarchy(self, name: str) -> Mount:
        """The first that has this cgroup; not all have each."""
        mounts = self._hierarchies()
        return next((mount for mount in mounts
                     if os.path.isdir(mount.path + name)), mounts[0])

    def _choose(self, samples: Sequence[WorkloadSample]
                ) -> tuple[list[Asked], list[WorkloadSample]]:
        """Return what to ask, and the workloads that must wait for their turn.

        The foreground comes first: it is what can suffer.
        """
        until = time.thread_time() + self._settings.cpu_s
        left = most = self._settings.tasks
        asked: list[Asked] = []
        waiting: list[WorkloadSample] = []
        for sample in sorted(samples, key=lambda sample: (
                sample[0].priority is not Priority.FOREGROUND,
                self._totals[sample[0].id].rank)):
            name = sample[0].id
            total = self._totals[name]
            if total.cost > most:
                continue
            if total.cost > left or asked and time.thread_time() > until:
                waiting.append(sample)
                continue
            try:
                request = total.plan(sample, most=most, left=left)
            except cgroup_members.TooMany:
                total.cost = most + 1
                self._warn('many', name, '%s: io_wait and run_delay are '
                           'unknown: it has more than [cgroups] delay_tasks '
                           '= %s processes or threads', name, most)
                continue
            except OSError as exc:
                if exc.errno not in ABSENT:
                    self._warn('read', '', '%s: io_wait and run_delay are '
                               'unknown: its processes cannot be listed: %s',
                               name, exc.strerror)
                continue
            if request is None:
                waiting.append(sample)
                continue
            total.turn = self._turn
            asked.append(request)
            left -= total.cost
        return asked, waiting

    def _take_turns(self, samples: Sequence[WorkloadSample],
                    waiting: Sequence[WorkloadSample]) -> None:
        """Let others come first after a while: those that waited longest.

        In every other turn those come before that need no more than their
        share, so that many small ones do not wait for one that is large;
        and it does not wait for ever for room beside them.
        """
        if waiting:
            self._warn('turns', '', 'io_wait and run_delay of only %s of %s '
                       'workloads are known at a time, in turns of %s ticks: '
                       'raise [cgroups] delay_tasks or delay_cpu_s, at the '
                       'cost of CPU', len(samples) - len(waiting),
                       len(samples), TURN_TICKS)
        self._ticks += 1
        if self._ticks < TURN_TICKS:
            return
        self._ticks = 0
        self._turn += 1
        share = self._settings.tasks / max(1, len(samples))
        for total in self._totals.values():
            total.rank = (self._turn % 2 == 1 and total.cost > share,
                          total.turn)
            if total.turn < self._turn - 1:
                total.cost = 0    # it may have become less

    # --- what

    def _ask(self, asked: Sequence[Asked]) -> totals.Answers:
        about = list(dict.fromkeys(
            question for request in asked for question in request.questions()))
        assert self._kernel is not None
        return dict(zip(about, self._kernel.ask(about), strict=True))


def _advice(exc: OSError | ValueError) -> str:
    if isinstance(exc, ValueError):
        return f'taskstats of this kernel is not understood here: {exc}'
    if exc.errno in (errno.EPERM, errno.EACCES):
        return 'taskstats is not permitted: give the agent CAP_NET_ADMIN, ' \
               'which its systemd unit has'
    if exc.errno == errno.ENOENT:
        return 'this kernel has no taskstats, or the agent runs in a ' \
               'network namespace of its own'
    if exc.errno in OUT_OF_FILES:
        return f'taskstats: {exc.strerror}; raise LimitNOFILE of the agent'
    if exc.errno in (errno.EAGAIN, errno.ETIMEDOUT):
        return f'taskstats: no answer within {netlink.TIMEOUT_S} s'
    return f'taskstats: {exc.strerror}'
