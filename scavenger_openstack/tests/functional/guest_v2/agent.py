# SPDX-License-Identifier: Apache-2.0

"""The agent and the restorer as processes, on cgroup v2."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import fixtures

from scavenger_openstack.tests.functional.guest_v2 import refusals
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.tests.functional.guest_v2.tree import MIB
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests import watching

BUCKET = 'qdisc tbf'


class AgentTestCase(tree.GuestTestCase):
    """Background ``/batch/a`` and ``/batch/b/child``, foreground
    ``/service/f``, and limits of their own that are no round numbers."""

    def setUp(self) -> None:
        super().setUp()
        for name in ('/batch/b/child', '/service/f'):
            self.tree.make(name)
        device = tree.disk_number()
        for below, file, text in (
                ('/batch', 'cpu.weight', '3333'),
                ('/batch', 'cpuset.cpus', '0-2'),
                ('/batch/a', 'cpu.max', '150000 70000'),
                ('/batch/a', 'memory.max', str(511 * MIB)),
                ('/batch/a', 'memory.high', str(411 * MIB)),
                ('/batch/a', 'io.max', f'{device} wiops=77777'),
                ('/batch/b', 'cpuset.cpus', '1-2'),
                ('/batch/b/child', 'cpu.max', '33333 100000')):
            self.tree.write(below, file, text)
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.state_dir = self.directory / 'state'
        self.config = self.directory / 'scavenger.conf'

    def configure(self, *lines: str) -> None:
        self.config.write_text('\n'.join((
            '[DEFAULT]', f'state_dir = {self.state_dir}',
            '[agent]', 'interval_s = 0.5', 'lease_s = 4', '[cgroups]',
            f'background_parents = {self.tree.name}/batch',
            f'foreground_parents = {self.tree.name}/service', *lines)))

    def start(self, module: str, *words: str,
              user: int = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-m', f'scavenger_openstack.{module}', *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, user=user, group=user,
            extra_groups=[], cwd=self.directory)
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[str]) -> str:
        """What it printed, when it is no more."""
        if process.poll() is None:
            process.kill()
        said = process.communicate()[0] or ''
        if said:
            print(said)
        return said

    def watch(self) -> subprocess.Popen[str]:
        return self.start('restore.program', '--watch', '--state-dir',
                          str(self.state_dir))

    def wait_until_back(self, before: dict[str, str]) -> None:
        def back() -> bool:
            return (self.tree.texts() == before
                    and not list(self.state_dir.glob('leases/*')))

        try:
            self.wait_for('all is back', back, timeout_s=30)
        except AssertionError:
            self.assertEqual(before, self.tree.texts())
            raise


class Killed(AgentTestCase):

    def test_every_knob_is_back_after_the_agent_was_killed(self) -> None:
        wire = self.useFixture(namespaces.Wire())
        self.configure('[network]',
                       f'links = {wire.far}:scv1=125000000',
                       f'interfaces = {self.job}={wire.device}')
        before, qdisc = self.tree.texts(), self.qdisc(wire)
        self.watch()
        agent = self.start('tests.functional.scripted', str(self.config),
                           '0')
        wanted = {f'/batch/{name}/{file}' for name in 'ab' for file in (
            'cpu.max', 'memory.high', 'memory.max', 'io.max',
            'cgroup.freeze')} | {'/batch/cpuset.cpus', '/batch/cpu.idle'}

        def capped() -> bool:
            self.assertIsNone(agent.poll())
            now = self.tree.texts()
            return (all(now[path] != before[path] for path in wanted)
                    and self.qdisc(wire).startswith(BUCKET))

        self.wait_for('every knob is capped', capped, timeout_s=90)
        agent.kill()
        agent.wait(30)
        self.wait_until_back(before)
        self.assertEqual(qdisc, self.qdisc(wire))

    def qdisc(self, wire: namespaces.Wire) -> str:
        return namespaces.run('tc', '-n', wire.near, 'qdisc', 'show', 'dev',
                              'scv0')


class Whole(AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tree.write('/service/f', 'cpuset.cpus', '0')
        self.configure('pressure = true', '[scavenger]', 'mode = enforce',
                       'memory_window_s = 2')
        self.before = self.tree.texts()
        self.tree.run('/batch/a', tree.hold(80 * MIB))
        for name in ('/batch/b/child', '/service/f'):
            self.tree.run(name, tree.hold(MIB))

    def status(self) -> dict[str, object]:
        try:
            found = json.loads((self.state_dir / 'status.json').read_text())
        except FileNotFoundError:
            return {}
        assert isinstance(found, dict)
        return found

    def run_agent(self) -> subprocess.Popen[str]:
        """Start it; wait until it limits."""
        agent = self.start('cmd.agent', 'run', '--config-file',
                           str(self.config))

        def capped() -> bool:
            self.assertIsNone(agent.poll())
            return (self.tree.read('/batch', 'cpu.idle') == '1'
                    and self.tree.read('/batch', 'cpuset.cpus') == '1-2'
                    and int(self.tree.read('/batch/a', 'memory.high'))
                    < 411 * MIB)

        self.wait_for('background is idle, bounded, and off the CPU of the '
                      'foreground', capped, timeout_s=90)
        return agent

    def test_agent_limits_tells_and_ends_clean(self) -> None:
        watcher = self.watch()
        agent = self.run_agent()
        time.sleep(3)       # ten ticks and more
        found = self.status()
        self.assertEqual(('running', [], {'foreground': 1, 'background': 2}),
                         (found['state'], found['problems'],
                          found['workloads']))
        caps = found['caps']
        assert isinstance(caps, list)
        self.assertEqual({'cpu_cores', 'cpu_idle', 'cpu_set', 'memory_bytes'},
                         {cap['knob'] for cap in caps})
        counters = found['counters']
        assert isinstance(counters, dict)
        self.assertEqual((0, 0), (counters['refusals'], counters['kills']))
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(0, agent.wait(60))
        self.wait_until_back(self.before)
        watcher.send_signal(signal.SIGTERM)
        self.assertEqual(0, watcher.wait(30))

    @tiers.only_in_all('the watcher restores the same in the gate')
    def test_restore_all_when_nobody_is_left(self) -> None:
        watcher = self.watch()
        agent = self.run_agent()
        watcher.kill()
        watcher.wait(30)
        agent.kill()
        agent.wait(30)
        self.assertEqual('1', self.tree.read('/batch', 'cpu.idle'))
        restorer = self.start('restore.program', '--all', '--state-dir',
                              str(self.state_dir))
        self.assertEqual(0, restorer.wait(60))
        self.wait_until_back(self.before)


class NotAllowed(AgentTestCase):

    def test_agent_says_once_what_it_may_not_do(self) -> None:
        bare = self.useFixture(tree.Tree(controllers=()))
        bare.make('/batch/a')
        bare.write('', 'cpuset.cpus', '0-2')
        self.configure(f'background_parents = {self.tree.name}/batch,'
                       f'{bare.name}/batch')
        before = self.tree.texts()
        for path in (self.directory, self.state_dir):
            path.mkdir(exist_ok=True)
            os.chown(path, refusals.NOBODY, refusals.NOBODY)
        with watching.Watching(self.state_dir):
            agent = self.start('tests.functional.scripted',
                               str(self.config), '3', user=refusals.NOBODY)
            said = agent.communicate(timeout=90)[0]
        print(said)
        self.assertEqual(0, agent.returncode, said)
        lines = said.splitlines()
        # What the agent lacks is a fact of the host: for all knobs, once.
        line, = (line for line in lines
                 if f'{self.tree.name}/batch/a ' in line)
        self.assertIn('not permitted', line)
        for knob in ('cpu_cores', 'memory_bytes', 'io_bytes_per_s'):
            line, = (line for line in lines
                     if f'{bare.name}/batch/a {knob}' in line)
            self.assertIn('+', line)
        self.assertEqual(before, self.tree.texts())
