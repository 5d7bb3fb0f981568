# SPDX-License-Identifier: Apache-2.0

"""The pages of the operator's tasks: what they have typed or written is
taken by the programs.  The functional test of this name runs it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import configparser
import pathlib
import re
import subprocess
import sys
from typing import Any

import fixtures
from openstackclient import shell
from oslo_config import cfg
import testtools

from scavenger_openstack.cmd import agent
from scavenger_openstack.cmd import api
from scavenger_openstack.cmd import conductor
from scavenger_openstack.cmd import manage
from scavenger_openstack.cmd import standalone
from scavenger_openstack.cmd import status
from scavenger_openstack.conductor import sessions
from scavenger_openstack import conf as conf_
from scavenger_openstack.db import connect
from scavenger_openstack import errors
from scavenger_openstack.osc import plugin
from scavenger_openstack import rpc
from scavenger_openstack.tests.unit import console

CLOUD, HOSTS = (console.SOURCE / 'install' / name
                for name in ('cloud.rst', 'ten-hosts.rst'))

PARSERS: dict[str, Callable[[], Any]] = {
    'scavenger-agent': agent.parser, 'scavenger-api': api.parser,
    'scavenger-conductor': conductor.parser,
    'scavenger-manage': manage.parser, 'scavenger-status': status.parser,
    'scavenger-standalone': standalone.parser}

MODULES = {'scavenger-demo': 'scavenger_openstack.cmd.demo',
           'scavenger-restore': 'scavenger_openstack.restore.program'}
"""Programs without a parser that could be asked: of these the help is."""

GROUPS = ('openstack.identity.v3', 'openstack.compute.v2',
          f'openstack.{plugin.API_NAME}.v1')

SYSTEM = frozenset({
    '/opt/scavenger/bin/pip', 'ansible-playbook', 'apparmor_parser',
    'apt-get', 'chmod', 'chown', 'cp', 'curl',
    'dpkg-buildpackage', 'editor', 'eval', 'grep', 'install', 'ip',
    'journalctl', 'ln', 'ls', 'mkdir', 'mysql', 'pip', 'pkg-config',
    'podman', 'python3', 'rabbitmqctl', 'rm',
    'source', 'systemctl', 'systemd-run', 'systemd-sysusers',
    'systemd-tmpfiles', 'tools/demo.sh', 'userdel'})
"""Programs that are not ours, and tools/demo.sh: of these only the files in
the clone are looked for."""


class Commands(testtools.TestCase):

    def parse(self, parser: Any, command: console.Command,
              arguments: Sequence[str]) -> None:
        try:
            parser.parse_args(list(arguments))
        except (SystemExit, errors.ScavengerError) as exc:
            self.fail(f'{command.text}: {exc}')

    def test_each_is_in_a_console_block(self) -> None:
        """A block without a language is run by no test."""
        self.assertGreater(len(console.PAGES), 12)
        self.assertEqual([], [
            f'{console.name(page)}: {line}' for page in console.PAGES
            for line in re.findall(r'(?m)^ *(?!\.\.)\S.*::$|^ *::$',
                                   page.read_text())])

    def test_each_program_is_known(self) -> None:
        self.assertEqual([], [
            command.text for command in console.everything()
            if not command.words[0].rpartition('/')[2].startswith(
                'scavenger-')
            and command.words[0] not in {'openstack', *SYSTEM}])

    def test_ours(self) -> None:
        tried = set()
        for command in console.everything():
            program = command.words[0].rpartition('/')[2]
            if not program.startswith('scavenger-'):
                continue
            tried.add(program)
            if program in PARSERS:
                self.parse(PARSERS[program](), command, command.words[1:])
            else:
                text = subprocess.run(
                    [sys.executable, '-m', MODULES[program], '--help'],
                    check=True, capture_output=True, text=True).stdout
                for word in command.words[1:]:
                    if word.startswith('-'):
                        self.assertRegex(text, rf'(?m){word}\b', command.text)
        self.assertLessEqual({'scavenger-agent', 'scavenger-demo',
                              'scavenger-manage', 'scavenger-restore',
                              'scavenger-standalone', 'scavenger-status'},
                             tried)

    def test_openstack(self) -> None:
        typed = [command for command in console.everything()
                 if command.words[0] == 'openstack']
        self.assertGreater(len(typed), 50)
        app = shell.OpenStackShell()
        for group in GROUPS:
            app.command_manager.add_command_group(group)
        for command in typed:
            made, name, arguments = app.command_manager.find_command(
                list(command.words[1:]))
            self.parse(made(app, None, cmd_name=name).get_parser(name),
                       command, arguments)

    def test_files_of_the_clone(self) -> None:
        for command in console.everything():
            for word in command.words:
                if re.match(r'(etc|tools)/', word):
                    self.assertNotEqual([], list(console.TOP.glob(word)),
                                        command.text)

    def test_the_clone_can_be_installed(self) -> None:
        """pbr takes files, and "*" for all of a directory."""
        setup = configparser.ConfigParser()
        setup.read(console.TOP / 'setup.cfg')
        sources = [word for line in setup['files']['data_files'].splitlines()
                   for word in line.partition('=')[2].split() or [line.strip()]
                   if word and not line.endswith('=')]
        self.assertGreater(len(sources), 5)
        for source in sources:
            self.assertTrue((console.TOP / source.removesuffix('/*')).exists(),
                            source)

    def test_users_and_modes(self) -> None:
        """What has a password is for the user whose program reads it."""
        modes: dict[str, set[tuple[str, str]]] = {}
        for page in (CLOUD, HOSTS):
            typed = list(console.commands(page))
            for chmod, chown in zip(*(
                    [command.words[1:] for command in typed
                     if command.words[0] == program]
                    for program in ('chmod', 'chown')), strict=True):
                self.assertEqual(chmod[1:], chown[1:])
                for path in chmod[1:]:
                    modes.setdefault(path, set()).add((chmod[0], chown[0]))
        self.assertEqual(
            {'/etc/scavenger/scavenger.conf': {
                ('640', 'root:scavenger-control'),
                ('600', 'scavenger:scavenger')},
             '/etc/scavenger/token': {('600', 'scavenger:scavenger')}}, modes)

    def test_the_broker_is_reached(self) -> None:
        """The agent's unit forbids all addresses: before it starts there is
        a drop-in, and it is edited."""
        typed = [command.words for command in console.commands(HOSTS)]
        [copied] = [words[2] for words in typed if words[0] == 'cp']
        edited = typed.index(('editor', copied))
        started = typed.index(('systemctl', 'enable', '--now',
                               'scavenger-restore', 'scavenger-agent'))
        self.assertLess(edited, started)
        self.assertIn('IPAddressAllow=', (
            console.TOP / 'etc/systemd/control-plane.conf.example'
        ).read_text())

    def test_what_a_unit_starts_is_in_its_path(self) -> None:
        """systemd looks for it in /usr/local/bin, not in a virtual
        environment."""
        linked = {word.rpartition('/')[2] for command in
                  console.commands(CLOUD) if command.words[0] == 'ln'
                  for word in command.words[2:-1]}
        for word in (command.words[1] for command in console.commands(CLOUD)
                     if command.words[0] == 'cp'
                     and '/systemd/' in command.words[1]):
            [program] = re.findall(r'(?m)^ExecStart=(\S+)', (
                console.TOP / word).read_text())
            self.assertTrue(any(pathlib.PurePath(program).match(name)
                                for name in linked), program)


class Files(testtools.TestCase):

    def conf(self, text: str) -> cfg.ConfigOpts:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'f')
        path.write_text(text)
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(path)], 'scavenger-conductor')
        return conf

    def test_each(self) -> None:
        texts = [text for page in console.PAGES
                 for text in console.blocks(page, 'ini')]
        self.assertGreater(len(texts), 6)
        for text in texts:
            self.conf(text)

    def test_of_the_control_plane(self) -> None:
        [text] = console.blocks(CLOUD, 'ini')
        conf = self.conf(text)
        self.assertTrue(conf.nova.enabled)
        self.assertEqual('https://controller:5000',
                         vars(sessions.make_session(conf).auth)['auth_url'])

    def test_of_a_host(self) -> None:
        [text] = console.blocks(HOSTS, 'ini')
        conf = self.conf(text)
        self.assertTrue(conf.conductor.enabled)
        self.assertIsNone(conf.database.connection)
        self.assertEqual([], conf.agent.protect)

    def test_nothing_crosses_the_network_in_the_clear(self) -> None:
        """Broker and database show a certificate, which is checked."""
        for page in (CLOUD, HOSTS):
            [text] = console.blocks(page, 'ini')
            conf = self.conf(text)
            rpc.register(conf)
            self.assertIn(':5671/', conf.transport_url)
            self.assertTrue(conf.oslo_messaging_rabbit.ssl)
            self.assertTrue(conf.oslo_messaging_rabbit.ssl_ca_file)
            if conf.database.connection:
                engine = connect.engine(conf.database.connection)
                _, options = engine.dialect.create_connect_args(engine.url)
                self.assertEqual(conf.oslo_messaging_rabbit.ssl_ca_file,
                                 options['ssl']['ca'])
