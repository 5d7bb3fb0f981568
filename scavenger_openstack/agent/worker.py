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

"""A thread for writes that the kernel may not finish for a long time.

A memory limit below the use makes the kernel reclaim first, and a write
cannot be called off once it has begun.  So a tick gives such writes away
and waits for them only until its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import queue
import threading

from oslo_log import log

from scavenger_openstack.agent.leases import Key

LOG = log.getLogger(__name__)


class Worker:
    """Does one job after the other in a thread of its own.

    The thread starts with the first job and dies with the process: a write
    that hangs must not keep the process from ending.

    :param deadline_s: how long :meth:`run` waits for its job, in seconds
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._jobs: queue.SimpleQueue[tuple[Sequence[Key],
                                            Callable[[], None],
                                            threading.Event]]
        self._jobs = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.pending: set[Key] = set()
        """The knobs of all jobs that are not done yet."""

    def run(self, keys: Sequence[Key], job: Callable[[], None]) -> bool:
        """Do ``job``; whether it was done before the deadline.

        Until it is done, ``keys`` are pending and nobody else may touch
        them.  What it raises is logged.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True,
                                            name='memory-writer')
            self._thread.start()
        self.pending.update(keys)
        done = threading.Event()
        self._jobs.put((keys, job, done))
        if done.wait(self._deadline_s):
            return True
        LOG.warning('%d memory limits not in force after %s s: the kernel '
                    'is still reclaiming', len(keys), self._deadline_s)
        return False

    def _work(self) -> None:
        while True:
            keys, job, done = self._jobs.get()
            try:
                job()
            except Exception:
                LOG.exception('memory limits: unexpected failure')
            finally:
                self.pending.difference_update(keys)
                done.set()
