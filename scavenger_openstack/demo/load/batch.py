# SPDX-License-Identifier: Apache-2.0

"""The batch work: three programs, started again when they are lost."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import signal
import subprocess
import time

from scavenger_openstack.demo.load import load
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.demo.stage import uplink
from scavenger_openstack import errors

RELAUNCH_S = 0.5


@dataclasses.dataclass(slots=True)
class _Task:
    launch: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes]
    due_s: float | None = None


class Batch:
    """What runs in the background cgroups of one phase.

    As a batch framework does, :meth:`keep` launches a task that was killed
    again, :data:`RELAUNCH_S` later; its work goes on counting.
    """

    def __init__(self, stage: stage_.Stage) -> None:
        self._stage = stage
        self._tasks: list[_Task] = []
        self.kills = 0

    def launch(self) -> None:
        """Start the CPU hog, the sender and the memory user."""
        for launch in (self._hog, self._flood, self._hoard):
            self._tasks.append(_Task(launch, launch()))

    def keep(self) -> None:
        """Look after the tasks; call it often.

        :raises DriverError: a task failed by itself.
        """
        now = time.monotonic()
        for task in self._tasks:
            if task.process.poll() is None:
                continue
            if task.due_s is None:
                if task.process.returncode >= 0:
                    raise errors.DriverError(
                        f'batch work {task.process.args!r} ended with '
                        f'{task.process.returncode}')
                self.kills += 1
                task.due_s = now + RELAUNCH_S
            elif now >= task.due_s:
                task.process, task.due_s = task.launch(), None

    def stop(self) -> None:
        """Have all tasks stand still (SIGSTOP), until :meth:`go_on`."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for task in self._tasks:
            if task.process.poll() is None:
                task.process.send_signal(number)

    def _start(self, *argv: str, below: str,
               role: str | None = None) -> subprocess.Popen[bytes]:
        return self._stage.launch(*argv, below=below, role=role,
                                  out_of_memory=stage_.OOM_FIRST)

    def _hog(self) -> subprocess.Popen[bytes]:
        threads = load.HOG_THREADS_PER_CPU * len(self._stage.cpus)
        return self._start('hog', self._stage.file('hog.out'), str(threads),
                           below=stage_.CPU)

    def _flood(self) -> subprocess.Popen[bytes]:
        return self._start('network', 'flood', uplink.SINK_ADDRESS,
                           str(uplink.PORT + 1), str(load.FLOWS),
                           below=stage_.NETWORK, role='bg')

    def _hoard(self) -> subprocess.Popen[bytes]:
        tree = self._stage.tree
        return self._start('hoard', self._stage.file('hoard.out'),
                           *tree.memory_files(),
                           *tree.limit_files(stage_.MEMORY),
                           below=stage_.MEMORY)
