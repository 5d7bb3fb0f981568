# SPDX-License-Identifier: Apache-2.0

"""Whose leftovers are removed: those of runs that have ended."""

from __future__ import annotations

import os
import subprocess

import testtools

from scavenger_openstack.ibench.host import cgroup


class IsAlive(testtools.TestCase):

    def test_processes(self) -> None:
        self.assertTrue(cgroup.is_alive(str(os.getpid())))
        self.assertTrue(cgroup.is_alive('no-number'))
        process = subprocess.Popen(['true'])
        self.addCleanup(process.wait)
        # It has ended, and nothing has waited for it.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertFalse(cgroup.is_alive(str(process.pid)))
        process.wait()
        self.assertFalse(cgroup.is_alive(str(process.pid)))
