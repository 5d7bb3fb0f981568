# SPDX-License-Identifier: Apache-2.0

"""What tools/test.sh counts, with stestr on tests made for it."""

from __future__ import annotations

from collections.abc import Sequence
import os
import pathlib
import subprocess
import sys

import fixtures
import testtools

TOP = pathlib.Path(__file__).parents[4]
MODULE = '''\
import pathlib
import unittest

class T(unittest.TestCase):

    def once(self, name):
        mark = pathlib.Path(__file__).with_name(name)
        if not mark.exists():
            mark.touch()
            self.fail('the first time')

    def test_good(self):
        pass

    def test_later(self):
        self.once('later')

    def test_bad(self):
        self.fail('each time')

    def test_absent(self):
        self.once('absent')
        self.skipTest('what it needs is gone')
'''


class TestResults(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        tests = self.top / 'scavenger_openstack' / 'tests'
        for package in (tests / 'unit', tests / 'functional'):
            package.mkdir(parents=True)
            (package / '__init__.py').touch()
        for package in (tests, tests.parent):
            (package / '__init__.py').touch()
        (tests / 'unit' / 'test_it.py').write_text(MODULE)
        (tests / 'functional' / 'test_it.py').write_text(MODULE)
        (self.top / '.stestr.conf').write_text(
            '[DEFAULT]\ntest_path=./scavenger_openstack/tests\ntop_dir=./\n')
        (self.top / 'checks').write_text('success style\n')

    def results(self, *options: str,
                only: Sequence[str] = ('unit.*(good|later|bad)',)
                ) -> tuple[int, list[str]]:
        """Exit code and lines of tools/results.py.

        :param only: arguments of stestr for each stage
        """
        environment = {
            **{name: value for name, value in os.environ.items()
               if not name.startswith('PYTHON')},
            'PATH': f'{pathlib.Path(sys.executable).parent}:'
                    f'{os.environ["PATH"]}'}
        said = b''.join(subprocess.run(
            ['stestr', 'run', '--serial', '--subunit', *words.split()],
            cwd=self.top, env=environment, stdout=subprocess.PIPE,
            check=False).stdout for words in only)
        done = subprocess.run(
            [sys.executable, str(TOP / 'tools' / 'results.py'), '--checks',
             'checks', *options], cwd=self.top, env=environment,
            input=said, stdout=subprocess.PIPE, check=False)
        return done.returncode, done.stdout.decode().splitlines()

    def test_a_test_that_fails_once_fails(self) -> None:
        code, lines = self.results()
        self.assertEqual((1, '2 passed, 2 failed, 0 skipped'),
                         (code, lines[-1]))

    def test_a_test_that_passes_by_itself_is_listed(self) -> None:
        code, lines = self.results('--again', '8', only=['unit.*(good|later)'])
        self.assertEqual((0, '3 passed, 0 failed, 0 skipped'),
                         (code, lines[-1]))
        at = lines.index('FAILED FIRST, PASSED BY ITSELF:')
        self.assertEqual('  unit.test_it.T.test_later', lines[at + 1])

    def test_one_that_fails_again_has_failed(self) -> None:
        code, lines = self.results('--again', '8')
        self.assertEqual((1, '3 passed, 1 failed, 0 skipped'),
                         (code, lines[-1]))
        at = lines.index('FAILED:')
        self.assertEqual('  unit.test_it.T.test_bad', lines[at + 1])

    def test_too_many_do_not_run_again(self) -> None:
        code, lines = self.results('--again', '1')
        self.assertEqual((1, '2 passed, 2 failed, 0 skipped'),
                         (code, lines[-1]))

    def test_what_is_no_test_does_not_run_again(self) -> None:
        (self.top / 'checks').write_text('fail style\n')
        code, lines = self.results('--again', '8', only=['unit.*good'])
        self.assertEqual((1, '1 passed, 1 failed, 0 skipped'),
                         (code, lines[-1]))

    def test_only_functional_tests(self) -> None:
        """As tools/test.sh has them: a stage in which none is, then theirs."""
        code, lines = self.results('--again', '8', only=[
            f'--test-path scavenger_openstack/tests/{kind} '
            'functional.*(good|later)' for kind in ('unit', 'functional')])
        self.assertEqual((0, '3 passed, 0 failed, 0 skipped'),
                         (code, lines[-1]))
        self.assertEqual(
            ['FAILED FIRST, PASSED BY ITSELF:',
             '  functional.test_it.T.test_later'], lines[-3:-1])
        self.assertEqual([], [line for line in lines if 'regex' in line])

    def test_one_that_is_skipped_by_itself_has_failed(self) -> None:
        code, lines = self.results('--again', '8', only=['unit.*absent'])
        self.assertEqual((1, '1 passed, 1 failed, 0 skipped'),
                         (code, lines[-1]))
