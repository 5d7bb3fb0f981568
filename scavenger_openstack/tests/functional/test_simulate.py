# SPDX-License-Identifier: Apache-2.0


"""``scavenger-simulate``, run as an operator runs it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

import fixtures
import testtools

from scavenger_openstack.cmd import simulate
from scavenger_openstack.tests import tiers

DEADLINE_S = 600.0
"""Ends what hangs; a busy machine takes its time."""
HOURS = """
schema: 1
about: never done in time
duration_s: 90000
tenants:
  - {id: web, cores: 0.5, cpu_s: 0.004}
  - {id: hog, priority: background, threads: 8}
"""
COMMAND = [sys.executable, '-m', 'scavenger_openstack.cmd.simulate']


def children(pid: int) -> list[int]:
    path = pathlib.Path(f'/proc/{pid}/task/{pid}/children')
    return [int(one) for one in path.read_text().split()]


def running(pid: int) -> bool:
    """Whether a process still does something."""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(')')[2].split()[0] not in 'ZX'


class SimulateTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def run_it(self, *argv: str, code: int = 0) -> tuple[str, str]:
        done = subprocess.run([*COMMAND, *argv], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(code, done.returncode, done.stderr)
        return done.stdout, done.stderr

    def fails(self, *argv: str, code: int = 2) -> str:
        """One line that says what is wrong; in this process."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(code, simulate.main(argv))
        self.assertEqual('', out.getvalue())
        text = err.getvalue()
        self.assertEqual(1, text.count('\n'), text)
        self.assertTrue(text.startswith('scavenger-simulate: '), text)
        return text

    def write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def start(self, jobs: int) -> subprocess.Popen[str]:
        """Begin what takes hours; return when its workers are at work."""
        process = subprocess.Popen(
            [*COMMAND, self.write('hours.yaml', HOURS), '--jobs', str(jobs)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.sweep, process)
        self.wait_for(lambda: len(children(process.pid)) == jobs)
        self.workers = children(process.pid)
        return process

    def sweep(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)

    def wait_for(self, what: object) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not what():   # type: ignore[operator]
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_a_table(self) -> None:
        out, err = self.run_it('cpu-antagonist', '--seeds', '2')
        self.assertEqual('', err)
        lines = out.splitlines()
        self.assertTrue(lines[0].startswith('cpu-antagonist: '))
        self.assertEqual(
            ['none', 'static', 'scavenger_strict', 'perfiso', 'cpi2',
             'perfcloud', 'scavenger', 'io_shares', 'attribution', 'ours',
             'oracle'], [line.split()[0] for line in lines[3:14]])
        self.assertIn('2 seeds', lines[15])

    @tiers.only_in_all('one process gives the same in the gate')
    def test_the_same_with_any_number_of_processes(self) -> None:
        found = []
        for jobs in '1', '3':
            path = self.directory / f'{jobs}.json'
            self.run_it('cpu-antagonist', 'memory-antagonist', '--seeds',
                        '3', '--controllers', 'none,static,ours', '--jobs',
                        jobs, '--output', str(path))
            found.append(path.read_text())
        self.assertEqual(*found)
        read = json.loads(found[0])
        self.assertEqual(['cpu-antagonist', 'memory-antagonist'],
                         list(read['scenarios']))
        one = read['scenarios']['cpu-antagonist']
        self.assertEqual([0, 1, 2], [each['seed'] for each in one['records']])
        self.assertEqual(['none', 'static', 'ours'],
                         list(one['controllers']))

    @tiers.only_in_all('any number of processes gives the same, too')
    def test_the_same_whatever_python_hashes(self) -> None:
        found = []
        for seed in '1', '2':
            self.useFixture(fixtures.EnvironmentVariable('PYTHONHASHSEED',
                                                         seed))
            out, _ = self.run_it('mixed', '--seeds', '1', '--controllers',
                                 'ours,scavenger,oracle', '--output', '-')
            found.append(out)
        self.assertEqual(*found)

    def test_seeds_begin_where_told(self) -> None:
        def records(*argv: str) -> object:
            out, _ = self.run_it('cpu-antagonist', '--controllers', 'none',
                                 '--format', 'json', *argv)
            return json.loads(out)['scenarios']['cpu-antagonist']['records']

        both = records('--seeds', '2', '--first-seed', '6')
        self.assertEqual(both[1:],      # type: ignore[index]
                         records('--seeds', '1', '--first-seed', '7'))

    def test_list(self) -> None:
        out, _ = self.run_it('--list')
        self.assertIn('cpu-antagonist  ', out)

    def test_fleet(self) -> None:
        out, _ = self.run_it('cpu-antagonist', 'disk-antagonist', '--fleet',
                             '3', '--hours', '0.1', '--output', '-')
        read = json.loads(out)
        self.assertEqual((3, 0.1), (read['hosts'], read['hours']))
        self.assertGreater(read['wall_s'], 0)
        one = read['scenarios']['fleet']
        self.assertEqual(
            [('cpu-antagonist', 0), ('disk-antagonist', 1),
             ('cpu-antagonist', 2)],
            [(each['scenario'], each['seed']) for each in one['records']])
        out, _ = self.run_it('cpu-antagonist', '--fleet', '2', '--hours',
                             '0.1')
        self.assertIn('host-hours', out)

    def test_wrong_usage(self) -> None:
        out, err = self.run_it(code=2)
        self.assertEqual(('', self.fails()), (out, err))
        for argv, said in (
                (['cpu-antagonits'], 'did you mean cpu-antagonist?'),
                (['mixed', '--seeds', '0'], '--seeds'),
                (['mixed', '--seeds', 'many'], "'many'"),
                (['mixed', '--jobs', '-1'], '--jobs'),
                (['mixed', '--controllers', 'ours,theirs'],
                 'no controller theirs; there are none, static'),
                (['mixed', '--controllers', ','], 'no controller named'),
                (['mixed', '--hours', '2'], '--fleet'),
                (['mixed', '--fleet', '2', '--seeds', '2'], '--seeds'),
                (['mixed', '--fleet', '2', '--hours', 'nan'], '--hours'),
                (['mixed', '--format', 'xml'], '--format'),
                (['mixed', '--colour'], '--colour'),
                (['mixed', 'mixed'], 'two scenarios')):
            self.assertIn(said, self.fails(*argv))

    def test_what_a_scenario_says_does_not_reach_the_terminal(self) -> None:
        path = self.write('loud.yaml', 'schema: 1\nduration_s: 4\n'
                          'about: "\\e[31mred"\ntenants: [{id: a}]')
        out, _ = self.run_it(path, '--seeds', '1', '--controllers', 'none')
        self.assertNotIn('\x1b', out)
        self.assertIn('\\x1b[31mred', out)

    def test_wrong_scenarios(self) -> None:
        for text, said in (
                ('{', 'not YAML'), ('- 1', 'not a scenario'),
                ('schema: 9', 'schema'),
                ('schema: 1\ntenants: [{id: a, threats: 3}]',
                 'did you mean threads?'),
                # Only some seeds draw what cannot be.
                ('schema: 1\nmachine: {cpus: {choice: [3, 4]}, '
                 'threads_per_core: 2}\ntenants: [{id: a}]', 'cpus')):
            path = self.write('wrong.yaml', text)
            err = self.fails(path, '--seeds', '8')
            self.assertIn(said, err)
            self.assertIn(path, err)
        self.assertIn('cannot be read',
                      self.fails(str(self.directory / 'none.yaml')))

    def test_unwritable_output_shows_before_the_work(self) -> None:
        path = self.write('hours.yaml', HOURS)
        for name in (str(self.directory),
                     str(self.directory / 'nowhere' / 'out.json')):
            self.fails(path, '--output', name, code=1)

    def test_reader_that_has_seen_enough(self) -> None:
        done = subprocess.run(
            ['bash', '-o', 'pipefail', '-c',
             f'{" ".join(COMMAND)} --list | true'],
            capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual((0, ''), (done.returncode, done.stderr))

    def test_ctrl_c_ends_all_at_once_and_quietly(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(2)
            began_s = time.monotonic()
            if number is signal.SIGINT:
                os.killpg(process.pid, number)      # as a terminal does
            else:
                process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_S)
            self.assertLess(time.monotonic() - began_s, 20)
            self.assertEqual((130, '', ''), (process.returncode, out, err))
            self.assertEqual([], [pid for pid in self.workers
                                  if running(pid)])

    def test_workers_do_not_outlive_a_killed_parent(self) -> None:
        process = self.start(2)
        process.kill()
        self.wait_for(lambda: not any(map(running, self.workers)))

    def test_worker_that_was_killed(self) -> None:
        process = self.start(2)
        os.kill(self.workers[0], signal.SIGKILL)
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual((1, ''), (process.returncode, out))
        self.assertIn('--jobs', err)
        self.assertEqual(1, err.count('\n'), err)

    @tiers.only_in_all('unit tests draw it, too')
    def test_progress_is_for_terminals(self) -> None:
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        done = subprocess.run(
            [*COMMAND, 'cpu-antagonist', '--seeds', '12', '--controllers',
             'ours'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=theirs, timeout=DEADLINE_S)
        os.close(theirs)
        self.assertEqual(0, done.returncode)
        shown = os.read(ours, 65536).decode()
        self.assertIn('/12 ', shown)
        self.assertTrue(shown.endswith('\r\x1b[K'), shown)
