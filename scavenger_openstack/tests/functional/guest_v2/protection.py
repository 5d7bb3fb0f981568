# SPDX-License-Identifier: Apache-2.0

"""What the agent says is missing, and hosts with both versions of cgroups."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib

import fixtures

from scavenger_openstack.tests.functional.guest_v2 import agent
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.types import Knob

FILES = {'cpu': 'cpu.max', 'cpuset': 'cpuset.cpus', 'io': 'io.max'}


class Missing(agent.AgentTestCase):

    def missing(self) -> list[str]:
        """What the status says of this; nothing while there is none."""
        try:
            found = json.loads((self.state_dir / 'status.json').read_text())
        except FileNotFoundError:
            return []
        return [str(line) for line in found['missing']]

    def test_controllers_that_are_not_enabled(self) -> None:
        bare = self.useFixture(tree.Tree(controllers=('memory',)))
        bare.make('/batch/a')
        self.configure(f'background_parents = {bare.name}/batch', '[agent]',
                       'interval_s = 0.2', 'require_watcher = false',
                       'protect = cpu, memory, disk')
        process = self.start('cmd.agent', 'run', '--config-file',
                             str(self.config))
        self.wait_for('it is said', self.missing, timeout_s=90)
        for controller, file in FILES.items():
            line, = [line for line in self.missing()
                     if f'{bare.path("/batch/a")}/{file}' in line]
            self.assertIn(f'echo +{controller} > {bare.path("")}/'
                          'cgroup.subtree_control', line)
        self.assertFalse([line for line in self.missing()
                          if line.startswith('memory')])
        for below in ('', '/batch'):
            for controller in FILES:
                bare.write(below, 'cgroup.subtree_control', f'+{controller}')
        # By itself; what is left has another reason.
        self.wait_for('it is said no more', lambda: not [
            line for line in self.missing() if '+' in line], timeout_s=90)
        process.terminate()
        said, _ = process.communicate(timeout=60)
        print(said)
        for file in FILES.values():
            self.assertEqual(1, sum(
                'missing: ' in line and f'/{file} ' in line
                for line in said.splitlines()), said)


class Hybrid(tree.GuestTestCase):

    def test_version_1_beside_version_2(self) -> None:
        """A freezer that another program mounted, without our workload."""
        mount = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        libc = ctypes.CDLL(None, use_errno=True)    # no mount(8) here
        self.assertEqual(0, libc.mount(
            b'none', bytes(mount), b'cgroup', 0, b'freezer,cpuacct'),
            os.strerror(ctypes.get_errno()))
        self.addCleanup(libc.umount2, bytes(mount), 0)
        self.tree.run('/batch/a', tree.spin)
        driver = self.driver()
        self.wait_for('its CPU time is counted', lambda: (
            self.one(driver).cpu_s or 0) > 0)
        self.assertEqual(1, driver.write(self.job, Knob.PAUSED, 1))
        self.assertEqual('1', self.tree.read('/batch/a', 'cgroup.freeze'))
        driver.write(self.job, Knob.PAUSED, 0)
