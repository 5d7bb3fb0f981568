# SPDX-License-Identifier: Apache-2.0

"""Tests of ``scavenger-ibench profile``, which is alone on a host: they are
in the class of those of its other commands."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any
import uuid

import fixtures

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests import tiers

WORK = ('import time\n'
        'end = time.monotonic() + {seconds}\n'
        'while time.monotonic() < end:\n'
        '    begin, rounds = time.monotonic(), 0\n'
        '    while time.monotonic() < begin + 0.01:\n'
        '        sum(range(1000)); rounds += 1\n'
        '    print({prints}, flush=True)\n')
"""A workload that runs for some time, and prints each 10 ms."""

TURNS = '--seconds', '0.1', '--repeats', '1', '--sois', '11'
AGAIN = '--repeats', '2'
"""In one turn an SoI may get no CPU, and report nothing."""
PLAIN = '--qos', 'rate>-99%'


class ProfileTests(base.FunctionalTestCase):

    def ibench(self, *words: str) -> tuple[int, str, str]:
        raise NotImplementedError

    def running(self, *words: str) -> tuple[subprocess.Popen[str], int]:
        raise NotImplementedError

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        raise NotImplementedError

    def command(self, seconds: float = 600, prints: str = 'rounds') -> str:
        """The command of a workload; its name is on no other."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                            f'{uuid.uuid4().hex}.py')
        path.write_text(WORK.format(seconds=seconds, prints=prints))
        self.addCleanup(lambda: self.assertFalse(self.runs(str(path))))
        return f'{sys.executable} {path}'

    def runs(self, command: str) -> bool:
        """Whether a process has the last word of a command as its last."""
        for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
            with contextlib.suppress(OSError):
                if path.read_bytes().endswith(
                        command.split()[-1].encode() + b'\0'):
                    return True
        return False

    def loaded(self, *words: str) -> subprocess.Popen[str]:
        """A profile whose command runs."""
        command = self.command()
        process, _ = self.running('profile', '--command', command, *TURNS,
                                  *PLAIN, *words)
        self.wait_for('the command runs', lambda: self.runs(command))
        return process

    def profile(self, *words: str) -> dict[str, Any]:
        code, out, err = self.ibench('profile', *words, '--json')
        self.assertEqual(0, code, err)
        document: dict[str, Any] = json.loads(out)
        return document

    def assert_estimates(self, document: dict[str, Any], *names: str) -> None:
        for part in ('tolerated', 'caused'):
            self.assertEqual({*names}, {*document[part]}, str(document))
            for estimate in document[part].values():
                self.assertLessEqual(0, estimate['low'])
                self.assertLessEqual(estimate['low'], estimate['value'])
                self.assertLessEqual(estimate['value'], estimate['high'])
                self.assertLessEqual(estimate['high'], 1)

    def test_profile_of_a_command_that_ends(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        document = self.profile(
            '--command', self.command(seconds=0.02), *TURNS, *AGAIN,
            '--output', str(directory / 'json'),
            '--html', str(directory / 'html'))
        self.assertEqual(('measured', 'long', 'duration_s'), (
            document['source'], document['form'],
            document['qos']['signal']))
        self.assertGreater(document['qos']['bound'],
                           document['qos']['alone'])
        self.assert_estimates(document, 'integer')
        self.assertEqual(document, json.loads(
            (directory / 'json').read_text()))
        self.assertEqual(1, (directory / 'html').read_text().count('<svg'))

    def test_profile_of_what_it_prints(self) -> None:
        document = self.profile(
            '--command', self.command(), *TURNS, *AGAIN, *PLAIN, '--sois',
            '11,5')
        self.assert_estimates(document, 'integer')
        self.assertEqual(['network_bandwidth'], [*document['missing']])
        self.assertAlmostEqual(0.01 * document['qos']['alone'],
                               document['qos']['bound'])

    @tiers.only_in_all('it measures, beside nothing else')
    def test_what_a_profile_shows(self) -> None:
        """On its CPU each has half of it at 100 %; beside, nothing."""
        first, *_, last = sorted(os.sched_getaffinity(0))
        document = self.profile(
            '--command', self.command(), '--qos', 'rate>-15%',
            '--workload-cpus', str(first), '--cpus', str(first),
            '--beside-cpus', str(last), '--sois', '11,7',
            '--seconds', '0.5', '--repeats', '2')
        tolerated, caused = document['tolerated'], document['caused']
        self.assertLess(tolerated['integer']['value'], 0.5)
        self.assertGreater(tolerated['llc_bandwidth']['value'], 0.9)
        self.assertAlmostEqual(0.5, caused['integer']['value'], delta=0.2)
        self.assertAlmostEqual(0, caused['llc_bandwidth']['value'],
                               delta=0.2)

    def test_profile_of_a_cgroup(self) -> None:
        tree = self.cgroups()
        self.spin(tree)
        document = self.profile('--cgroup', tree.name, '--short', *AGAIN,
                                '--sois', '11,9')
        self.assertEqual(('short', 'progress'), (
            document['form'], document['qos']['signal']))
        self.assertEqual({'integer', 'l1d'}, {*document['caused']})
        document = self.profile(
            '--cgroup', tree.name, *TURNS, *AGAIN, '--meter', self.command(),
            *PLAIN)
        self.assertEqual('rate', document['qos']['signal'])
        self.assert_estimates(document, 'integer')

    def spin(self, tree: base.CgroupTree) -> subprocess.Popen[bytes]:
        """A workload that runs in a cgroup already."""
        def join() -> None:
            for controller in tree.mounts:
                (tree.path(controller) / 'cgroup.procs').write_text('0')
        process = subprocess.Popen(
            self.command(prints='""').split(), stdout=subprocess.DEVNULL,
            preexec_fn=join)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_two_profiles(self) -> None:
        process = self.loaded('--repeats', '100')
        for other in (('profile', '--command', 'true'),
                      ('run', '11', '--intensity', '1')):
            code, _, err = self.ibench(*other)
            self.assertEqual((2, 1), (code, err.count('\n')), err)
        process.send_signal(signal.SIGINT)
        self.assertEqual(130, self.end(process)[0])

    def test_a_profile_that_is_killed(self) -> None:
        """The next run ends its command."""
        process = self.loaded('--repeats', '100')
        process.kill()
        process.wait()
        self.ibench('run', '11', '--intensity', '1', '--seconds', '0.1')

    def test_a_workload_that_ends(self) -> None:
        tree = self.cgroups()
        spinner = self.spin(tree)
        process, _ = self.running('profile', '--cgroup', tree.name,
                                  '--sois', '11', '--repeats', '100')
        spinner.kill()
        spinner.wait()
        code, _, err = self.end(process)
        self.assertEqual(2, code, err)
        self.assertIn(tree.name, err)

    def test_profiles_that_cannot_be(self) -> None:
        ends = self.command(seconds=1.5)
        for words, mention in (
                (('--command', ends, *TURNS, *PLAIN, '--repeats', '100'),
                 'in the middle'),
                (('--command', 'false', *TURNS), 'status 1'),
                (('--command', '/no/such', *TURNS), '/no/such'),
                (('--cgroup', '/no/such'), '/no/such'),
                (('--cgroup', '/'), '/'),
                (('--instance', 'no-such'), 'no-such'),
                (('--command', self.command(), '--qos', 'rate<0.5', *TURNS),
                 'without any interference'),
                (('--command', 'true', '--cpus', '4095'), '4095')):
            code, out, err = self.ibench('profile', *words)
            self.assertEqual((2, ''), (code, out), f'{words}: {err}')
            self.assertIn(mention, err.splitlines()[-1])
            self.assertNotIn('Traceback', err)
