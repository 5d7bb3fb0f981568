# SPDX-License-Identifier: Apache-2.0

"""What a contributor is told to type is there."""

from __future__ import annotations

import configparser
import pathlib
import re

import testtools
import yaml

TOP = pathlib.Path(__file__).parents[3]
TEXTS = (TOP / 'README.rst', TOP / 'CONTRIBUTING.rst',
         *sorted((TOP / 'doc/source').rglob('*.rst')))


FOLDERS = ('scavenger_openstack', 'benchmarks', 'tools', 'doc/source', 'etc',
           'devstack', 'playbooks', 'releasenotes')
MADE_UP = re.compile(r'/tests/|/migrations/')
"""Where files that are named are made up, or of another time."""


def readable() -> list[pathlib.Path]:
    """What engineers read of the repository."""
    return [path for path in (
        *TEXTS[:2], TOP / 'setup.cfg',
        *(path for folder in FOLDERS for path in (TOP / folder).rglob('*')))
        if path.suffix in ('.rst', '.md', '.py', '.sh', '.yaml', '.c',
                           '.service', '.example', '.sample', '.cfg')
        and not MADE_UP.search(str(path.relative_to(TOP)))]


class Commands(testtools.TestCase):

    def test_each_tox_environment_that_is_named(self) -> None:
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(TOP / 'tox.ini')
        for path in TEXTS:
            for name in re.findall(r'tox -e ([\w-]+)', path.read_text()):
                self.assertIn(f'testenv:{name}', tox.sections(), str(path))

    def test_each_file_that_is_named(self) -> None:
        """Those of the source, in any text: pages, help, docstrings."""
        named = re.compile(
            r'(?<![\w./~-])((?:tools|etc|benchmarks|doc/source|devstack|'
            r'scavenger_openstack)/[\w./-]+\.\w+)')
        missing = [f'{path.relative_to(TOP)}: {name}' for path in readable()
                   for name in named.findall(path.read_text())
                   if not (TOP / name).exists()]
        self.assertEqual([], missing)


class Zuul(testtools.TestCase):

    def test_playbooks(self) -> None:
        jobs = [item['job'] for item in yaml.safe_load(
            (TOP / '.zuul.yaml').read_text()) if 'job' in item]
        self.assertNotEqual([], jobs)
        for job in jobs:
            for name in (job['run'], job['post-run']):
                plays = yaml.safe_load((TOP / name).read_text())
                self.assertTrue(all(play['tasks'] for play in plays), name)
