# SPDX-License-Identifier: Apache-2.0

"""Licence and privacy of each file, and names that others depend on."""

from __future__ import annotations

import configparser
import functools
import importlib
from importlib import util
import os
import pathlib
import re
import shutil
import subprocess

import fixtures
import testtools

from scavenger_openstack import conf

TOP = pathlib.Path(__file__).parents[3]

NEEDS_NOVA = 'scavenger_openstack.nova.'
NOVA = util.find_spec('nova') is not None

MADE = {'build', 'dist', '__pycache__'}
"""Directories that commands make, besides those that begin with a dot."""

LICENCE = 'SPDX-License-Identifier: Apache-2.0'

LICENSED = {'.py', '.c', '.h', '.sh', '.service', '.toml'}

PRIVATE = {
    'a path of somebody\'s machine':
        re.compile(r'/(?:root|home|Users|work|tmp/[a-z]+lab)/\w'),
    'the number of an issue or task':
        re.compile(r'\b(?:issue|stage|task|ticket) ?#? ?\d', re.I),
    'who or what wrote it':
        re.compile(r'\bco-authored-by\b|\bgenerated with\b', re.I),
    'a package registry':
        re.compile(r'\b(?:pypi|pythonhosted|deb\.debian|opendev)\.org\b'),
    'a merge conflict':
        re.compile(r'^(?:<{7}|>{7}) ', re.M),
}


@functools.cache
def files() -> list[pathlib.Path]:
    """Every file that belongs to the repository."""
    if (TOP / '.git').exists() and shutil.which('git'):
        listed = subprocess.run(
            ['git', '-c', f'safe.directory={TOP}', '-C', str(TOP), 'ls-files',
             '-z', '--cached', '--others', '--exclude-standard'],
            capture_output=True, text=True, timeout=60)
        if listed.returncode == 0:
            found = [TOP / name for name in listed.stdout.split('\0') if name]
            return [path for path in found if path.is_file()]
    found = []
    for where, below, names in os.walk(TOP):
        below[:] = [name for name in below
                    if name not in MADE and not name.endswith('.egg-info')
                    and (not name.startswith('.') or name == '.ci')
                    and pathlib.Path(where, name) != TOP / 'demo']
        found += [pathlib.Path(where, name) for name in names]
    return found


def text_of(path: pathlib.Path) -> str:
    return path.read_text(errors='replace')


class Files(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.files = files()

    def nothing(self, wrong: list[str], rule: str) -> None:
        if wrong:
            self.fail('\n  '.join([rule, *sorted(wrong)]))

    def name(self, path: pathlib.Path) -> str:
        return str(path.relative_to(TOP))

    def test_licence(self) -> None:
        wrong = []
        for path in self.files:
            if path.suffix not in LICENSED or not path.stat().st_size:
                continue
            first_lines = text_of(path).splitlines()[:2]
            if not any(LICENCE in line for line in first_lines):
                wrong.append(self.name(path))
        self.nothing(wrong, 'begin with the SPDX line of the licence:')

    def test_nothing_private(self) -> None:
        wrong = []
        for path in self.files:
            if path == pathlib.Path(__file__):
                continue
            text = text_of(path)
            for what, pattern in PRIVATE.items():
                for match in pattern.finditer(text):
                    line = text.count('\n', 0, match.start()) + 1
                    wrong.append(f'{self.name(path)}:{line} {what}: '
                                 f'{match.group()}')
        self.nothing(wrong, 'what does not belong into a repository:')

    def test_scripts_are_executable(self) -> None:
        wrong = [self.name(path) for path in self.files
                 if path.suffix == '.sh' and path.parent == TOP / 'tools'
                 or path == TOP / '.ci/run']
        wrong = [name for name in wrong if not os.access(TOP / name, os.X_OK)]
        self.nothing(wrong, 'chmod +x:')


class Options(testtools.TestCase):

    def test_no_option_is_there_twice(self) -> None:
        names = [(section, option.dest)
                 for section, options in conf.list_opts()
                 for option in options]
        self.assertEqual(len(names), len(set(names)), str(names))


class EntryPoints(testtools.TestCase):

    def test_each_leads_to_something(self) -> None:
        setup = configparser.ConfigParser()
        setup.read(TOP / 'setup.cfg')
        for group, lines in setup['entry_points'].items():
            for line in lines.strip().splitlines():
                name, _, target = (part.strip()
                                   for part in line.partition('='))
                module, _, attribute = target.partition(':')
                if module.startswith(NEEDS_NOVA) and not NOVA:
                    self.assertIsNotNone(util.find_spec(module), line)
                    continue        # tests/unit/nova has more of it
                found = importlib.import_module(module)
                if not attribute:      # the module is what is meant
                    continue
                self.assertTrue(callable(getattr(found, attribute, None)),
                                f'{group} {name}: {target} is not there')


class Tools(testtools.TestCase):

    def test_what_is_carried_into_other_machines(self) -> None:
        """By a file for root alone: a proxy may have a password."""
        top = self.useFixture(fixtures.TempDir()).path
        proxy = "http://u:it's $x&y\\@proxy"
        done = subprocess.run(
            ['bash', '-c', 'set -euo pipefail; . tools/machine.sh; '
             'carry_environment "$0"', top], cwd=TOP, timeout=60, env={
                 'PATH': os.environ['PATH'], 'https_proxy': proxy},
            capture_output=True, text=True)
        self.assertEqual((0, '', ''),
                         (done.returncode, done.stdout, done.stderr))
        file = pathlib.Path(top, 'opt/machine/environment')
        self.assertEqual(0o600, file.stat().st_mode & 0o777)
        self.assertEqual(proxy, subprocess.run(
            ['sh', '-c', '. "$0" && printf %s "$https_proxy"', str(file)],
            env={}, timeout=60, capture_output=True, text=True).stdout)
