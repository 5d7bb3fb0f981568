# SPDX-License-Identifier: Apache-2.0

"""The demo, from end to end on this machine, and how it goes away."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from scavenger_openstack.demo import play
from scavenger_openstack.demo.stage import accounting
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage import stage
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import demos
from scavenger_openstack.tests.functional.demos import DEADLINE_S
from scavenger_openstack.tests.functional.demos import traces
from scavenger_openstack.tests import tiers


class DemoTest(demos.DemoTestCase):

    def test_all_of_it_in_short(self) -> None:
        """Too short to find out, but all of it is there and goes away."""
        process = self.start_short('--json')
        name = self.name_of(process)
        pids = self.wait_for_group(name, play.HOG)
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertIn(process.returncode, (0, 1, 3), err)
        found = json.loads(out)
        self.assertEqual(
            found, json.loads((self.output / 'result.json').read_text()))
        self.assertEqual([], found['knobs_left'], err)
        alone, beside, *_ = found['phases'].values()
        self.assertGreater(alone['requests'], 100)
        self.assertTrue(0 < alone['p50_ms'] <= alone['p99_ms'])
        self.assertEqual(0, alone['hog_cores'])
        self.assertGreater(beside['hog_cores'], 0)
        drawn = self.output / 'x.svg'
        picture = self.start('--picture', str(drawn))
        _, err = picture.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, picture.returncode, err)
        self.assertIn(drawn.read_text().strip(),
                      (self.output / 'report.html').read_text())
        self.assert_gone(name, pids)

    @tiers.only_in_all('it runs in short in the gate, and takes minutes')
    def test_as_it_is(self) -> None:
        """Nothing cut short: a verdict, and it names no innocent."""
        process = self.start('--json')
        out, err = process.communicate(timeout=2 * DEADLINE_S)
        found = json.loads(out)
        self.assertIn((process.returncode, found['verdict']),
                      ((0, 'passed'), (3, 'inconclusive')), found['why'])
        if found['verdict'] == 'passed':
            [row] = found['antagonists']
            self.assertTrue(row[0].endswith(play.HOG), row)

    @tiers.only_in_all('it is interrupted and cleaned in the gate, too')
    def test_a_program_that_fails(self) -> None:
        process = self.start()
        name = self.name_of(process)
        pids = self.wait_for_group(name, play.HOG)
        [service] = {pid for pid in pids if 'scavenger-demo-service'
                     in self.command_of(pathlib.Path(f'/proc/{pid}/cmdline'))}
        os.kill(service, signal.SIGKILL)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(1, process.returncode, err)
        self.assertIn('ended with -9', err.splitlines()[-1])
        self.assert_gone(name, pids)

    def test_interrupted_while_the_hog_runs(self) -> None:
        process = self.start_short()
        name = self.name_of(process)
        pids = self.wait_for_group(name, play.HOG)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(130, process.returncode, err)
        self.assertNotIn('Traceback', err)
        self.assertIn('interrupted', err.splitlines()[-1])
        self.assert_gone(name, pids)

    def test_interrupted_at_any_moment_of_the_start(self) -> None:
        for delay_s in (0.0, 0.05, 0.2, 0.6):
            process = self.start()
            name = self.name_of(process)
            time.sleep(delay_s)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=DEADLINE_S)
            self.assertEqual(130, process.returncode, err)
            self.assert_gone(name, [])

    def test_clean_after_sigkill(self) -> None:
        process = self.start()
        name = self.name_of(process)
        pids = self.wait_for_group(name, play.QUIET)
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        self.assertNotEqual([], traces(name))
        done = self.clean()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f'removed what demo {name} left', done.stdout)
        self.assert_gone(name, pids)

    def test_one_at_a_time(self) -> None:
        """Neither a second demo nor --clean disturbs the first."""
        before = stage.left_over()
        first = self.start()
        name = self.name_of(first)
        self.wait_for_group(name, play.SERVICE)
        second = self.start()
        _, err = second.communicate(timeout=DEADLINE_S)
        self.assertEqual(1, second.returncode, err)
        self.assertIn('another demo is running', err.splitlines()[-1])
        self.assertNotIn('Traceback', err)
        done = self.clean()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f'demo {name} (process {first.pid}) is still running',
                      done.stdout)
        self.assertEqual({name}, stage.left_over() - before)
        self.assertEqual('1', accounting.SWITCH.read_text().strip())
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=DEADLINE_S)
        self.assert_gone(name, [])

    @tiers.only_in_all('it is interrupted and cleaned in the gate, too')
    def test_clean_leaves_the_switch_to_a_living_demo(self) -> None:
        killed = self.start()
        first = self.name_of(killed)
        self.wait_for_group(first, play.SERVICE)
        killed.kill()
        killed.communicate(timeout=DEADLINE_S)
        other = self.start()
        second = self.name_of(other)
        self.wait_for_group(second, play.SERVICE)
        done = self.clean()
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn(f'demo {first}: another demo is running', done.stderr)
        self.assertEqual('1', accounting.SWITCH.read_text().strip())
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=DEADLINE_S)
        self.assert_gone(second, [])
        done = self.clean()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assert_gone(first, [])

    @tiers.only_in_all('it runs the demo once more')
    def test_keep(self) -> None:
        """The real commands list what there is, until --clean ends it."""
        try:
            keep.check()
        except errors.DriverError as exc:
            self.skipTest(str(exc))
        process = self.start_short('--keep')
        name = self.name_of(process)
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or 'Ctrl-C here' not in lines[-1]:
            line = process.stdout.readline()
            self.assertTrue(line, ''.join(lines))
            lines.append(line)
        text = ''.join(lines)
        _, command, listed = text.partition('$ openstack antagonist list')
        self.assertTrue(command, text)
        # So short an act may name one, and may not.
        if 'No incident was reported' not in listed:
            self.assertIn(f'{stage.PREFIX}{name}/background/', listed)
        [line] = [line.strip() for line in lines if 'eval' in line]
        done = subprocess.run(
            ['bash', '-c', f'{line} && exec "$@"', 'x', sys.executable, '-W',
             'ignore', '-m', 'openstackclient.shell', 'interference',
             'workload', 'list', '-f', 'json'], capture_output=True,
            text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertLessEqual({play.SERVICE, play.HOG}, {
            re.sub('^/[^/]*', '', row['id'])
            for row in json.loads(done.stdout)})
        pids = self.wait_for_group(name, play.HOG)
        done = self.clean()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f'removed what demo {name} left\n', done.stdout)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertIn(process.returncode, (0, 1, 3), err)
        self.assertIn('everything is removed now', err)
        self.assert_gone(name, pids)

    def test_what_cannot_be_restored_is_reported(self) -> None:
        """And hides nothing else, and the demo lets go of its stage."""
        self.addCleanup(stage.clean)
        made = stage.Stage(play.GROUPS, play.choose_cpus())
        made.make()
        kept = made.directory / accounting.KEPT
        was = kept.read_text() if kept.exists() else '1'
        self.addCleanup(kept.unlink, missing_ok=True)
        kept.write_text('not a number')
        [problem] = made.remove()
        self.assertIn(str(accounting.SWITCH), problem)
        self.assertIn(str(kept), problem)
        lock = stage.take_lock(made.directory)
        assert lock is not None
        os.close(lock)
        self.assertEqual([str(made.directory)], traces(made.id))
        done = self.clean()
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn(f'demo {made.id}: {accounting.SWITCH}', done.stderr)
        self.assertEqual(1, done.stderr.count('\n'))
        kept.write_text(was)
        self.assertEqual(0, self.clean().returncode)
        self.assert_gone(made.id, [])

    def test_names_that_no_demo_has(self) -> None:
        for name in ('\033[31mred', 'abcdef ', 'abcdeg', 'abcdef0'):
            path = stage.RUN / (stage.PREFIX + name)
            path.mkdir()
            self.addCleanup(path.rmdir)
            done = self.clean()
            self.assertNotIn('\033', done.stdout + done.stderr)
            self.assertTrue(path.exists())

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
             'os.setuid(65534)\nsys.exit(demo.main([]))'],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(1, process.returncode)
        self.assertIn('needs root', process.stderr)
        self.assertEqual(1, process.stderr.count('\n'), process.stderr)

    def test_without_a_compiler(self) -> None:
        before = stage.left_over()
        process = subprocess.run(
            [sys.executable, '-m', demos.DEMO, '--output', str(self.output)],
            env={**os.environ, 'CC': '/bin/false'},
            capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(1, process.returncode)
        self.assertIn('gcc', process.stderr)
        self.assertNotIn('Traceback', process.stderr)
        self.assertEqual(before, stage.left_over())
