# SPDX-License-Identifier: Apache-2.0

"""Agents for which the system has no more threads, and then has some."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import uuid

import fixtures

from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional.agents import BUSY
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host

NONE = 'no thread can be started'


class Tasks(fixtures.Fixture):
    """A cgroup in which there may be one task; see systemd's TasksMax."""

    def _setUp(self) -> None:
        self.path = pathlib.Path(f'/sys/fs/cgroup/pids/scv-test-'
                                 f'{uuid.uuid4().hex[:8]}')
        self.path.mkdir()
        self.addCleanup(self.path.rmdir)
        self.refuse()
        self.by = ('sh', '-c', 'echo $$ > "$0/cgroup.procs"; exec "$@"',
                   str(self.path))

    def refuse(self) -> None:
        """Whatever is there stays."""
        (self.path / 'pids.max').write_text('1')

    def allow(self) -> None:
        (self.path / 'pids.max').write_text('max')

    def refused(self) -> int:
        """How often a thread was refused."""
        return int((self.path / 'pids.events').read_text().split()[1])


class ThreadsTestCase(base.FunctionalTestCase):

    def tasks(self) -> Tasks:
        if not pathlib.Path('/sys/fs/cgroup/pids/cgroup.procs').exists():
            self.skipTest('needs the pids controller of cgroup v1')
        return self.useFixture(Tasks())

    def end(self, agent: subprocess.Popen[str]) -> str:
        """End it; its log, in which that was said once."""
        agent.terminate()
        _, log = agent.communicate(timeout=60)
        self.assertEqual(0, agent.returncode, log)
        self.assertEqual(1, log.count(f'{NONE} ('), log)
        self.assertIn('TasksMax', log)
        self.assertNotIn('Traceback', log)
        return log


class ProgramsTest(ThreadsTestCase):

    def test_advice(self) -> None:
        """A limit is removed by programs, which take a process each."""
        tasks = self.tasks()
        for module, call in (
                ('virsh', 'virsh.Session("qemu:///system")'),
                ('network', 'network.tool("tc", "")')):
            done = subprocess.run(
                [*tasks.by, sys.executable, '-c',
                 f'from scavenger_openstack.restore import {module}\n{call}'],
                capture_output=True, text=True)
            self.assertIn('pids.max', done.stderr)
            self.assertNotIn('install', done.stderr)


class AgentTest(ThreadsTestCase, agents.AgentTestCase):

    def test_a_watcher_restores_without(self) -> None:
        tasks = self.tasks()
        self.spawn(BUSY, self.tree, '/batch/a')
        agent = self.start('agent', 'run')
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        agent.kill()
        agent.communicate()
        watcher = subprocess.Popen(
            [*tasks.by, sys.executable, '-m',
             'scavenger_openstack.restore.program', '--watch',
             '--state-dir', str(self.state_dir)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watcher.wait)
        self.addCleanup(watcher.kill)
        self.wait_for('all is back', lambda: (
            self.idle(), self.leases()) == ('0', []))
        self.end(watcher)

    def configure(self, *lines: str) -> None:
        super().configure(*lines, '[agent]', 'require_watcher = false')

    def test_what_needs_none_goes_on(self) -> None:
        """The rest waits: memory limits, the fast loop, reports."""
        tasks = self.tasks()
        self.configure('[scavenger]', 'mode = enforce', 'memory_window_s = 3',
                       '[perfiso]', 'mode = enforce', 'buffer_cores = 1')
        self.spawn(BUSY, self.tree, '/batch/a')
        free = self.tree.get('memory', '/batch/a')
        agent = self.start('agent', 'run', by=tasks.by)
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        self.wait_for('it lacks a thread', lambda: NONE in str(
            self.status().get('problems')))
        ticks = self.ticks()
        # Longer than leases last that nothing renews.
        self.wait_for('leases go on', lambda: self.ticks() > ticks + 20)
        status = self.status()
        self.assertEqual('running', status['state'])
        self.assertIn(NONE, str(status['isolation']))
        self.assertEqual(free, self.tree.get('memory', '/batch/a'))
        self.assertGreater(tasks.refused(), 20)
        tasks.allow()
        self.wait_for('the memory limit', lambda: free != self.tree.get(
            'memory', '/batch/a'))
        self.wait_for('no problem', lambda: not self.status()['problems'])
        self.assertNotIn('leases ran out', self.end(agent))
        self.assertEqual(free, self.tree.get('memory', '/batch/a'))


class DomainTest(ThreadsTestCase, virtual_host.VirtualHostTestCase):

    def test_vms_are_watched_later(self) -> None:
        tasks = self.tasks()
        host: hypervisor.Hypervisor = self.hypervisor()
        host.start_all([virtual_host.tiny('one')])
        there = self.useFixture(fixtures.TempDir()).path
        known = virtual_host.HostAgent(host, pathlib.Path(there))
        known.close()
        agent = subprocess.Popen(
            [*tasks.by, sys.executable, '-m', 'scavenger_openstack.cmd.agent',
             'run', '--config-file', str(known.config),
             '--state-dir', str(known.state_dir)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        status = known.state_dir / 'status.json'
        self.wait_for('status', status.exists, timeout_s=30)
        self.wait_for('it lacks threads', lambda: tasks.refused() > 10)
        self.assertIn('"background":0', status.read_text())
        tasks.allow()
        self.wait_for('the VM', lambda: (
            '"background":1' in status.read_text()), timeout_s=30)
        tasks.refuse()
        before = tasks.refused()
        self.wait_for('it asks for disks', lambda: (
            tasks.refused() > before + 3), timeout_s=60)
        host.virsh('destroy one')
        self.wait_for('the VM is gone', lambda: (
            '"background":0' in status.read_text()), timeout_s=30)
        self.end(agent)
