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


"""Threads for writes that may take long.

A memory limit below the use makes the kernel reclaim first; packets that
wait behind a limit need time to go before it is lifted; libvirt waits for a
QEMU that does not answer.  Such a write cannot be called off once it
has begun.  So a tick gives such writes away, in lanes that do not wait for
one another, and waits for them only until its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import threading
import time
from typing import NamedTuple
from typing import Protocol

from oslo_log import log

from scavenger_openstack.agent.leases import Key
from scavenger_openstack.drivers import base

LOG = log.getLogger(__name__)


MAX_AT_WORK = 4
"""So many lanes work at once: each uses a connection to libvirtd, and one of
its few threads, which Nova needs, too.  One that hangs does not count."""


DRAIN_WAIT_S = 0.05
"""So long, at most, is waited for packets to go: the next tick will do, and
it is nothing to complain about."""


class Job(NamedTuple):
    """What to do in a lane, and the knobs that it is about."""

    lane: str
    keys: Sequence[Key]
    do: Callable[[], None]


class Writer(Protocol):
    """Does writes that may take long, such as :class:`Worker`."""

    pending: set[Key]

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        """Do ``jobs``; whether each was done before the deadline."""
        ...


class _Begun:
    """A job, and whether it has one of the turns to work."""

    def __init__(self, job: Job, turns: threading.Semaphore) -> None:
        self.job = job
        self.done = threading.Event()
        self._turns = turns
        self._mutex = threading.Lock()
        self._has = False

    def take_turn(self, timeout_s: float) -> None:
        """Wait for one so long, and then go without."""
        self._has = self._turns.acquire(timeout=timeout_s)

    def end_turn(self) -> None:
        with self._mutex:
            has, self._has = self._has, False
        if has:
            self._turns.release()


class Worker:
    """Does the jobs of each lane one after the other, in a thread.

    A lane's thread ends when it has nothing to do, and dies with the
    process: a write that hangs must not keep the process from ending.

    :param deadline_s: how long :meth:`run` waits for its jobs, in seconds
    :param notify: called with each job that is late; whether the driver
        sees to it that the log says why
    """

    def __init__(self, deadline_s: float,
                 notify: Callable[[base.Late], bool] = lambda late: False
                 ) -> None:
        self._deadline_s = deadline_s
        self._notify = notify
        self._mutex = threading.Lock()
        self._turns = threading.Semaphore(MAX_AT_WORK)
        self._lanes: dict[str, list[_Begun]] = {}
        self._late: list[_Begun] = []
        self.pending: set[Key] = set()
        """The knobs of all jobs that are not done yet."""

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        """Do ``jobs``; whether each was done before the one deadline.

        Until a job is done, its keys are pending and nobody else may touch
        them.  What it raises is logged.
        """
        for one in self._late:
            one.end_turn()
        begun = [_Begun(job, self._turns) for job in jobs]
        for one in begun:
            job = one.job
            self.pending.update(job.keys)
            with self._mutex:
                waiting = self._lanes.get(job.lane)
                if waiting is not None:
                    waiting.append(one)
                    continue
                self._lanes[job.lane] = [one]
            threading.Thread(target=self._work, args=(job.lane,),
                             daemon=True, name=f'{job.lane}-writer').start()
        start = time.monotonic()
        found = [one.done.wait(max(0.0, start - time.monotonic() + (
            DRAIN_WAIT_S if one.job.lane == base.DRAIN
            else self._deadline_s))) for one in begun]
        self._late = [one for one in (*self._late, *begun)
                      if not one.done.is_set()]
        late = [one.job for one, done in zip(begun, found, strict=True)
                if not done and one.job.lane != base.DRAIN
                and not self._notify(base.Late(one.job.keys, one.done))]
        if late:
            LOG.warning(
                '%d limits not in force after %s s, the kernel has not '
                'finished: %s', sum(len(job.keys) for job in late),
                self._deadline_s, ', '.join(job.lane for job in late))
        return found

    def _work(self, lane: str) -> None:
        while True:
            with self._mutex:
                waiting = self._lanes[lane]
                if not waiting:
                    del self._lanes[lane]
                    return
                one = waiting.pop(0)
            one.take_turn(self._deadline_s)
            try:
                one.job.do()
            except Exception:
                LOG.exception('%s: unexpected failure', lane)
            finally:
                one.end_turn()
                self.pending.difference_update(one.job.keys)
                one.done.set()
