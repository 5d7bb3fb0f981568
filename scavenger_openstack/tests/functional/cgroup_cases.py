# SPDX-License-Identifier: Apache-2.0

"""Real cgroups with real processes, and a driver for them."""

from __future__ import annotations

import pathlib
import subprocess
import time

import fixtures

from scavenger_openstack.drivers import base as drivers_base
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import WorkloadSample

SPIN = 'while True: pass'
SLEEP = 'import time; print("up"); time.sleep(60)'
HOLD = ('import time; kept = bytearray(b"x") * {size}; print("up"); '
        'time.sleep(60)')
MIB = 2 ** 20


def restore(steps: list[drivers_base.RestoreAction]) -> None:
    """Carry out restore actions, for tests."""
    for step in steps:
        directory = pathlib.Path(step['dir'])
        assert directory.stat().st_ino == step['inode'], step
        text = f'{step.get("device", "")} {step["text"]}'.strip()
        (directory / step['file']).write_text(text + '\n')


class CgroupsCase(base.FunctionalTestCase):
    """A tree with a background parent ``/bg`` and a driver that knows it."""

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        self.parent = self.tree.make('/bg')
        self.logs = self.useFixture(fixtures.FakeLogger())

    def driver(self, *jobs: str, **kwargs: object) -> Cgroups:
        for job in jobs:
            self.tree.make(f'/bg/{job}')
        found = Cgroups([self.parent], **kwargs)  # type: ignore[arg-type]
        self.addCleanup(found.close)
        return found

    def thaw(self) -> None:
        """What is frozen could not be ended."""
        self.tree.thaw()

    def job(self, code: str, below: str) -> subprocess.Popen[str]:
        """Run ``code`` there; wait until it has begun."""
        process = self.spawn(code, self.tree, below)
        self.addCleanup(self.thaw)
        self.wait_for('the process is in its cgroup', lambda: (
            str(process.pid) in self.tree.read(
                list(self.tree.mounts)[-1], below, 'cgroup.procs').split()))
        return process

    def up(self, code: str, below: str) -> subprocess.Popen[str]:
        """Run ``code`` there; wait until it has printed a line."""
        process = self.spawn(code, self.tree, below)
        self.addCleanup(self.thaw)
        assert process.stdout is not None
        self.assertEqual('up\n', process.stdout.readline())
        return process

    def one(self, driver: Cgroups, name: str) -> WorkloadSample:
        return next(s for s in driver.sample() if s.workload.id == name)

    def cores(self, driver: Cgroups, name: str,
              seconds: float = 0.6) -> float:
        """CPUs that a workload used over some time."""
        # So that what comes between clock and counter makes it no more.
        start, before = time.monotonic(), self.one(driver, name).cpu_s
        time.sleep(seconds)
        after = self.one(driver, name).cpu_s
        assert before is not None and after is not None
        return (after - before) / (time.monotonic() - start)

    def texts(self, controller: str, below: str, *files: str) -> list[str]:
        return [self.tree.read(controller, below, file) for file in files]
