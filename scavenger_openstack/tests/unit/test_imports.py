# SPDX-License-Identifier: Apache-2.0

"""What may import what: the rooms of the package, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import functools
import pathlib
import sys
from typing import NamedTuple

import testtools

import scavenger_openstack

PACKAGE = 'scavenger_openstack'
HERE = pathlib.Path(scavenger_openstack.__file__).parent

LEVELS = {
    '': 0, 'types': 0, 'errors': 0, 'command_line': 0, 'wire': 0,
    'restore': 0, 'amounts': 0, 'host_names': 0, 'log_once': 0, 'text': 0,
    'typed_amounts': 0, 'knobs': 0, 'outcomes': 0, 'grounds': 0, 'plot': 0,
    'events': 0, 'algorithms': 1, 'decision': 1,
    'metrics': 1, 'conf': 2, 'rpc': 2, 'db': 2, 'drivers': 2, 'recording': 2,
    'simulator': 2,
    'agent': 3, 'conductor': 3, 'api': 3, 'nova': 3, 'osc': 3,
    'archive': 3, 'cloud_metrics': 3, 'dashboard': 3,
    'ibench': 3, 'state_report': 3,
    'demo': 4, 'laboratory': 4, 'wsgi': 4,
    'cmd': 5,
}
"""Each room and its level; imports point down.

Only ``conf``, which imports none of it, may be imported from its own level,
the contract of drivers by those that play one, and algorithms by decisions.
"""

PLAY_A_DRIVER = ('recording', 'simulator')

DRIVERS = {'base': 1, 'calls': 0, 'still_host': 2, 'kernel': 2, 'cgroup': 3,
           'delay': 3, 'network': 3, 'resctrl': 3, 'qemu': 4, 'direct': 5,
           'libvirt': 5, 'perf': 5, 'prerequisites': 5, 'host': 6}
"""The rooms and modules of ``drivers`` and their levels; likewise."""

HOMES = {
    'oslo_config': ('conf', 'metrics.options',
                    'conductor.sessions', 'rpc', 'agent.parameters',
                    'agent.parts', 'agent.service',
                    'agent.unix_signals', 'api', 'wsgi', 'drivers.host',
                    'recording.replay', 'recording.writer', 'state_report',
                    'laboratory.replay_settings', 'cmd', 'nova'),
    'oslo_log': ('conf', 'drivers', 'recording.writer', 'rpc', 'agent',
                 'conductor', 'nova', 'wsgi', 'cmd', 'demo'),
    'libvirt': ('drivers.libvirt.client',),
    'stevedore': ('agent.parts',),
    'pyarrow': ('recording.table_files', 'archive.files'),
    'fsspec': ('archive.files',),
    'yaml': ('simulator.safe_yaml', 'simulator.scenario'),
    'msgspec': ('wire',),
    'sqlalchemy': ('db',),
    'alembic': ('db',),
    'oslo_messaging': ('nova', 'rpc'),
    'oslo_service': ('rpc',),
    'oslo_upgradecheck': ('cmd.status', 'cmd.upgrade_checks'),
    'oslo_reports': ('state_report',),
    'prometheus_client': ('cloud_metrics',),
    'flask': ('api',),
    'werkzeug': ('api',),
    'jsonschema': ('api',),
    'microversion_parse': ('api',),
    'oslo_policy': ('api',),
    'oslo_middleware': ('api',),
    'keystonemiddleware': ('api',),
    'bcrypt': ('api',),
    'openstack': ('osc',),
    'osc_lib': ('osc',),
    'cliff': ('osc',),
    'keystoneauth1': ('conductor.placement_api', 'conductor.sessions', 'nova',
                      'conductor.nova.client', 'osc', 'dashboard.client'),
    'django': ('dashboard',),
    'horizon': ('dashboard',),
    'openstack_dashboard': ('dashboard',),
    'novaclient': ('conductor.nova.client',),
    'nova': ('nova',),
    'requests': ('dashboard.client',),
}
"""Where each foreign library may be imported: the library's one edge.

