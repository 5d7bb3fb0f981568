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

A memory limit below the use makes the kernel reclaim first; libvirt waits
for a QEMU that does not answer.  Such a write cannot be called off once it
has begun.  So a tick gives such writes away, in lanes that do not wait for
one another, and waits for them only until its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import threading
import time
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.agent.leases import Key

LOG = log.getLogger(__name__)


class Job(NamedTuple):
    """What to do in a lane, and the knobs that it is about."""

    lane: str
    keys: Sequence[Key]
    do: Callable[[], None]


class Worker:
    """Does the jobs of each lane one after the other, in a thread.

    A lane's thread ends when it has nothing to do, and dies with the
    process: a write that hangs must not keep the process from ending.

    :param deadline_s: how long :meth:`run` waits for its jobs, in seconds
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._mutex = threading.Lock()
        self._lanes: dict[str, list[tuple[Job, threading.Event]]] = {}
        self.pending: set[Key] = set()
        """The knobs of all jobs that are not done yet."""

    def run(self, jobs: Sequence[Job]) -> list[bool]:
        """Do ``jobs``; whether each was done before the one deadline.

        Until a job is done, its keys are pending and nobody else may touch
        them.  What it raises is logged.
        """
        begun = [(job, threading.Event()) for job in jobs]
        for job, done in begun:
            self.pending.update(job.keys)
            with self._mutex:
                waiting = self._lanes.get(job.lane)
                if waiting is not None:
                    waiting.append((job, done))
                    continue
                self._lanes[job.lane] = [(job, done)]
            threading.Thread(target=self._work, args=(job.lane,),
                             daemon=True, name=f'{job.lane}-writer').start()
        until = time.monotonic() + self._deadline_s
        found = [done.wait(max(0.0, until - time.monotonic()))
                 for _, done in begun]
        late = [job for job, done in zip(jobs, found, strict=True)
                if not done]
        if late:
            LOG.warning(
                '%d limits not in force after %s s, the kernel or libvirt '
                'has not finished: %s', sum(len(job.keys) for job in late),
                self._deadline_s, ', '.join(job.lane for job in late))
        return found

    def _work(self, lane: str) -> None:
        while True:
            with self._mutex:
                waiting = self._lanes[lane]
                if not waiting:
                    del self._lanes[lane]
                    return
                job, done = waiting.pop(0)
            try:
                job.do()
            except Exception:
                LOG.exception('%s: unexpected failure', lane)
            finally:
                self.pending.difference_update(job.keys)
                done.set()
