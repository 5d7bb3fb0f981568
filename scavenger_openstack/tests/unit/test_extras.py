# SPDX-License-Identifier: Apache-2.0

"""Programs on an installation that lacks packages."""

from __future__ import annotations

import configparser
from importlib import metadata
import pathlib
import re
import subprocess
import sys

import fixtures
import testtools

from scavenger_openstack import errors

TOP = pathlib.Path(__file__).parents[3]

BLOCKED = """\
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {modules!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}',
                                      name=name)
sys.meta_path.insert(0, Finder())
from {module} import {function}
sys.exit({function}({words!r}))
"""
"""A program as it is where modules are not installed."""

ALL = {module for modules in errors.EXTRAS.values() for module in modules}


def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(TOP / 'setup.cfg')
    return parser


def plain(name: str) -> str:
    """A name of a distribution, with or without compiled libraries."""
    return re.sub('[-_.]+', '-', name).lower().removesuffix('-binary')


class Programs(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.top / 'scavenger.conf'
        self.file.write_text(
            f'[DEFAULT]\nstate_dir = {self.top}/state\n'
            'transport_url = rabbit://u:p@192.0.2.1/\n'
            '[database]\nconnection = sqlite:///nowhere\n'
            '[conductor]\nenabled = true\n[libvirt]\nuri =\n')

    def run_without(self, program: str, *words: str,
                    modules: set[str] = ALL) -> tuple[int, str]:
        scripts = dict(
            re.split(' *= *', line) for line in setup()['entry_points'][
                'console_scripts'].strip().splitlines())
        module, function = scripts[program].split(':')
        done = subprocess.run(
            [sys.executable, '-c', BLOCKED.format(
                modules=modules, module=module, function=function,
                words=[*words])],
            capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr

    def test_each_says_what_to_install(self) -> None:
        config = '--config-file', str(self.file)
        for program, words, extra in (
                ('scavenger-agent', ('run', *config), 'rpc'),
                ('scavenger-api', config, 'control'),
                ('scavenger-conductor', config, 'control'),
                ('scavenger-manage', ('db', 'upgrade', *config), 'control'),
                ('scavenger-manage', ('db', 'version', *config), 'control'),
                ('scavenger-manage', ('db', 'purge', '--older-than', '30d',
                                      *config), 'control'),
                ('scavenger-manage', ('host', 'enroll', 'x', *config),
                 'control'),
                ('scavenger-manage', ('aggregate', 'list', *config),
                 'control'),
                ('scavenger-manage', ('placement', 'remove', *config),
                 'control'),
                ('scavenger-manage', ('flavors', 'create', *config),
                 'control'),
                ('scavenger-status', ('upgrade', 'check', *config),
                 'control')):
            code, err = self.run_without(program, *words)
            self.assertEqual((2, 1), (code, len(err.splitlines())), err)
            self.assertTrue(err.startswith(f'{program}: '), err)
            self.assertIn(f'install scavenger_openstack[{extra}]\n', err)

    def test_a_database_without_its_driver(self) -> None:
        for url, module, extra in (
                ('postgresql+psycopg2', 'psycopg2', 'postgresql'),
                ('mysql+pymysql', 'pymysql', 'control')):
            self.file.write_text(
                f'[database]\nconnection = {url}://u:p@192.0.2.1/x\n')
            code, err = self.run_without(
                'scavenger-manage', 'db', 'version', '--config-file',
                str(self.file), modules={module})
            self.assertEqual((1, 1), (code, len(err.splitlines())), err)
            self.assertIn(f'{module} is missing: install '
                          f'scavenger_openstack[{extra}]', err)

    def test_the_others_need_none(self) -> None:
        """Each program is in one of these tests."""
        for program, words in (
                ('scavenger-agent', ('sample', '--root-dir', str(self.top))),
                ('scavenger-standalone', ('env', '--undo')),
                ('scavenger-standalone', ('env', '--state-dir',
                                          f'{self.top}/state')),
                ('scavenger-restore', ('--all', '--state-dir',
                                       f'{self.top}/state')),
                ('scavenger-demo', ('--help',)),
                ('scavenger-ibench', ('list',)),
                ('scavenger-replay', ('nowhere',)),
                ('scavenger-simulate', ('--help',))):
            _, err = self.run_without(program, *words)
            self.assertNotIn('Traceback', err)
            self.assertNotIn('is missing: install', err)


class Names(testtools.TestCase):

    def test_each_package_of_an_extra_is_known(self) -> None:
        declared = {
            extra: {plain(re.split('[>=[ ]', line)[0])
                    for line in lines.strip().splitlines()}
            for extra, lines in setup()['extras'].items()}
        distributions = {
            module: {plain(name) for name in names} for module, names
            in metadata.packages_distributions().items()}
        self.assertEqual(declared.keys(), errors.EXTRAS.keys())
        for extra, modules in errors.EXTRAS.items():
            installed = {name for module in modules
                         for name in distributions.get(module, ())}
            absent = {name for name in declared[extra] if not any(
                name in names for names in distributions.values())}
            self.assertEqual(declared[extra] - absent, installed)

    def test_others_stay_faults(self) -> None:
        self.assertEqual('', errors.missing_package(ModuleNotFoundError(
            'No module named x', name='x')))
        self.assertEqual('', errors.missing_package(
            ImportError('cannot import')))
