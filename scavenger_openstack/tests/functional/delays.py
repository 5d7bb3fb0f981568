# SPDX-License-Identifier: Apache-2.0


"""Workloads whose delays are looked at, and the kernel's switch for them."""

from __future__ import annotations

from collections.abc import Sequence
import fcntl
import os
import pathlib
import subprocess
import time

import fixtures

from scavenger_openstack.drivers.cgroup import cgroups
from scavenger_openstack.drivers.delay import accounting
from scavenger_openstack.drivers.delay.accounting import Settings
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import WorkloadSample

SWITCH = '/proc/sys/kernel/task_delayacct'


class DelayAccounting(fixtures.Fixture):
    """The kernel's switch, back as it was at the end; for one at a time."""

    def _setUp(self) -> None:
        self._fd = os.open(SWITCH, os.O_RDWR)
        self.addCleanup(os.close, self._fd)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        was = pathlib.Path(SWITCH).read_text().strip()
        self.addCleanup(self.set, was)

    def set(self, value: str) -> None:
        pathlib.Path(SWITCH).write_text(value)


class DelaysTestCase(base.FunctionalTestCase):
    """Workloads below ``/fore`` and ``/back`` of a tree of our own."""

    def setUp(self) -> None:
        super().setUp()
        if not os.path.exists(SWITCH):
            self.skipTest(f'needs {SWITCH}: a kernel of 5.14 or later with '
                          'CONFIG_TASK_DELAY_ACCT')
        self.tree = self.cgroups()
        for below in ('/fore/victim', '/back'):
            self.tree.make(below)
        # Whatever else this machine does hardly counts beside this.
        self.tree.put('weight', '',
                      '262144' if self.tree.version == 1 else '10000')
        self.switch = self.useFixture(DelayAccounting())
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.switch.set('1')
        self.new(Settings())

    def new(self, settings: Settings, disks: Sequence[str] = ()) -> None:
        """An agent that has just begun, as far as this is concerned."""
        self.cgroup = cgroups.Cgroups([f'{self.tree.name}/back'],
                                      [f'{self.tree.name}/fore'],
                                      io_devices=disks)
        self.addCleanup(self.cgroup.close)
        self.io = accounting.DelayAccounting(
            settings, cgroup_mounts.find_mounts())
        self.addCleanup(self.io.close)

    def look(self) -> dict[str, WorkloadSample]:
        samples = self.io.add(self.cgroup.sample(), time.clock_gettime(
            time.CLOCK_BOOTTIME))
        top = f'{self.tree.name}/'
        return {sample.workload.id.removeprefix(top): sample
                for sample in samples}

    def victim(self) -> WorkloadSample:
        return self.look()['fore/victim']

    def said(self, process: subprocess.Popen[str]) -> None:
        """Wait until it has printed a line."""
        assert process.stdout is not None
        self.assertTrue(process.stdout.readline())
