# SPDX-License-Identifier: Apache-2.0

"""A real service, real jobs beside it, and an agent that looks for culprits.

The service is due every 10 ms.  Of the jobs some take the same CPU for some
seconds and rest, at random; one hardly does anything.  The times are
short, so that it takes seconds; all else is as shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import pathlib
import random
import subprocess
from typing import Any

import fixtures

from scavenger_openstack.demo import product
from scavenger_openstack import errors
from scavenger_openstack.ibench import build
from scavenger_openstack.tests.functional import delays

START_S = 20.0
LEVELS = 2000

CONFIG = """\
[agent]
interval_s = 0.25
controllers = {controllers}
[cgroups]
background_parents = {name}/back
foreground_parents = {name}/fore
[attribution]
mode = {mode}
sample_s = 0.5
window_s = {window_s:g}
{more}"""

ALONG = '''
import os, time
os.sched_setaffinity(0, {{{cpu}}})
def work(cpu_s, every_s):
    print('up')
    due = time.monotonic()
    while True:
        until = time.thread_time() + cpu_s
        while time.thread_time() < until:
            pass
        # One that is late catches up: its load does not depend on others.
        due = max(due + every_s, time.monotonic() - 0.1)
        time.sleep(max(0, due - time.monotonic()))
'''

HOG = 'import os\nprint("up")\nos.execv({0!r}, {1!r})'
"""A source of interference, in the cgroup that Python joined."""


class SuspectsTestCase(delays.DelaysTestCase):
    """``victim`` and ``steady`` are the names of the innocent's cgroups."""

    def setUp(self) -> None:
        super().setUp()
        self.tree.make('/back/steady')
        self.victim_id = f'{self.tree.name}/fore/victim'
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.process: subprocess.Popen[bytes] | None = None

    def agent(self, *, mode: str = 'observe', window_s: float = 60,
              controllers: str = 'attribution', more: str = '',
              within: Sequence[str] = ()) -> product.Status:
        """An agent that turns, on the state of the one before.

        :param more: further sections of its configuration
        :param within: a command that runs another, around it
        """
        command = product.command(self.directory, CONFIG.format(
            name=self.tree.name, mode=mode, window_s=window_s,
            controllers=controllers, more=more))
        with (self.directory / 'agent.log').open('ab') as log:
            self.process = subprocess.Popen(
                [*within, *command], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)
        self.addCleanup(self.stop)
        status = product.Status(self.directory)
        self.wait_for('the agent turns', status.refresh, START_S)
        return status

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Stop the agent; nothing went wrong with it."""
        assert self.process is not None
        self.stop()
        said = (self.directory / 'agent.log').read_text()
        self.assertEqual(0, self.process.returncode, said)
        self.assertNotIn('Traceback', said)

    def run_along(self, below: str, code: str) -> subprocess.Popen[str]:
        """Run ``code`` on the CPU of all, in a cgroup that is made."""
        self.tree.make(below)
        cpu = max(os.sched_getaffinity(0))
        process = self.spawn(ALONG.format(cpu=cpu) + code, self.tree, below)
        self.said(process)
        return process

    def run_innocents(self) -> None:
        self.run_along('/fore/victim', 'work(0.0035, 0.01)')
        # Not in step with it.
        self.run_along('/back/steady', 'work(0.0005, 0.023)')

    def run_hogs(self, *belows: str, mean_s: float = 1.0) -> set[str]:
        """Jobs that work and rest together; the workloads that they are.

        :param mean_s: how long they do so, on average
        """
        try:
            program = str(build.build())
        except errors.ConfigError as exc:
            self.skipTest(str(exc))
        rng = random.Random(37)
        levels = ','.join(
            f'{percent}:{mean_s * rng.uniform(0.4, 1.6):.3f}'
            for _ in range(LEVELS // 2) for percent in (0, 100))
        for below in belows:
            self.tree.make(below)
            self.said(self.spawn(HOG.format(program, [
                program, 'integer', f'cpus={max(os.sched_getaffinity(0))}',
                'threads=3', 'chunk_s=1', 'every_s=3600',
                f'levels={levels}']), self.tree, below))
        return {self.tree.name + below for below in belows}

    def named(self, status: product.Status, allowed: set[str]) -> set[str]:
        """What attribution names now; never one that is not allowed."""
        found: set[str] = set()
        for one in self.incidents(status):
            if one['victim'] != self.victim_id:
                continue    # another service on its CPU
            self.assertEqual('run_delay', one['signal'])
            found.update(one.get('antagonists', ()))
            self.assertLessEqual(found, allowed, one)
        return found

    def incidents(self, status: product.Status, cause: str = 'core'
                  ) -> list[dict[str, Any]]:
        """The open ones of a cause, which tells the detectors apart: those
        as published know none."""
        status.refresh()
        return [one for one in status.last['incidents']
                if one['cause'] == cause]