The two frames, options and log, have more: what is handed the options
names their type, and level 2 and above may log.
"""

PURE = ('algorithms', 'decision', 'events')

IMPURE = {'asyncio', 'ctypes', 'datetime', 'glob', 'io', 'logging',
          'multiprocessing', 'os', 'pathlib', 'random', 'select', 'shutil',
          'signal', 'socket', 'subprocess', 'tempfile', 'threading', 'time'}
"""Parts of the standard library that are a clock, a file or a socket."""


class Import(NamedTuple):
    """One imported name; ``lazy`` when it is inside a function."""

    module: str
    target: str
    line: int
    lazy: bool

    def __str__(self) -> str:
        return f'{self.module}:{self.line} imports {self.target}'

    @property
    def top(self) -> str:
        return self.target.partition('.')[0]

    @property
    def ours(self) -> bool:
        return self.top == PACKAGE

    @property
    def foreign(self) -> bool:
        return not self.ours and self.top not in sys.stdlib_module_names


@functools.cache
def files() -> dict[str, ast.Module]:
    """Every module of the package by its file, parsed once for all tests."""
    return {str(path.relative_to(HERE)): ast.parse(path.read_bytes())
            for path in sorted(HERE.rglob('*.py'))}


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module below the package but the tests, without its prefix."""
    found = {}
    for name, tree in files().items():
        parts = list(pathlib.PurePath(name).with_suffix('').parts)
        if parts[-1] == '__init__':
            parts.pop()
        if parts[:1] != ['tests']:
            found['.'.join(parts)] = tree
    return found


@functools.cache
def all_imports() -> list[Import]:
    return [found for module, tree in modules().items()
            for found in imports(module, tree)]


