# SPDX-License-Identifier: Apache-2.0

"""What is in ``benchmarks/`` and ``tools/`` can be started."""

from __future__ import annotations

import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import fixtures
import testtools

from scavenger_openstack.tests.unit.benchmarks import help_of

TOP = pathlib.Path(__file__).parents[4]
FIGURES = TOP / 'benchmarks/simulated/simulator_figures.py'


def programs() -> list[pathlib.Path]:
    return sorted(
        path for where in ('benchmarks', 'tools')
        for path in (TOP / where).rglob('*.py')
        if "\nif __name__ == '__main__':\n" in path.read_text())


def reads_its_command_line(program: pathlib.Path) -> bool:
    """By itself, or by a module of its directory.  What does not would do its
    work, on the machine that runs the tests."""
    text = program.read_text()
    beside = [program.parent / f'{name}.py' for name in re.findall(
        r'^(?:from|import) (\w+)', text, re.M)]
    return any('.parse_args(' in one for one in (
        text, *(path.read_text() for path in beside if path.exists())))


class Programs(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if not FIGURES.exists():
            self.skipTest('no benchmarks/ beside the package: run the tests '
                          'from a checkout')

    def test_each_says_how_it_is_used(self) -> None:
        """And does nothing else, whatever else is on this machine."""
        paths = programs()
        self.assertIn(FIGURES, paths)
        self.assertEqual([], [path for path in paths
                              if not reads_its_command_line(path)])
        ended = subprocess.run(
            [sys.executable, '-m', help_of.__name__, *map(str, paths)],
            capture_output=True, text=True, timeout=300,
            env={**os.environ, 'PYTHONPATH': str(TOP),
                 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(0, ended.returncode, ended.stderr)
        wrong = {path: how for path, how in json.loads(ended.stdout).items()
                 if how[0] or not how[1].startswith('usage: ')}
        self.assertEqual({}, wrong)
        self.assertEqual(len(paths), len(json.loads(ended.stdout)))

    def test_the_figures_of_the_papers(self) -> None:
        """One as its command, and one run with the fast loop."""
        self.useFixture(fixtures.PythonPathEntry(str(FIGURES.parent)))
        self.addCleanup(lambda: [
            sys.modules.pop(path.stem, None)
            for path in FIGURES.parent.glob('*.py')])
        figures = importlib.import_module(FIGURES.stem)
        out = io.StringIO()
        with fixtures.MonkeyPatch('sys.stdout', out), \
                fixtures.MonkeyPatch('sys.argv', [str(FIGURES), 'ibench_2']):
            figures.main()
        self.assertIn('ok LLC', out.getvalue())
        # PerfIso, figure 5: idle CPUs are kept, and the bully works less.
        p99_ms, work = figures.boxed(2000)
        kept_ms, less = figures.boxed(2000, buffer=8)
        self.assertLess(kept_ms, p99_ms)
        self.assertTrue(0 < less < work, (less, work))
