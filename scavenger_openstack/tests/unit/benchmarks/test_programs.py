# SPDX-License-Identifier: Apache-2.0

"""What is in ``benchmarks/`` and ``tools/`` can be started."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import functools
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
from scavenger_openstack.tests.unit.benchmarks import scripts

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


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def module_file(name: str, beside: pathlib.Path) -> pathlib.Path | None:
    """The file of a module of the package or of a directory, ``None`` for
    what is of neither."""
    top = TOP if name.partition('.')[0] == 'scavenger_openstack' else beside
    path = top.joinpath(*name.split('.'))
    return next((file for file in (path.with_suffix('.py'),
                                   path / '__init__.py') if file.exists()),
                None)


@functools.cache
def names_of(path: pathlib.Path) -> set[str]:
    """What a module has, without running it."""
    names = {'__doc__', '__file__', '__name__'}
    if path.name == '__init__.py':
        names |= {other.stem for other in path.parent.iterdir()}
    todo: list[ast.AST] = list(parsed(path).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef
                      | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition('.')[0]
                      for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        todo += ast.iter_child_nodes(node)
    return names


def missing_names(path: pathlib.Path) -> Iterator[str]:
    """What a program takes from modules that do not have it."""
    where: dict[str, pathlib.Path] = {}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                file = module_file(alias.name, path.parent)
                if file is not None and '.' not in alias.name:
                    where[alias.asname or alias.name] = file
        elif isinstance(node, ast.ImportFrom) and node.module:
            file = module_file(node.module, path.parent)
            for alias in node.names:
                inner = module_file(f'{node.module}.{alias.name}',
                                    path.parent)
                if inner is not None:
                    where[alias.asname or alias.name] = inner
                elif file is not None and alias.name not in names_of(
                        file) or node.module.startswith(
                            'scavenger_openstack') and file is None:
                    yield f'{path}:{node.lineno} {node.module}.{alias.name}'
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(
                node.value, ast.Name) and node.value.id in where and \
                node.attr not in names_of(where[node.value.id]):
            yield f'{path}:{node.lineno} {node.value.id}.{node.attr}'


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

    def test_each_takes_what_is_there(self) -> None:
        """What a command line does not reach, too."""
        self.addCleanup(parsed.cache_clear)
        self.addCleanup(names_of.cache_clear)
        paths = [path for where in ('benchmarks', 'tools')
                 for path in sorted((TOP / where).rglob('*.py'))]
        self.assertIn(FIGURES, paths)
        self.assertEqual([], [missing for path in paths
                              for missing in missing_names(path)])

    def test_the_figures_of_the_papers(self) -> None:
        """One as its command, and one run with the fast loop."""
        scripts.use(self, FIGURES.parent)
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
