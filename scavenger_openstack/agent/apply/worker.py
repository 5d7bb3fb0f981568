# SPDX-License-Identifier: Apache-2.0

"""Writes that may take long, for which a tick waits until its deadline only.

A memory limit below the use makes the kernel reclaim first; packets that
wait behind a limit need time to go before it is removed; libvirt waits for
a QEMU that does not answer.  So such writes are made in queues that do not
wait for one another: see :mod:`scavenger_openstack.drivers.calls`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Sequence
import functools
import time
from typing import NamedTuple
from typing import Protocol

from oslo_log import log

from scavenger_openstack import amounts
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import calls
from scavenger_openstack.types import KnobKey

LOG = log.getLogger(__name__)

DRAIN_WAIT_S = 0.05
"""A tick waits at most so long for packets to be sent; when that is late it is
not logged, since the next tick continues it."""


class Job(NamedTuple):
    """A piece of work for one queue, and the knobs that it writes.

    ``fail`` is called with the reason instead of ``do`` where that cannot
    begin.
    """

    queue: str
    keys: Sequence[KnobKey]
    do: Callable[[], None]
    fail: Callable[[str], object] = bool


class WriteExecutor(Protocol):
    """The interface to make writes that may take long; :class:`Worker` has
    it."""

    pending: set[KnobKey]

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        """Do ``jobs``; return whether each was done before the deadline."""
        ...


class Worker:
    """Does the jobs of each queue one after the other; see
    :class:`scavenger_openstack.drivers.calls.Executor`.

    :param deadline_s: how long :meth:`run` waits for its jobs, in seconds
    :param notify: called with each job that is late; returns whether the
        driver logs the reason
    :param executor: that of the driver
    """

    def __init__(self, deadline_s: float,
                 notify: Callable[[base.TimedOut], bool] = lambda event: False,
                 executor: calls.Executor | None = None) -> None:
        self._deadline_s = deadline_s
        self._notify = notify
        self._calls = executor or base.new_executor()
        self._waits = collections.Counter[str]()
        self.pending: set[KnobKey] = set()
        """Knobs of all jobs that are not done yet."""

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        """Do ``jobs``; return whether each was done before the one deadline.

        Until a job is done, its keys are pending and nothing else may touch
        them.  What it raises is logged.  One that gets no slot fails;
        the queues that have waited longest are first the next time.
        """
        order = sorted(range(len(jobs)), key=lambda index: (
            -self._waits[jobs[index].queue]))
        begun = [call for _, call in sorted(
            (index, self._submit(jobs[index])) for index in order)]
        start = time.monotonic()
        in_time = [self._calls.wait(call, max(0.0, start - time.monotonic() + (
            DRAIN_WAIT_S if job.queue == base.DRAIN else self._deadline_s)))
            for job, call in zip(jobs, begun, strict=True)]
        timed_out = []
        before, self._waits = self._waits, collections.Counter()
        for job, call, done in zip(jobs, begun, in_time, strict=True):
            if call.error is not None:      # it was not begun
                self._waits[job.queue] = before[job.queue] + 1
                self.pending.difference_update(job.keys)
                job.fail(str(call.error))
            elif not (done or job.queue == base.DRAIN or self._notify(
                    base.TimedOut(job.keys, call.done))):
                timed_out.append(job)
        if timed_out:
            LOG.warning(
                '%s not in force after %s s, the kernel has not finished: '
                '%s', amounts.counted(sum(
                    len(job.keys) for job in timed_out), 'limit'),
                self._deadline_s, ', '.join(job.queue for job in timed_out))
        return in_time

    def _submit(self, job: Job) -> calls.Call:
        self.pending.update(job.keys)
        return self._calls.submit(job.queue,
                                  functools.partial(self._do, job))

    def _do(self, job: Job) -> None:
        try:
            job.do()
        except Exception:
            LOG.exception('%s: unexpected failure', job.queue)
        finally:
            self.pending.difference_update(job.keys)
