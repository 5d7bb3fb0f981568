# SPDX-License-Identifier: Apache-2.0

"""The demo, from end to end on this machine, and how it goes away."""

from __future__ import annotations

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

from scavenger_openstack.demo.stage import stage
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import demos
from scavenger_openstack.tests.functional.demos import DEADLINE_S
from scavenger_openstack.tests.functional.demos import LONG
from scavenger_openstack.tests.functional.demos import SHORT
from scavenger_openstack.tests.functional.demos import traces
from scavenger_openstack.tests import tiers


class DemoTest(demos.DemoTestCase):

    def test_two_short_phases(self) -> None:
        """As it is installed, with nothing cut short."""
        process = self.start('--only', 'alone,unmanaged', '--json', *SHORT,
                             module='scavenger_openstack.cmd.demo')
        name = self.name_of(process)
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, process.returncode, err)
        found = json.loads(out)
        self.assertEqual(
            found, json.loads((self.output / 'result.json').read_text()))
        self.assertEqual('not judged', found['verdict'])
        self.assertEqual({'alone', 'unmanaged'}, set(found['phases']))
        alone, unmanaged = found['phases'].values()
        self.assertGreater(alone['rounds'][0]['requests'], 200)
        self.assertTrue(0 < alone['p50_ms'] <= alone['p99_ms'])
        self.assertEqual({'cpu': 0, 'memory': 0, 'network': 0},
                         alone['background_work'])
        for kind, work in unmanaged['background_work'].items():
            if base.pace() < base.EMULATED:
                self.assertGreater(work, 0, kind)
        self.assertIn('<svg', (self.output / 'report.html').read_text())
        self.assertIn('round 1/1  unmanaged', err)
        self.assertIn('scavenger-demo --who', err.splitlines()[-1])
        self.assert_gone(name, [])

    @tiers.only_in_all('two short phases give a verdict, too')
    def test_too_short_to_tell(self) -> None:
        """Two pairs of turns: inconclusive, and the exit code says so."""
        process = self.start('--only', 'alone,unmanaged,scavenger',
                             '--turns', '2', '--json', *SHORT)
        name = self.name_of(process)
        out, err = process.communicate(timeout=2 * DEADLINE_S)
        found = json.loads(out)
        self.assertEqual('inconclusive', found['verdict'], found['why'])
        self.assertEqual(3, process.returncode, err)
        self.assertEqual(2, found['turns']['pairs']
                         + found['turns']['set_aside'])
        for pair in found['turns']['each']:
            # None: all that came in that turn waited for the turn before
            if pair['alone']['p99_ms'] is None:
                self.assertTrue(pair['disturbed'], pair)
            else:
                self.assertGreater(pair['alone']['p99_ms'], 0)
            self.assertGreater(pair['scavenger']['run_delay'], 0)
            # not 0: on a busy machine an idle program gets no CPU for a
            # while, and so stops late
            self.assertLess(pair['alone']['background_cpu'], 0.3)
        self.assertIn('--who', err.splitlines()[-1])
        self.assert_gone(name, [])

    @tiers.only_in_all('it is interrupted and cleaned in the gate, too')
    def test_a_program_that_fails(self) -> None:
        """What was played before it is written, and the reason said."""
        process = self.start('--only', 'alone,unmanaged', '--rounds', '1',
                             '--phase-seconds', '4')
        name = self.name_of(process)
        [service] = {pid for pid in self.wait_for_batch(name)
                     if 'service.out' in pathlib.Path(
                         f'/proc/{pid}/cmdline').read_text()}
        os.kill(service, signal.SIGKILL)
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(1, process.returncode, err)
        first = out.splitlines()[0]
        self.assertIn('failed: the service ended with -9', first)
        self.assertIn('missing: unmanaged, scavenger', first)
        found = json.loads((self.output / 'result.json').read_text())
        self.assertEqual({'alone'}, set(found['phases']))
        self.assertGreater(found['phases']['alone']['p99_ms'], 0)
        self.assertIn('the service ended with -9',
                      (self.output / 'report.html').read_text())
        self.assert_gone(name, [])

    @tiers.only_in_all('two short phases leave every knob, too')
    def test_static_phases_leave_every_knob_as_it_was(self) -> None:
        process = self.start('--only', 'kernel_only,static_half,quota_only',
                             '--json', *SHORT)
        name = self.name_of(process)
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, process.returncode, err)
        for phase in json.loads(out)['phases'].values():
            self.assertEqual([], phase['rounds'][0]['knobs_left'])
        self.assert_gone(name, [])

    @tiers.only_in_all('it is interrupted and cleaned in the gate, too')
    def test_interrupted_while_the_batch_work_runs(self) -> None:
        process = self.start('--only', 'unmanaged', *LONG)
        name = self.name_of(process)
        pids = self.wait_for_batch(name)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(130, process.returncode, err)
        self.assertNotIn('Traceback', err)
        self.assert_gone(name, pids)

    @tiers.only_in_all('it is interrupted and cleaned in the gate, too')
    def test_interrupted_while_the_agent_enforces(self) -> None:
        process = self.start('--only', 'scavenger', *LONG)
        name = self.name_of(process)
        pids = self.wait_for_batch(name)
        agent = int((stage.RUN / (stage.PREFIX + name) / 'agent.pid')
                    .read_text())
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(130, process.returncode, err)
        self.assertNotIn('Traceback', err)
        self.assert_gone(name, [*pids, agent])

    def test_interrupted_at_any_moment_of_the_start(self) -> None:
        for delay_s in (0.0, 0.05, 0.2, 0.6):
            process = self.start('--only', 'unmanaged', *LONG)
            name = self.name_of(process)
            time.sleep(delay_s)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=DEADLINE_S)
            self.assertEqual(130, process.returncode, err)
            self.assert_gone(name, [])

    def test_clean_after_sigkill(self) -> None:
        process = self.start('--only', 'scavenger', *LONG)
        name = self.name_of(process)
        pids = self.wait_for_batch(name)
        agent = int((stage.RUN / (stage.PREFIX + name) / 'agent.pid')
                    .read_text())
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        self.assertNotEqual([], traces(name))
        clean = self.start('--clean')
        out, err = clean.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, clean.returncode, err)
        self.assertIn(f'removed what demo {name} left', out)
        self.assert_gone(name, [*pids, agent])

    @tiers.only_in_all('it is interrupted and cleaned in the gate, too')
    def test_clean_leaves_a_living_demo_alone(self) -> None:
        process = self.start('--only', 'unmanaged', *LONG)
        name = self.name_of(process)
        self.wait_for_batch(name)
        clean = self.start('--clean')
        out, err = clean.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, clean.returncode, err)
        self.assertIn(f'demo {name} (process {process.pid}) is still '
                      'playing', out)
        self.assertNotEqual([], traces(name))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        self.assert_gone(name, [])

    def test_watching_touches_nothing(self) -> None:
        tree = self.cgroups()
        for below in ('/fg', '/fg/a', '/bg', '/bg/b'):
            tree.make(below)
        self.spawn('print(1)\nimport time\ntime.sleep(60)', tree, '/bg/b')
        before = {path: path.read_text() for path in self._knobs(tree)}
        watch = self.start('--watch-foreground', tree.name + '/fg',
                           '--watch-background', tree.name + '/bg',
                           '--seconds', str(5 * math.ceil(base.pace())))
        out, err = watch.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, watch.returncode, err)
        self.assertIn('nothing is changed', out)
        self.assertIn('would set cpu_idle', out)
        self.assertEqual(before, {path: path.read_text()
                                  for path in self._knobs(tree)})

    @staticmethod
    def _knobs(tree: base.CgroupTree) -> list[pathlib.Path]:
        return [path for controller, file in (
            ('cpu', 'cpu.shares'), ('cpu', 'cpu.weight'),
            ('cpu', 'cpu.idle'), ('cpu', 'cpu.cfs_quota_us'),
            ('cpu', 'cpu.max'), ('cpuset', 'cpuset.cpus'),
            ('memory', 'memory.limit_in_bytes'), ('memory', 'memory.high'),
            ('memory', 'memory.max'))
            for path in tree.path(controller).rglob(file)]

    def test_needs_root(self) -> None:
        # imported first: another user may not read where Python lives
        process = subprocess.run(
            [sys.executable, '-c', 'import os, sys\n'
             'from scavenger_openstack.cmd import demo\n'
             'import scavenger_openstack.demo.command\n'
             'os.setuid(65534)\nsys.exit(demo.main(["--quick"]))'],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(1, process.returncode)
        self.assertIn('needs root', process.stderr)
        self.assertEqual(1, process.stderr.count('\n'), process.stderr)

    def test_without_a_compiler(self) -> None:
        process = subprocess.run(
            [sys.executable, '-m', 'scavenger_openstack.cmd.demo',
             '--output', str(self.output), '--only', 'alone', *SHORT],
            env={**os.environ, 'CC': '/bin/false'},
            capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(1, process.returncode)
        self.assertIn('gcc', process.stderr)
        self.assertNotIn('Traceback', process.stderr)