def imports(module: str, node: ast.AST, lazy: bool = False,
            ) -> Iterator[Import]:
    """What is imported anywhere below a node."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        above = ''
        if isinstance(node, ast.ImportFrom):
            above = '.' * node.level + f'{node.module or ""}.'
        for alias in node.names:
            yield Import(module, above + alias.name, node.lineno, lazy)
    lazy |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for inner in ast.iter_child_nodes(node):
        # An import is a statement, which no expression holds.
        if not isinstance(inner, ast.expr):
            yield from imports(module, inner, lazy)


def room(module: str) -> str:
    return module.partition('.')[0]


@functools.cache
def target_module(found: Import) -> str:
    """The module of ours that an import reaches, without its prefix."""
    name = found.target.partition('.')[2]
    while name and not ((HERE / name.replace('.', '/')).is_dir()
                        or (HERE / f'{name.replace(".", "/")}.py').exists()):
        name = name.rpartition('.')[0]
    return name


def order(node: ast.stmt) -> str | None:
    """What OpenStack sorts an import by: ``from a import b`` is ``a.b``."""
    if isinstance(node, ast.Import):
        return node.names[0].name.lower()
    if isinstance(node, ast.ImportFrom):
        return f'{node.module}.{node.names[0].name}'.lower()
    return None


class Imports(testtools.TestCase):

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        for made in (files, modules, all_imports):
            made.cache_clear()      # a million objects

    def setUp(self) -> None:
        super().setUp()
        self.trees = modules()
        self.all = all_imports()

    def nothing(self, wrong: list[str], rule: str) -> None:
        if wrong:
            self.fail('\n  '.join([rule, *wrong]))

    def test_each_module_has_a_room(self) -> None:
        self.nothing([module for module in self.trees
                      if room(module) not in LEVELS],
                     'add the noun to LEVELS, with its level:')

    def test_no_relative_imports(self) -> None:
        self.nothing([str(found) for found in self.all
                      if found.target.startswith('.')],
                     'say the whole name:')

    def test_imports_point_down(self) -> None:
        wrong = []
        for found in self.all:
            if not found.ours:
                continue
            here, there = room(found.module), room(target_module(found))
            if here == there or (LEVELS[here], there) == (2, 'conf'):
                continue
            if (here, there) == ('decision', 'algorithms') or (
                    here in PLAY_A_DRIVER
                    and target_module(found) in ('drivers.base',
                                                 'drivers.still_host')):
                continue
            if LEVELS[there] >= LEVELS[here] > 0:
                wrong.append(f'{found} (level {LEVELS[here]} to '
                             f'{LEVELS[there]})')
        self.nothing(wrong, 'rooms import only from rooms below them:')

    def test_imports_point_down_inside_of_drivers(self) -> None:
        wrong = []
        for found in self.all:
            here, there = (
                name.removeprefix('drivers.').partition('.')[0]
                for name in (found.module, target_module(found)))
            if here != there and here in DRIVERS and there in DRIVERS and \
                    found.module.startswith('drivers.') and \
                    target_module(found).startswith('drivers.') and \
                    DRIVERS[there] >= DRIVERS[here]:
                wrong.append(str(found))
        self.nothing(wrong, 'rooms of drivers import only what is below:')

    def test_types_and_errors_need_only_the_standard_library(self) -> None:
        self.nothing(
            [str(found) for found in self.all
             if LEVELS[room(found.module)] == 0
             and (found.foreign and (found.top, room(found.module)) != (
                 'msgspec', 'wire') or found.ours
                  and LEVELS[room(target_module(found))] > 0)],
            'level 0 imports the standard library only, and its codec:')

    def test_algorithms_and_decisions_are_pure(self) -> None:
        wrong = []
        for found in self.all:
            if room(found.module) not in PURE:
                continue
            if found.ours:
                fine = room(target_module(found)) in (
                    'types', 'outcomes', 'grounds', 'knobs', *PURE
                    ) or target_module(found) in (
                        'wire.fit', 'wire.profile') or (
                    room(found.module), target_module(found)) == (
                        'events', 'wire.report')
            elif found.top == 'numpy':
                fine = found.module.startswith('algorithms.attribution'
                                               ) and found.lazy
            else:
                fine = not found.foreign and found.top not in IMPURE
            if not fine:
                wrong.append(str(found))
        for module, tree in self.trees.items():
            if room(module) in PURE:
                wrong += [f'{module}:{node.lineno} calls {node.func.id}()'
                          for node in ast.walk(tree)
                          if isinstance(node, ast.Call)
                          and isinstance(node.func, ast.Name)
                          and node.func.id in ('open', 'print', 'input')]
        self.nothing(wrong, 'these take values and return values; types '
                            'and the standard library only, no clock, file, '
                            'log or socket:')

    def test_foreign_libraries_stay_at_their_edge(self) -> None:
        wrong = []
        for found in self.all:
            if not found.foreign or found.top == 'numpy':
                continue
            homes = HOMES.get(found.top, ())
            if not any(f'{found.module}.'.startswith(f'{home}.')
                       for home in homes):
                wrong.append(f'{found}, whose home is '
                             f'{" or ".join(homes) or "not in HOMES"}')
        self.nothing(wrong, 'one edge per foreign library:')

    def test_restore_stands_alone(self) -> None:
        """It has to work when the rest, or what it needs, is broken."""
        reached, todo = set(), {'restore.program'}
        while todo:
            module = todo.pop()
            reached.add(module)
            while module:  # importing a module runs its packages
                module = module.rpartition('.')[0]
                reached.add(module)
            todo |= {target_module(found) for found in self.all
                     if found.ours and found.module in reached} - reached
        self.nothing([str(found) for found in self.all
                      if found.module in reached and found.foreign],
                     'restore needs the standard library only:')
        self.nothing(sorted(module for module in reached - {''}
                            if room(module) != 'restore'),
                     'restore needs nothing else of the project:')

    def test_no_test_imports_another(self) -> None:
        """What tests share is in a module that is none."""
        wrong = []
        for file, tree in files().items():
            if not pathlib.PurePath(file).name.startswith('test_'):
                continue
            wrong += [str(found) for found in imports(file, tree)
                      if any(part.startswith('test_')
                             for part in found.target.split('.'))]
        self.nothing(wrong, 'move what they share into a module of its own:')

    def test_order_of_imports(self) -> None:
        """One name per line, sorted, the way OpenStack does."""
        wrong = []
        for file, tree in files().items():
            last, last_line = '', 0
            for node in tree.body:
                name = order(node)
                if name is None:
                    continue
                assert isinstance(node, ast.Import | ast.ImportFrom)
                where = f'{file}:{node.lineno}'
                if len(node.names) > 1:
                    wrong.append(f'{where} imports several names')
                if node.lineno == last_line + 1 and name < last:
                    wrong.append(f'{where} {name} comes after {last}')
                last, last_line = name, node.lineno
        self.nothing(wrong, 'one import per line, sorted by full name:')
