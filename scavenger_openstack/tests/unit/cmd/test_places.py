# SPDX-License-Identifier: Apache-2.0

"""The state directory is found in a configuration that is broken."""

from __future__ import annotations

import pathlib

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.cmd import agent
from scavenger_openstack.cmd import places as places_
from scavenger_openstack import conf as conf_

NAMED = '[DEFAULT]\nstate_dir = /x\n'


class PlacesTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.config = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'a.conf'

    def read(self, text: str, *words: str) -> tuple[str, bool]:
        """The state directory, and whether it is guessed."""
        self.config.write_bytes(text.encode('utf-8', 'surrogateescape'))
        found = places_.read(
            [*words, f'--config-file={self.config}'], agent.PROG)
        return str(found.state_dir), found.guessed

    def test_what_can_be_read_counts(self) -> None:
        for text in (NAMED, f'{NAMED}nonsense\n', f'[agent\nmode\n{NAMED}',
                     '[DEFAULT]\nstate-dir: "/x"\n=\n', f' x\n{NAMED}',
                     f'{NAMED}# \udcff\n', f'[DEFAULT]\nstate_dir=/y\n{NAMED}',
                     f'{NAMED}state_dir =\n', '[DEFAULT\nstate_dir = /x\n'):
            self.assertEqual(('/x', False), self.read(text), ascii(text))

    def test_a_default_is_sure_where_all_can_be_read(self) -> None:
        for text in ('', '# x\n\n; y\n', '[a]\nb = c\n  d\n\te\nf: g\n',
                     '[cgroups]\nbackgroud_parents = /x\n'):
            self.assertEqual(('/run/scavenger', False), self.read(text),
                             ascii(text))

    def test_else_it_is_a_guess(self) -> None:
        for text in ('state_dir = /x\n', '[DEFAULT]\nstate_dir /x\n',
                     ' x\n', '[a]\n b\n', '[a]\nb = \udcff\n', '[a\n',
                     '[DEFAULT]\nstate_dir = /\udcff\n', '[a]\n= b\n',
                     '[DEFAULT]\nstate_dir = /x\0y\n',
                     '[DEFAULT]\nstate_dir = $none/x\n'):
            self.assertEqual(('/run/scavenger', True), self.read(text),
                             ascii(text))

    def test_the_command_line_is_sure(self) -> None:
        for path in ('/y', '/run/scavenger'):
            self.assertEqual((path, False), self.read(
                f'{NAMED}nonsense', f'--state-dir={path}'))

    def test_no_file(self) -> None:
        self.config.mkdir()
        found = places_.read([f'--config-file={self.config}'], agent.PROG)
        self.assertTrue(found.guessed)
        self.assertEqual('/var/lib/scavenger/stop', str(found.stop_file))

    def test_the_files_that_the_agent_reads(self) -> None:
        """In the same order, and none of a home directory."""
        root = self.config.parent
        self.patch(conf_, 'DEFAULT_CONFIG', f'{root}/etc')
        self.patch(conf_, 'DEFAULT_CONFIG_DIR', f'{root}/etc.d')
        self.useFixture(fixtures.EnvironmentVariable('HOME', str(root)))
        for name in ('.scavenger/scavenger.conf', 'etc', 'etc.d/a.conf',
                     'd/a.conf', 'd/b.conf', 'a.conf'):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(f'[DEFAULT]\nstate_dir = /{name}\n')
        file, directory = f'--config-file={root}/a.conf', '--config-dir=~/d'
        for words, state_dir in (
                ([], '/etc.d/a.conf'), ([file], '/a.conf'),
                ([directory], '/d/b.conf'), ([directory, file], '/a.conf'),
                ([file, '--config-dir', f'{root}/d'], '/d/b.conf'),
                ([file, file, directory], '/d/b.conf')):
            conf = cfg.ConfigOpts()
            conf_.register(conf)
            conf_.read(conf, words, agent.PROG)
            self.assertEqual(state_dir, conf.state_dir)
            found = places_.read(words, agent.PROG)
            self.assertEqual((state_dir, False), (
                str(found.state_dir), found.guessed), str(words))

    def test_a_directory_that_does_not_exist(self) -> None:
        found = places_.read(
            [f'--config-dir={self.config.parent}/none'], agent.PROG)
        self.assertTrue(found.guessed)
