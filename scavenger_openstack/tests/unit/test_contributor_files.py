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


class Commands(testtools.TestCase):

    def test_each_tox_environment_that_is_named(self) -> None:
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(TOP / 'tox.ini')
        for path in TEXTS:
            for name in re.findall(r'tox -e ([\w-]+)', path.read_text()):
                self.assertIn(f'testenv:{name}', tox.sections(), str(path))

    def test_each_file_that_is_named(self) -> None:
        """Those of the source, in any text."""
        named = re.compile(
            r'``(?:sudo )?((?:tools|etc|benchmarks|doc/source|devstack|'
            r'scavenger_openstack)/[\w./-]+\.\w+)')
        missing = [f'{path.relative_to(TOP)}: {name}' for path in TEXTS
                   for name in named.findall(path.read_text())
                   if not (TOP / name).exists()]
        self.assertEqual([], missing)

    def test_each_program_that_a_hook_starts(self) -> None:
        hooks = yaml.safe_load((TOP / '.pre-commit-config.yaml').read_text())
        for hook in [one for repo in hooks['repos'] for one in repo['hooks']]:
            for module in re.findall(r'scavenger_openstack[.\w]+',
                                     hook['entry']):
                self.assertTrue(
                    (TOP / (module.replace('.', '/') + '.py')).exists(),
                    module)


class Zuul(testtools.TestCase):

    def test_playbooks(self) -> None:
        jobs = [item['job'] for item in yaml.safe_load(
            (TOP / '.zuul.yaml').read_text()) if 'job' in item]
        self.assertNotEqual([], jobs)
        for job in jobs:
            for name in (job['run'], job['post-run']):
                plays = yaml.safe_load((TOP / name).read_text())
                self.assertTrue(all(play['tasks'] for play in plays), name)
