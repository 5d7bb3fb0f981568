# SPDX-License-Identifier: Apache-2.0

"""What wheel and Debian packages are made of is all there."""

from __future__ import annotations

import configparser
import pathlib
import re

import testtools

TOP = pathlib.Path(__file__).parents[3]


def setup() -> configparser.ConfigParser:
    """Return ``setup.cfg`` as pbr reads it."""
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read(TOP / 'setup.cfg')
    return parsed


def programs() -> set[str]:
    """Return the names of the programs, without ``scavenger-``."""
    return set(re.findall(r'^scavenger-(\w+) = ', setup()[
        'entry_points']['console_scripts'], re.M))


class Packaging(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if not (TOP / 'debian').exists():
            self.skipTest('needs a checkout')
        self.rules = (TOP / 'debian' / 'rules').read_text()

    def test_data_files_of_the_wheel(self) -> None:
        """Pbr knows a star as the whole last part of a path only."""
        lines = setup()['files']['data_files'].splitlines()
        sources = list(filter(None, (line.rpartition('=')[2].strip()
                                     for line in lines)))
        self.assertIn('etc/scavenger/archive/*', sources)
        for source in sources:
            path = TOP / source.removesuffix('/*')
            self.assertTrue(path.is_dir() if source.endswith('/*')
                            else path.is_file(), source)

    def test_one_version(self) -> None:
        changelog = (TOP / 'debian' / 'changelog').read_text()
        self.assertIn(
            f'scavenger-openstack ({setup()["metadata"]["version"]}) ',
            changelog.partition('\n')[0])

    def test_every_program_has_a_package_and_a_manual(self) -> None:
        packaged = set(re.findall(
            r'install_program,scavenger-\w+,(\w+),', self.rules)) | set(
            ' '.join(re.findall(r'^(?:AGENT|CONTROL) := (.*)$', self.rules,
                                re.M)).split())
        self.assertEqual(programs(), packaged)
        manuals = ''.join(path.read_text() for path in sorted(
            (TOP / 'debian').glob('*.manpages')))
        self.assertEqual(programs(), set(re.findall(
            r'/scavenger-(\w+)\.\d$', manuals, re.M)))

    def test_every_unit_has_a_package(self) -> None:
        for path in (TOP / 'etc' / 'systemd').glob('*.service*'):
            self.assertIn(f',{path.name},', self.rules)

    def test_every_profile_has_a_package_and_is_loaded(self) -> None:
        top = TOP / 'etc' / 'apparmor.d'
        for path in filter(pathlib.Path.is_file, top.rglob('*')):
            self.assertIn(f' {path.relative_to(TOP)}', self.rules)
            if path.parent == top:
                self.assertIn(f' --profile-name={path.name}\n', self.rules)
